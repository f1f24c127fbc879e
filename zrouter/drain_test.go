package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// fill has a node own n objects of the kind of the tests.
func (n *testNode) fill(tb testing.TB, ids int) {
	tb.Helper()
	m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range ids {
		if _, err := m.MutableObject(tb.Context(), key(fmt.Sprint(i))); err != nil {
			tb.Fatal(err)
		}
	}
}

// leave has the list say that a node drains.
func (w *world) leave(n *testNode) {
	w.mu.Lock()
	n.draining = true
	w.epoch++
	w.mu.Unlock()
	w.list()
}

// balanced fails the test where a report does not add up.
func balanced(tb testing.TB, r zrouter.DrainReport) {
	tb.Helper()
	if r.Moved+r.Released+r.Gone+r.Left != r.Objects {
		tb.Errorf("it does not add up: %+v", r)
	}
	if r.Pause.Count != r.Moved {
		tb.Errorf("%d pauses of %d moves", r.Pause.Count, r.Moved)
	}
	to, why := 0, 0
	for _, n := range r.To {
		to += n
	}
	for _, n := range r.Why {
		why += n
	}
	if to != r.Moved || why != r.Retries {
		tb.Errorf("%d moved, %v; %d came to nothing, %v", r.Moved, r.To, r.Retries, r.Why)
	}
}

// Under load a node gives all that it has to the nodes that the hash names: nothing is lost, doubled or refused, and it has nothing
// afterwards, nor takes anything.
func TestDrain(t *testing.T) {
	t.Parallel()
	const ids, callers = 150, 6
	w := newWorld(t, "a", "b", "c")
	all := w.all()
	a := all[0]
	a.fill(t, ids)
	ctx, stop := context.WithCancel(t.Context())
	var counts [ids]atomic.Int64
	var begun, wg sync.WaitGroup
	for c := range callers {
		begun.Add(1)
		wg.Go(func() {
			for i := c; ctx.Err() == nil; i++ {
				if n, err := all[(c+i)%3].append(fmt.Sprint(i%ids), "x"); err != nil {
					t.Errorf("%d: %d, %v (%v)", i%ids, n, err, zmsg.OutcomeOf(err))
				}
				counts[i%ids].Add(1)
				if i == c+50 {
					begun.Done()
				}
			}
			_ = c
		})
	}
	begun.Wait()
	w.leave(a)
	rep, err := a.set.Drain(t.Context())
	if err != nil || rep.Phase != zrouter.DrainDone || rep.Moved != rep.Objects || rep.Objects != ids || rep.Retries != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	balanced(t, rep)
	if len(rep.To) != 2 || rep.To["b"] < ids/5 || rep.To["c"] < ids/5 {
		t.Errorf("moved to %v", rep.To)
	}
	stop()
	wg.Wait()
	for i := range ids {
		rec, err := w.record(fmt.Sprint(i))
		if err != nil || rec.Own.Node == a.ref || rec.Own.Version != 2 {
			t.Errorf("%d is %v's since version %d, %v", i, rec.Own.Node, rec.Own.Version, err)
		}
		if got, err := all[1].lines(fmt.Sprint(i)); err != nil || len(got) != int(counts[i].Load()) {
			t.Errorf("%d has %d lines, %v; %d were told so", i, len(got), err, counts[i].Load())
		}
	}
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.MutableObject(t.Context(), key("new")); !errors.Is(err, zrouter.ErrUnavailable) {
		t.Errorf("a node that has drained claims: %v", err)
	}
	if got, err := a.append("newer", "x"); err != nil || got != 1 {
		t.Errorf("and does not take to where it can be: %v, %v", got, err)
	}
	again, err := a.set.Drain(t.Context())
	if err != nil || again.Moved != rep.Moved {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if p, ok := a.set.DrainProgress(); !ok || p.Phase != zrouter.DrainDone {
		t.Errorf("%v %+v", ok, p)
	}
}

// An only node, and one where no other hosts the kind, saves and gives up.
func TestDrainOfAnOnlyNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.all()[0]
	if _, ok := a.set.DrainProgress(); ok {
		t.Error("a drain that nobody has asked for")
	}
	const ids = 600 // more than are released at once
	a.fill(t, ids)
	if _, err := a.append("0", "x"); err != nil {
		t.Fatal(err)
	}
	rep, err := a.set.Drain(t.Context())
	if err != nil || rep.Released != ids || rep.Objects != ids {
		t.Errorf("%+v, %v", rep, err)
	}
	balanced(t, rep)
	for i := range ids {
		rec, err := w.record(fmt.Sprint(i))
		if err != nil || !rec.Own.Node.IsZero() || rec.Own.Version != 2 || i == 0 && len(decode(t, rec.State).Lines) != 1 {
			t.Fatalf("%d is %v's since version %d, %v", i, rec.Own.Node, rec.Own.Version, err)
		}
	}
}

// A target that has no room is left alone, the others take what it does not; what none takes is given up when its time is over.
func TestDrainToFullNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 100
		w := newWorld(t, "a")
		a := w.all()[0]
		b := w.start("b", zrouter.Settings{MaxObjects: 5}, logs())
		c := w.start("c", zrouter.Settings{MaxObjects: 40}, logs())
		a.fill(t, ids)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		type end struct {
			rep zrouter.DrainReport
			err error
		}
		ends := make(chan end, 2)
		go func() { rep, err := a.set.Drain(ctx); ends <- end{rep, err} }()
		time.Sleep(5 * time.Second)
		go func() { rep, err := a.set.Drain(t.Context()); ends <- end{rep, err} }() // joins
		p, ok := a.set.DrainProgress()
		moved := p.Moved // a target may take more than it has room for: as many as it was asked for at once
		if !ok || p.Phase != zrouter.DrainMoving || moved < 45 || moved > 45+2*16 || p.Left != ids-moved || p.Took != 5*time.Second {
			t.Errorf("%+v", p)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.set.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("joined for a second: %v", err)
		}
		for range 2 {
			e := <-ends
			if e.err != nil || e.rep.Moved != moved || e.rep.Released != ids-moved || e.rep.To["b"] < 5 || e.rep.To["c"] < 40 {
				t.Errorf("%+v, %v", e.rep, e.err)
			}
			if e.rep.Took < 15*time.Second || e.rep.Took > 16*time.Second {
				t.Errorf("it took %v, and a quarter of the time is for giving up", e.rep.Took)
			}
			if e.rep.Retries < 10 || e.rep.Retries > 2000 || !strings.Contains(fmt.Sprint(e.rep.Why), "as many objects as it may") {
				t.Errorf("%d came to nothing: %v", e.rep.Retries, e.rep.Why)
			}
			balanced(t, e.rep)
		}
		_, _ = b, c
	})
}

// A target that does not answer any more costs nothing but the moves that it was asked for.
func TestDrainWhenATargetDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 200
		w := newWorld(t, "a", "b", "c")
		a, b := w.all()[0], w.all()[1]
		a.fill(t, ids)
		b.down.Store(true) // the list has it still
		rep, err := a.set.Drain(t.Context())
		if err != nil || rep.Moved != ids || rep.To["c"] != ids {
			t.Errorf("%+v, %v", rep, err)
		}
		if rep.Took > 5*time.Second {
			t.Errorf("it took %v", rep.Took)
		}
		balanced(t, rep)
		if !strings.Contains(rep.String(), "does not say that it can take the object") {
			t.Errorf("it says\n%s", rep)
		}
	})
}

// What cannot be moved or saved in time is left, named in the report, and served on.
func TestDrainLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 3
		w := newWorld(t, "a", "b")
		a := w.all()[0]
		a.fill(t, ids)
		if _, err := a.append("1", "x"); err != nil {
			t.Fatal(err)
		}
		a.counting(func(op zstore.Op) memstore.Fault {
			if op.Writes() {
				return memstore.Fault{Kind: memstore.Unavailable}
			}
			return memstore.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		rep, err := a.set.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "3 are left") {
			t.Errorf("got %v", err)
		}
		slices.Sort(rep.LeftKeys)
		if rep.Left != ids || !slices.Equal(rep.LeftKeys, []string{"7/0/0", "7/0/1", "7/0/2"}) || rep.Moved+rep.Released != 0 {
			t.Errorf("%+v", rep)
		}
		balanced(t, rep)
		a.store.SetFaults(nil)
		time.Sleep(15 * time.Second)
		if n, err := a.append("1", "y"); err != nil || n != 2 {
			t.Errorf("it is not served on: %d, %v", n, err)
		}
		if rep, err := a.set.Drain(t.Context()); err != nil || rep.Left != 0 {
			t.Errorf("once more: %+v, %v", rep, err)
		}
	})
}

// A handler that runs for longer than all of the drain: the drain ends in time, says what is left and why, and its report can be read
// all the while; what else there was has moved.
func TestDrainOfABusyObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 4
		w := newWorld(t, "a", "b")
		a := w.all()[0]
		a.fill(t, ids)
		m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
		if err != nil {
			t.Fatal(err)
		}
		worked := make(chan error, 1)
		go func() {
			worked <- m.Do(t.Context(), key("1"), func(c *logContext) error { time.Sleep(time.Minute); add(c, "long"); return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		rep, err := a.set.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "1 are left") {
			t.Errorf("got %v", err)
		}
		if rep.Left != 1 || rep.Moved != ids-1 || rep.Retries == 0 || !strings.Contains(rep.String(), "within quiesce_timeout") {
			t.Errorf("%v", rep)
		}
		balanced(t, rep)
		if now, ok := a.set.DrainProgress(); !ok || now.Phase != zrouter.DrainDone {
			t.Errorf("afterwards: %+v, %v", now, ok)
		}
		if err := <-worked; err != nil {
			t.Errorf("the handler: %v", err)
		}
	})
}

// D32: a request for an object that a draining node has just given away does not bring it back there, whoever sends it there.
func TestDrainedNodeTakesNothingBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.all()[0], w.all()[1]
	a.fill(t, 20)
	if _, err := a.set.Drain(t.Context()); err != nil { // the list does not know of it: b would place objects there
		t.Fatal(err)
	}
	m, err := zrouter.ManagerOf[*testpb.Log](b.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		k := key(fmt.Sprint(i))
		if _, err := b.set.Transfer(t.Context(), k, a.ref); !errors.Is(err, zrouter.ErrRefused) {
			t.Errorf("%d is moved back: %v", i, err)
		}
		if err := m.Remove(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*testNode{a, b} {
			if _, err := n.append(k.ID, "x"); err != nil {
				t.Errorf("%d at %v: %v", i, n.ref, err)
			}
		}
		if rec, err := w.record(k.ID); err != nil || rec.Own.Node != b.ref {
			t.Errorf("%d is %v's, %v", i, rec.Own.Node, err)
		}
	}
}

// Objects go to nodes of their zone first.
func TestDrainKeepsToTheZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a := w.all()[0]
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := m.MutableObject(t.Context(), zmsg.Key{Type: 7, Zone: uint32(i % 2 * 5), ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	s := *w.snap.Load()
	s.Nodes = slices.Clone(s.Nodes)
	i := slices.IndexFunc(s.Nodes, func(n zdiscovery.Node) bool { return n.Ref.ID == "c" })
	s.Nodes[i].Zone = "5"
	w.snap.Store(&s)
	rep, err := a.set.Drain(t.Context())
	if err != nil || rep.Moved != 40 || rep.To["c"] < 20 || rep.To["b"] == 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	for i := range 20 {
		rec, err := w.db.Read(t.Context(), zmsg.Key{Type: 7, Zone: 5, ID: fmt.Sprint(2*i + 1)})
		if err != nil || rec.Own.Node.ID != "c" {
			t.Errorf("%d is %v's, %v", i, rec.Own.Node, err)
		}
	}
}
