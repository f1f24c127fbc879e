package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

func (n *testNode) once(id, k, line string) (int64, error) {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), patience)
	defer cancel()
	a, err := zrouter.Call[testpb.Appended](ctx, n.set, key(k), &testpb.Keep{Log: k, Line: line}, zrouter.Once(id))
	return a.GetN(), err
}

// A request with an idempotency key runs once: again from anywhere, at once from many, behind a takeover.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{Dedup: 32}, logs())
	}
	for i := range 3 {
		for _, n := range w.all() {
			if got, err := n.once(fmt.Sprint("first ", i), "x", fmt.Sprint(i)); err != nil || got != int64(i+1) {
				t.Fatalf("%d at %s: %d, %v", i, n.ref, got, err)
			}
		}
	}
	var wg sync.WaitGroup
	var ran atomic.Int64
	for i := range 24 {
		n := w.all()[i%3]
		wg.Go(func() {
			for {
				got, err := n.once("together", "x", "together")
				if err == nil && got == 4 {
					ran.Add(1)
					return
				}
				if !errors.Is(err, zmsg.ErrBusy) || zmsg.OutcomeOf(err) != zmsg.NotExecuted { // it runs just now
					t.Errorf("%d, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	rec, err := w.record("x")
	if err != nil || len(decode(t, rec.State).Lines) != 4 || ran.Load() != 24 {
		t.Errorf("%v, %v, %d answers", decode(t, rec.State).Lines, err, ran.Load())
	}
	w.remove(w.nodes[rec.Own.Node])
	if got, err := w.all()[0].once("first 1", "x", "1"); err != nil || got != 2 {
		t.Errorf("after a takeover: %d, %v", got, err)
	}
	if got, err := w.all()[1].lines("x"); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	for _, id := range []string{strings.Repeat("x", 200), "\xff"} {
		if _, err := w.all()[0].once(id, "x", "bad id"); !errors.Is(err, zmsg.ErrBadRequest) {
			t.Errorf("%v", err)
		}
	}
}
