package zgate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// fakeBus is a Groups that knows what is subscribed, and can be slow and fail.
type fakeBus struct {
	mu    sync.Mutex
	on    map[string]bool
	busy  map[string]bool
	calls int
	fault error // what calls return
	gate  chan struct{}
	t     testing.TB
}

func newFakeBus(tb testing.TB) *fakeBus {
	tb.Helper()
	return &fakeBus{on: map[string]bool{}, busy: map[string]bool{}, t: tb}
}

func (b *fakeBus) call(group string, join bool) error {
	b.mu.Lock()
	if b.busy[group] {
		b.t.Errorf("calls for %s overlap", group)
	}
	b.busy[group] = true
	b.calls++
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy[group] = false
	if b.fault != nil {
		return b.fault
	}
	if b.on[group] == join {
		b.t.Errorf("group %s: join %v twice in a row", group, join)
	}
	b.on[group] = join
	return nil
}

func (b *fakeBus) JoinGroup(_ context.Context, group string) error { return b.call(group, true) }
func (b *fakeBus) LeaveGroup(group string) error                   { return b.call(group, false) }

func (b *fakeBus) subscribed(group string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on[group]
}

func (b *fakeBus) set(fault error, gate chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.gate = fault, gate
}

// One subscription while there are members; it is there when Join returns, and goes with the last member, however that
// one leaves. W11: who joins gets what is published from then on, the broadcast about the join included.
func TestGroupSubscription(t *testing.T) {
	bus := newFakeBus(t)
	r := newRig(t, func(c *Config) { c.Groups = bus })
	a, b := r.login("a"), r.login("b")
	for _, c := range []*client{a, b, a} {
		if err := r.Join(c.ref(), "g"); err != nil {
			t.Fatal(err)
		}
		if !bus.subscribed("g") {
			t.Fatal("not subscribed when Join returned")
		}
	}
	if n, _ := r.PublishLocal("g", &zmsg.Push{ID: 1}); n != 2 {
		t.Errorf("%d copies", n)
	}
	a.next()
	b.next()
	if err := r.Leave(a.ref(), "g"); err != nil {
		t.Fatal(err)
	}
	if err := r.Leave(a.ref(), "g"); err != nil {
		t.Error("leaving twice:", err)
	}
	if n, _ := r.PublishLocal("g", &zmsg.Push{ID: 1}); n != 1 || !bus.subscribed("g") {
		t.Errorf("%d copies, subscribed %v", n, bus.subscribed("g"))
	}
	b.ws.end()
	eventually(t, "unsubscribed", func() bool { return !bus.subscribed("g") })
	eventually(t, "forgotten", func() bool { return r.counter("groups") == 0 && r.groups.get("g") == nil })
	if bus.calls != 2 {
		t.Errorf("%d calls of the bus", bus.calls)
	}
	if n, failed := r.PublishLocal("g", &zmsg.Push{ID: 1}); n != 0 || failed != 0 {
		t.Errorf("delivered %d, failed %d", n, failed)
	}
}

// The race that loses subscriptions: the last member leaves, and while LeaveGroup is under way another joins.
func TestJoinRacesLeave(t *testing.T) {
	bus := newFakeBus(t)
	r := newRig(t, func(c *Config) { c.Groups = bus })
	a, b := r.login("a"), r.login("b")
	if err := r.Join(a.ref(), "g"); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	bus.set(nil, gate)
	if err := r.Leave(a.ref(), "g"); err != nil { // LeaveGroup hangs
		t.Fatal(err)
	}
	eventually(t, "leaving", func() bool { bus.mu.Lock(); defer bus.mu.Unlock(); return bus.busy["g"] })
	joined := make(chan error, 1)
	go func() { joined <- r.Join(b.ref(), "g") }()
	grp := r.groups.get("g")
	eventually(t, "b is a member", func() bool { grp.mu.RLock(); defer grp.mu.RUnlock(); return len(grp.members) == 1 })
	select {
	case err := <-joined:
		t.Fatalf("Join returned (%v) while its subscription was being taken down", err)
	default:
	}
	close(gate)
	if err := <-joined; err != nil || !bus.subscribed("g") {
		t.Fatalf("Join: %v, subscribed %v", err, bus.subscribed("g"))
	}
}

// A bus that is down: Join says so and the session is no member; a member by another node's word stays one, and is
// subscribed when the bus is back.
func TestBusDown(t *testing.T) {
	bus := newFakeBus(t)
	bus.set(errors.New("bus is down"), nil)
	acks := make(chan error, 1)
	r := newRig(t, func(c *Config) {
		c.Groups = bus
		c.Ack = func(_ zmsg.NodeRef, request uint64, err error) {
			if request == 5 {
				acks <- err
			}
		}
	})
	c := r.login("a")
	if err := r.Join(c.ref(), "g"); zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Fatalf("Join: %v", err)
	}
	if n, _ := r.PublishLocal("g", &zmsg.Push{ID: 1}); n != 0 {
		t.Error("is a member")
	}
	from := zmsg.NodeRef{ID: "n2", Epoch: 1}
	r.OnSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: c.ref(), Group: "h"}, from)
	if n, _ := r.PublishLocal("h", &zmsg.Push{ID: 1}); n != 1 {
		t.Error("is no member")
	}
	eventually(t, "tried again", func() bool { return r.counter("subscribe_failures_total") >= 3 })
	r.OnSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: c.ref(), Group: "k", Request: 5}, from)
	if err := <-acks; zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("ack %v", err)
	}
	if n, _ := r.PublishLocal("k", &zmsg.Push{ID: 1}); n != 0 {
		t.Error("is a member of what the other node was told it did not join")
	}
	bus.set(nil, nil)
	eventually(t, "subscribed", func() bool { return bus.subscribed("h") })
	r.OnSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: c.ref(), Group: "i", Request: 5}, from)
	if err := <-acks; err != nil || !bus.subscribed("i") {
		t.Errorf("ack %v", err)
	}
	r.OnSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: c.ref(), Group: "", Request: 5}, from)
	if err := <-acks; !errors.Is(err, ErrBadGroup) {
		t.Errorf("ack %v", err)
	}
}

// W10: clients join, leave and go at random, with broadcasts in between. In the end everything is what the members say,
// and no subscription is lost or left.
func TestGroupsAtRandom(t *testing.T) {
	bus := newFakeBus(t)
	r := newRig(t, func(c *Config) { c.Groups = bus; c.MaxGroups = 8 })
	clients, rounds := 60, 100
	if testing.Short() {
		clients, rounds = 20, 30
	}
	names := []string{"a", "b", "c", "d", "e"}
	var mu sync.Mutex
	oracle := map[string]int{}
	var wg sync.WaitGroup
	for i := range clients {
		c := r.dialRaw(true)
		ref := c.hello("ann")
		wg.Go(func() {
			in := map[string]bool{}
			for range rounds {
				name := names[rand.IntN(len(names))]
				switch rand.IntN(3) {
				case 0:
					if err := r.Join(ref, name); err != nil {
						t.Error(err)
					}
					if !bus.subscribed(name) {
						t.Errorf("%s: not subscribed with a member", name)
					}
					in[name] = true
				case 1:
					_ = r.Leave(ref, name)
					delete(in, name)
				case 2:
					r.PublishLocal(name, &zmsg.Push{ID: 1, Class: zmsg.Volatile})
				}
			}
			if i%2 == 0 {
				_ = c.Close()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for name := range in {
				oracle[name]++
			}
		})
	}
	wg.Wait()
	eventually(t, "half of them gone", func() bool { return r.Sessions() == clients/2 })
	for _, name := range names {
		n := 0
		if grp := r.groups.get(name); grp != nil {
			grp.mu.RLock()
			n = len(grp.members)
			grp.mu.RUnlock()
		}
		if n != oracle[name] {
			t.Errorf("%s has %d members, expected %d", name, n, oracle[name])
		}
		eventually(t, "subscription of "+name, func() bool { return bus.subscribed(name) == (oracle[name] > 0) })
	}
}

func TestGroupLimits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxGroups = 2 })
	c := r.login("a")
	for _, name := range []string{"", strings.Repeat("x", 201), "\xff"} {
		if err := r.Join(c.ref(), name); !errors.Is(err, ErrBadGroup) {
			t.Errorf("%.10q: %v", name, err)
		}
	}
	for i, want := range []error{nil, nil, ErrTooMany} {
		err := r.Join(c.ref(), fmt.Sprint(i))
		if !errors.Is(err, want) {
			t.Errorf("group %d: %v", i, err)
		}
		// What a handler that returns it tells the client.
		if want != nil && (zmsg.CodeOf(err) != zmsg.CodeBusy || zmsg.OutcomeOf(err) != zmsg.NotExecuted) {
			t.Errorf("group %d: told as %v, %v", i, zmsg.CodeOf(err), zmsg.OutcomeOf(err))
		}
	}
	_ = r.Leave(c.ref(), "0")
	if err := r.Join(c.ref(), "2"); err != nil {
		t.Error(err)
	}
}

// Operations name a session in full: another gate, start, id or generation is another session.
func TestRefs(t *testing.T) {
	r := newRig(t)
	c := r.login("a")
	for _, tt := range []struct {
		change func(*zmsg.SessionRef)
		want   error
	}{
		{func(*zmsg.SessionRef) {}, nil},
		{func(s *zmsg.SessionRef) { s.Gate.ID = "n2" }, ErrWrongGate},
		{func(s *zmsg.SessionRef) { s.Gate.Epoch++ }, ErrWrongGate},
		{func(s *zmsg.SessionRef) { s.ID++ }, ErrNoSession},
		{func(s *zmsg.SessionRef) { s.Gen++ }, ErrStaleSession},
	} {
		ref := c.ref()
		tt.change(&ref)
		if err := r.Push(ref, &zmsg.Push{ID: 1}); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", ref, err)
		}
		if err := r.Join(ref, "g"); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", ref, err)
		}
		if err := r.Leave(ref, "g"); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", ref, err)
		}
		if tt.want != nil {
			if err := r.Kick(ref, 0, ""); !errors.Is(err, tt.want) {
				t.Errorf("%+v: %v", ref, err)
			}
		}
	}
	if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: 1}); !errors.Is(err, ErrNotWired) {
		t.Error(err)
	}
}

// Every operation of another node, as the Link hands it over. S7: a kick tells code and text before the close.
func TestOperationsOfOtherNodes(t *testing.T) {
	told := make(chan *zmsg.Message, 10)
	to := make(chan zmsg.Address, 10)
	r := newRig(t, func(c *Config) {
		c.Tell = func(a zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			to <- a
			told <- m
			return nil
		}
	})
	c := r.login("ann")
	from := zmsg.NodeRef{ID: "n2", Epoch: 3}
	op := func(e zmsg.Envelope) {
		e.Kind = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION
		if e.Session.IsZero() && e.Group == "" && e.Sessions == nil {
			e.Session = c.ref()
		}
		body := []byte(e.Body)
		r.OnSession(&e, from)
		clear(body) // the envelope's memory is used again
	}
	push := wirepb.SessionOp_SESSION_OP_PUSH
	op(zmsg.Envelope{Op: push, ID: 1, Body: []byte("one")})
	op(zmsg.Envelope{Op: push, ID: 2, Sessions: []uint64{c.ref().ID, 5}, Body: []byte("two")})
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: c.ref(), Group: "g"})
	op(zmsg.Envelope{Op: push, ID: 3, Group: "g", Body: []byte(strings.Repeat("3", 5000))})
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_LEAVE, Session: c.ref(), Group: "g"})
	op(zmsg.Envelope{Op: push, ID: 4, Group: "g", Body: []byte("not for ann")})
	op(zmsg.Envelope{Op: push, ID: 5})
	for i, want := range []string{"one", "two", strings.Repeat("3", 5000), ""} {
		if f := c.next(); string(f.Body) != want {
			t.Errorf("push %d: %.20q", i, f.Body)
		}
	}
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_WATCH, FromActor: 9})
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_WATCH, FromActor: 9}) // once is enough
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_WATCH, FromActor: 10})
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_UNWATCH, FromActor: 10})
	op(zmsg.Envelope{Op: 99})
	ref := c.ref()
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_KICK, Code: 4321, Text: "go away"})
	if text, _ := c.closedWith(4321); text != "go away" {
		t.Errorf("text %q", text)
	}
	m := <-told
	closed := m.Value.(*wirepb.SessionClosed)
	if m.ID != 10 || closed.GetSession() != ref.ID || closed.GetGeneration() != 1 || closed.GetGate() != "n1" ||
		closed.GetGateEpoch() != 7 || closed.GetUser() != "ann" || closed.GetCode() != 4321 || closed.GetReason() != "go away" {
		t.Errorf("told %v", closed)
	}
	if a := <-to; a != (zmsg.Address{Node: from, Actor: 9}) {
		t.Errorf("told to %v", a)
	}
	// A watch that comes too late is answered at once.
	eventually(t, "session gone", func() bool { return r.Sessions() == 0 })
	op(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_WATCH, Session: ref, FromActor: 11})
	if a := <-to; a.Actor != 11 || (<-told).Value.(*wirepb.SessionClosed).GetSession() != ref.ID {
		t.Errorf("told to %v", a)
	}
	select {
	case m := <-told:
		t.Errorf("told twice: %v", m.Value)
	default:
	}
}

// Watches and the end of the session, at once: each watcher is told exactly once.
func TestWatchRacesEnd(t *testing.T) {
	var mu sync.Mutex
	told := map[uint64]int{}
	r := newRig(t, func(c *Config) {
		c.Tell = func(a zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			told[a.Actor]++
			if a.Actor%2 == 0 {
				return errors.New("no such actor")
			}
			m.Release()
			return nil
		}
	})
	actor := uint64(0)
	for range 100 {
		c := r.dialRaw(true)
		ref := c.hello("ann")
		var wg sync.WaitGroup
		for range 4 {
			actor++
			a := zmsg.Address{Node: testNode, Actor: actor}
			wg.Go(func() {
				if err := r.Watch(ref, a); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { _ = c.Close() })
		wg.Wait()
	}
	eventually(t, "all told", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == int(actor) })
	for a, n := range told {
		if n != 1 {
			t.Errorf("actor %d told %d times", a, n)
		}
	}
	eventually(t, "failures counted", func() bool { return r.counter("drops_total", "watcher") == float64(actor/2) })
}

// Shutdown ends subscriptions too, and does not wait for a bus that is down.
func TestShutdownLeavesGroups(t *testing.T) {
	bus := newFakeBus(t)
	r := newRig(t, func(c *Config) { c.Groups = bus })
	c := r.login("a")
	for _, g := range []string{"g", "h"} {
		if err := r.Join(c.ref(), g); err != nil {
			t.Fatal(err)
		}
	}
	bus.set(errors.New("bus is down"), nil)
	go func() { _, _ = c.tryNext(); c.ws.end() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if n := r.counter("groups"); n != 0 {
		t.Errorf("%v groups", n)
	}
}
