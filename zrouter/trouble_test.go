package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// scripted is the kind of the tests whose appends do what the test says.
func scripted(handle func(c *logContext, line string) error) zrouter.Kind[*testpb.Log] {
	k := logs()
	k.Handlers = []zrouter.Handler[*testpb.Log]{
		zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
			return &testpb.Appended{N: int64(len(c.State().Lines))}, handle(c, req.Line)
		}),
		zrouter.Handle(getLines),
	}
	return k
}

// has waits until the record has the lines.
func (w *world) has(what, k string, lines ...string) {
	w.t.Helper()
	eventually(w.t, what, func() bool {
		r, err := w.record(k)
		return err == nil && slices.Equal(decode(w.t, r.State).Lines, lines)
	})
}

// What is changed where no outcome says so is saved too: after the handler has answered, and in OnActivate. So is what an object has that
// leaves by Stop.
func TestChangesWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	soon := zrouter.Settings{SaveDelay: 5 * time.Millisecond}
	k := scripted(func(c *logContext, line string) error {
		c.Reply(&testpb.Appended{})
		switch line {
		case "delete":
			c.Delete()
		case "stop":
			add(c, line)
			c.Stop()
		default:
			add(c, line)
		}
		return nil
	})
	k.OnActivate = func(c *logContext) error {
		if c.Key().ID == "activated" {
			add(c, "loaded")
		}
		return nil
	}
	a := w.start("a", soon, k)
	do := func(id, line string) {
		t.Helper()
		if _, err := a.append(id, line); err != nil {
			t.Fatal(err)
		}
	}
	do("early", "1")
	w.has("what follows the answer is saved", "early", "1")
	do("early", "delete")
	eventually(t, "the object is deleted", func() bool { _, err := w.record("early"); return err != nil })
	if _, err := a.lines("activated"); err != nil {
		t.Fatal(err)
	}
	w.has("what OnActivate changed is saved", "activated", "loaded")

	b := w.start("b", zrouter.Settings{SaveDelay: time.Hour}, scripted(func(c *logContext, line string) error {
		add(c, line)
		if line == "stop" {
			c.Stop()
		}
		return nil
	}))
	w.remove(a)
	for _, line := range []string{"1", "stop"} {
		if _, err := b.append("stopped", line); err != nil {
			t.Fatal(err)
		}
	}
	w.has("what leaves is saved", "stopped", "1", "stop")
	eventually(t, "nobody owns it", func() bool { r, err := w.record("stopped"); return err == nil && r.Own.Node.IsZero() })
}

// Only a panic of the object's own handler drops its memory: not an answer that tells of another's.
func TestPanicOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", zrouter.Settings{SaveDelay: time.Hour}, scripted(func(c *logContext, line string) error {
		switch line {
		case "returned":
			return zmsg.ErrPanicked
		case "early":
			c.ReplyError(zmsg.ErrPanicked)
		case "deferred":
			c.Defer().Fail(zmsg.ErrPanicked)
		case "exit":
			runtime.Goexit()
		default:
			add(c, line)
		}
		return nil
	}))
	for id, left := range map[string]int{"returned": 1, "early": 1, "deferred": 1, "exit": 0} {
		if _, err := a.append(id, "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.append(id, id); zmsg.CodeOf(err) != zmsg.CodePanicked {
			t.Errorf("%s: %v", id, err)
		}
		if l, err := a.lines(id); err != nil || len(l) != left {
			t.Errorf("%s: %q, %v, want %d lines", id, l, err, left)
		}
	}
}

// A request with a key may be tried again when its handler has refused it, and does not run again when it has answered early.
func TestOnceOfRefusedAndEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := scripted(func(c *logContext, line string) error {
		switch line {
		case "refused":
			return zactor.NotRun(zmsg.ErrUnavailable)
		case "early":
			c.Reply(&testpb.Appended{})
		}
		add(c, line)
		return nil
	})
	k.Settings.Dedup = 16
	a := w.start("a", zrouter.Settings{}, k)
	once := func(id, line string) error {
		_, err := zrouter.Call[testpb.Appended](t.Context(), a.set, key("x"), &testpb.Append{Line: line}, zrouter.Once(id))
		return err
	}
	if err := once("1", "refused"); zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Error(err)
	}
	for _, c := range [][2]string{{"1", "again"}, {"1", "again"}, {"2", "early"}, {"2", "early"}} {
		if err := once(c[0], c[1]); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	if l, err := a.lines("x"); err != nil || !slices.Equal(l, []string{"again", "early"}) {
		t.Errorf("%q, %v", l, err)
	}
}

// A handler that answered does not make another request, which has the memory of its call by now, wait for a save.
func TestSaveAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a", zrouter.Settings{}, scripted(func(c *logContext, line string) error {
			c.Reply(&testpb.Appended{})
			add(c, line)
			c.Save()
			return nil
		}))
		for range 10 {
			if _, err := a.append("x", "1"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// deafStore reads when it is let to, whatever the context says.
type deafStore struct {
	zstore.Store
	let  chan struct{}
	deaf atomic.Bool
}

func (d *deafStore) Read(ctx context.Context, k zmsg.Key) (zstore.Record, error) {
	if d.deaf.Load() {
		<-d.let
	}
	return d.Store.Read(ctx, k)
}

// Close ends with its context, whatever hangs; requests end.
func TestCloseWhileSomethingHangs(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"create", "activate", "read"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			hang := make(chan struct{})
			store := &deafStore{Store: w.db.Share(), let: hang}
			store.deaf.Store(what == "read")
			w.kv = store
			reached := make(chan struct{}, 1)
			at := func(x string) {
				if x == what {
					reached <- struct{}{}
					<-hang
				}
			}
			k := logs()
			k.Create = func(zmsg.Key) (*testpb.Log, error) { at("create"); return new(testpb.Log), nil }
			k.OnActivate = func(*logContext) error { at("activate"); return nil }
			a := w.start("a", zrouter.Settings{}, k)
			told := make(chan error, 1)
			go func() { _, err := a.append("x", "1"); told <- err }()
			if what != "read" {
				<-reached
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := a.set.Close(ctx); err == nil && what != "read" {
				t.Error("closed, and something hangs")
			}
			if err := <-told; zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("%v", err)
			}
			close(hang)
		})
	}
}

// A durable request that changes nothing waits for the save that is under way, and for no other.
func TestDurableReadDuringASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a", zrouter.Settings{Durable: zrouter.On}, logs())
		if _, err := a.append("x", "1"); err != nil {
			t.Fatal(err)
		}
		a.counting(func(zstore.Op) memstore.Fault { return memstore.Fault{Delay: time.Second} })
		go a.append("x", "2") //nolint:errcheck // its save is what the read waits for
		synctest.Wait()
		start := time.Now()
		if l, err := a.lines("x"); err != nil || len(l) != 2 || time.Since(start) > time.Second {
			t.Errorf("%q, %v, after %s", l, err, time.Since(start))
		}
	})
}

// A store of one's own that panics takes neither the process nor the object: what it was asked for has failed, or may have been done, and
// goes on.
func TestPanicOfTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.all()[0]
	var left atomic.Int64
	a.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
		if left.Add(-1) >= 0 {
			panic("no " + op.String())
		}
		return memstore.Fault{}
	})
	kept := 0
	for i := range 30 { // each call to the store, of those that a request makes, is the one that panics some time
		left.Store(int64(i % 3))
		_, err := a.keep(fmt.Sprint(i/3), "x")
		switch {
		case err == nil:
			kept++
		case errors.Is(err, zmsg.ErrPanicked):
			t.Errorf("%d: %v: no handler has", i, err)
		}
	}
	if kept < 20 {
		t.Errorf("%d of 30 were kept", kept)
	}
	left.Store(0)
	for i := range 10 {
		if got, err := a.lines(fmt.Sprint(i)); err != nil || len(got) < 1 || len(got) > 3 {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
}
