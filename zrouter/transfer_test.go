package zrouter_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// transfer moves the log k, and fails the test where that does not work.
func (n *testNode) transfer(k string, to *testNode, opts ...zrouter.TransferOption) zrouter.Route {
	n.w.t.Helper()
	r, err := n.set.Transfer(n.w.t.Context(), key(k), to.ref, opts...)
	if err != nil {
		n.w.t.Fatalf("transfer of %s from %s to %s: %v", k, n.ref, to.ref, err)
	}
	return r
}

// The owner changes with the state, in one write, and the version rises by one.
func TestTransfer(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		w := newWorld(t, "a", "b", "c")
		a, b, c := w.order[0], w.order[1], w.order[2]
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		if n, err := a.append("k", "one"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var opts []zrouter.TransferOption
		if silent {
			opts = append(opts, zrouter.WithoutNotify())
		}
		r := a.transfer("k", b, opts...)
		if r.Owner != b.ref || r.Version != 2 {
			t.Fatalf("the route is %+v", r)
		}
		rec, err := w.record("k")
		if err != nil || rec.Own.Node != b.ref || !slices.Equal(decode(t, rec.State).Lines, []string{"one"}) {
			t.Fatalf("the record is %+v, %v", rec, err)
		}
		if again := a.transfer("k", b); again != r {
			t.Errorf("the same once more gives %+v", again)
		}
		for i, n := range []*testNode{a, b, c} {
			if got, err := n.append("k", "more"); got != int64(i+2) || err != nil {
				t.Errorf("%s: %d, %v", n.ref, got, err)
			}
		}
		var moved *zrouter.RouteError
		if _, err := a.set.Transfer(t.Context(), key("k"), c.ref); !errors.Is(err, zrouter.ErrMoved) || !errors.As(err, &moved) || moved.Route != r {
			t.Errorf("of what is another's: %v", err)
		}
	}
}

// own makes the log k one of n.
func (w *world) own(n *testNode, k string) (zrouter.Route, error) {
	m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
	if err != nil {
		return zrouter.Route{}, err
	}
	return m.MutableObject(w.t.Context(), key(k), new(testpb.Log))
}

// P5: many callers, and the object moves to and fro meanwhile: each request is run once, in its caller's order.
func TestTransferUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	if _, err := w.own(w.order[0], "k"); err != nil {
		t.Fatal(err)
	}
	const callers, each, moves = 6, 60, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			n := w.order[c%3]
			for i := range each {
				if _, err := n.append("k", string(rune('A'+c))+string(rune('0'+i))); err != nil {
					t.Errorf("caller %d: %v", c, err)
				}
			}
		})
	}
	at := 0
	for range moves {
		to := (at + 1) % 3
		w.order[at].transfer("k", w.order[to])
		at = to
	}
	wg.Wait()
	lines, err := w.order[0].lines("k")
	if err != nil {
		t.Fatal(err)
	}
	next := map[byte]rune{}
	for _, l := range lines {
		if want := string(l[0]) + string('0'+next[l[0]]); l != want {
			t.Fatalf("%q stands where %q should", l, want)
		}
		next[l[0]]++
	}
	if len(lines) != callers*each {
		t.Errorf("%d lines of %d", len(lines), callers*each)
	}
	rec, err := w.record("k")
	if err != nil || rec.Own.Version != moves+1 {
		t.Errorf("version %d after %d moves, %v", rec.Own.Version, moves, err)
	}
}

var _ = zmsg.ErrBusy
