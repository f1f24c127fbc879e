package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ARCHITECTURE's table of the files of zactor names each file, and none that is not there.
func TestFileMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "### Which file")
	table, _, more := strings.Cut(table, "###")
	if !ok || !more {
		t.Fatal("ARCHITECTURE.md has no section \"Which file\" with one behind it")
	}
	named := map[string]bool{"doc.go": true} // nobody looks for it there
	for _, m := range regexp.MustCompile("`([a-z]+\\.go)`").FindAllStringSubmatch(table, -1) {
		named[m[1]] = true
	}
	files, err := filepath.Glob("../../zactor/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		if !strings.HasSuffix(name, "_test.go") && !named[name] {
			t.Errorf("zactor/%s is not in the table", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("the table names %s, which zactor does not have", name)
	}
}
