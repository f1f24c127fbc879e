package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in these documents is code that runs: each block stands in an example, or a test, of the package, line for line.
func TestSnippetsAreTested(t *testing.T) {
	for _, d := range []struct {
		doc, pkg string
		least    int // blocks of code, else the search is broken
	}{{"actors.md", "zactor", 5}, {"routing.md", "zroute", 2}, {"topics.md", "zactor", 3}, {"singletons.md", "znode", 2}, {"objects.md", "zrouter", 2}, {"testing.md", "examples/game", 5}} {
		doc, err := os.ReadFile(filepath.Join("../../docs", d.doc))
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join("../..", d.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
		if len(blocks) < d.least {
			t.Errorf("%s: only %d blocks of code found", d.doc, len(blocks))
		}
		for _, b := range blocks {
			if !strings.Contains(code.String(), b[1]) {
				t.Errorf("%s: no example of %s has this code:\n%s", d.doc, d.pkg, b[1])
			}
		}
	}
}
