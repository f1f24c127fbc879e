package zgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// town is gates that know each other, without a bus: what one sends to another comes at once, unless the test has it lost.
type town struct {
	t     testing.TB
	gates map[zmsg.NodeRef]*rig

	number atomic.Uint64 // of the last question

	mu     sync.Mutex
	gone   map[zmsg.NodeRef]bool
	lose   int      // answers
	fence  func()   // while nodes are asked to note that a session goes
	late   [][]byte // answers that were lost
	told   []string // SessionMoved, SessionClosed
	answer func([]byte) error
	over   bool // the test ends
}

// peersOf is the Peers of one gate.
type peersOf struct {
	*town
	own zmsg.NodeRef
}

var errLost = errors.New("lost")

func (p peersOf) There(gate zmsg.NodeRef) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone[gate] && p.gates[gate] != nil && gate != p.own
}

func (p peersOf) Others() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.gates) > 1 && !p.over
}

func (p peersOf) Ask(ctx context.Context, ref zmsg.SessionRef, ask []byte) ([]byte, error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	got := make(chan []byte, 100)
	number := p.number.Add(1)
	for {
		p.gates[ref.Gate].HandOver(p.own, number, ref, ask, func(b []byte) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.answer != nil {
				if err := p.answer(b); err != nil {
					return err
				}
			}
			if p.lose > 0 {
				p.lose--
				p.late = append(p.late, b)
				return nil
			}
			got <- b
			return nil
		})
		select {
		case b := <-got:
			return b, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-again.C:
		}
	}
}
func (p peersOf) Taken(ref zmsg.SessionRef) { p.gates[ref.Gate].Taken(p.own, ref) }
func (p peersOf) Moves(context.Context, zmsg.SessionRef, zmsg.SessionRef) int {
	p.mu.Lock()
	f := p.fence
	p.mu.Unlock()
	if f != nil {
		f()
	}
	return 0
}

func (p peersOf) MovedHere(from, to zmsg.SessionRef, watchers, owners []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint("moved ", from.Gen, " ", to.Gate.ID, " ", to.Gen, " ", watchers, owners))
}

func (p peersOf) Forward(e *zmsg.Envelope) error {
	p.mu.Lock()
	gone := p.gone[e.Session.Gate]
	p.mu.Unlock()
	if gone {
		return errLost
	}
	p.gates[e.Session.Gate].OnSession(e, p.own)
	return nil
}

// newTown starts n gates.
func newTown(tb testing.TB, n int, change ...func(*Config)) (*town, []*rig) {
	tb.Helper()
	w := &town{t: tb, gates: map[zmsg.NodeRef]*rig{}, gone: map[zmsg.NodeRef]bool{}}
	var rigs []*rig
	for k := range n {
		node := zmsg.NodeRef{ID: fmt.Sprint("n", k+1), Epoch: 7}
		r := newRig(tb, append(change, func(c *Config) {
			c.Node, c.Peers = node, peersOf{w, node}
			c.Deliver = func(*zmsg.SessionRoute, *zmsg.Message) error { return zmsg.ErrBusy }
			c.Tell = func(to zmsg.Address, m *zmsg.Message) error {
				if passing(m) {
					return nil
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.told = append(w.told, fmt.Sprint("told ", to.Actor, " ", m.ID, " ", m.Session.Gate.ID))
				m.Release()
				return nil
			}
		})...)
		w.gates[node] = r
		rigs = append(rigs, r)
	}
	tb.Cleanup(func() { // ahead of the gates' own
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
	})
	return w, rigs
}

// refAt is the client's session as its Welcome has it.
func (c *client) refAt() zmsg.SessionRef {
	return zmsg.SessionRef{
		Gate: zmsg.NodeRef{ID: c.welcome.GetNode(), Epoch: c.welcome.GetEpoch()}, ID: c.welcome.GetSession(), Gen: c.welcome.GetGeneration(),
	}
}

// A client goes to another gate, which asks the first; that one has the connection still, or does not. It gets what it missed, and everything that the first gate knew goes on.
func TestHandOver(t *testing.T) {
	for _, text := range []bool{false, true} {
		for _, alive := range []bool{false, true} {
			t.Run(fmt.Sprintf("text=%v/alive=%v", text, alive), func(t *testing.T) {
				t.Parallel()
				o := dialing{text: text}
				w, g := newTown(t, 2)
				c := g[0].kept("ann", o)
				ref := c.refAt()
				if err := g[0].Join(ref, "go"); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(
					g[0].Watch(ref, zmsg.Address{Node: ref.Gate, Actor: 5}), g[0].Watch(ref, zmsg.Address{Node: zmsg.NodeRef{ID: "n9", Epoch: 1}, Actor: 6}),
					g[0].SetRoute(ref, &zmsg.SessionRoute{IDs: []uint32{70}, Actor: zmsg.Address{Node: ref.Gate, Actor: 9}}),
					g[0].Bind(&zmsg.Binding{Key: zmsg.Key{Type: 3, ID: "x"}, Version: 4, Owner: zmsg.Address{Node: ref.Gate, Actor: 8}, Gate: ref.Gate, Sessions: []zmsg.SessionRef{ref}, Since: 4}),
				); err != nil {
					t.Fatal(err)
				}
				g[0].pushTo(ref, zmsg.Reliable, 1, "one")
				c.pushes("1 one")
				c.send(request(idHeld, 1, "a"), request(idEcho, 2, "b"))
				first := <-g[0].held
				if f := c.next(); f.Seq != 2 {
					t.Fatalf("%+v", f)
				}
				if !alive {
					g[0].cut(c)
				}
				g[0].pushTo(ref, zmsg.Reliable, 1, "two")
				if !alive {
					g[0].pushTo(ref, zmsg.Latest, 2, "old")
					g[0].pushTo(ref, zmsg.Latest, 2, "newest")
				}
				b := g[1].again("ann", c.welcome.GetResume(), 1, o)
				if !b.welcome.GetResumed() || b.welcome.GetNode() != "n2" || b.welcome.GetSession() != ref.ID || b.welcome.GetGeneration() != ref.Gen+1 {
					t.Fatalf("%v", b.welcome)
				}
				b.pushes("2 two")
				n := 3
				if !alive {
					b.pushes("3 newest")
					n++
				}
				now := b.refAt()
				// By the old name, which the gate before knows still; then by the new one.
				g[0].pushTo(ref, zmsg.Reliable, 1, "late")
				g[1].pushTo(now, zmsg.Reliable, 1, "new")
				b.pushes(fmt.Sprint(n, " late"), fmt.Sprint(n+1, " new"))
				// Both are asked for once more: one has its response, the other one waits.
				b.send(request(idHeld, 1, "a"), request(idEcho, 2, "b"))
				if f := b.next(); f.Seq != 2 || string(f.Body) != "b" {
					t.Fatalf("%+v", f)
				}
				first.Reply(&zmsg.Reply{ID: 1, Body: []byte("held")})
				if f := b.next(); f.Seq != 1 || f.Code != 0 || string(f.Body) != "held" {
					t.Fatalf("%+v", f)
				}
				if len(g[0].held)+len(g[1].held) != 0 {
					t.Error("a request ran twice")
				}
				if d, _ := g[1].PublishLocal("go", &zmsg.Push{ID: 1, Body: []byte("all")}); d != 1 {
					t.Error("it is no member of its group")
				}
				b.pushes(fmt.Sprint(n+2, " all"))
				eventually(t, "it is no member at the gate before", func() bool { return g[0].groups.get("go") == nil })
				if k, ok := g[1].BoundKey(now, 3); !ok || k.ID != "x" {
					t.Errorf("bound to %v", k)
				}
				if s, err := g[1].Session(now); err != nil || s.ownRoute(70) == nil || s.ownRoute(70).Actor.Actor != 9 {
					t.Error("its route is gone")
				}
				if g[0].Sessions() != 0 || g[1].Sessions() != 1 || g[0].counter("handovers_total", "given") != 1 || g[1].counter("handovers_total", "taken") != 1 {
					t.Errorf("%d and %d sessions", g[0].Sessions(), g[1].Sessions())
				}
				// Kicked by its old name.
				if err := g[0].Kick(ref, 4001, "out"); err != nil {
					t.Error(err)
				}
				b.closedWith(4001)
				eventually(t, "the end is told", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return slices.Equal(w.told, []string{"moved 1 n2 2 [5] [8]", "told 8 10 n2"})
				})
				if kept := g[0].Gate.kept.Load() + g[1].Gate.kept.Load(); kept != 0 {
					t.Errorf("%d bytes are kept", kept)
				}
			})
		}
	}
}

// What a session is goes through the wire as it was: exported, imported, and exported again.
func TestStateStaysTheSame(t *testing.T) {
	t.Parallel()
	_, g := newTown(t, 2)
	rapid.Check(t, func(rt *rapid.T) {
		s, _ := g[0].coming("ann", zmsg.SessionRef{}, zmsg.SessionRef{Gate: g[0].self.Ref(), ID: rapid.Uint64Range(1, 1<<62).Draw(rt, "id"), Gen: 1}, rapid.Bool().Draw(rt, "text"), time.Minute)
		tok := token{ref: s.ref, secret: secret{1, 2}}
		empty := &wirepb.SessionState{User: "ann", Client: "c/1", WindowMs: 60_000, Secrets: [][]byte{tok.secret[:]}, Key: tok.key[:], Text: s.c.Load().text.Load(), Shown: true}
		if !s.settle(empty, tok.ref) {
			rt.Fatal("not settled")
		}
		for range rapid.IntRange(0, 30).Draw(rt, "steps") {
			body := []byte(rapid.StringN(0, 40, 200).Draw(rt, "body"))
			n := rapid.Uint32Range(1, 5).Draw(rt, "n")
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1:
				_ = s.Push(&zmsg.Push{ID: n, Body: body})
			case 2:
				_ = s.Push(&zmsg.Push{ID: n, Body: body, Class: zmsg.Latest, Of: fmt.Sprint(n % 2)})
			case 3:
				if _, ok := s.requests.add(s.requests.last+1, g[0].now()+int64(time.Hour), 100); ok {
					s.requests.last++
					g[0].requests.Add(1)
				}
			case 4:
				if p := s.requests.pending(); len(p) > 0 {
					s.answer(p[0].seq, body)
				}
			case 5:
				_ = g[0].SetRoute(s.ref, &zmsg.SessionRoute{IDs: []uint32{n}, Object: zmsg.Key{Type: 1, ID: fmt.Sprint(n)}})
			case 6:
				_ = g[0].Join(s.ref, fmt.Sprint("g", n))
			}
		}
		one := exported(s)
		b, err := proto.Marshal(one)
		var wire wirepb.SessionState
		if err != nil || proto.Unmarshal(b, &wire) != nil || !validState(&wire) {
			rt.Fatalf("not valid: %v %v", one, err)
		}
		other, _ := g[1].coming("ann", s.ref, zmsg.SessionRef{Gate: g[1].self.Ref(), ID: s.ref.ID, Gen: 2}, wire.GetText(), time.Minute)
		if !other.settle(&wire, tok.ref) {
			rt.Fatal("not settled")
		}
		two := exported(other)
		for _, x := range []*wirepb.SessionState{one, two} {
			for _, k := range x.GetKept() {
				k.AgeMs = 0
			}
			for _, p := range x.GetPending() {
				p.LeftMs = 0
			}
		}
		if !proto.Equal(one, two) {
			rt.Fatalf("it was  %v\nbecomes %v", one, two)
		}
		s.Close(CloseKicked, "")
		other.Close(CloseKicked, "")
	})
	if kept := g[0].Gate.kept.Load() + g[1].Gate.kept.Load(); kept != 0 || g[0].Sessions()+g[1].Sessions() != 0 {
		t.Errorf("%d bytes are kept", kept)
	}
}

func exported(s *Session) *wirepb.SessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.lock()
	defer c.q.mu.Unlock()
	x := s.exportLocked(c)
	return x
}

// A client goes from gate to gate, back and forth, at any time, while it is pushed to by whatever name, and its requests are answered at any time: it has
// every push once and in order, and every response.
func TestRoaming(t *testing.T) {
	for name, x := range map[string]struct {
		dialing
		change func(*Config)
	}{
		"binary": {}, "text": {dialing: dialing{text: true}},
		"compressed":       {change: func(c *Config) { c.Compression, c.CompressFrom = true, 1 }},
		"text, compressed": {dialing{text: true}, func(c *Config) { c.Compression, c.CompressFrom = true, 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRoaming(t, x.dialing, x.change)
		})
	}
}

func testRoaming(t *testing.T, o dialing, change func(*Config)) {
	t.Helper()
	if change == nil {
		change = func(*Config) {}
	}
	w, g := newTown(t, 3, change)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 10 && !t.Failed() {
			return // connections take their time
		}
		user := fmt.Sprint("u", rapid.Uint64().Draw(rt, "user"))
		m := &roaming{T: rt, o: o, w: w, g: g, user: user, c: g[0].kept(user, o), answers: map[uint64]bool{}}
		m.refs = append(m.refs, m.c.refAt())
		rt.Repeat(map[string]func(*rapid.T){
			"push":   m.push,
			"ask":    m.ask,
			"answer": m.answer,
			"read":   m.read,
			"go":     m.go_,
		})
		for len(m.held) > 0 {
			m.answer(rt)
		}
		m.read(rt)
		if m.last != m.pushed || len(m.answers) != m.asked {
			rt.Fatalf("it has %d of %d pushes, %d of %d answers", m.last, m.pushed, len(m.answers), m.asked)
		}
		_ = g[0].Kick(m.refs[0], 4000, "")
		_ = w.at(m.refs[len(m.refs)-1]).Kick(m.refs[len(m.refs)-1], 4000, "")
		m.c.ws.end()
	})
}

func (w *town) at(ref zmsg.SessionRef) *rig { return w.gates[ref.Gate] }

type roaming struct {
	*rapid.T
	o    dialing
	w    *town
	g    []*rig
	user string
	c    *client
	refs []zmsg.SessionRef

	pushed, last uint64
	asked        int
	held         []*zmsg.Message
	answers      map[uint64]bool
}

func (m *roaming) push(t *rapid.T) {
	ref := m.refs[rapid.IntRange(0, len(m.refs)-1).Draw(t, "name")]
	m.pushed++
	if err := m.w.at(ref).Push(ref, &zmsg.Push{ID: 1, Body: fmt.Append(nil, m.pushed)}); err != nil {
		t.Fatal(err)
	}
}

func (m *roaming) ask(*rapid.T) {
	m.asked++
	m.c.send(request(idHeld, uint64(m.asked), "x"))
	m.c.ping2(m)
	m.held = append(m.held, <-m.w.at(m.refs[len(m.refs)-1]).held)
}

func (m *roaming) answer(t *rapid.T) {
	if len(m.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "which")
	x := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	x.Reply(&zmsg.Reply{ID: 1, Body: []byte("y")})
	x.Release()
}

// read takes all that there is.
func (m *roaming) read(*rapid.T) { m.c.ping2(m) }

// ping2 is ping, with what comes before the pong.
func (c *client) ping2(m *roaming) {
	c.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 7}}})
	for {
		f, err := c.tryNext()
		if err != nil {
			m.Fatalf("%v", err)
		}
		var ctl wirepb.Control
		switch {
		case f.Kind == wirepb.FrameKind_FRAME_KIND_RESPONSE && f.Code == 0 && !m.answers[f.Seq]:
			m.answers[f.Seq] = true
		case f.Kind == wirepb.FrameKind_FRAME_KIND_PUSH && f.Seq == m.last+1 && string(f.Body) == fmt.Sprint(f.Seq):
			m.last++
		case f.Kind == wirepb.FrameKind_FRAME_KIND_CONTROL && proto.Unmarshal(f.Control, &ctl) == nil && ctl.GetPong() != nil:
			return
		default:
			m.Fatalf("push %d is the last, and now comes %+v %v", m.last, f, &ctl)
		}
	}
}

func (m *roaming) go_(t *rapid.T) {
	k := rapid.IntRange(0, len(m.g)-1).Draw(t, "gate")
	here := m.w.at(m.refs[len(m.refs)-1])
	if rapid.Bool().Draw(t, "reads") {
		m.read(t)
	}
	if rapid.Bool().Draw(t, "acks") {
		m.c.ack(m.last, 0)
	}
	old := m.c
	if rapid.Bool().Draw(t, "cut") {
		old.ws.end()
	}
	m.c = m.g[k].again(m.user, old.welcome.GetResume(), m.last, m.o)
	old.ws.end()
	if !m.c.welcome.GetResumed() {
		for _, g := range m.g {
			t.Log(g.log.String())
			t.Log(g.counter("handovers_total", "silent"), g.counter("handovers_total", "given"), g.counter("handovers_total", "taken"))
			if s := g.sessions.get(m.refs[0].ID); s != nil {
				t.Log(s.stateNow(), s.ref)
			}
		}
		t.Fatalf("%v", m.c.welcome)
	}
	if m.g[k] != here {
		m.refs = append(m.refs, m.c.refAt())
	}
	for n := range m.asked { // what is not answered is asked for again
		if seq := uint64(n + 1); !m.answers[seq] {
			m.c.send(request(idHeld, seq, "x"))
		}
	}
	m.read(t)
}

// The answer of the gate before is lost, and asked for again; or it comes when nobody waits any more.
func TestLostAnswers(t *testing.T) {
	t.Run("asked for again", func(t *testing.T) {
		t.Parallel()
		w, g := newTown(t, 2)
		c := g[0].kept("ann")
		g[0].cut(c)
		g[0].pushTo(c.refAt(), zmsg.Reliable, 1, "one")
		w.lose = 3
		b := g[1].again("ann", c.welcome.GetResume(), 0)
		b.pushes("1 one")
		if n := g[0].counter("handovers_total", "given"); n != 1 {
			t.Errorf("given %v times", n)
		}
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		w, g := newTown(t, 2, func(c *Config) { c.HandoverTime = 50 * time.Millisecond })
		c := g[0].kept("ann")
		g[0].cut(c)
		ref := c.refAt()
		g[0].pushTo(ref, zmsg.Reliable, 1, "one")
		w.lose = 1 << 30
		b := g[1].again("ann", c.welcome.GetResume(), 0)
		if b.welcome.GetResumed() || b.welcome.GetRefused() != wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED { // there is no directory
			t.Fatalf("%v", b.welcome)
		}
		eventually(t, "the answer is late", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.late) > 0 })
		w.mu.Lock()
		late := w.late[0]
		w.lose = 0
		w.mu.Unlock()
		g[1].HandedLate(ref, late)
		g[1].HandedLate(ref, late)
		b = g[1].again("ann", c.welcome.GetResume(), 0)
		if !b.welcome.GetResumed() || b.welcome.GetGeneration() != 2 {
			t.Fatalf("%v", b.welcome)
		}
		b.pushes("1 one")
		if gap := b.nextControl().GetGap(); gap.GetFirst() != 2 || gap.GetLast() != 0 { // what has come before the answer may have been dropped
			t.Errorf("told of %v", gap)
		}
		g[0].pushTo(ref, zmsg.Reliable, 1, "two")
		b.pushes("2 two")
		// The client, which has not heard, comes to the gate before, which leads there.
		if a := g[0].again("ann", c.welcome.GetResume(), 2); !a.welcome.GetResumed() || a.welcome.GetGeneration() != 3 {
			t.Errorf("%v", a.welcome)
		}
	})
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		w, g := newTown(t, 2)
		w.answer = func(b []byte) error {
			if len(b) > 200 {
				return zmsg.ErrTooLarge
			}
			return nil
		}
		c := g[0].kept("ann")
		g[0].cut(c)
		g[0].pushTo(c.refAt(), zmsg.Reliable, 1, fmt.Sprintf("%200d", 1))
		b := g[1].again("ann", c.welcome.GetResume(), 0)
		if gap := b.nextControl().GetGap(); gap.GetFirst() != 1 {
			t.Errorf("told of %v", gap)
		}
		g[1].pushTo(b.refAt(), zmsg.Reliable, 1, "two")
		b.pushes("2 two")
	})
}

// Of many that come with one token, to several gates, one has the session at any time; it is never at two gates.
func TestOneWinner(t *testing.T) {
	t.Parallel()
	_, g := newTown(t, 3)
	for range 20 {
		c := g[0].kept("ann")
		var wg sync.WaitGroup
		var mu sync.Mutex
		back := 0
		for k := range 6 {
			wg.Go(func() {
				x, err := g[k%3].tryDial(dialing{})
				if err != nil {
					return
				}
				b, _ := proto.Marshal(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: c.welcome.GetResume(), ResumeWindowMs: 60_000}}})
				if x.ws.write(x.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: b})) != nil {
					return
				}
				for {
					f, err := x.tryNext()
					if err != nil {
						return
					}
					var m wirepb.Control
					if f.Control == nil || proto.Unmarshal(f.Control, &m) != nil || m.GetWelcome() == nil {
						continue
					}
					if m.GetWelcome().GetResumed() && m.GetWelcome().GetSession() == c.welcome.GetSession() {
						mu.Lock()
						back++
						mu.Unlock()
					}
					return
				}
			})
		}
		wg.Wait()
		if back == 0 {
			t.Error("nobody has it")
		}
		there := 0
		eventually(t, "it is at one gate", func() bool {
			there = 0
			for _, r := range g {
				if s := r.sessions.get(c.welcome.GetSession()); s != nil {
					if st := s.stateNow(); st == stateActive || st == stateSuspended {
						there++
					}
				}
			}
			return there <= 1
		})
		for _, r := range g {
			for _, s := range r.sessions.all() {
				s.Close(CloseKicked, "")
			}
		}
	}
}

// What befalls a session while it goes, befalls it where it comes to.
func TestWhileItGoes(t *testing.T) {
	t.Run("kick", func(t *testing.T) {
		t.Parallel()
		w, g := newTown(t, 2)
		c := g[0].kept("ann")
		g[0].cut(c)
		ref := c.refAt()
		g[0].pushTo(ref, zmsg.Reliable, 1, "one")
		w.fence = func() {
			g[1].pushTo(zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}, zmsg.Reliable, 1, "three") // of a node that knows already
			g[0].pushTo(ref, zmsg.Reliable, 1, "two")
			if err := g[0].Kick(ref, 4007, "out"); err != nil {
				t.Error(err)
			}
		}
		b := g[1].dial(dialing{})
		b.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: c.welcome.GetResume(), ResumeWindowMs: 60_000}}})
		text, before := b.closedWith(4007)
		if len(before) != 0 && len(before) != 4 { // it was on its way when the kick came, or there already: a Welcome and what it missed
			t.Errorf("%q behind %+v", text, before)
		}
		for i, f := range before[min(1, len(before)):] {
			if want := []string{"one", "two", "three"}[i]; string(f.Body) != want {
				t.Errorf("%q, not %q", f.Body, want)
			}
		}
	})
	t.Run("by the new name, ahead of its state", func(t *testing.T) {
		t.Parallel()
		w, g := newTown(t, 2)
		c := g[0].kept("ann")
		g[0].cut(c)
		ref := c.refAt()
		now := zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}
		g[0].pushTo(ref, zmsg.Reliable, 1, "one")
		join := func(group string) error { // as another node's: this gate's own waits until it is in force
			return g[1].onSession(&zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Session: now, Group: group}, ref.Gate)
		}
		w.fence = func() {
			g[1].pushTo(now, zmsg.Reliable, 1, "three")
			if err := errors.Join(
				join("a"), g[1].Leave(now, "a"), join("b"),
				g[1].Watch(now, zmsg.Address{Node: now.Gate, Actor: 3}), g[1].SetRoute(now, &zmsg.SessionRoute{IDs: []uint32{71}, Object: zmsg.Key{Type: 1}}),
			); err != nil {
				t.Error(err)
			}
			g[1].pushTo(now, zmsg.Reliable, 1, "four")
			g[0].pushTo(ref, zmsg.Reliable, 1, "two") // on its way all the time
		}
		b := g[1].again("ann", c.welcome.GetResume(), 0)
		b.pushes("1 one", "2 two", "3 three", "4 four")
		s, err := g[1].Session(now)
		if err != nil {
			t.Fatal(err)
		}
		if g[1].groups.get("a") != nil || g[1].groups.get("b") == nil || s.ownRoute(71) == nil {
			t.Error("what was asked for ahead of its state is not done")
		}
		s.Close(CloseKicked, "")
		b.closedWith(CloseKicked)
		eventually(t, "who watches is told", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return slices.Contains(w.told, "told 3 10 n2") })
	})
	t.Run("forbidden", func(t *testing.T) {
		t.Parallel()
		_, g := newTown(t, 2)
		c := g[0].kept("ann")
		for _, x := range []struct {
			user, token string
			why         wirepb.ResumeRefusal
		}{
			{"bob", c.welcome.GetResume(), wirepb.ResumeRefusal_RESUME_REFUSAL_USER},
			{"ann", (&token{ref: c.refAt()}).String(), wirepb.ResumeRefusal_RESUME_REFUSAL_INVALID},
		} {
			if b := g[1].again(x.user, x.token, 0); b.welcome.GetResumed() || b.welcome.GetRefused() != x.why {
				t.Errorf("%v", b.welcome)
			}
		}
		c.echo("still here")
	})
	t.Run("the client comes back to the first gate", func(t *testing.T) {
		t.Parallel()
		_, g := newTown(t, 2)
		c := g[0].kept("ann")
		g[0].cut(c)
		first := c.welcome.GetResume()
		b := g[1].again("ann", first, 0)
		b.ws.end() // its Welcome was lost
		a := g[0].again("ann", first, 0)
		if !a.welcome.GetResumed() || a.welcome.GetGeneration() != 3 {
			t.Fatalf("%v", a.welcome)
		}
		g[0].pushTo(a.refAt(), zmsg.Reliable, 1, "one")
		a.pushes("1 one")
	})
}

// Shutdown waits until another gate has all that can be had.
func TestShutdownHandsOver(t *testing.T) {
	t.Parallel()
	_, g := newTown(t, 2)
	c, plain := g[0].kept("ann"), g[0].login("bob")
	c.send(request(idHeld, 1, "a"))
	held := <-g[0].held
	g[0].pushTo(c.refAt(), zmsg.Reliable, 1, "one")
	done := make(chan error, 1)
	go func() { // ends with Shutdown
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- g[0].Shutdown(ctx)
	}()
	plain.closedWith(CloseShutdown)
	c.closedWith(CloseShutdown)
	b := g[1].again("ann", c.welcome.GetResume(), 1)
	if !b.welcome.GetResumed() {
		t.Fatalf("%v", b.welcome)
	}
	b.send(request(idHeld, 1, "a"))
	held.Reply(&zmsg.Reply{ID: 1, Body: []byte("z")})
	if f := b.next(); f.Seq != 1 || string(f.Body) != "z" {
		t.Errorf("%+v", f)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
