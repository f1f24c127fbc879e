package zgate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// newStreet is a town of n gates, each with a bus of its own that subscribes when the test says so.
func newStreet(t *testing.T, n int) (*town, []*rig, []*slowGroups) {
	t.Helper()
	var buses []*slowGroups
	w, g := newTown(t, n, func(c *Config) {
		b := &slowGroups{}
		buses = append(buses, b)
		c.Groups = b
	})
	return w, g, buses
}

// hang has the bus take its time for subscriptions until go on is called.
func (s *slowGroups) hang() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate = nil
		close(gate)
	}
}

// published has come to the gate from node x, as its n-th.
func (r *rig) published(n uint64) {
	r.publish("go", &zmsg.Push{ID: 1, Body: fmt.Append(nil, n), No: n}, zmsg.NodeRef{ID: "x", Epoch: 1})
}

// A session goes on from its second gate before the first has said that nothing more of its groups comes: what that one sends on arrives, once, and in
// the order of its publisher; also where it is back at the first.
func TestGoesOnWhileTheGateBeforeSendsOn(t *testing.T) {
	for _, last := range []int{2, 0} { // the gate where it ends
		t.Run(fmt.Sprint("n1 n2 n3 n", last+1), func(t *testing.T) {
			t.Parallel()
			_, g, buses := newStreet(t, 3)
			c := g[0].kept("ann")
			if err := g[0].Join(c.refAt(), "go"); err != nil {
				t.Fatal(err)
			}
			slow := buses[1].hang() // n2 does not subscribe yet: n1 sends on
			g[0].published(1)
			c.pushes("1 1")
			b := g[1].again("ann", c.welcome.GetResume(), 1)
			g[1].published(4) // waits for what n1 has
			g[0].published(2)
			b.pushes("2 2")
			c = g[2].again("ann", b.welcome.GetResume(), 2)
			if !c.welcome.GetResumed() {
				t.Fatalf("%v", c.welcome)
			}
			eventually(t, "n3 has said that it has it", func() bool { return g[1].owed.Load() == 0 })
			g[2].published(5) // waits as well
			c.ping()          // nothing has come ahead
			g[0].published(3)
			c.pushes("3 3")
			g[0].published(4)
			c.pushes("4 4")
			g[0].published(5)
			c.pushes("5 5")
			if last == 0 {
				c = g[0].again("ann", c.welcome.GetResume(), 5)
			}
			slow()
			if last != 0 { // else it has come here already
				g[last].published(4) // the gate was slow
				g[last].published(5)
			}
			g[last].published(6)
			c.pushes("6 6")
			c.ping()
			for i, r := range g {
				eventually(t, "it has let go", func() bool { return r.owed.Load() == 0 })
				if n := r.counter("gaps_total"); n != 0 {
					t.Errorf("n%d told of %v gaps", i+1, n)
				}
			}
		})
	}
}

// The gate before dies while it sends on: the client is told of a gap, ahead of what has waited.
func TestGateBeforeDiesWhileItSendsOn(t *testing.T) {
	t.Parallel()
	_, g, buses := newStreet(t, 2)
	c := g[0].kept("ann")
	ref := c.refAt()
	if err := g[0].Join(ref, "go"); err != nil {
		t.Fatal(err)
	}
	defer buses[1].hang()()
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	g[1].published(1)
	b.ping()
	s := g[1].sessions.get(ref.ID)
	l := s.lock()
	s.cutOverlapLocked() // as its timer does
	l.q.mu.Unlock()
	if gap := b.nextControl().GetGap(); gap.GetFirst() != 1 || gap.GetLast() != 0 {
		t.Errorf("told of %v", gap)
	}
	b.pushes("1 1")
	g[0].published(1) // it lives
	g[0].published(2)
	b.pushes("2 2")
}

// A client that has gone to a third gate comes there with the newer token, while the second asks for it with the older one still: the session goes to the
// second, and then to wherever the client comes with what it has.
func TestOlderAskIsUnderWay(t *testing.T) {
	t.Parallel()
	_, g := newTown(t, 3)
	c := g[0].kept("ann")
	first := c.welcome.GetResume()
	b := g[2].again("ann", first, 0)
	if !b.welcome.GetResumed() {
		t.Fatalf("%v", b.welcome)
	}
	for range 3 {
		late := g[1].again("ann", first, 0) // nobody is there any more to get what it is told
		if !late.welcome.GetResumed() {
			t.Fatalf("%v", late.welcome)
		}
		late.ws.end()
	}
	d := g[0].again("ann", b.welcome.GetResume(), 0)
	if !d.welcome.GetResumed() {
		t.Fatalf("the session is lost: %v", d.welcome)
	}
	d.ack(0, 0)
	d.ping()
	if x := g[1].again("ann", first, 0); x.welcome.GetResumed() {
		t.Error("it has shown a newer token")
	}
}

// An object's push is missing at a gate to which a session is just coming, or from which it has just gone: the client is told.
func TestGapWhileItGoes(t *testing.T) {
	t.Parallel()
	w, g := newTown(t, 2)
	c := g[0].kept("ann")
	ref := c.refAt()
	now := zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}
	key := zmsg.Key{Type: 3, ID: "x"}
	bind := func(r *rig, ref zmsg.SessionRef) error {
		return r.Bind(&zmsg.Binding{
			Key: key, Version: 4, Owner: zmsg.Address{Node: zmsg.NodeRef{ID: "n9", Epoch: 1}, Actor: 8}, Gate: ref.Gate, Sessions: []zmsg.SessionRef{ref}, Since: 4,
		})
	}
	push := func(r *rig, ref zmsg.SessionRef, n uint64) error {
		return r.Push(ref, &zmsg.Push{ID: 1, Body: fmt.Append(nil, n), Key: key, Version: 4, No: n})
	}
	w.fence = func() { // nodes know already: the second one is missing
		if err := errors.Join(bind(g[1], now), push(g[1], now, 1), push(g[1], now, 3)); err != nil {
			t.Error(err)
		}
	}
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	b.pushes("1 1", "2 3")
	if gap := b.nextControl().GetGap(); gap.GetKeyId() != "x" || gap.GetMissed() != 1 {
		t.Errorf("told of %v", gap)
	}
	s := g[0].sessions.get(ref.ID)
	g[0].objects.tellLocked(&boundObject{key: key, pushed: true, sessions: map[uint64]*Session{ref.ID: s}}, 7)
	if gap := b.nextControl().GetGap(); gap.GetKeyId() != "x" || gap.GetMissed() != 7 {
		t.Errorf("told of %v", gap)
	}
}

// countedGroups is a bus that counts what it is asked.
type countedGroups struct{ left atomic.Int64 }

func (b *countedGroups) JoinGroup(context.Context, string) error { return nil }
func (b *countedGroups) LeaveGroup(string) error                 { b.left.Add(1); return nil }

// The clock of a gate looks after a session that has gone while the gate shuts down: no goroutine begins that nobody waits for.
func TestLeftBehindWhileShuttingDown(t *testing.T) {
	t.Parallel()
	bus := &countedGroups{}
	w, g := newTown(t, 2, func(c *Config) { c.Groups = bus })
	c := g[0].kept("ann")
	ref := c.refAt()
	if err := g[0].Join(ref, "go"); err != nil {
		t.Fatal(err)
	}
	s := g[0].sessions.get(ref.ID)
	w.mu.Lock()
	w.over = true // nobody takes what is left
	w.mu.Unlock()
	g[0].cut(c)
	first, err := parseToken(c.welcome.GetResume())
	if err != nil {
		t.Fatal(err)
	}
	ask, err := proto.Marshal(&wirepb.HandoverAsk{User: "ann", Secret: first.secret[:], Key: first.key[:]})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	g[0].HandOver(g[1].self.Ref(), 1, ref, ask, func([]byte) error { close(answered); return nil })
	<-answered
	if err := g[0].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.leftBehind(s.c.Load())
	if n := bus.left.Load(); n != 0 {
		t.Errorf("the bus was asked %d times when the gate was gone", n)
	}
	if err := g[0].groups.join(s, "other", func(err error) {
		if !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	}); err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
