package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/lines.md says how many lines of code the chat examples have, without blank ones and comments; a room stays as small as it is said to be.
func TestLinesOfCode(t *testing.T) {
	var b strings.Builder
	count := func(what, want string, most int, patterns ...string) {
		n := 0
		for _, p := range patterns {
			files, err := filepath.Glob(filepath.Join("../..", p))
			if err != nil || len(files) == 0 {
				t.Fatal(p, err)
			}
			for _, f := range files {
				if !strings.HasSuffix(f, "_test.go") {
					n += linesOf(t, f)
				}
			}
		}
		if most > 0 && n > most {
			t.Errorf("%s has %d lines, at most %d were promised", what, n, most)
		}
		fmt.Fprintf(&b, "| %s | %s | %d |\n", what, want, n)
	}
	count("[a room](../examples/room/room.go) and its [main](../examples/room/cmd/room/main.go), Go", "40", 40, "examples/room/*.go", "examples/room/cmd/room/*.go")
	count("[its client](../examples/room/room.ts), TypeScript", "8", 8, "examples/room/*.ts")
	count("[chat](../examples/chat): members, notices, limits, whispers, bots, Go", "", 0, "examples/chat/*.go", "examples/chat/bots/*.go", "examples/chat/cmd/chat/*.go")
	count("[friends](../examples/friend), Go", "", 0, "examples/friend/*.go", "examples/friend/cmd/friend/*.go")
	count("[the page of both](../examples/web), TypeScript", "", 0, "examples/web/*.ts")
	doc, err := os.ReadFile("../../docs/lines.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), b.String()) {
		t.Errorf("docs/lines.md has other numbers than there are lines; it should say\n%s", b.String())
	}
}

var comment = regexp.MustCompile(`^\s*(//.*)?$`)

func linesOf(t *testing.T, file string) (n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !comment.MatchString(strings.TrimSuffix(line, "\n")) {
			n++
		}
	}
	return n
}
