package zmetrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/metrics.md as the metrics are")

const doc = "../docs/metrics.md"

// Every set is in the catalogue, and docs/metrics.md is the catalogue.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("catalogue.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (New\w+)\(reg Registerer\)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(src), "\t"+m[1]+"(&c)\n") {
				t.Errorf("%s of %s is not in the catalogue", m[1], f)
			}
		}
	}
	all := Catalogue()
	if len(all) < 50 {
		t.Fatalf("only %d metrics", len(all))
	}
	seen := map[string]bool{}
	var b strings.Builder
	section := ""
	for _, m := range all {
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		if m.Help == "" {
			t.Errorf("%s has no help", m.Name)
		}
		if (m.Type == "counter") != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s is a %s: counters end with _total, and nothing else does", m.Name, m.Type)
		}
		if s := strings.SplitN(m.Name, "_", 3)[1]; s != section {
			section = s
			fmt.Fprintf(&b, "\n## %s\n\n| metric | | labels | |\n|---|---|---|---|\n", s)
		}
		labels := ""
		if m.Labels != nil {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(m.Help))
	}
	old, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(old), "\n## ")
	if !ok {
		t.Fatal("docs/metrics.md has no tables")
	}
	want := head + "\n" + strings.TrimPrefix(b.String(), "\n")
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if want != string(old) {
		t.Error("docs/metrics.md is not what the metrics are: go test ./zmetrics -run Catalogue -update")
	}
}
