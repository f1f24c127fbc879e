package znode

import (
	"flag"
	"os"
	"strings"
	"testing"

	"zgame/internal/settings"
)

var updateDoc = flag.Bool("update", false, "write docs/settings.md as the settings are")

const settingsDoc = "../docs/settings.md"

// docs/settings.md is what the settings are; each says what it is for.
func TestSettingsDoc(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	s.Node.ID, s.Node.LockDir = "the host's name", "in the user's cache directory" // of this machine
	table := settings.Table(&s)
	for line := range strings.Lines(table) {
		if strings.HasSuffix(line, "|  |\n") {
			t.Errorf("%q has no help tag", line)
		}
	}
	doc, err := os.ReadFile(settingsDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(doc), "\n## ")
	if !ok {
		t.Fatal("docs/settings.md has no tables")
	}
	want := head + "\n" + table
	if *updateDoc {
		if err := os.WriteFile(settingsDoc, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if want != string(doc) {
		t.Error("docs/settings.md is not what the settings are: go test ./znode -run SettingsDoc -update")
	}
}
