package zrouter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// transfer moves the log k, and fails the test where that does not work.
func (n *testNode) transfer(k string, to *testNode, opts ...zrouter.TransferOption) zrouter.Route {
	n.w.t.Helper()
	r, err := n.set.Transfer(n.w.t.Context(), key(k), to.ref, opts...)
	if err != nil {
		n.w.t.Fatalf("transfer of %s from %s to %s: %v", k, n.ref, to.ref, err)
	}
	return r
}

// transferring moves the log k, and tells how that ended.
func (n *testNode) transferring(k string, to zmsg.NodeRef) <-chan error {
	moved := make(chan error, 1)
	go func() { // ends with the transfer
		_, err := n.set.Transfer(n.w.t.Context(), key(k), to)
		moved <- err
	}()
	return moved
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

// What a transfer is refused for leaves everything as it was: no hook is called, nothing is written.
func TestTransferRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hooked := logs()
	hooked.BeforeRemove = func(*logContext) error { t.Error("BeforeRemove is called"); return nil }
	a := w.start("a", zrouter.Settings{PrepareTimeout: 200 * time.Millisecond}, hooked)
	hosts := w.start("b", zrouter.Settings{MaxObjects: 1}, logs())
	none := w.start("c", zrouter.Settings{})
	deaf := w.start("d", zrouter.Settings{}, logs())
	newer := logs()
	newer.Version = 2
	updated := w.start("e", zrouter.Settings{}, newer)
	if _, err := w.own(updated, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.own(hosts, "other"); err != nil {
		t.Fatal(err)
	}
	deaf.down.Store(true)
	before, err := w.record("k")
	if err != nil {
		t.Fatal(err)
	}
	for what, to := range map[string]zmsg.NodeRef{
		"as many objects as it may":                    hosts.ref,
		"does not host the kind":                       none.ref,
		"does not say that it can take the object":     deaf.ref,
		"is not on the list of nodes":                  {ID: "nobody", Epoch: 99},
		"is not on the list of nodes, of an old start": {ID: "b", Epoch: 77},
	} {
		_, err := a.set.Transfer(t.Context(), key("k"), to)
		if what, _, _ := strings.Cut(what, ","); !errors.Is(err, zrouter.ErrRefused) || zmsg.OutcomeOf(err) != zmsg.NotExecuted || !strings.Contains(err.Error(), what) {
			t.Errorf("to one that %s: %v", what, err)
		}
	}
	if after, err := w.record("k"); err != nil || after.Rev != before.Rev || after.Own != before.Own {
		t.Errorf("the record is %+v, was %+v, %v", after, before, err)
	}
	if _, err := a.append("k", "serves on"); err != nil {
		t.Error(err)
	}
	if _, err := updated.set.Transfer(t.Context(), key("new"), hosts.ref); !errors.Is(err, zrouter.ErrRefused) || !strings.Contains(err.Error(), "an older program") {
		t.Errorf("to an older program: %v", err)
	}
	if r, err := a.set.Transfer(t.Context(), key("k"), a.ref); err != nil || r.Owner != a.ref {
		t.Errorf("to itself: %+v, %v", r, err)
	}
	if _, err := a.set.Transfer(t.Context(), key("not there"), hosts.ref); !errors.Is(err, zrouter.ErrNotFound) {
		t.Errorf("of what is not there: %v", err)
	}
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Transfer(t.Context(), zmsg.Key{Type: 8, ID: "k"}, hosts.ref); !errors.Is(err, zmsg.ErrBadRequest) {
		t.Errorf("of another type: %v", err)
	}
}

// The hooks: BeforeRemove, OnHandoff, then OnDeactivate here and OnActivate, OnAdopt there, with what was handed over, by a hint or by
// the record; the record keeps that until the new owner has written.
func TestTransferHooks(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		var mu sync.Mutex
		var calls []string
		call := func(node, hook string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, node+" "+hook)
		}
		w := newWorld(t)
		kind := func(node string) zrouter.AnyKind {
			k := logs()
			k.BeforeRemove = func(*logContext) error { call(node, "before"); return nil }
			k.OnHandoff = func(c *logContext) ([]byte, error) {
				call(node, "handoff")
				add(c, "handed over")
				return []byte("timers"), nil
			}
			k.RemoveAborted = func(*logContext) { call(node, "aborted") }
			k.OnActivate = func(c *logContext) error { call(node, "activate "+string(c.Private())); return nil }
			k.OnAdopt = func(c *logContext, attachment []byte) error {
				call(node, "adopt "+string(attachment)+" "+string(c.Private()))
				return nil
			}
			k.OnDeactivate = func(_ *logContext, why zrouter.Reason) { call(node, "deactivate "+why.String()) }
			return k
		}
		a := w.start("a", zrouter.Settings{}, kind("a"))
		b := w.start("b", zrouter.Settings{SaveDelay: time.Millisecond}, kind("b"))
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		opts := []zrouter.TransferOption{zrouter.Private([]byte("why"))}
		if silent {
			opts = append(opts, zrouter.WithoutNotify())
		}
		a.transfer("k", b, opts...)
		if got, err := b.lines("k"); err != nil || !slices.Equal(got, []string{"handed over"}) {
			t.Errorf("%q, %v", got, err)
		}
		eventually(t, "all hooks are called", func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) == 6 })
		mu.Lock()
		slices.Sort(calls) // those of two nodes have no order
		want := []string{"a activate ", "a before", "a deactivate moved", "a handoff", "b activate why", "b adopt timers why"}
		if !slices.Equal(calls, want) {
			t.Errorf("called %q", calls)
		}
		mu.Unlock()
		eventually(t, "the new owner has written", func() bool { r, err := w.record("k"); return err == nil && len(r.Attachment) == 0 })
	}
}

// A hook that says no keeps the object; what the hooks before have done is taken back before the next message.
func TestTransferVetoed(t *testing.T) {
	t.Parallel()
	errNo := errors.New("not now")
	for _, which := range []string{"BeforeRemove", "OnHandoff"} {
		w := newWorld(t)
		k := logs()
		no := func(hook string) error {
			if hook == which {
				return errNo
			}
			return nil
		}
		k.BeforeRemove = func(c *logContext) error {
			// What comes while the object is frozen waits.
			for i := range 3 {
				if err := c.Tell(c.Object(c.Key()), &testpb.Note{Log: c.Key().ID, Line: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			}
			return no("BeforeRemove")
		}
		k.OnHandoff = func(*logContext) ([]byte, error) { return nil, no("OnHandoff") }
		k.RemoveAborted = func(c *logContext) { add(c, "aborted") }
		a := w.start("a", zrouter.Settings{}, k)
		b := w.start("b", zrouter.Settings{}, logs())
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		_, err := a.set.Transfer(t.Context(), key("k"), b.ref)
		if !errors.Is(err, zrouter.ErrHandoff) || !errors.Is(err, errNo) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%s says no: %v", which, err)
		}
		told := zmsg.ErrorReply(err) // what a drain counts, and another node is told
		for _, said := range []string{err.Error(), told.Text} {
			if told.Code != zmsg.CodeHandoff || !strings.Contains(said, which+": "+errNo.Error()) || strings.Contains(said, "in time") {
				t.Errorf("%s says no: %v %q", which, told.Code, said)
			}
		}
		want := []string{"0", "1", "2"}
		if which == "OnHandoff" {
			want = append([]string{"aborted"}, want...)
		}
		eventually(t, fmt.Sprintf("%s: %q in the object", which, want), func() bool {
			got, err := a.lines("k")
			return err == nil && slices.Equal(got, want)
		})
		if r, err := w.record("k"); err != nil || r.Own.Node != a.ref || r.Own.Version != 1 {
			t.Errorf("%s: the record is %+v, %v", which, r, err)
		}
	}
}

// Given up by a transfer to nobody: what waited is placed anew where the kind has Create, and ends with ErrNotInServer otherwise.
func TestTransferToNobody(t *testing.T) {
	t.Parallel()
	for _, created := range []bool{true, false} {
		w := newWorld(t)
		k := logs()
		if !created {
			k.Create = nil
		}
		frozen, goOn := make(chan struct{}), make(chan struct{})
		k.BeforeRemove = func(*logContext) error { close(frozen); <-goOn; return nil }
		a := w.start("a", zrouter.Settings{}, k)
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		moved := a.transferring("k", zmsg.NodeRef{})
		<-frozen
		answered := make(chan error, 1)
		go func() {
			_, err := a.append("k", "waited")
			answered <- err
		}()
		eventually(t, "the request waits", func() bool { return zrouter.Waiting(a.set) == 1 })
		close(goOn)
		if err := <-moved; err != nil {
			t.Error(err)
		}
		if err := <-answered; created && err != nil || !created && !errors.Is(err, zrouter.ErrNotInServer) {
			t.Errorf("created on demand %t: %v", created, err)
		}
	}
}

// Several transfers of one object at once: each waits its turn. Who comes to the same node is content, another learns the owner.
func TestTransferTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.order[0], w.order[1], w.order[2]
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var well [2]atomic.Int64
	for i := range 8 {
		to := []*testNode{b, c}[i%2]
		wg.Go(func() {
			r, err := a.set.Transfer(t.Context(), key("k"), to.ref)
			var told *zrouter.RouteError
			switch {
			case err == nil && r.Owner == to.ref:
				well[i%2].Add(1)
			case errors.Is(err, zrouter.ErrMoved) && errors.As(err, &told) && (told.Route.Owner == b.ref || told.Route.Owner == c.ref) && told.Route.Owner != to.ref:
			default:
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if n, m := well[0].Load(), well[1].Load(); n+m != 4 || n*m != 0 {
		t.Errorf("%d to b and %d to c", n, m)
	}
	if r, err := w.record("k"); err != nil || r.Own.Version != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A write whose outcome is unknown is neither taken for done nor for failed.
func TestTransferUnclear(t *testing.T) {
	t.Parallel()
	for _, fault := range []memstore.FaultKind{memstore.UnknownLanded, memstore.UnknownNotLanded} {
		w := newWorld(t, "a", "b")
		a, b := w.order[0], w.order[1]
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		var once atomic.Bool
		a.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
			if op == zstore.OpMove && once.CompareAndSwap(false, true) {
				return memstore.Fault{Kind: fault}
			}
			return memstore.Fault{}
		})
		if r := a.transfer("k", b); r.Owner != b.ref || r.Version != 2 {
			t.Errorf("%+v", r)
		}
		if n, err := a.append("k", "one"); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	// A write that fails for certain leaves the object where it is.
	w := newWorld(t, "a", "b")
	a, b := w.order[0], w.order[1]
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	a.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
		if op == zstore.OpMove {
			return memstore.Fault{Kind: memstore.Unavailable}
		}
		return memstore.Fault{}
	})
	if _, err := a.set.Transfer(t.Context(), key("k"), b.ref); !errors.Is(err, zrouter.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Error(err)
	}
	if n, err := b.append("k", "one"); n != 1 || err != nil {
		t.Error(n, err)
	}
}
