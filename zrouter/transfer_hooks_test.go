package zrouter_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// A hook that hangs holds a transfer up for quiesce_timeout and no longer: it ends, not executed, what waited runs here when the hook has
// returned, and what the hook did is taken back before that. The next transfer is one like any other.
func TestTransferHooksHang(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := logs()
	hangs, inside := make(chan struct{}), make(chan struct{}, 2)
	k.BeforeRemove = func(c *logContext) error {
		add(c, "before")
		inside <- struct{}{}
		<-hangs
		return nil
	}
	k.RemoveAborted = func(c *logContext) { add(c, "aborted") }
	a := w.start("a", zrouter.Settings{QuiesceTimeout: 100 * time.Millisecond}, k)
	b := w.start("b", zrouter.Settings{}, logs())
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	moved := a.transferring("k", b.ref)
	<-inside
	answered := make(chan error, 1)
	go func() {
		_, err := a.append("k", "waited")
		answered <- err
	}()
	if err := <-moved; !errors.Is(err, zrouter.ErrHandoff) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("a hook hangs: %v", err)
	}
	close(hangs)
	if err := <-answered; err != nil {
		t.Errorf("what waited: %v", err)
	}
	want := []string{"before", "aborted", "waited"}
	if got, err := a.lines("k"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if r, err := w.record("k"); err != nil || r.Own.Node != a.ref || r.Own.Version != 1 {
		t.Errorf("the record is %+v, %v", r, err)
	}
	a.transfer("k", b)
	if got, err := a.lines("k"); err != nil || !slices.Equal(got, append(want, "before")) {
		t.Errorf("moved: %q, %v", got, err)
	}
}

// A hook that waits for another transfer of the object waits for itself: both end.
func TestTransferInAHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := logs()
	var a, b *testNode
	inner := make(chan error, 8)
	k.BeforeRemove = func(c *logContext) error {
		if c.Key().ID == "k" && len(inner) == 0 {
			_, err := a.set.Transfer(context.WithoutCancel(t.Context()), c.Key(), b.ref)
			inner <- err
		}
		return nil
	}
	a = w.start("a", zrouter.Settings{QuiesceTimeout: 100 * time.Millisecond}, k)
	b = w.start("b", zrouter.Settings{}, logs())
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.set.Transfer(t.Context(), key("k"), b.ref); !errors.Is(err, zrouter.ErrHandoff) {
		t.Errorf("the first: %v", err)
	}
	if err := <-inner; !errors.Is(err, zrouter.ErrHandoff) {
		t.Errorf("the one in its hook: %v", err)
	}
	if _, err := b.append("k", "serves"); err != nil {
		t.Error(err)
	}
}

// What a hook deletes, or gives up, is deleted, or given up, here: the next owner would know nothing of it.
func TestTransferOfWhatLeaves(t *testing.T) {
	t.Parallel()
	for what, leave := range map[string]func(*logContext){"deleted": (*logContext).Delete, "given up": (*logContext).Stop} {
		w := newWorld(t)
		k := logs()
		k.Create = nil
		k.OnHandoff = func(c *logContext) ([]byte, error) { leave(c); return nil, nil }
		a := w.start("a", zrouter.Settings{}, k)
		b := w.start("b", zrouter.Settings{}, k)
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.set.Transfer(t.Context(), key("k"), b.ref); !errors.Is(err, zrouter.ErrHandoff) {
			t.Errorf("%s: %v", what, err)
		}
		eventually(t, what, func() bool {
			r, err := w.record("k")
			if what == "deleted" {
				return errors.Is(err, zstore.ErrNotFound)
			}
			return err == nil && r.Own.Node.IsZero()
		})
		if _, err := zrouter.Call[testpb.Lines](t.Context(), b.set, key("k"), &testpb.Get{Log: "k"}); what == "deleted" && !errors.Is(err, zrouter.ErrNotFound) ||
			what != "deleted" && !errors.Is(err, zrouter.ErrNotInServer) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
