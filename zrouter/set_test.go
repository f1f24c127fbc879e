package zrouter_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// Any node reaches the object, which lives on one.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	var want []string
	for i := range 30 {
		n := w.all()[i%3]
		line := fmt.Sprint(i)
		want = append(want, line)
		if got, err := n.append("x", line); err != nil || got != int64(i+1) {
			t.Fatalf("append %d at %s: %d, %v", i, n.ref, got, err)
		}
	}
	for _, n := range w.all() {
		if got, err := n.lines("x"); err != nil || !slices.Equal(got, want) {
			t.Errorf("at %s: %v, %v", n.ref, got, err)
		}
	}
	rec, err := w.record("x")
	if err != nil || rec.Own.Version != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// What was acknowledged as durable is in the store before the answer.
func TestDurable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a := w.all()[0]
	for i := range 20 {
		if _, err := a.keep("x", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		rec, err := w.record("x")
		if err != nil {
			t.Fatal(err)
		}
		s := decode(t, rec.State)
		if len(s.Lines) != i+1 {
			t.Fatalf("after %d: %v", i, s.Lines)
		}
	}
}

// A panic never saves a state that is half changed: the last saved one is loaded again.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.all()[0]
	if _, err := a.keep("x", "1"); err != nil {
		t.Fatal(err)
	}
	_, err := zrouter.Call[testpb.Lines](t.Context(), a.set, key("x"), &testpb.Boom{Log: "x"})
	if !errors.Is(err, zmsg.ErrPanicked) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("%v", err)
	}
	if got, err := a.lines("x"); err != nil || !slices.Equal(got, []string{"1"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// A node that is gone is followed by another, with what was saved.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	if _, err := w.all()[0].keep("x", "1"); err != nil {
		t.Fatal(err)
	}
	rec, _ := w.record("x")
	owner := w.nodes[rec.Own.Node]
	w.remove(owner)
	for i, n := range w.all() {
		if got, err := n.keep("x", "more"); err != nil || got != int64(i+2) {
			t.Fatalf("%d, %v", got, err)
		}
	}
	if rec, _ = w.record("x"); rec.Own.Version != 2 || rec.Own.Node == owner.ref {
		t.Errorf("%+v", rec)
	}
	// The old owner, which does not know, cannot write.
	if _, err := owner.keep("x", "late"); err == nil {
		t.Error("the old owner has saved")
	}
}

func TestRemoveAndDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a := w.all()[0]
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := m.Do(ctx, key("x"), func(c *logContext) error { add(c, "done"); return nil }); err != nil {
		t.Fatal(err)
	}
	if r, err := m.MutableCache(ctx, key("x")); err != nil || r.Owner != a.ref || r.Version != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := m.MutableCache(ctx, key("y")); !errors.Is(err, zrouter.ErrNotFound) {
		t.Errorf("%v", err)
	}
	other := w.all()[1]
	mo, _ := zrouter.ManagerOf[*testpb.Log](other.set, 7)
	if _, err := mo.MutableObject(ctx, key("x")); !errors.Is(err, zrouter.ErrMoved) {
		t.Errorf("%v", err)
	}
	if err := m.Remove(ctx, key("x")); err != nil {
		t.Fatal(err)
	}
	rec, err := w.record("x")
	if err != nil || !rec.Own.Node.IsZero() || rec.Own.Version != 2 || len(decode(t, rec.State).Lines) != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	if r, err := mo.MutableObject(ctx, key("x")); err != nil || r.Owner != other.ref || r.Version != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}
