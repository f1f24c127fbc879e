package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every test that docs/faults.md names is there, also one of a suite that drivers run.
func TestFaultsAreTested(t *testing.T) {
	doc, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z/]+)\\.([Tt]est\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) == 0 {
		t.Fatal("no test is named")
	}
	for _, n := range regexp.MustCompile("`([a-z/]+\\.test\\.(?:ts|mjs))`").FindAllStringSubmatch(string(doc), -1) {
		if _, err := os.Stat(filepath.Join("../..", n[1])); err != nil {
			t.Errorf("docs/faults.md: %v", err)
		}
	}
	for _, n := range names {
		files, err := filepath.Glob(filepath.Join("../..", n[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || regexp.MustCompile(`(?m)^func `+n[2]+`\(`).Match(src)
		}
		if !found {
			t.Errorf("docs/faults.md: there is no test %s in %s", n[2], n[1])
		}
	}
}
