package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// Faults that others met with objects on several nodes; docs/faults.md lists them.

// Nodes join while all keys are asked for from everywhere: what has an owner keeps it, each key has one, and no line is lost or doubled.
func TestNodesJoinUnderTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	const keys, callers = 300, 6
	var stop atomic.Bool
	var asked atomic.Int64 // keys that are asked for so far: the others are first asked for when further nodes have joined
	asked.Store(keys / 3)
	var wg sync.WaitGroup
	acked := make([][]int, callers) // by caller, how many lines each key has of it
	for c := range callers {
		acked[c] = make([]int, keys)
		wg.Go(func() {
			for i := c; !stop.Load(); i = (i + 7) % int(asked.Load()) {
				nodes := w.all()
				n := nodes[rand.IntN(len(nodes))]
				if _, err := n.append(fmt.Sprint("k", i), fmt.Sprint(c)); err != nil {
					t.Errorf("at %s: %v", n.ref, err)
					return
				}
				acked[c][i]++
			}
		})
	}
	reached := func() (n int) {
		for i := range keys {
			if _, err := w.record(fmt.Sprint("k", i)); err == nil {
				n++
			}
		}
		return n
	}
	eventually(t, "some keys are there", func() bool { return reached() > keys/10 })
	w.start("b", zrouter.Settings{}, logs())
	asked.Store(2 * keys / 3)
	w.start("c", zrouter.Settings{}, logs())
	asked.Store(keys)
	eventually(t, "all keys are there", func() bool { return reached() == keys })
	stop.Store(true)
	wg.Wait()
	owners := map[string]int{}
	for i := range keys {
		id := fmt.Sprint("k", i)
		rec, err := w.record(id)
		if err != nil || rec.Own.Version != 1 {
			t.Errorf("%s: %+v, %v: the owner has changed", id, rec.Own, err)
		}
		owners[rec.Own.Node.ID]++
		got, err := w.all()[0].lines(id)
		if err != nil {
			t.Fatal(err)
		}
		for c := range callers {
			lines := 0
			for _, l := range got {
				if l == fmt.Sprint(c) {
					lines++
				}
			}
			if lines != acked[c][i] {
				t.Errorf("%s: %d lines of caller %d, want %d", id, lines, c, acked[c][i])
			}
		}
	}
	if len(owners) != 3 {
		t.Errorf("owners: %v", owners)
	}
}

// Many first requests for one object at once, over JetStream: one record is made, and nobody sees an error of the store.
func TestFirstRequestsOverJetStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onKV(t)
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{}, logs())
	}
	const callers, keys = 50, 5
	var wg sync.WaitGroup
	for c := range callers {
		n := w.all()[c%3]
		wg.Go(func() {
			for k := range keys {
				if _, err := n.keep(fmt.Sprint(k), fmt.Sprint(c)); err != nil {
					t.Errorf("caller %d: %v", c, err)
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		rec, err := w.kv.Read(t.Context(), key(fmt.Sprint(k)))
		if err != nil || rec.Own.Version != 1 {
			t.Fatalf("%+v, %v", rec.Own, err)
		}
		if lines := decode(t, rec.State).Lines; len(lines) != callers {
			t.Errorf("key %d: %d lines, want %d", k, len(lines), callers)
		}
	}
}

// The store falters under a thousand saves: what was acknowledged is there once, and each write has raised the revision by one.
func TestStoreFaltersUnderSaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", zrouter.Settings{}, logs())
	var writes atomic.Int64
	a.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
		if !op.Writes() {
			return memstore.Fault{}
		}
		switch writes.Add(1) % 7 {
		case 0:
			return memstore.Fault{Kind: memstore.UnknownLanded}
		case 3:
			return memstore.Fault{Kind: memstore.UnknownNotLanded}
		case 5:
			return memstore.Fault{Kind: memstore.Unavailable}
		}
		return memstore.Fault{}
	})
	const callers, each = 20, 50
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				for {
					_, err := a.keep(fmt.Sprint(c), fmt.Sprint(i))
					if err == nil {
						break
					}
					if zmsg.OutcomeOf(err) != zmsg.NotExecuted {
						t.Errorf("%d/%d: %v", c, i, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for c := range callers {
		rec, err := w.record(fmt.Sprint(c))
		if err != nil || rec.Own.Version != 1 {
			t.Fatalf("%+v, %v", rec.Own, err)
		}
		lines := decode(t, rec.State).Lines
		for i := range each {
			if i >= len(lines) || lines[i] != fmt.Sprint(i) {
				t.Fatalf("%d: %v", c, lines)
			}
		}
		// Create, one write for each line; nobody else asked, so no two share one.
		if len(lines) != each || rec.Rev != each+1 {
			t.Errorf("%d: %d lines, revision %d", c, len(lines), rec.Rev)
		}
	}
}

// Twenty callers on three nodes change one object, over JetStream: the sum is right.
func TestManyWritersOfOneObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onKV(t)
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{}, logs())
	}
	const callers, each = 20, 10
	var wg sync.WaitGroup
	for c := range callers {
		n := w.all()[c%3]
		wg.Go(func() {
			for range each {
				if _, err := n.keep("sum", "1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rec, err := w.kv.Read(t.Context(), key("sum"))
	if err != nil || len(decode(t, rec.State).Lines) != callers*each {
		t.Errorf("%d lines, %v", len(decode(t, rec.State).Lines), err)
	}
}

// A request with a key runs once: asked again it is answered as the first time, by its owner, after a restart, and by who took over.
func TestOnceAcrossACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := zrouter.Settings{Dedup: 8}
	for _, id := range []string{"a", "b"} {
		w.start(id, kept, logs())
	}
	once := func(n *testNode, id, line string) (int64, error) {
		a, err := zrouter.Call[testpb.Appended](t.Context(), n.set, key("x"), &testpb.Keep{Log: "x", Line: line}, zrouter.Once(id))
		return a.GetN(), err
	}
	for i := range 3 {
		for _, n := range w.all() {
			if got, err := once(n, fmt.Sprint("id", i), fmt.Sprint(i)); err != nil || got != int64(i+1) {
				t.Fatalf("%d at %s: %d, %v", i, n.ref, got, err)
			}
		}
	}
	rec, err := w.record("x")
	if err != nil {
		t.Fatal(err)
	}
	w.remove(w.nodes[rec.Own.Node])
	other := w.all()[0]
	for i := range 3 {
		if got, err := once(other, fmt.Sprint("id", i), "again"); err != nil || got != int64(i+1) {
			t.Errorf("%d at who took over: %d, %v", i, got, err)
		}
	}
	if got, err := other.lines("x"); err != nil || !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("%v, %v", got, err)
	}
	if rec, _ = w.record("x"); rec.Own.Version != 2 {
		t.Errorf("%+v", rec.Own)
	}
	_, err = once(other, strings.Repeat("x", zmsg.MaxOnce+1), "never")
	if !errors.Is(err, zmsg.ErrBadRequest) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Error(err)
	}
}

// Two versions of a program in one cluster: the new one reads what the old one wrote; the old one refuses what the new one wrote, says why,
// and leaves it as it is.
func TestTwoVersionsOfAState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.start("old", zrouter.Settings{}, logs())
	if _, err := old.keep("x", "1"); err != nil {
		t.Fatal(err)
	}
	m, err := zrouter.ManagerOf[*testpb.Log](old.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	v2 := logs()
	v2.Version = 2
	v2.Migrate = func(from uint32, raw []byte) (*testpb.Log, error) {
		s, err := zrouter.Proto[*testpb.Log]().Decode(raw)
		if err == nil {
			s.Lines = append(s.Lines, fmt.Sprintf("from %d", from))
		}
		return s, err
	}
	newer := w.start("new", zrouter.Settings{}, v2)
	mn, err := zrouter.ManagerOf[*testpb.Log](newer.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := mn.Do(t.Context(), key("x"), func(c *logContext) error { add(c, "2"); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := mn.Remove(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	before, _ := w.record("x")
	// Other warnings do not hide it.
	told := &lockedBuffer{}
	w.log = slog.New(slog.NewTextHandler(told, nil))
	third := w.start("third", zrouter.Settings{}, logs())
	mt, err := zrouter.ManagerOf[*testpb.Log](third.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	zrouter.WarnOfOthers(third.set)
	if _, err := mt.MutableObject(t.Context(), key("x")); !errors.Is(err, zrouter.ErrSchema) {
		t.Errorf("a third node, of the old version: %v", err)
	}
	if log := told.String(); !strings.Contains(log, "does not do what was asked") || !strings.Contains(log, "a newer version of the program wrote its state") || !strings.Contains(log, "kind=") {
		t.Errorf("logged: %s", log)
	}
	_, err = m.MutableObject(t.Context(), key("x"))
	if !errors.Is(err, zrouter.ErrSchema) || zmsg.OutcomeOf(err) != zmsg.NotExecuted || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("the old version: %v", err)
	}
	after, err := w.record("x") // not claimed for it, and given up again: nothing was written
	if err != nil || after.Schema != 2 || !slices.Equal(after.State, before.State) || after.Rev != before.Rev || after.Own != before.Own {
		t.Errorf("%+v, it was %+v, %v", after, before, err)
	}
	if got := decode(t, after.State).Lines; !slices.Equal(got, []string{"1", "from 1", "2"}) {
		t.Errorf("%v", got)
	}
}

// What cannot work fails the start, with everything that is wrong.
func TestKindsThatClash(t *testing.T) {
	t.Parallel()
	g, err := zactor.NewGroup(zactor.Config{Node: zmsg.NodeRef{ID: "a", Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Shutdown(context.Background()) })
	w := newWorld(t)
	n := &testNode{w: w}
	with := func(f func(k *zrouter.Kind[*testpb.Log])) zrouter.AnyKind {
		k := logs()
		f(&k)
		return k
	}
	for _, c := range []struct {
		kinds []zrouter.AnyKind
		want  []string
	}{
		{[]zrouter.AnyKind{logs(), with(func(k *zrouter.Kind[*testpb.Log]) { k.Name = "other" })}, []string{`kinds "log" and "other" have the Type 7`, `message id 4101`}},
		{[]zrouter.AnyKind{logs(), with(func(k *zrouter.Kind[*testpb.Log]) { k.Type = 8 })}, []string{`two kinds are called "log"`}},
		{[]zrouter.AnyKind{with(func(k *zrouter.Kind[*testpb.Log]) { k.Type, k.Name, k.Version, k.Handlers = 0, "a b", 0, nil })}, []string{"Type is 0", "the name has", "Version is 0", "no handlers"}},
		{[]zrouter.AnyKind{with(func(k *zrouter.Kind[*testpb.Log]) {
			k.Handlers = append(k.Handlers, zrouter.HandleTell(func(*logContext, *testpb.Log) error { return nil }))
		})}, []string{"its message type has no (zgame.id)"}},
		{[]zrouter.AnyKind{nil, zrouter.Kind[proto.Message]{Type: 9, Name: "any", Version: 1}}, []string{"kind 1 of 2 is nil", "protoreflect.ProtoMessage is no pointer to a generated"}},
		{[]zrouter.AnyKind{with(func(k *zrouter.Kind[*testpb.Log]) { k.Handlers = append(k.Handlers, k.Handlers[0]) })}, []string{"message id 4101 is handled twice"}},
		{[]zrouter.AnyKind{with(func(k *zrouter.Kind[*testpb.Log]) { k.Settings.MaxRoutes, k.Settings.Dedup = 5, 5000 })}, []string{`kind "log": max_routes: is of the node`, "dedup 5000"}},
	} {
		_, err := zrouter.New(zrouter.Config{Self: zmsg.NodeRef{ID: "a", Epoch: 1}, Group: g, Link: n, Members: n, Store: memstore.New()}, c.kinds...)
		for _, s := range c.want {
			if !strings.Contains(fmt.Sprint(err), s) {
				t.Errorf("%v\nlacks %q", err, s)
			}
		}
	}
}

// A route is trusted for as long as its kind says, and then looked up again, once.
func TestRouteIsLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		short := logs()
		short.Settings.CacheUpdateInterval = 10 * time.Second
		a, b := w.start("a", zrouter.Settings{}, short), w.start("b", zrouter.Settings{}, short)
		m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.MutableObject(t.Context(), key("x")); err != nil {
			t.Fatal(err)
		}
		calls := b.counting(nil)
		for i, want := range []int64{1, 1, 2, 2} {
			if _, err := b.append("x", "1"); err != nil || calls.Load() != want {
				t.Errorf("%d: %d calls of the store, want %d, %v", i, calls.Load(), want, err)
			}
			time.Sleep(6 * time.Second)
		}
	})
}
