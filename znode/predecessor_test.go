package znode

import (
	"os"
	"path/filepath"
	"testing"

	"zgame/zdiscovery"
)

func TestPredecessor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "some", "where")
	lock := func(boot string) *predecessor {
		t.Helper()
		p, err := lockNodeFile(path, boot)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := lock("boot1")
	record := zdiscovery.Node{Lock: first.token()}
	if record.Lock == "" || first.gone(record) || first.gone(zdiscovery.Node{}) {
		t.Errorf("the first has the token %q, and knows of one before", record.Lock)
	}
	if _, err := lockNodeFile(path, "boot1"); err == nil {
		t.Fatal("two have the file")
	}
	first.close()
	second := lock("boot1")
	if !second.gone(record) || second.gone(zdiscovery.Node{Lock: second.token()}) || second.gone(zdiscovery.Node{Lock: "other"}) {
		t.Error("the second does not know the first, or one that is not")
	}
	second.close()
	third := lock("boot1")
	if third.gone(record) {
		t.Error("the third knows the first: who has written since may have been its successor")
	}
	last := zdiscovery.Node{Lock: third.token()}
	third.close()
	other := lock("boot2") // the same file after a restart of the machine, or on another one
	if other.gone(last) {
		t.Error("a token of another boot proves something")
	}
	other.close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := lock("boot2")
	if empty.gone(zdiscovery.Node{}) {
		t.Error("nothing proves something")
	}
	empty.close()
	var nobody *predecessor
	if nobody.gone(record) || nobody.token() != "" {
		t.Error("nil knows something")
	}
	nobody.close()
}
