package zrouter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// counting counts the calls of a node's store, and answers them as fault says.
func (n *testNode) counting(fault func(op zstore.Op) memstore.Fault) *atomic.Int64 {
	calls := new(atomic.Int64)
	n.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
		calls.Add(1)
		if fault == nil {
			return memstore.Fault{}
		}
		return fault(op)
	})
	return calls
}

// What is dirty is saved within the save delay, once; an object that nobody changes costs the store nothing.
func TestSaveDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		a := w.all()[0]
		for range 3 {
			if _, err := a.append("x", "1"); err != nil {
				t.Fatal(err)
			}
		}
		calls := a.counting(nil)
		if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 0 {
			t.Errorf("saved at once: %v", rec)
		}
		time.Sleep(7 * time.Second)
		if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 3 || rec.Rev != 2 {
			t.Errorf("not saved once: %v", rec)
		}
		if _, err := a.lines("x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls of the store, want 1", n)
		}
	})
}

// A save that fails is tried again soon; past MaxUnsavedAge the object refuses what it could not keep, until it is saved.
func TestSaveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		a := w.all()[0]
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		calls := a.counting(func(op zstore.Op) memstore.Fault {
			return memstore.Fault{Kind: memstore.Unavailable}
		})
		time.Sleep(30 * time.Second)
		if n := calls.Load(); n < 4 {
			t.Errorf("%d tries in 30 s", n)
		}
		if _, err := a.append("x", "2"); err != nil {
			t.Errorf("after 30 s: %v", err)
		}
		time.Sleep(35 * time.Second)
		if _, err := a.append("x", "3"); !errors.Is(err, zrouter.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("after 65 s: %v", err)
		}
		a.store.SetFaults(nil)
		time.Sleep(11 * time.Second)
		if n, err := a.append("x", "4"); err != nil || n != 3 {
			t.Errorf("when the store is back: %d, %v", n, err)
		}
	})
}

// An object for which nothing comes is saved and given up; the next message brings it back, here or elsewhere.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		a := w.all()[0]
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1700 * time.Second)
		rec, err := w.record("x")
		if err != nil || !rec.Own.Node.IsZero() || rec.Own.Version != 2 || len(decode(t, rec.State).Lines) != 1 {
			t.Errorf("%+v, %v", rec, err)
		}
		if n, err := w.all()[1].append("x", "2"); err != nil || n != 2 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A kind that stays its node's leaves memory with its record untouched, and comes back without a claim.
func TestIdleStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a", zrouter.Settings{ReleaseOnIdle: zrouter.Off}, logs())
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1700 * time.Second)
		calls := a.counting(nil)
		rec, err := w.record("x")
		if err != nil || rec.Own.Node != a.ref || rec.Own.Version != 1 || len(decode(t, rec.State).Lines) != 1 {
			t.Errorf("%+v, %v", rec, err)
		}
		if n, err := a.append("x", "2"); err != nil || n != 2 || calls.Load() != 1 {
			t.Errorf("%d, %v, %d calls of the store", n, err, calls.Load())
		}
	})
}

// A node that has as many objects as it may takes no more; those that it has serve.
func TestMaxObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a", zrouter.Settings{MaxObjects: 3}, logs())
		for i := range 3 {
			if _, err := a.append(fmt.Sprint(i), "1"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.append("more", "1"); zmsg.OutcomeOf(err) != zmsg.NotExecuted || !errors.Is(err, zrouter.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if n, err := a.append("1", "2"); err != nil || n != 2 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// While the lease is not valid nothing is admitted, and the state is kept; when it is again the record decides.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lease = time.Second
		a := w.start("a", zrouter.Settings{}, logs())
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if _, err := a.append("x", "2"); !errors.Is(err, zrouter.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("without a lease: %v", err)
		}
		time.Sleep(10 * time.Second)
		if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 1 {
			t.Errorf("the fenced save goes on: %v", rec)
		}
		a.until.Store(0)
		time.Sleep(time.Second)
		if n, err := a.append("x", "3"); err != nil || n != 2 {
			t.Errorf("with the lease back: %d, %v", n, err)
		}
	})
}

// The end of a session that comes while the lease is not valid is not lost: the handler hears of it when it is valid again.
func TestSessionClosedWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lease = time.Second
		session := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "g", Epoch: 1}, ID: 5, Gen: 1}
		var actor uint64
		var bound [2]int // sessions, when it was bound and when it was told
		told := 0
		kind := logs()
		kind.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
			actor = c.Self().Address().Actor
			if err := c.Bind(session); err != nil {
				return nil, err
			}
			bound[0] = len(c.Sessions())
			return add(c, req.Line), nil
		})
		kind.Handlers = append(kind.Handlers, zrouter.HandleTell(func(c *logContext, e *wirepb.SessionClosed) error {
			if zmsg.ClosedSession(e) == session {
				told++
			}
			bound[1] = len(c.Sessions())
			add(c, "closed")
			return nil
		}))
		a := w.start("a", zrouter.Settings{}, kind)
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		m := zmsg.NewMessage(zmsg.SessionClosedID)
		m.Value = &wirepb.SessionClosed{Session: session.ID, Generation: session.Gen, Gate: session.Gate.ID, GateEpoch: session.Gate.Epoch}
		if err := a.group.Deliver(actor, m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if told != 0 {
			t.Error("it was handled without a lease")
		}
		a.until.Store(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if told != 1 || bound != [2]int{1, 0} {
			t.Errorf("told %d times, %v sessions bound before and then", told, bound)
		}
		if rec, _ := w.record("x"); !slices.Equal(decode(t, rec.State).Lines, []string{"1", "closed"}) {
			t.Errorf("what it has changed is not saved: %v", decode(t, rec.State).Lines)
		}
	})
}

// A write of unknown outcome is neither success nor failure until it is known.
func TestUnknownOutcome(t *testing.T) {
	for _, kind := range []memstore.FaultKind{memstore.UnknownLanded, memstore.UnknownNotLanded} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				a := w.all()[0]
				var first atomic.Bool
				a.counting(func(op zstore.Op) memstore.Fault {
					if op.Writes() && first.Swap(!first.Load()) {
						return memstore.Fault{Kind: kind}
					}
					return memstore.Fault{}
				})
				for i := range 10 {
					if n, err := a.keep("x", "1"); err != nil || n != int64(i+1) {
						t.Fatalf("%d, %v", n, err)
					}
				}
				if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 10 || rec.Own.Version != 1 {
					t.Errorf("%+v", rec)
				}
			})
		})
	}
}

// Many callers on three nodes ask for the same objects at once: each object has one owner, and has heard each caller in order.
func TestContention(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	const callers, keys, each = 16, 50, 4
	var wg sync.WaitGroup
	for c := range callers {
		n := w.all()[c%3]
		wg.Go(func() {
			for i := range each {
				for k := range keys {
					if _, err := n.append(fmt.Sprint("k", k), fmt.Sprintf("%d:%d", c, i)); err != nil {
						t.Errorf("caller %d, key %d: %v", c, k, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		id := fmt.Sprint("k", k)
		rec, err := w.record(id)
		if err != nil || rec.Own.Version != 1 {
			t.Errorf("%s: %+v, %v", id, rec.Own, err)
		}
		got, err := w.all()[0].lines(id)
		if err != nil || len(got) != callers*each {
			t.Fatalf("%s: %d lines, %v", id, len(got), err)
		}
		for c := range callers {
			last := -1
			for i := range each {
				at := slices.Index(got, fmt.Sprintf("%d:%d", c, i))
				if at <= last {
					t.Fatalf("%s: caller %d is out of order: %v", id, c, got)
				}
				last = at
			}
		}
	}
}

// An object is deleted by its handler, and made anew by the next message.
func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.all()[0]
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.keep("x", "1"); err != nil {
		t.Fatal(err)
	}
	if err := m.Do(t.Context(), key("x"), func(c *logContext) error { c.Delete(); return nil }); err != nil {
		t.Fatal(err)
	}
	rec, err := w.record("x")
	if !errors.Is(err, zstore.ErrNotFound) || rec.Own.Version != 2 {
		t.Errorf("%+v, %v", rec, err)
	}
	if n, err := a.keep("x", "2"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if rec, _ := w.record("x"); rec.Own.Version != 3 {
		t.Errorf("%+v", rec)
	}
}

// What ran just before the lease ended is told after a save that proves the ownership, not after the save delay.
func TestSuspendedSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lease = time.Second
		slow := logs()
		slow.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
			time.Sleep(2 * time.Second)
			return add(c, req.Line), nil
		})
		a := w.start("a", zrouter.Settings{SaveDelay: 10 * time.Minute}, slow)
		began := time.Now()
		if n, err := a.append("x", "1"); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("told after %v", took)
		}
		if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 1 {
			t.Errorf("told, and not saved: %v", rec)
		}
	})
}

// An object whose state has been too large for too long takes nothing but what its manager does, which may make it smaller.
func TestTooLargeForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.db = memstore.NewWith(memstore.Config{MaxState: 1000})
		a := w.start("a", zrouter.Settings{}, logs())
		if _, err := a.append("x", strings.Repeat("y", 2000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := a.append("x", "2"); !errors.Is(err, zrouter.ErrTooLarge) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%v", err)
		}
		m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Do(t.Context(), key("x"), func(c *logContext) error { c.SetState(new(testpb.Log)); c.Save(); return nil }); err != nil {
			t.Error(err)
		}
		if n, err := a.append("x", "3"); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}
