package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in docs/actors.md is code that runs: each block stands in an example of zactor, line for line.
func TestSnippetsAreTested(t *testing.T) {
	doc, err := os.ReadFile("../../docs/actors.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../zactor/*example*_test.go")
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
	if len(blocks) < 5 {
		t.Errorf("only %d blocks of code found", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), b[1]) {
			t.Errorf("no example of zactor has this code:\n%s", b[1])
		}
	}
}
