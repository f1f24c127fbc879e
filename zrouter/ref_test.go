package zrouter_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// A ref to an object works as any other ref, from outside and from actors, in order.
func TestRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	for i, n := range w.all() {
		ref := n.set.Ref(key("x"))
		if err := ref.Tell(&testpb.Note{Log: "x", Line: fmt.Sprint("tell ", i)}); err != nil {
			t.Fatal(err)
		}
		// A request behind it, from the same sender, is handled behind it. Links of these tests keep no order, so only where it is local.
		if _, err := zactor.Ask[testpb.Appended](t.Context(), ref, &testpb.Append{Log: "x", Line: fmt.Sprint("ask ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all lines are there", func() bool {
		got, err := w.all()[0].lines("x")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		return slices.Equal(got, []string{"ask 0", "ask 1", "tell 0", "tell 1"})
	})
}

// mirror is a kind whose objects ask another object, or themselves.
func mirror() zrouter.Kind[*testpb.Log] {
	return zrouter.Kind[*testpb.Log]{
		Type: 8, Name: "mirror", Version: 1,
		Create: func(zmsg.Key) (*testpb.Log, error) { return new(testpb.Log), nil },
		Handlers: []zrouter.Handler[*testpb.Log]{
			zrouter.Handle(func(c *logContext, req *testpb.Get) (*testpb.Lines, error) {
				to := zmsg.Key{Type: 8, ID: req.Log}
				return zactor.Call[testpb.Lines](c.Context, c.Object(to), &testpb.Get{Log: c.Key().ID})
			}),
		},
	}
}

// Objects that wait for each other in a circle learn that at once, also over nodes.
func TestCycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{}, mirror())
	}
	for _, pair := range [][2]string{{"x", "x"}, {"x", "y"}, {"p", "q"}, {"r", "s"}} {
		k := zmsg.Key{Type: 8, ID: pair[0]}
		_, err := zrouter.Call[testpb.Lines](t.Context(), w.all()[0].set, k, &testpb.Get{Log: pair[1]})
		if !errors.Is(err, zmsg.ErrCycle) {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

// Objects that ask others while they are loaded do not wait for a place among the loads.
func TestActivateAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := logs()
	k.OnActivate = func(c *logContext) error {
		id := c.Key().ID
		if id == "0" {
			return nil
		}
		n, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		to := strconv.Itoa(n - 1)
		_, err = zactor.Call[testpb.Lines](c.Context, c.Object(key(to)), &testpb.Get{Log: to})
		return err
	}
	a := w.start("a", zrouter.Settings{StoreOps: 2}, k)
	if n, err := a.append("30", "1"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
