package scaffold

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// framework is the module that projects build against.
const framework = "zgame"

// findFramework returns the checkout to build against: what was given, or what this program was built from.
func findFramework(given string) (string, error) {
	dir, whose := given, "--framework"
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir, whose = filepath.Join(filepath.Dir(file), "..", ".."), "the checkout that this program was built from"
		if !filepath.IsAbs(file) {
			return "", fmt.Errorf("where the checkout of %s is that this program was built from is not known (it was built with -trimpath): say --framework DIR", framework)
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--framework: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: looked for %s, and %w\n  say --framework DIR, the directory of a checkout of %s", whose, filepath.Join(dir, "go.mod"), err, framework)
	case moduleOf(text) != framework:
		return "", fmt.Errorf("%s: %s is of the module %q, expected %q\n  say --framework DIR, the directory of a checkout of %s", whose, filepath.Join(dir, "go.mod"), moduleOf(text), framework, framework)
	}
	return dir, nil
}

func moduleOf(mod []byte) string {
	for line := range strings.Lines(string(mod)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "module" {
			return words[1]
		}
	}
	return ""
}

var required = regexp.MustCompile(`(?m)^(?:require )?\t?(\S+) (v\S+)(?: // indirect)?$`)

// goMod makes go.mod and go.sum of the framework's own: what it was built with is what the project needs, so nobody asks the network.
func (p *project) goMod(files map[string][]byte) (map[string][]byte, error) {
	mod, err := os.ReadFile(filepath.Join(filepath.FromSlash(p.Framework), "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(filepath.FromSlash(p.Framework), "go.sum"))
	if err != nil {
		return nil, err
	}
	imports, err := importsOf(files)
	if err != nil {
		return nil, err
	}
	direct, indirect := []string{framework + " v0.0.0"}, []string{}
	for _, m := range required.FindAllStringSubmatch(string(mod), -1) {
		line := m[1] + " " + m[2]
		if slices.ContainsFunc(imports, func(i string) bool { return i == m[1] || strings.HasPrefix(i, m[1]+"/") }) {
			direct = append(direct, line)
		} else {
			indirect = append(indirect, line+" // indirect")
		}
	}
	slices.Sort(direct)
	slices.Sort(indirect)
	var b bytes.Buffer
	fmt.Fprintf(&b, "module %s\n\n", p.Module)
	for line := range strings.Lines(string(mod)) {
		if words := strings.Fields(line); len(words) == 2 && (words[0] == "go" || words[0] == "toolchain") {
			fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(line))
		}
	}
	fmt.Fprintf(&b, "replace %s => %s\n\n", framework, quoted(p.Framework))
	fmt.Fprintf(&b, "tool %s/cmd/gameserver\n\n", framework)
	for _, list := range [][]string{direct, indirect} {
		fmt.Fprintf(&b, "require (\n\t%s\n)\n\n", strings.Join(list, "\n\t"))
	}
	return map[string][]byte{"go.mod": append(bytes.TrimSpace(b.Bytes()), '\n'), "go.sum": sum}, nil
}

// quoted is a path as go.mod wants it.
func quoted(path string) string {
	if strings.ContainsAny(path, " \t\"'`()[]{},") || strings.Contains(path, "//") {
		return strconv.Quote(path)
	}
	return path
}

// importsOf returns what Go files import.
func importsOf(files map[string][]byte) (list []string, err error) {
	for name, text := range files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: import %s: %w", name, i.Path.Value, err)
			}
			list = append(list, path)
		}
	}
	return list, nil
}
