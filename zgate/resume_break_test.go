package zgate

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// A request that was refused is refused when it comes again, even though the gate could take it by now: the client may have had the answer to the first, or
// to the second, and knows from either that it did not run.
func TestARefusedRequestStaysRefused(t *testing.T) {
	t.Parallel()
	var ran atomic.Int32
	r := newRig(t, func(c *Config) {
		c.MaxInFlight = 1
		c.Handlers[200] = func(_ *Session, m *zmsg.Message) {
			ran.Add(1)
			m.Reply(&zmsg.Reply{ID: 201})
			m.Release()
		}
	})
	c := r.kept("ann")
	token := c.welcome.GetResume()
	c.send(request(idHeld, 1, "x"), request(200, 2, "x"))
	(<-r.held).Reply(&zmsg.Reply{ID: 1})
	for range 3 { // neither of the answers arrives
		r.cut(c)
		c = r.again("ann", token, 0)
		token = c.welcome.GetResume()
		c.send(request(idHeld, 1, "x"), request(200, 2, "x"))
		if f := c.next(); f.Seq != 1 || f.Code != 0 {
			t.Fatalf("%+v", f)
		}
		if f := c.next(); f.Seq != 2 || f.Code != zmsg.CodeBusy || f.Outcome != zmsg.NotExecuted || ran.Load() != 0 {
			t.Fatalf("%+v, and it ran %d times", f, ran.Load())
		}
	}
	c.send(request(200, 3, "x"))
	if f := c.next(); f.Seq != 3 || f.Code != 0 || ran.Load() != 1 {
		t.Fatalf("%+v, and it ran %d times", f, ran.Load())
	}
}

// Who brings a token has it, whether or not an Ack has said so before: where the gate does not know yet that the connection before is gone, the session goes on.
func TestATokenThatIsBroughtIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.dial(dialing{})
	old := c.helloAs(&wirepb.Hello{Token: "ann"})
	c = r.again("ann", old.GetResume(), 0)
	if !c.welcome.GetResumed() || c.welcome.GetSession() != old.GetSession() {
		t.Errorf("not resumed: %v", c.welcome)
	}
}

// What waits for a client that is away as the newest of its id is bounded in bytes, of a session and of all; what does not fit goes the way of the reliable ones,
// and nothing older than it comes behind it.
func TestLatestWhileAwayIsBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"of a session": func(c *Config) { c.KeepBytes = 8 << 10 },
		"of all":       func(c *Config) { c.MaxKeepBytes = 16 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			c := r.kept("ann")
			r.cut(c)
			r.pushTo(c.ref(), zmsg.Latest, 1, "small")
			for i := range 50 {
				r.pushTo(c.ref(), zmsg.Latest, uint32(2+i), strings.Repeat("x", 1000))
				if n := r.keeps(); n > 17<<10 {
					t.Fatalf("%d bytes are kept", n)
				}
			}
			r.pushTo(c.ref(), zmsg.Latest, 1, strings.Repeat("y", 20<<10)) // in the place of "small"
			if n := r.keeps(); n > 17<<10 {
				t.Errorf("%d bytes are kept", n)
			}
			c = r.again("ann", c.welcome.GetResume(), 0)
			gap := c.nextControl().GetGap()
			if gap.GetFirst() != 1 || gap.GetLast() == 0 {
				t.Fatalf("no gap: %v", gap)
			}
			r.pushTo(c.ref(), zmsg.Reliable, 9, "behind")
			next, seen := gap.GetLast()+1, map[uint32]bool{}
			for f := c.next(); string(f.Body) != "behind"; f = c.next() {
				if f.Seq != next || seen[f.ID] || string(f.Body) == "small" {
					t.Fatalf("push %d of id %d, %.10q, expected %d", f.Seq, f.ID, f.Body, next)
				}
				next, seen[f.ID] = next+1, true
			}
			if len(seen) == 0 || len(seen) > 17 {
				t.Errorf("%d came", len(seen))
			}
			c.ack(next, 0)
			c.ping()
			if n := r.keeps(); n != 0 {
				t.Errorf("%d bytes are kept", n)
			}
		})
	}
}

// What a slow client's connection held of class latest counts when it breaks, and is let go however the session ends.
func TestLatestOfABrokenConnectionCounts(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"resumed", "kicked", "too much"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withSmallBuffers(t), func(c *Config) {
				if how == "too much" {
					c.MaxKeepBytes = 4 << 10
				}
			})
			c := r.kept("ann")
			s := r.fill(c.ref())
			for i := range 20 {
				r.pushTo(c.ref(), zmsg.Latest, uint32(2+i), strings.Repeat("x", 1000))
			}
			old := s.c.Load()
			old.q.mu.Lock()
			waiting, before := weightOf(old.q.latest), r.keeps()
			old.q.mu.Unlock()
			r.cut(c)
			old.q.mu.Lock()
			waits, n := weightOf(old.q.latest), r.keeps()
			old.q.mu.Unlock()
			if how == "too much" && (waits != 0 || n > 4<<10) || how != "too much" && (waits != waiting || n != before+int64(waiting) || waiting < 20_000) {
				t.Errorf("%d bytes were kept, %d waited, and now %d and %d", before, waiting, n, waits)
			}
			if how == "kicked" {
				_ = r.Kick(c.ref(), 4001, "out")
			} else {
				c = r.again("ann", c.welcome.GetResume(), 0)
				for f := c.next(); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || f.ID != 21 && how == "resumed"; f = c.next() {
					if how == "too much" {
						break
					}
				}
				c.ack(1<<60, 0)
				r.pushTo(c.ref(), zmsg.Reliable, 99, "")
				for f := c.next(); f.ID != 99; f = c.next() {
				}
				c.ack(1<<60, 0)
				c.ping()
			}
			eventually(t, "nothing is kept", func() bool { return r.keeps() == 0 })
		})
	}
}

// The client of another user, which has got hold of the token, is not told why the session's user was sent away.
func TestAKickIsForItsUser(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.kept("ann")
	r.cut(c)
	_ = r.Kick(c.ref(), 4007, "cheating")
	token := c.welcome.GetResume()
	if c := r.again("bob", token, 0); c.welcome.GetUser() != "bob" || c.welcome.GetRefused() != refusedExpired {
		t.Errorf("%v", c.welcome)
	}
	c = r.dial(dialing{})
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: token}}})
	c.closedWith(4007)
}

// What nobody acknowledges is let go after KeepTime without anything else to cause it, connected and away.
func TestKeepTimePassesByItself(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.ResumeWindow = time.Hour })
		c := r.kept("ann")
		s, _ := r.Session(c.ref())
		r.pushTo(c.ref(), zmsg.Reliable, 1, "x")
		c.pushes("1 x")
		if away {
			r.cut(c)
		}
		at := r.now()
		next := r.onTimer(s.c.Load(), at)
		if r.keeps() == 0 || away && next > at+int64(time.Minute) {
			t.Errorf("away=%v: %d bytes are kept, next look after %v", away, r.keeps(), time.Duration(next-at))
		}
		s.c.Load().heard.Store(r.now() + int64(time.Hour)) // it is not silent
		r.onTimer(s.c.Load(), at+int64(2*time.Minute))
		if r.keeps() != 0 {
			t.Errorf("away=%v: %d bytes are kept", away, r.keeps())
		}
		c = r.again("ann", c.welcome.GetResume(), 0)
		if g := c.nextControl().GetGap(); g.GetFirst() != 1 || g.GetLast() != 1 {
			t.Errorf("away=%v: gap %v", away, g)
		}
	}
}

// A session of the node's epoch before does not wait for its client: the rejoin found its connection just broken.
func TestRejoinMeetsABrokenConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.kept("ann")
	s, _ := r.Session(c.ref())
	old := s.lock()
	old.breakLocked(closedLost, "broken")
	r.self.Set(zmsg.NodeRef{ID: testNode.ID, Epoch: testNode.Epoch + 1})
	old.q.mu.Unlock()
	eventually(t, "it has ended", func() bool { return r.Sessions() == 0 })
	if r.counter("suspends_total") != 0 {
		t.Error("it was suspended")
	}
}

// A guest gets no pushes, whose numbers would be those of its session to come.
func TestGuestsAreNotPushedTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.BeforeLogin = []uint32{200}
		c.Handlers[200] = func(s *Session, m *zmsg.Message) {
			err := s.Push(&zmsg.Push{ID: 1, Body: []byte("early")})
			m.Reply(&zmsg.Reply{ID: 201, Body: fmt.Append(nil, errors.Is(err, ErrNoSession))})
			m.Release()
		}
	})
	c := r.dial(dialing{})
	c.send(request(200, 1, ""))
	if f := c.next(); f.Seq != 1 || string(f.Body) != "true" {
		t.Fatalf("%+v", f)
	}
	c.hello("ann")
	r.pushTo(c.ref(), zmsg.Reliable, 1, "first")
	c.pushes("1 first")
}

// Pushes of all classes from several sides, while the connection breaks at any place, is replaced while it lives, and acknowledges what it likes: numbers have neither
// hole nor double, what is reliable comes once and in its order, and of what is the newest of its id nothing older comes behind.
func TestAnOracleOfPushes(t *testing.T) {
	t.Parallel()
	breaks := 60
	if testing.Short() {
		breaks = 20
	}
	for _, o := range []dialing{{}, {text: true}} {
		t.Run(fmt.Sprintf("text=%v", o.text), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.KeepBytes, c.QueueBytes, c.KeepCount = 64<<20, 64<<20, 1<<20 })
			c := r.kept("ann", o)
			ref, token := c.ref(), c.welcome.GetResume()
			if err := r.Join(ref, "g"); err != nil {
				t.Fatal(err)
			}
			const senders = 3
			var sent [senders]atomic.Uint64
			var came [senders]atomic.Uint64
			var stop atomic.Bool
			var wg sync.WaitGroup
			for i := range senders {
				wg.Go(func() {
					body := make([]byte, 0, 4<<10) // is used again: whoever keeps it without a copy shows
					for n := uint64(1); !stop.Load(); n++ {
						body = fmt.Appendf(body[:0], "%d %d %s", i, n, strings.Repeat("z", int(n%7)*300))
						p := zmsg.Push{ID: 1, Body: body}
						if n%2 == 0 {
							_ = r.Push(ref, &p)
						} else {
							r.PublishLocal("g", &p)
						}
						sent[i].Store(n)
						p.ID, p.Class = uint32(10+i), zmsg.Latest
						_ = r.Push(ref, &p)
						p.ID, p.Class = 20, zmsg.Volatile
						_ = r.Push(ref, &p)
						for k := range body {
							body[k] = '!'
						}
						for !stop.Load() && n > came[i].Load()+100 {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			var last uint64
			var reliable, latest [senders]uint64
			take := func(f zmsg.Frame) {
				if f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH {
					var m wirepb.Control
					if _ = proto.Unmarshal(f.Control, &m); m.GetGap() != nil {
						t.Fatalf("%v behind %d", m.GetGap(), last)
					}
					return
				}
				if f.Seq != last+1 {
					t.Fatalf("push %d behind %d", f.Seq, last)
				}
				last = f.Seq
				var i int
				var n uint64
				if _, err := fmt.Sscan(string(f.Body), &i, &n); err != nil {
					t.Fatalf("%v in %q", err, f.Body)
				}
				switch {
				case f.ID == 1 && n != reliable[i]+1:
					t.Fatalf("reliable %d of %d behind %d", n, i, reliable[i])
				case f.ID == 1:
					reliable[i] = n
					came[i].Store(n)
				case f.ID == uint32(10+i) && n <= latest[i]:
					t.Fatalf("latest %d of %d behind %d", n, i, latest[i])
				case f.ID == uint32(10+i):
					latest[i] = n
				}
			}
			if o.text { // which costs a multiple to read
				breaks /= 5
			}
			for round := range breaks {
				for range round % 41 {
					f, err := c.tryNext()
					if err != nil {
						t.Fatal(err)
					}
					take(f)
				}
				switch round % 5 {
				case 0, 1:
					c.ack(last, 0)
				case 2:
					c.ack(last/2, 1<<50) // goes back, and has a response that never was
				}
				if round%3 > 0 {
					c.ws.end()
				}
				old := c
				c = r.dial(o)
				_, b := c.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
					Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: token, LastPush: last}},
				})})
				op := opBinary
				if o.text {
					op = opText
				}
				if err := c.ws.write(op, b); err != nil {
					t.Fatal(err)
				}
				m := c.nextControl()
				if w := m.GetWelcome(); !w.GetResumed() {
					t.Fatalf("round %d: %v", round, m)
				} else {
					token = w.GetResume()
				}
				old.ws.end()
			}
			stop.Store(true)
			wg.Wait()
			for i := range senders {
				for reliable[i] < sent[i].Load() {
					take(c.next())
				}
			}
			c.ack(1<<60, 1<<60)
			r.pushTo(ref, zmsg.Reliable, 99, "0 0")
			for f := c.next(); f.ID != 99; f = c.next() {
				take(f)
			}
			c.ack(1<<60, 0)
			c.ping()
			if n := r.keeps(); n != 0 {
				t.Errorf("%d bytes are kept", n)
			}
		})
	}
}

// A storm: all clients lose their connections at once, and each comes back from two places at the same time with the same token, while it is pushed to, kicked, or its window
// ends. Whoever is told that it is the session's has all that follows in order; nothing is left.
func TestAStormOfClients(t *testing.T) {
	t.Parallel()
	clients := 40
	if testing.Short() {
		clients = 8
	}
	var told sync.Map
	r := newRig(t, func(c *Config) {
		c.ResumeWindow = time.Minute
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			if _, twice := told.LoadOrStore(m.Value.(*wirepb.SessionClosed).GetSession(), true); twice {
				t.Error("told twice")
			}
			m.Release()
			return nil
		}
	})
	all := make([]*client, clients)
	for i := range all {
		all[i] = r.kept(fmt.Sprint("user", i))
		if err := r.Watch(all[i].ref(), zmsg.Address{Node: testNode, Actor: 1}); err != nil {
			t.Fatal(err)
		}
		if err := r.Join(all[i].ref(), "all"); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg, publisher sync.WaitGroup
	publisher.Go(func() {
		body := strings.Repeat("b", 2000)
		for !stop.Load() {
			r.PublishLocal("all", &zmsg.Push{ID: 1, Body: []byte(body)})
			time.Sleep(2 * time.Millisecond)
		}
	})
	for i, c := range all {
		user, ref, token := fmt.Sprint("user", i), c.ref(), c.welcome.GetResume()
		if i%2 == 0 {
			c.ws.end()
		}
		for range 2 {
			wg.Go(func() {
				token, last := token, uint64(0)
				for range 5 {
					c, err := r.tryDial(dialing{})
					if err != nil {
						t.Error(err)
						return
					}
					_, b := c.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
						Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: user, Resume: token, LastPush: last, ResumeWindowMs: 60_000}},
					})})
					_ = c.ws.write(opBinary, b)
					for range 20 {
						f, err := c.tryNext()
						if err != nil {
							break
						}
						var m wirepb.Control
						if f.Control != nil && proto.Unmarshal(f.Control, &m) == nil && m.GetWelcome() != nil {
							if !m.GetWelcome().GetResumed() { // it is in no group: nothing comes
								c.ws.end()
								return
							}
							token = m.GetWelcome().GetResume()
							_, b := c.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
								Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: last}},
							})})
							_ = c.ws.write(opBinary, b)
						}
						if g := m.GetGap(); g != nil { // the other one has acknowledged it
							if g.GetFirst() != last+1 || g.GetLast() <= last {
								t.Errorf("gap %v behind %d", g, last)
							}
							last = g.GetLast()
						}
						if f.Kind == wirepb.FrameKind_FRAME_KIND_PUSH {
							if f.Seq != last+1 {
								t.Errorf("push %d behind %d", f.Seq, last)
							}
							last = f.Seq
						}
					}
					c.ws.end()
				}
			})
		}
		if i%3 == 0 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_ = r.Kick(ref, 4001, "out")
			})
		}
		if i%7 == 0 {
			wg.Go(func() {
				if s, err := r.Session(ref); err == nil {
					r.fire(s.c.Load(), r.now()+int64(time.Hour))
				}
			})
		}
	}
	wg.Wait()
	stop.Store(true)
	publisher.Wait()
	for _, s := range r.sessions.all() {
		s.Close(4001, "the end")
	}
	eventually(t, "all gone", func() bool { return r.Sessions() == 0 && r.keeps() == 0 })
	if r.counter("sessions") != 0 || r.counter("suspended") != 0 || r.counter("groups") != 0 || r.active.Load() != 0 || r.suspended.Load() != 0 || r.requests.Load() != 0 {
		t.Errorf("%v sessions, %v suspended, %v groups", r.counter("sessions"), r.counter("suspended"), r.counter("groups"))
	}
	for _, c := range all {
		if _, ok := told.Load(c.welcome.GetSession()); !ok {
			t.Error("nobody was told of the end of a session")
		}
	}
	r.wheel.mu.Lock()
	n := r.wheel.count
	r.wheel.mu.Unlock()
	if n != 0 {
		t.Errorf("%d entries are left in the wheel", n)
	}
}
