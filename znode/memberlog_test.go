package znode_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"zgame/znode"
)

// The log tells who comes, who leaves and who is lost, by the name that the node itself has logged.
func TestMembersAreLogged(t *testing.T) {
	t.Parallel()
	r := newRig()
	var log bytes.Buffer
	cfg := r.config("a", znode.App{})
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	a, err := znode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sees := func(n int) { eventually(t, "the list is right", func() bool { return len(a.Nodes()) == n }) }
	cfg = r.config("b", znode.App{})
	cfg.Settings.Drain.Announce = patience // a busy machine may need long to tell a
	drained := start(t, cfg)
	first := drained.Self()
	sees(2)
	stop(t, drained)
	sees(1)
	lost := start(t, r.config("c", znode.App{}))
	second := lost.Self()
	sees(2)
	r.disc.Expire("c")
	eventually(t, "c is in the cluster again", func() bool { return lost.Self() != second })
	third := lost.Self()
	eventually(t, "a knows", func() bool {
		for _, n := range a.Nodes() {
			if n.Ref == third {
				return true
			}
		}
		return false
	})
	stop(t, a) // nobody writes to the log any more
	rest := log.String()
	for _, want := range []string{
		`"node is ready" node=a self=` + a.Self().String(), `"node joined" node=a joined=` + first.String(), `"node left" node=a left=` + first.String(),
		`joined=` + second.String(), `"node left without a word that it drains" node=a left=` + second.String(), `joined=` + third.String(),
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("no %s in the rest of the log:\n%s", want, log.String())
		}
		rest = after
	}
}
