package zrouter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// What runs after a save finds in the store what the state was, long before the save delay; a handler's own change is among it.
func TestAfterSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := make(chan error, 100)
	k := logs()
	k.Settings.SaveDelay = time.Hour
	k.Settings.MaxUnsavedAge = 4 * time.Hour
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		c.AfterSave(func(c *logContext) {
			rec, err := w.record(c.Key().ID)
			if err == nil && !slices.Contains(decode(t, rec.State).Lines, req.Line) {
				err = fmt.Errorf("%q is not in the store", req.Line)
			}
			saved <- err
		})
		return add(c, req.Line), nil
	})
	n := w.start("a", zrouter.Settings{}, k)
	for i := range 50 {
		if _, err := n.append("x", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		select {
		case err := <-saved:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("it does not run")
		}
	}
}

// Functions run in the order in which they were given, however close saves are on each other: what they push is in order then.
func TestAfterSaveInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const calls = 1000
	var ran []int64 // owned by the object's turns until all have run
	done := make(chan struct{})
	k := logs()
	k.Settings.Durable = zrouter.On
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		a := add(c, req.Line)
		c.State().Lines = nil // as many as there are would take their time to be saved
		n, err := strconv.ParseInt(req.Line, 10, 64)
		if err != nil {
			return nil, err
		}
		c.AfterSave(func(*logContext) {
			if ran = append(ran, n); n == calls {
				close(done)
			}
		})
		return a, nil
	})
	n := w.start("a", zrouter.Settings{}, k)
	for i := range calls {
		if i == calls/2 { // so that some are asked for again
			n.store.SetFaults(func(zstore.Op, zmsg.Key) memstore.Fault {
				if rand.IntN(3) == 0 {
					return memstore.Fault{Kind: memstore.Unavailable}
				}
				return memstore.Fault{}
			})
		}
		if i == calls/2+8 {
			n.store.SetFaults(nil)
		}
		if _, err := n.append("x", fmt.Sprint(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the last does not run")
	}
	for i, n := range ran {
		if n != int64(i+1) {
			t.Fatalf("%d ran as number %d", n, i+1)
		}
	}
	if len(ran) != calls {
		t.Errorf("%d have run, want %d", len(ran), calls)
	}
}

// A lease that lapses between a handler and what it has asked for puts that off, and does not lose it.
func TestAfterSaveAndLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease = 3 * time.Second
	var n *testNode
	ran, lapsed := make(chan struct{}, 1), make(chan struct{})
	k := logs()
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		if req.Line == "lapse" {
			c.AfterSave(func(*logContext) { ran <- struct{}{} })
			time.Sleep(time.Until(time.Unix(0, n.until.Load())) + 10*time.Millisecond)
			defer close(lapsed)
		}
		return add(c, req.Line), nil
	})
	n = w.start("a", zrouter.Settings{}, k)
	if _, err := n.append("x", "first"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = zrouter.Call[testpb.Appended](ctx, n.set, zmsg.Key{Type: k.Type, ID: "x"}, &testpb.Append{Log: "x", Line: "lapse"}) // whatever comes of it
	}()
	<-lapsed
	time.Sleep(50 * time.Millisecond) // the turn that is refused; a busy machine, where it comes later, sees less
	n.until.Store(0)
	select {
	case <-ran:
	case <-time.After(patience):
		t.Error("it does not run")
	}
	cancel()
	<-answered
}

// A transfer waits for what is to run behind a save, and for what that asks for: each runs once, in order, on whichever node.
func TestAfterSaveAndTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const calls, moves = 600, 40
	var mu sync.Mutex // guards ran, which the objects of two nodes write
	var ran []int64
	k := logs()
	k.Settings.Durable = zrouter.On
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		a := add(c, req.Line)
		n := a.GetN()
		c.AfterSave(func(c *logContext) {
			c.AfterSave(func(*logContext) {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, n)
			})
		})
		return a, nil
	})
	a, b := w.start("a", zrouter.Settings{}, k), w.start("b", zrouter.Settings{}, k)
	if _, err := w.own(a, "x"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range moves / 2 {
			a.transfer("x", b)
			b.transfer("x", a)
		}
	})
	for i := range calls {
		if _, err := a.append("x", fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	eventually(t, "all have run", func() bool { mu.Lock(); defer mu.Unlock(); return len(ran) >= calls })
	mu.Lock()
	defer mu.Unlock()
	for i, n := range ran {
		if n != int64(i+1) {
			t.Fatalf("%d ran as number %d", n, i+1)
		}
	}
}

// A store that is away for a while puts it off; what was to run at a node that the object has left does not.
func TestAfterSaveInTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran atomic.Int64
	k := logs()
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		c.AfterSave(func(*logContext) { ran.Add(1) })
		return add(c, req.Line), nil
	})
	n := w.start("a", zrouter.Settings{}, k)
	if _, err := n.append("x", "first"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return ran.Load() == 1 })
	n.store.SetFaults(func(zstore.Op, zmsg.Key) memstore.Fault { return memstore.Fault{Kind: memstore.Unavailable} })
	if _, err := n.append("x", "second"); err != nil {
		t.Fatal(err)
	}
	if ran.Load() != 1 {
		t.Error("it has run before the save")
	}
	n.store.SetFaults(nil)
	eventually(t, "it runs when the store is there again", func() bool { return ran.Load() == 2 })
}

// The new owner knows for how long the object took no requests; one that did not come by a move knows of none.
func TestMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ordered = true // the word of the old owner comes before what it sends on
	k := logs()
	k.Handlers[1] = zrouter.Handle(func(c *logContext, _ *testpb.Get) (*testpb.Lines, error) {
		return &testpb.Lines{Lines: []string{c.Moved().String()}}, nil
	})
	a, b := w.start("a", zrouter.Settings{}, k), w.start("b", zrouter.Settings{}, k)
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	pause := func() time.Duration {
		lines, err := a.lines("k")
		if err != nil {
			t.Fatal(err)
		}
		d, err := time.ParseDuration(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := pause(); d != 0 {
		t.Errorf("%v before it has moved", d)
	}
	a.transfer("k", b)
	if d := pause(); d <= 0 || d > patience {
		t.Errorf("%v behind the move", d)
	}
}

// Handlers by key may have an id that other kinds have too, and nothing is routed to them by id.
func TestByKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := func(typ uint32, name string) zrouter.Kind[*testpb.Log] {
		k := logs()
		k.Type, k.Name = typ, name
		k.Handlers = []zrouter.Handler[*testpb.Log]{zrouter.Handle(appendLine, zrouter.ByKey()), zrouter.Handle(getLines, zrouter.ByKey())}
		return k
	}
	n := w.start("a", zrouter.Settings{}, kind(8, "eight"), kind(9, "nine"))
	for _, typ := range []uint32{8, 9} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if a, err := zrouter.Call[testpb.Appended](ctx, n.set, zmsg.Key{Type: typ, ID: "x"}, &testpb.Append{Log: "x", Line: "l"}); err != nil || a.GetN() != 1 {
			t.Errorf("%d: %v, %v", typ, a, err)
		}
	}
	id, _ := zmsg.IDOf(&testpb.Append{})
	if n.set.Owns(id) {
		t.Error("the id belongs to a kind")
	}
	bad := logs()
	bad.Handlers = []zrouter.Handler[*testpb.Log]{zrouter.Handle(appendLine, zrouter.ByKey(), zrouter.FromClients())}
	if _, err := zrouter.New(zrouter.Config{Self: n.ref, Group: n.group, Link: n, Members: n, Store: n.store}, bad); err == nil {
		t.Error("ByKey and FromClients go together")
	}
}
