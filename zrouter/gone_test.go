package zrouter_test

import (
	"testing"

	"zgame/zdiscovery"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// A node that is gone by the list, and is there all the same, cut off from discovery alone: its objects are taken over, though routes
// lead to it and it answers.
func TestOwnerIsGoneAndAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "n1", "n2")
	old, other := w.all()[0], w.all()[1]
	m, err := zrouter.ManagerOf[*testpb.Log](old.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.MutableObject(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := other.keep("x", "saved"); err != nil {
		t.Fatal(err)
	}
	old.until.Store(1) // its lease is over
	s := *w.snap.Load()
	s.Revision++
	s.Nodes = []zdiscovery.Node{{Ref: other.ref, State: zdiscovery.Ready, Kinds: other.set.Kinds()}}
	w.snap.Store(&s)
	if n, err := other.append("x", "by the other"); err != nil || n != 2 {
		t.Errorf("got %d, %v; want the second line", n, err)
	}
	if rec, err := w.record("x"); err != nil || rec.Own.Node != other.ref || rec.Own.Version != 2 {
		t.Errorf("the record is %v's since version %d, %v", rec.Own.Node, rec.Own.Version, err)
	}
}
