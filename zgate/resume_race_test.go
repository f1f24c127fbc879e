package zgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// R10, H7: the client comes back from several places at once, while its connections break and the session is closed: one end, told once, and at no time
// two connections that are the session's.
func TestComingBackFromEverywhere(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	told := map[uint64]int{}
	r := newRig(t, func(c *Config) {
		c.CloseTimeout = time.Second
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			told[m.Value.(*wirepb.SessionClosed).GetSession()]++
			m.Release()
			return nil
		}
	})
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		c := r.kept("ann")
		ref, token := c.ref(), c.welcome.GetResume()
		if err := r.Watch(ref, zmsg.Address{Node: testNode, Actor: 1}); err != nil {
			t.Fatal(err)
		}
		s, _ := r.Session(ref)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				c, err := r.tryDial(dialing{})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.ws.end()
				_, b := c.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
					Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: token, ResumeWindowMs: 60_000}},
				})})
				if c.ws.write(opBinary, b) != nil {
					return
				}
				for range 5 {
					if _, err := c.tryNext(); err != nil {
						return
					}
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				_ = s.Push(&zmsg.Push{ID: 1, Body: []byte("x")})
				_ = r.Join(ref, "g")
				_ = r.Leave(ref, "g")
			}
		})
		wg.Go(c.ws.end)
		wg.Wait()
		s.Close(4001, "out")
	}
	eventually(t, "all gone", func() bool { return r.Sessions() == 0 })
	if r.counter("sessions") != 0 || r.counter("suspended") != 0 || r.counter("groups") != 0 || r.keeps() != 0 {
		t.Errorf("%v sessions, %v suspended, %v groups, %d bytes", r.counter("sessions"), r.counter("suspended"), r.counter("groups"), r.keeps())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != rounds {
		t.Errorf("%d sessions told of", len(told))
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("session %d told of %d times", id, n)
		}
	}
}

// R4: the login takes longer than the client waits, ten times: there is never more than one session.
func TestSlowLogins(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	arrived := make(chan struct{}, 20)
	r := newRig(t, func(c *Config) {
		c.Auth = AuthFunc(func(_ context.Context, h Hello) (string, error) {
			arrived <- struct{}{}
			<-gate
			return h.Token, nil
		})
	})
	for range 10 {
		c := r.dial(dialing{})
		c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", ResumeWindowMs: 60_000}}})
		<-arrived
		c.ws.end()
	}
	close(gate)
	c := r.kept("ann")
	<-arrived
	eventually(t, "one session is left", func() bool { return r.Sessions() == 1 })
	if r.Suspended() != 0 || r.counter("suspends_total") != 0 {
		t.Error("sessions wait for clients that have no token")
	}
	c.echo("hello")
}

// S2: the old connection ends after the client has come back: nobody notices.
func TestALateCloseOfTheOldConnection(t *testing.T) {
	t.Parallel()
	noClosed, over := noClosed(t)
	defer over()
	r := newRig(t, noClosed)
	c := r.kept("ann")
	if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	s, _ := r.Session(c.ref())
	old := s.c.Load()
	again := r.again("ann", c.welcome.GetResume(), 0)
	old.close(CloseSilent, "late", closing{})
	old.lost(nil)
	r.onTimer(old, r.now()+int64(time.Hour))
	s.ack(old, 1<<60, 0)
	c.ws.end()
	again.echo("hello")
	r.pushTo(again.ref(), zmsg.Reliable, 1, "x")
	again.pushes("1 x")
	if r.Sessions() != 1 || r.Suspended() != 0 {
		t.Errorf("%d sessions", r.Sessions())
	}
}

// R7: a snapshot that is taken behind Join, and what is published meanwhile, fit without a hole and without a double.
func TestASnapshotAndWhatFollows(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var n uint64
	var r *rig
	r = newRig(t, func(c *Config) {
		c.Handlers[200] = func(s *Session, m *zmsg.Message) {
			if err := r.Join(s.Ref(), "feed"); err != nil {
				t.Error(err)
			}
			mu.Lock()
			have := n
			mu.Unlock()
			m.Reply(&zmsg.Reply{ID: 201, Body: fmt.Append(nil, have)})
			m.Release()
		}
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
			}
			mu.Lock()
			n++
			r.PublishLocal("feed", &zmsg.Push{ID: 1, Body: fmt.Append(nil, n)})
			mu.Unlock()
		}
	})
	for range 20 {
		c := r.kept("ann")
		c.send(request(200, 1, ""))
		var have, last uint64
		known, resumed := false, false
		var early []uint64
		for last < have+20 || !known {
			f := c.next()
			var x uint64
			if _, err := fmt.Sscan(string(f.Body), &x); err != nil {
				t.Fatal(err)
			}
			if f.Kind == wirepb.FrameKind_FRAME_KIND_RESPONSE {
				known, have = true, x
				last = have
				for _, e := range early {
					if e > have {
						if e != last+1 {
							t.Fatalf("%d behind %d", e, last)
						}
						last = e
					}
				}
				continue
			}
			if !known {
				early = append(early, x)
				continue
			}
			if x <= have {
				continue // it is in the snapshot
			}
			if x != last+1 {
				t.Fatalf("%d behind %d", x, last)
			}
			last = x
			if !resumed && last > have+5 { // a break in the middle changes nothing
				resumed = true
				c.ws.end()
				c = r.again("ann", c.welcome.GetResume(), f.Seq)
			}
		}
		c.ws.end()
	}
	close(stop)
	wg.Wait()
}

// H6: silence and windows are measured by the monotonic clock.
func TestTheGateIgnoresTheWallClock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if !strings.Contains(r.born.String(), " m=") {
		t.Error("the gate's birth has no monotonic time")
	}
	if _, ok := any(r.now()).(int64); !ok || r.at(time.Now()) < 0 {
		t.Error("times are not on the gate's own scale")
	}
}

// A client, its gate and connections that break at any place: every push once and in order, every request once.
func TestBreaksAtAnyPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.KeepBytes = 1 << 20 })
	var ran sync.Map
	r.cfg.Handlers[200] = func(s *Session, m *zmsg.Message) {
		if _, twice := ran.LoadOrStore(string(m.Body()), true); twice {
			t.Errorf("%s ran twice", m.Body())
		}
		_ = s.Push(&zmsg.Push{ID: 1, Body: m.Body()})
		m.Reply(&zmsg.Reply{ID: 201, Body: m.Body()})
		m.Release()
	}
	users := 8
	if testing.Short() {
		users = 2
	}
	var wg sync.WaitGroup
	for u := range users {
		user := fmt.Sprint("user", u)
		c := r.kept(user)
		wg.Go(func() {
			const n = 400
			token, last, sent := c.welcome.GetResume(), uint64(0), uint64(0)
			waits := []uint64{}
			answered := 0
			for step := 0; answered < n || last < n; step++ {
				if len(waits) < 16 && sent < n {
					sent++
					waits = append(waits, sent)
					_, b := c.pack(request(200, sent, fmt.Sprint(user, " ", sent)))
					_ = c.ws.write(opBinary, b)
					continue
				}
				f, err := c.tryNext()
				switch {
				case err != nil:
					t.Error(err)
					return
				case f.Kind == wirepb.FrameKind_FRAME_KIND_PUSH:
					if f.Seq != last+1 {
						t.Errorf("push %d behind %d", f.Seq, last)
					}
					last = f.Seq
				case f.Kind == wirepb.FrameKind_FRAME_KIND_RESPONSE:
					i := slices.Index(waits, f.Seq)
					if i < 0 || string(f.Body) != fmt.Sprint(user, " ", f.Seq) || f.Code != 0 {
						t.Errorf("response %+v, waiting for %v", f, waits)
						return
					}
					waits = slices.Delete(waits, i, i+1)
					answered++
				}
				if step%7 == 0 {
					_, b := c.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
						Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: last}},
					})})
					_ = c.ws.write(opBinary, b)
				}
				if (step+u)%37 == 0 {
					c.ws.end()
					c = r.again(user, token, last)
					if !c.welcome.GetResumed() {
						t.Errorf("not resumed: %v", c.welcome)
						return
					}
					token = c.welcome.GetResume()
					for _, seq := range waits {
						_, b := c.pack(request(200, seq, fmt.Sprint(user, " ", seq)))
						_ = c.ws.write(opBinary, b)
					}
				}
			}
		})
	}
	wg.Wait()
}
