package scaffold

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	element = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9_.~-]*$`)
	major   = regexp.MustCompile(`^v[0-9]+$`)
)

// reserved are first elements of paths that mean something to Go: packages of its library, and words of its command.
var reserved = strings.Fields("all archive arena bufio builtin bytes cmd cmp compress container context crypto database debug embed encoding errors example expvar flag " +
	"fmt go hash html image index internal io iter log main maps math mime net os path plugin reflect regexp runtime simd slices sort std strconv strings structs sync " +
	"syscall test testing text time tool unicode unique unsafe vendor weak work")

// checkModule says what is wrong with the path of a module.
func checkModule(path string) error {
	const expected = "\n  expected the path of a Go module, such as mygame or example.com/me/mygame"
	if len(path) > 200 {
		return fmt.Errorf("the name is %d bytes long, at most 200 are good%s", len(path), expected)
	}
	for i, e := range strings.Split(path, "/") {
		switch {
		case e == "":
			return fmt.Errorf("%q has an empty part between slashes%s", path, expected)
		case !element.MatchString(e) || strings.HasSuffix(e, "."):
			return fmt.Errorf("%q: %q is not made of letters, digits, '-', '_', '~' and dots within%s", path, e, expected)
		case i == 0 && slices.Contains(reserved, e):
			return fmt.Errorf("%q: Go has %q for itself%s", path, e, expected)
		case i == 0 && e == "zgame":
			return fmt.Errorf("%q: zgame is the framework's own path%s", path, expected)
		case i == 0 && major.MatchString(e) && e == path:
			return fmt.Errorf("%q is a version, and no name%s", path, expected)
		case major.MatchString(e) && strings.HasSuffix(path, "/"+e) && (strings.HasPrefix(e, "v0") || e == "v1"):
			return fmt.Errorf("%q: a path ends with a version from /v2 on only%s", path, expected)
		}
	}
	return nil
}

// dirName is the last part of a path that is not a version.
func dirName(path string) string {
	parts := strings.Split(path, "/")
	if n := len(parts); n > 1 && major.MatchString(parts[n-1]) {
		parts = parts[:n-1]
	}
	return parts[len(parts)-1]
}

// label makes a name a DNS label.
func label(name string) string {
	l := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-")
	if l = strings.Trim(l, "-"); l == "" || l[0] >= '0' && l[0] <= '9' {
		l = "game-" + l // services of Kubernetes begin with a letter
	}
	return strings.Trim(l[:min(len(l), 40)], "-")
}
