package zrouter_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// The conditions of a move without interruption that docs/objects.md names, each by itself. That of sessions is ztest.TestBoundSessionsMove.

// 1. What the state has moves by itself; what is in no field of it, such as a timer, moves if the kind hands it over, and else does not.
func TestConditionStateAndAttachment(t *testing.T) {
	t.Parallel()
	for _, hands := range []bool{true, false} {
		w := newWorld(t)
		ticks := make(chan string, 1000)
		kind := func(node string) zrouter.AnyKind {
			k := logs()
			timer := func(c *logContext, n int) {
				c.Every(time.Millisecond, func(*logContext) {
					select {
					case ticks <- node + strconv.Itoa(n):
					default:
					}
				})
			}
			k.Handlers[3] = zrouter.Handle(func(c *logContext, _ *testpb.Boom) (*testpb.Lines, error) { timer(c, 7); return &testpb.Lines{}, nil })
			if hands {
				k.OnHandoff = func(*logContext) ([]byte, error) { return []byte("7"), nil }
				k.OnAdopt = func(c *logContext, attachment []byte) error {
					n, err := strconv.Atoi(string(attachment))
					timer(c, n)
					return err
				}
			}
			return k
		}
		a := w.start("a", zrouter.Settings{}, kind("a"))
		b := w.start("b", zrouter.Settings{}, kind("b"))
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.append("k", "state"); err != nil {
			t.Fatal(err)
		}
		if _, err := zrouter.Call[testpb.Lines](t.Context(), a.set, key("k"), &testpb.Boom{Log: "k"}); err != nil {
			t.Fatal(err)
		}
		if got := <-ticks; got != "a7" {
			t.Errorf("the timer says %s", got)
		}
		a.transfer("k", b)
		if got, err := b.lines("k"); err != nil || !slices.Equal(got, []string{"state"}) {
			t.Errorf("%q, %v", got, err)
		}
		if hands {
			eventually(t, "the timer runs at the new owner", func() bool { return <-ticks == "b7" })
		} else if r, err := w.record("k"); err != nil || len(r.Attachment) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// 2. Both nodes, the store and the bus live. Where the target dies behind the commit there is an interruption, until it is proven dead; what
// comes meanwhile is told that it was not executed, and nothing is lost.
func TestConditionNodesLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.order[0], w.order[1]
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.keep("k", "one"); err != nil {
		t.Fatal(err)
	}
	a.transfer("k", b)
	b.down.Store(true)
	if _, err := a.append("k", "lost"); !errors.Is(err, zmsg.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("while nobody knows that it is dead: %v", err)
	}
	w.remove(b)
	if n, err := a.append("k", "two"); n != 2 || err != nil {
		t.Error(n, err)
	}
	if r, err := w.record("k"); err != nil || r.Own.Node != a.ref || r.Own.Version != 3 {
		t.Errorf("%+v, %v", r.Own, err)
	}

	// The store does not answer: it stays where it is, and serves from memory.
	c := w.start("c", zrouter.Settings{}, logs())
	a.store.SetFaults(func(zstore.Op, zmsg.Key) memstore.Fault { return memstore.Fault{Kind: memstore.Unavailable} })
	if _, err := a.set.Transfer(t.Context(), key("k"), c.ref); !errors.Is(err, zrouter.ErrUnavailable) {
		t.Error(err)
	}
	if n, err := a.append("k", "three"); n != 3 || err != nil {
		t.Error(n, err)
	}
}

// 4. What fails is asked for again safely: with a key a request that has run before the move is not run again behind it.
func TestConditionRetriesAreSafe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", zrouter.Settings{Dedup: 8}, logs())
	b := w.start("b", zrouter.Settings{Dedup: 8}, logs())
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.once("order 1", "k", "bought"); err != nil { // its answer is lost on the way, say
		t.Fatal(err)
	}
	if _, err := b.append("k", "bought without a key"); err != nil {
		t.Fatal(err)
	}
	a.transfer("k", b)
	if n, err := b.once("order 1", "k", "bought"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := b.append("k", "bought without a key"); n != 3 || err != nil { // runs again: that is what the key is for
		t.Error(n, err)
	}
}
