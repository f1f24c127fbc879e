// Package doctest holds the documents to the tree: their links lead to files that are there, and what they name exists.
package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s#]+)(#[^)]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	const root = "../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root && d.Name() != "..") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("only %d links found: the walk does not see the documents", found)
	}
}

// README's two commands are what a newcomer types: they must be there, and mean something.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"go run ./cmd/gameserver\n", "make test\n"} {
		if !strings.Contains(string(readme), c) {
			t.Errorf("README lacks the command %q", c)
		}
	}
	if _, err := os.Stat("../../cmd/gameserver/main.go"); err != nil {
		t.Error(err)
	}
}
