package zrouter_test

import (
	"errors"
	"fmt"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// A rolling update that changes the schema: what a new node has written lives at new nodes, whatever the hash says; while there is none it
// is refused, and nothing else is.
func TestRollingUpdateOfAState(t *testing.T) {
	t.Parallel()
	const ids = 60
	v2 := logs()
	v2.Version, v2.Migrate = 2, func(_ uint32, raw []byte) (*testpb.Log, error) { return zrouter.Proto[*testpb.Log]().Decode(raw) }
	w := newWorld(t, "old-1", "old-2")
	first, old := w.all()[0], w.all()[1]
	first.fill(t, ids)
	new1 := w.start("new-1", zrouter.Settings{}, v2)
	new2 := w.start("new-2", zrouter.Settings{}, v2)
	// drain gives up what a node has, and says who has it now.
	drain := func(n *testNode) map[string]int {
		w.leave(n)
		rep, err := n.set.Drain(t.Context())
		if err != nil || rep.Phase != zrouter.DrainDone || rep.Retries != 0 {
			t.Fatalf("%s: %+v, %v", n.ref.ID, rep, err)
		}
		return rep.To
	}
	if to := drain(first); to["old-2"] == 0 || to["new-1"] == 0 || to["new-2"] == 0 {
		t.Errorf("an old node's objects went to %v, and any node could have them", to)
	}
	var newer []string // their states are of version 2
	for i := range ids {
		k := fmt.Sprint(i)
		rec, err := w.record(k)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Own.Node == old.ref {
			continue
		}
		if _, err := old.keep(k, "x"); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		newer = append(newer, k)
	}
	if to := drain(new1); to["new-2"] == 0 || len(to) != 1 {
		t.Errorf("a new node's objects went to %v, and new-2 alone can have them", to)
	}
	if to := drain(new2); len(to) != 0 {
		t.Errorf("the last new node's objects went to %v, and nobody can have them", to)
	}
	w.remove(new1)
	w.remove(new2)
	for _, k := range newer {
		if _, err := old.append(k, "y"); !errors.Is(err, zrouter.ErrSchema) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%s, with old nodes alone: %v", k, err)
		}
	}
	third := w.start("new-3", zrouter.Settings{}, v2)
	for i, k := range newer { // the hash gives half of them to the old node
		n, err := []*testNode{old, third}[i%2].append(k, "z")
		if rec, rerr := w.record(k); err != nil || n != 2 || rerr != nil || rec.Own.Node != third.ref {
			t.Errorf("%s: %d, %v; it is %v's, %v", k, n, err, rec.Own.Node, rerr)
		}
	}
	if n, err := third.append("another", "1"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
