package zgate

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

var (
	roomKey = zmsg.Key{Type: 2, ID: "go"}
	owner1  = zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 1}, Actor: 11}
	owner2  = zmsg.Address{Node: zmsg.NodeRef{ID: "n3", Epoch: 1}, Actor: 12}
)

// ends keeps who was told of the end of which session.
type ends struct {
	mu   sync.Mutex
	told map[zmsg.Address][]*wirepb.SessionClosed
}

func (e *ends) tell(to zmsg.Address, m *zmsg.Message) error {
	if passing(m) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told == nil {
		e.told = map[zmsg.Address][]*wirepb.SessionClosed{}
	}
	e.told[to] = append(e.told[to], m.Value.(*wirepb.SessionClosed))
	m.Release()
	return nil
}

func (e *ends) of(a zmsg.Address) []*wirepb.SessionClosed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*wirepb.SessionClosed(nil), e.told[a]...)
}

func bindRig(tb testing.TB, change ...func(*Config)) (*rig, *ends) {
	tb.Helper()
	e := &ends{}
	return newRig(tb, append([]func(*Config){func(c *Config) { c.Tell = e.tell }}, change...)...), e
}

// binding is of the first owner, who begins to count, or of the second, who has the object from it.
func binding(owner zmsg.Address, last uint64, refs ...zmsg.SessionRef) *zmsg.Binding {
	b := &zmsg.Binding{Key: roomKey, Version: 1, Owner: owner, Gate: testNode, Sessions: refs, Last: last, Base: last, Since: 1}
	if owner == owner2 {
		b.Version = 2
	}
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (r *rig) objectPush(ref zmsg.SessionRef, version zmsg.RouteVersion, n uint64) error {
	return r.Push(ref, &zmsg.Push{ID: 9, Body: []byte{byte(version), byte(n)}, Key: roomKey, Version: version, No: n})
}

func (c *client) wantPush(version zmsg.RouteVersion, n uint64) {
	c.t.Helper()
	if f := c.next(); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || len(f.Body) != 2 || f.Body[0] != byte(version) || f.Body[1] != byte(n) {
		c.t.Fatalf("expected push %d of version %d, got %+v", n, version, f)
	}
}

func (c *client) wantGap(missed uint64) {
	c.t.Helper()
	f := c.next()
	var m wirepb.Control
	if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetGap() == nil || m.GetGap().GetMissed() != missed ||
		m.GetGap().GetKeyType() != roomKey.Type || m.GetGap().GetKeyId() != roomKey.ID {
		c.t.Fatalf("expected a gap of %d, got %+v %v", missed, f, &m)
	}
}

// A late old owner cannot take sessions back, by nothing it does; doubles change nothing; the end is told to the new owner, once.
func TestOldOwnerIsRefused(t *testing.T) {
	r, ends := bindRig(t)
	c := r.login("ann")
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	must(t, r.objectPush(c.ref(), 1, 1))
	must(t, r.Bind(binding(owner2, 1, c.ref())))
	must(t, r.Bind(binding(owner2, 1, c.ref())))
	must(t, r.objectPush(c.ref(), 2, 2))
	must(t, r.objectPush(c.ref(), 2, 2)) // twice

	for what, err := range map[string]error{
		"bind": r.Bind(binding(owner1, 1, c.ref())), "unbind": r.Unbind(binding(owner1, 1, c.ref())), "lost": r.Lost(binding(owner1, 1)),
		"push": r.objectPush(c.ref(), 1, 2), "next push": r.objectPush(c.ref(), 1, 3),
	} {
		if !errors.Is(err, ErrOldOwner) || zmsg.CodeOf(err) != zmsg.CodeMoved {
			t.Errorf("%s of the old owner: %v", what, err)
		}
	}
	if delivered, failed := r.PushIDs([]uint64{c.ref().ID}, &zmsg.Push{ID: 9, Body: []byte{1, 4}, Key: roomKey, Version: 1, No: 4}); delivered != 0 || failed != 1 {
		t.Errorf("push to many of the old owner: %d delivered, %d failed", delivered, failed)
	}
	must(t, r.objectPush(c.ref(), 2, 3))
	c.wantPush(1, 1)
	c.wantPush(2, 2)
	c.wantPush(2, 3)
	if k, ok := r.BoundKey(c.ref(), 2); !ok || k != roomKey {
		t.Errorf("bound to %v, %v", k, ok)
	}
	if n := r.counter("bound"); n != 1 {
		t.Errorf("%v bound", n)
	}
	c.ws.end()
	eventually(t, "the new owner is told", func() bool { return len(ends.of(owner2)) > 0 })
	eventually(t, "nothing is bound", func() bool { return r.counter("bound") == 0 && r.objects.count.Load() == 0 })
	if a, b := ends.of(owner1), ends.of(owner2); len(a) != 0 || len(b) != 1 || zmsg.ClosedSession(b[0]) != c.ref() || b[0].GetUser() != "ann" {
		t.Errorf("told: the old owner %v, the new one %v", a, b)
	}
	for reason, want := range map[string]float64{"old_owner": 3, "doubled": 1} {
		if n := r.counter("drops_total", reason); n != want {
			t.Errorf("%v drops as %s, want %v", n, reason, want)
		}
	}
	if ok, old := r.counter("binds_total", "ok"), r.counter("binds_total", "old_owner"); ok != 4 || old != 2 {
		t.Errorf("binds: %v ok, %v of the old owner", ok, old)
	}
}

// A session that has closed while the object moved is told of to the new owner, as lost, like one that was never there.
func TestBindOfWhatIsGone(t *testing.T) {
	r, ends := bindRig(t)
	c, gone := r.login("ann"), r.login("bob")
	ref := gone.ref()
	must(t, r.Bind(binding(owner1, 0, c.ref(), ref)))
	gone.ws.end()
	eventually(t, "the old owner is told", func() bool { return len(ends.of(owner1)) == 1 })
	other := ref
	other.Gen++
	must(t, r.Bind(binding(owner2, 0, ref, c.ref(), other)))
	got := ends.of(owner2)
	if len(got) != 2 || zmsg.ClosedSession(got[0]) != ref || zmsg.ClosedSession(got[1]) != other || got[0].GetCode() != uint32(closedLost) {
		t.Errorf("told of %v", got)
	}
	must(t, r.objectPush(c.ref(), 2, 1))
	c.wantPush(2, 1)
	wrong := binding(owner2, 0, c.ref())
	wrong.Gate.Epoch++
	for what, err := range map[string]error{"bind": r.Bind(wrong), "unbind": r.Unbind(wrong), "lost": r.Lost(wrong)} {
		if !errors.Is(err, ErrWrongGate) {
			t.Errorf("%s at another gate: %v", what, err)
		}
	}
	must(t, r.Unbind(binding(owner2, 0, c.ref())))
	if _, ok := r.BoundKey(c.ref(), 2); ok || r.objects.count.Load() != 0 {
		t.Error("it is bound still")
	}
	must(t, r.Unbind(binding(owner2, 0, c.ref())))
	must(t, r.objectPush(c.ref(), 2, 2)) // to a session that is not bound, a push as any other
	c.wantPush(2, 2)
}

// Sessions end while two owners bind them: the newer is told of each exactly once, whatever the moment.
func TestBindRacesEnd(t *testing.T) {
	r, ends := bindRig(t)
	const sessions = 60
	for i := range sessions {
		c := r.dialRaw(true)
		ref := c.hello("ann")
		k := zmsg.Key{Type: 2, ID: fmt.Sprint(i)}
		var wg sync.WaitGroup
		for _, o := range []zmsg.Address{owner1, owner2} {
			b := binding(o, 0, ref)
			b.Key = k
			wg.Go(func() {
				if err := r.Bind(b); err != nil && !errors.Is(err, ErrOldOwner) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { _ = c.Close() })
		wg.Wait()
	}
	eventually(t, "all sessions have ended", func() bool { return r.counter("sessions") == 0 && r.counter("bound") == 0 })
	seen := map[uint64]int{}
	for _, e := range ends.of(owner2) {
		seen[e.GetSession()]++
	}
	if len(seen) != sessions {
		t.Errorf("told of %d sessions, want %d", len(seen), sessions)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("session %d was told of %d times", id, n)
		}
	}
	if n := r.objects.count.Load(); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// Pushes of the new owner wait for the last ones of the old, which come late; and where they do not come, the client is told.
func TestPushesWaitForTheOldOwner(t *testing.T) {
	for _, text := range []bool{false, true} {
		r, _ := bindRig(t, func(c *Config) { c.PushWait = time.Hour })
		c := r.login("ann", dialing{text: text})
		must(t, r.Bind(binding(owner1, 0, c.ref())))
		must(t, r.objectPush(c.ref(), 1, 1))
		must(t, r.Bind(binding(owner2, 3, c.ref())))
		must(t, r.objectPush(c.ref(), 2, 4))
		body := []byte{2, 5}
		if _, failed := r.PushIDs([]uint64{c.ref().ID}, &zmsg.Push{ID: 9, Body: body, Key: roomKey, Version: 2, No: 5}); failed != 0 {
			t.Error("the push to many failed")
		}
		body[1] = 77 // it was the sender's
		if n := r.counter("pushes_held"); n != 2 {
			t.Errorf("%v are held", n)
		}
		must(t, r.Push(c.ref(), &zmsg.Push{ID: 9, Body: []byte{9, 9}})) // of nobody's: it waits for none
		must(t, r.objectPush(c.ref(), 1, 2))
		must(t, r.objectPush(c.ref(), 1, 3))
		for _, want := range [][2]uint64{{1, 1}, {9, 9}, {1, 2}, {1, 3}, {2, 4}, {2, 5}} {
			c.wantPush(zmsg.RouteVersion(want[0]), want[1])
		}
		if over, held := r.counter("push_waits_total", "over"), r.counter("pushes_held"); over != 1 || held != 0 {
			t.Errorf("%v waits are over, %v held", over, held)
		}
	}

	r, _ := bindRig(t, func(c *Config) { c.PushWait = 20 * time.Millisecond })
	c := r.login("ann")
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	must(t, r.objectPush(c.ref(), 1, 1))
	must(t, r.Bind(binding(owner2, 4, c.ref())))
	must(t, r.objectPush(c.ref(), 1, 3))
	must(t, r.objectPush(c.ref(), 2, 5))
	c.wantPush(1, 1)
	c.wantGap(2)
	c.wantPush(1, 3)
	c.wantPush(2, 5)
	if err := r.objectPush(c.ref(), 1, 2); !errors.Is(err, ErrOldOwner) {
		t.Errorf("a push behind the wait: %v", err)
	}
	if n := r.counter("push_waits_total", "time"); n != 1 {
		t.Errorf("%v waits ended by their time", n)
	}
}

// What waits is bounded: one more ends the wait, with a notice; nothing of it is lost.
func TestHeldPushesAreBounded(t *testing.T) {
	r, _ := bindRig(t, func(c *Config) { c.PushWait = time.Hour })
	for _, big := range []bool{false, true} {
		c := r.login("ann")
		b := binding(owner1, 0, c.ref())
		b.Key.ID = fmt.Sprint(big)
		must(t, r.Bind(b))
		b = binding(owner2, 1, c.ref())
		b.Key.ID = fmt.Sprint(big)
		must(t, r.Bind(b))
		n, size := maxHeld+1, 2
		if big {
			n, size = 5, maxHeldBytes/4
		}
		for i := range n {
			must(t, r.Push(c.ref(), &zmsg.Push{ID: 9, Body: make([]byte, size), Key: b.Key, Version: 2, No: uint64(i + 2)}))
		}
		if f := c.next(); f.Control == nil {
			t.Fatalf("expected a gap, got %+v", f)
		}
		for range n {
			if f := c.next(); len(f.Body) != size {
				t.Fatalf("expected a push, got %+v", f)
			}
		}
	}
	if full, held := r.counter("push_waits_total", "full"), r.counter("pushes_held"); full != 2 || held != 0 || r.objects.heldBy.Load() != 0 {
		t.Errorf("%v waits were full, %v held, %d bytes", full, held, r.objects.heldBy.Load())
	}
}

// An owner that is lost is told to the clients, whose messages go to the object still; the next owner begins anew.
func TestOwnerLost(t *testing.T) {
	r, ends := bindRig(t, func(c *Config) { c.PushWait = 10 * time.Millisecond })
	c, other := r.login("ann"), r.login("bob")
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	b := binding(owner2, 0, other.ref())
	b.Key.ID = "chess"
	must(t, r.Bind(b))
	must(t, r.objectPush(c.ref(), 1, 1))
	r.OwnerLost(owner1.Node)
	r.OwnerLost(owner1.Node)
	must(t, r.Lost(binding(owner1, 0)))
	c.wantPush(1, 1)
	c.wantGap(0)
	if k, ok := r.BoundKey(c.ref(), 2); !ok || k != roomKey {
		t.Errorf("bound to %v, %v", k, ok)
	}
	must(t, r.Push(other.ref(), &zmsg.Push{ID: 9, Body: []byte{7, 7}}))
	other.wantPush(7, 7) // and no gap
	b = binding(owner2, 0, c.ref())
	b.Since = 2
	must(t, r.Bind(b))
	must(t, r.objectPush(c.ref(), 2, 1))
	c.wantGap(0) // what the first owner has sent and is not there, nobody knows
	c.wantPush(2, 1)
	must(t, r.Lost(b))
	c.wantGap(0)
	c.ws.end()
	eventually(t, "the session has ended", func() bool { return r.counter("bound") == 1 })
	if n := len(ends.of(owner1)) + len(ends.of(owner2)); n != 0 {
		t.Errorf("%d were told of the end", n)
	}
}

// An object whose owner is gone, and that has another one by then, or soon: its clients are told nothing.
func TestOwnerLostThatHasHandedOver(t *testing.T) {
	r, _ := bindRig(t, func(c *Config) { c.PushWait = time.Hour })
	c := r.login("ann")
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	must(t, r.objectPush(c.ref(), 1, 1))
	r.OwnerLost(owner1.Node)
	must(t, r.Bind(binding(owner2, 1, c.ref())))
	r.OwnerLost(owner1.Node)
	if o := r.objects.get(roomKey); o.lost != nil || o.owner != owner2 {
		t.Errorf("lost: %v, owner %v", o.lost != nil, o.owner)
	}
	must(t, r.objectPush(c.ref(), 2, 2))
	c.wantPush(1, 1)
	c.wantPush(2, 2)
}

// An owner that has forgotten how far it was begins to count again: nothing is taken for a double, and the clients are told.
func TestCountBeginsAgain(t *testing.T) {
	r, _ := bindRig(t)
	c := r.login("ann")
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	for n := range uint64(3) {
		must(t, r.objectPush(c.ref(), 1, n+1))
		c.wantPush(1, n+1)
	}
	again := binding(owner1, 0, c.ref())
	again.Again = true
	must(t, r.Bind(again)) // says nothing of the count
	must(t, r.objectPush(c.ref(), 1, 4))
	c.wantPush(1, 4)
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	c.wantGap(0)
	must(t, r.objectPush(c.ref(), 1, 1))
	c.wantPush(1, 1)
}

// A session may be bound to several objects; its messages go to the one of the kind that was bound last. One above the limit is told of as ended.
func TestSeveralBindings(t *testing.T) {
	r, ends := bindRig(t, func(c *Config) { c.MaxBindings = 3 })
	c := r.login("ann")
	bind := func(typ uint32, id string, actor uint64) *zmsg.Binding {
		b := binding(zmsg.Address{Node: owner1.Node, Actor: actor}, 0, c.ref())
		b.Key = zmsg.Key{Type: typ, ID: id}
		must(t, r.Bind(b))
		return b
	}
	want := func(id string) {
		t.Helper()
		if k, ok := r.BoundKey(c.ref(), 2); k.ID != id || ok != (id != "") {
			t.Errorf("bound to %v, %v, want %q", k, ok, id)
		}
	}
	want("")
	a, b, o := bind(2, "a", 1), bind(2, "b", 2), bind(3, "other", 3)
	want("b")
	bind(2, "c", 4)
	want("b")
	if got := ends.of(zmsg.Address{Node: owner1.Node, Actor: 4}); len(got) != 1 || zmsg.ClosedSession(got[0]) != c.ref() {
		t.Errorf("the one above the limit was told %v", got)
	}
	must(t, r.Unbind(b))
	want("a")
	bind(2, "c", 5)
	want("c")
	must(t, r.Unbind(a))
	c.ws.end()
	for _, actor := range []uint64{o.Owner.Actor, 5} {
		eventually(t, "the owners are told", func() bool { return len(ends.of(zmsg.Address{Node: owner1.Node, Actor: actor})) == 1 })
	}
	if n := len(ends.of(a.Owner)) + len(ends.of(b.Owner)); n != 0 {
		t.Errorf("%d owners were told that have let it go", n)
	}
}

// An actor that both binds and watches is told once.
func TestBoundAndWatched(t *testing.T) {
	r, ends := bindRig(t)
	c := r.login("ann")
	must(t, r.Watch(c.ref(), owner1))
	must(t, r.Bind(binding(owner1, 0, c.ref())))
	must(t, r.Watch(c.ref(), owner2))
	c.ws.end()
	for _, o := range []zmsg.Address{owner1, owner2} {
		eventually(t, "told", func() bool { return len(ends.of(o)) > 0 })
		if n := len(ends.of(o)); n != 1 {
			t.Errorf("told %d times", n)
		}
	}
}

// What other nodes send of bindings is as what this one does; each is acknowledged, also what makes no sense.
func TestBindingsOfOtherNodes(t *testing.T) {
	type ack struct {
		request uint64
		err     error
	}
	acks := make(chan ack, 10)
	r, _ := bindRig(t, func(c *Config) {
		c.PushWait = time.Hour
		c.Ack = func(_ zmsg.NodeRef, request uint64, err error) { acks <- ack{request, err} }
	})
	c := r.login("ann")
	request := uint64(0)
	op := func(op wirepb.SessionOp, b *zmsg.Binding, body []byte) error {
		t.Helper()
		if b != nil {
			var err error
			if body, err = b.EncodeSessions(); err != nil {
				t.Fatal(err)
			}
		} else {
			b = binding(owner1, 0)
		}
		request++
		r.OnSession(&zmsg.Envelope{
			Op: op, Session: zmsg.SessionRef{Gate: b.Gate}, FromActor: b.Owner.Actor, Request: request, Key: b.Key, Version: b.Version,
			PushNo: b.Last, Body: body,
		}, b.Owner.Node)
		a := <-acks
		if a.request != request {
			t.Errorf("request %d was acknowledged, not %d", a.request, request)
		}
		return a.err
	}
	must(t, op(wirepb.SessionOp_SESSION_OP_BIND, binding(owner1, 0, c.ref()), nil))
	must(t, r.objectPush(c.ref(), 1, 1))
	must(t, op(wirepb.SessionOp_SESSION_OP_BIND, binding(owner2, 2, c.ref()), nil))
	must(t, r.objectPush(c.ref(), 2, 3))
	r.OnSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 9, Body: []byte{1, 2}, Session: c.ref(), Key: roomKey, Version: 1, PushNo: 2}, owner1.Node)
	for n := range uint64(3) {
		c.wantPush(1+zmsg.RouteVersion(n)/2, n+1)
	}
	if err := op(wirepb.SessionOp_SESSION_OP_BIND, binding(owner1, 0, c.ref()), nil); !errors.Is(err, ErrOldOwner) {
		t.Errorf("bind of the old owner: %v", err)
	}
	if err := op(wirepb.SessionOp_SESSION_OP_UNBIND, nil, []byte{0x0a, 3}); !errors.Is(err, zmsg.ErrMalformed) {
		t.Errorf("a body that is none: %v", err)
	}
	must(t, op(wirepb.SessionOp_SESSION_OP_LOST, binding(owner2, 0), nil))
	if o := r.objects.get(roomKey); o.lost == nil {
		t.Error("it is not lost")
	}
	must(t, op(wirepb.SessionOp_SESSION_OP_UNBIND, binding(owner2, 0, c.ref()), nil))
	if _, ok := r.BoundKey(c.ref(), 2); ok {
		t.Error("it is bound still")
	}
}
