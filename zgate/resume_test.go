package zgate

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// helloAs logs in with h, which is answered by a Welcome.
func (c *client) helloAs(h *wirepb.Hello) *wirepb.Welcome {
	c.t.Helper()
	if h.ResumeWindowMs == 0 {
		h.ResumeWindowMs = 3_600_000
	}
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: h}})
	m := c.nextControl()
	if m.GetWelcome() == nil {
		c.t.Fatalf("not a Welcome: %v", m)
	}
	c.welcome = m.GetWelcome()
	return c.welcome
}

func (c *client) nextControl() *wirepb.Control {
	c.t.Helper()
	f := c.next()
	var m wirepb.Control
	if err := proto.Unmarshal(f.Control, &m); err != nil || f.Control == nil {
		c.t.Fatalf("not a control frame: %+v %v", f, err)
	}
	return &m
}

func (c *client) ack(push, response uint64) {
	c.t.Helper()
	c.control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: push, Response: response}}})
}

// kept logs a client in whose session outlives its connection, and knows that it has a token.
func (r *rig) kept(user string, o ...dialing) *client {
	r.t.Helper()
	c := r.dial(append(o, dialing{})[0])
	if c.helloAs(&wirepb.Hello{Token: user}); c.welcome.GetResume() == "" {
		r.t.Fatalf("no token: %v", c.welcome)
	}
	c.ack(0, 0)
	c.ping()
	return c
}

// ping makes sure that the gate has read what was sent.
func (c *client) ping() {
	c.t.Helper()
	c.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 1}}})
	if p := c.nextControl().GetPong(); p.GetNonce() != 1 {
		c.t.Fatalf("not a pong")
	}
}

// again connects for the client whose token and user these are; last is the last push that it has.
func (r *rig) again(user, token string, last uint64, o ...dialing) *client {
	r.t.Helper()
	c := r.dial(append(o, dialing{})[0])
	c.helloAs(&wirepb.Hello{Token: user, Resume: token, LastPush: last})
	return c
}

// cut breaks the client's connection, and waits until the gate has noticed.
func (r *rig) cut(c *client) {
	r.t.Helper()
	c.ws.end()
	s, err := r.Session(c.ref())
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the session is suspended", func() bool { return s.stateNow() == stateSuspended })
}

func (s *Session) stateNow() uint8 {
	c := s.lock()
	defer c.q.mu.Unlock()
	return s.state
}

func (c *client) pushes(want ...string) {
	c.t.Helper()
	for _, w := range want {
		f := c.next()
		if got := fmt.Sprintf("%d %s", f.Seq, f.Body); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || got != w {
			c.t.Fatalf("got %v %q, expected push %q", f.Kind, got, w)
		}
	}
}

func (r *rig) pushTo(ref zmsg.SessionRef, class zmsg.Class, id uint32, body string) {
	r.t.Helper()
	if err := r.Push(ref, &zmsg.Push{ID: id, Class: class, Body: []byte(body)}); err != nil {
		r.t.Fatalf("push %s: %v", body, err)
	}
}

// A client that comes back gets its session, what it missed, and what is new, in this order; whoever knows the session notices nothing.
func TestResume(t *testing.T) {
	for _, o := range []dialing{{}, {text: true}, {coder: true}} {
		for _, how := range []string{"cut", "alive"} { // alive: the gate does not know that the connection is gone
			t.Run(fmt.Sprintf("text=%v/coder=%v/%s", o.text, o.coder, how), func(t *testing.T) {
				t.Parallel()
				testResume(t, o, how)
			})
		}
	}
	for _, how := range []string{"cut", "alive"} {
		t.Run("tls/"+how, func(t *testing.T) { testResume(t, dialing{}, how, withTLS) })
	}
}

// noClosed fails the test when a watcher is told of an end before over is called.
func noClosed(t *testing.T) (change func(*Config), over func()) {
	t.Helper()
	var done atomic.Bool
	return func(c *Config) {
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			if !done.Load() {
				t.Errorf("told of an end: %v", m.Value)
			}
			m.Release()
			return nil
		}
	}, func() { done.Store(true) }
}

func testResume(t *testing.T, o dialing, how string, change ...func(*Config)) {
	t.Helper()
	noClosed, over := noClosed(t)
	defer over()
	r := newRig(t, append(change, noClosed)...)
	c := r.kept("ann", o)
	ref, token := c.ref(), c.welcome.GetResume()
	if err := r.Watch(ref, zmsg.Address{Node: testNode, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	if err := r.Join(ref, "g"); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("b", 3000) // is shared
	r.pushTo(ref, zmsg.Reliable, 1, "one")
	r.pushTo(ref, zmsg.Reliable, 1, "two")
	r.pushTo(ref, zmsg.Reliable, 1, big)
	c.pushes("1 one", "2 two", "3 "+big)
	want := []string{"3 " + big}
	last := 4
	if how == "cut" {
		r.cut(c)
		if r.Sessions() != 1 || r.Suspended() != 1 || r.counter("sessions") != 1 || r.counter("suspended") != 1 {
			t.Errorf("%d sessions, %d suspended", r.Sessions(), r.Suspended())
		}
		r.pushTo(ref, zmsg.Latest, 7, "old position")
		r.pushTo(ref, zmsg.Reliable, 1, "while away")
		r.pushTo(ref, zmsg.Latest, 8, "other position")
		r.pushTo(ref, zmsg.Latest, 7, "new position")
		if err := r.Push(ref, &zmsg.Push{ID: 1, Class: zmsg.Volatile, Body: []byte("gone")}); !errors.Is(err, ErrDropped) {
			t.Errorf("volatile: %v", err)
		}
		if delivered, failed := r.PublishLocal("g", &zmsg.Push{ID: 2, Body: []byte("to all")}); delivered != 1 || failed != 0 {
			t.Errorf("%d delivered, %d failed", delivered, failed)
		}
		want = append(want, "4 while away", "5 to all", "6 new position", "7 other position")
		last = 8
	}
	c = r.again("ann", token, 2, o)
	if w := c.welcome; !w.GetResumed() || c.ref() != ref || w.GetResume() == "" || w.GetResume() == token || w.GetRefused() != 0 {
		t.Fatalf("not resumed: %v", w)
	}
	c.pushes(want...)
	r.pushTo(ref, zmsg.Reliable, 1, "new")
	r.PublishLocal("g", &zmsg.Push{ID: 2, Body: []byte("all again")})
	c.pushes(fmt.Sprintf("%d new", last), fmt.Sprintf("%d all again", last+1))
	c.echo("hello")
	if r.Sessions() != 1 || r.Suspended() != 0 || r.counter("sessions") != 1 || r.counter("suspended") != 0 || r.counter("resumes_total", "ok") != 1 {
		t.Errorf("%d sessions, %d suspended", r.Sessions(), r.Suspended())
	}
}

// Requests that are sent again with the same seq run once, wherever their connection broke.
func TestRequestsSentAgainRunOnce(t *testing.T) {
	t.Parallel()
	for _, text := range []bool{false, true} {
		var ran sync.Map
		r := newRig(t, func(c *Config) {
			c.Handlers[200] = func(_ *Session, m *zmsg.Message) {
				n, _ := ran.LoadOrStore(string(m.Body()), new(atomic.Int32))
				n.(*atomic.Int32).Add(1)
				m.Reply(&zmsg.Reply{ID: 201, Body: append([]byte("did "), m.Body()...)})
				m.Release()
			}
		})
		o := dialing{text: text}
		c := r.kept("ann", o)
		token := c.welcome.GetResume()
		// 1 is answered, and 2, but only the first arrives; 3 is in flight; 4 ends while the client is away; 5 and 6 never arrive.
		c.send(request(200, 1, "one"), request(200, 2, "two"), request(idHeld, 3, "three"), request(idHeld, 4, "four"))
		if f := c.next(); f.Seq != 1 || string(f.Body) != "did one" {
			t.Fatalf("%+v", f)
		}
		three, four := <-r.held, <-r.held
		r.cut(c)
		four.Reply(&zmsg.Reply{ID: 300, Body: []byte("did four")})
		four.Release()
		for round := range 3 { // the client may lose it again and again
			if round > 0 {
				r.cut(c)
			}
			c = r.again("ann", token, 0, o)
			token = c.welcome.GetResume()
			c.send(request(200, 2, "two"), request(idHeld, 3, "three"), request(idHeld, 4, "four"), request(200, 5, "five"))
			want := map[uint64]string{2: "did two", 4: "did four", 5: "did five"}
			for len(want) > 0 {
				f := c.next()
				if want[f.Seq] != string(f.Body) || f.Code != 0 {
					t.Fatalf("round %d: %+v, expected one of %v", round, f, want)
				}
				delete(want, f.Seq)
			}
		}
		three.Reply(&zmsg.Reply{ID: 300, Body: []byte("did three")})
		three.Release()
		if f := c.next(); f.Seq != 3 || string(f.Body) != "did three" {
			t.Fatalf("%+v", f)
		}
		c.send(request(200, 6, "six"), request(200, 2, "two"))
		if f := c.next(); f.Seq != 6 || string(f.Body) != "did six" {
			t.Fatalf("%+v", f) // and nothing for 2, which has been answered on this connection
		}
		c.ack(0, 6)
		c.send(request(200, 2, "two"), request(200, 7, "seven"))
		if f := c.next(); f.Seq != 2 || f.Code != zmsg.CodeUnknownOutcome || f.Outcome != zmsg.Unknown {
			t.Fatalf("the client has acknowledged 2, and asks for it: %+v", f)
		}
		if f := c.next(); f.Seq != 7 || string(f.Body) != "did seven" {
			t.Fatalf("%+v", f)
		}
		ran.Range(func(k, n any) bool {
			if n := n.(*atomic.Int32).Load(); n != 1 {
				t.Errorf("%v ran %d times", k, n)
			}
			return true
		})
		if len(r.held) != 0 {
			t.Error("a request in flight ran twice")
		}
	}
}

// A response is being sent while the client asks for it again: it gets one.
func TestAResponseRacesItsRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.kept("ann")
	token, seq := c.welcome.GetResume(), uint64(0)
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		seq++
		c.send(request(idHeld, seq, "x"))
		m := <-r.held
		c.ws.end()
		var wg sync.WaitGroup
		wg.Go(func() {
			m.Reply(&zmsg.Reply{ID: 1, Body: []byte("done")})
			m.Release()
		})
		c = r.again("ann", token, 0)
		token = c.welcome.GetResume()
		c.send(request(idHeld, seq, "x"), request(idEcho, seq+1, "behind"))
		got := map[uint64]string{}
		for len(got) < 2 {
			f := c.next()
			if had, twice := got[f.Seq]; twice || f.Code != 0 {
				t.Fatalf("%+v, before %q", f, had)
			}
			got[f.Seq] = string(f.Body)
		}
		if got[seq] != "done" || got[seq+1] != "behind" {
			t.Fatalf("%v", got)
		}
		seq++
		wg.Wait()
	}
	c.ping() // nothing else has come
}

// R1: the session is there a moment before the window ends, and not a moment after; who watches it is told once, and the client why.
func TestResumeWindow(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	r := newRig(t, func(c *Config) {
		c.ResumeWindow = 20 * time.Minute
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			if e := m.Value.(*wirepb.SessionClosed); e.GetCode() != uint32(closedLost) || !strings.Contains(e.GetReason(), "did not come back within 20m0s") {
				t.Errorf("%v", e)
			}
			told.Add(1)
			m.Release()
			return nil
		}
	})
	c := r.kept("ann")
	if ms := c.welcome.GetResumeWindowMs(); ms != 20*60*1000 {
		t.Errorf("window %d", ms)
	}
	ref := c.ref()
	if err := r.Watch(ref, zmsg.Address{Node: testNode, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	if err := r.Join(ref, "g"); err != nil {
		t.Fatal(err)
	}
	r.cut(c)
	s, _ := r.Session(ref)
	at := s.resume.until
	r.onTimer(s.c.Load(), at-int64(time.Second))
	c = r.again("ann", c.welcome.GetResume(), 0)
	if !c.welcome.GetResumed() {
		t.Fatal("not resumed a second before the end")
	}
	r.cut(c)
	at = s.resume.until
	r.onTimer(s.c.Load(), at+int64(time.Second))
	if told.Load() != 1 || r.Sessions() != 0 || r.counter("sessions") != 0 || r.counter("suspended") != 0 || r.counter("groups") != 0 {
		t.Errorf("told %d times, %d sessions, %v groups", told.Load(), r.Sessions(), r.counter("groups"))
	}
	if err := r.Push(ref, &zmsg.Push{ID: 1}); !errors.Is(err, ErrNoSession) {
		t.Errorf("push: %v", err)
	}
	old := c.welcome
	c = r.again("ann", old.GetResume(), 0)
	if c.welcome.GetResumed() || c.welcome.GetRefused() != refusedExpired || c.welcome.GetSession() == old.GetSession() {
		t.Errorf("a second after the end: %v", c.welcome)
	}
	if c.welcome.GetResume() == "" {
		t.Error("the new session cannot be resumed")
	}
	if r.keeps() != 0 {
		t.Errorf("%d bytes are kept", r.keeps())
	}
	c.echo("logged in anew")
}

// keeps is how many bytes all sessions keep.
func (r *rig) keeps() int64 { return r.Gate.kept.Load() }

// The wheel ends what is over by itself.
func TestASuspendedSessionEnds(t *testing.T) {
	t.Parallel()
	told := make(chan *wirepb.SessionClosed, 10)
	r := newRig(t, func(c *Config) {
		c.ResumeWindow = 100 * time.Millisecond
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			told <- m.Value.(*wirepb.SessionClosed)
			m.Release()
			return nil
		}
	})
	c := r.kept("ann")
	if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	c.send(request(idHeld, 1, "x"))
	m := <-r.held
	c.ws.end()
	<-told
	eventually(t, "it is gone", func() bool { return r.Sessions() == 0 && r.Suspended() == 0 })
	if n := r.requests.Load(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
	m.Reply(&zmsg.Reply{})
	m.Release()
}

// A request whose deadline passes while the client is away is answered, which it learns when it comes back.
func TestDeadlinesPassWhileAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.kept("ann")
	f := request(idHeld, 1, "x")
	f.TimeoutMs = 20
	c.send(f)
	m := <-r.held
	r.cut(c)
	eventually(t, "nothing is in flight", func() bool { return r.requests.Load() == 0 })
	m.Reply(&zmsg.Reply{ID: 1}) // too late
	m.Release()
	c = r.again("ann", c.welcome.GetResume(), 0)
	c.send(f)
	if f := c.next(); f.Seq != 1 || f.Code != zmsg.CodeTimeout || f.Outcome != zmsg.Unknown {
		t.Errorf("%+v", f)
	}
}

// A token is good for its user until a newer one has been seen.
func TestResumeTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refused := func(what, user, token string, last uint64, why refusal) {
		t.Helper()
		c := r.again(user, token, last)
		if c.welcome.GetResumed() || c.welcome.GetRefused() != why {
			t.Errorf("%s: %v", what, c.welcome)
		}
		if c.welcome.GetUser() != user {
			t.Errorf("%s: a session of %s", what, c.welcome.GetUser())
		}
		c.ping() // and nothing of the other session comes
		c.ws.end()
	}
	c := r.kept("ann")
	first := c.welcome.GetResume()
	r.pushTo(c.ref(), zmsg.Reliable, 1, "secret")
	r.cut(c)
	parsed, err := parseToken(first)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*token)) string {
		x := parsed
		change(&x)
		return x.String()
	}
	refused("another user's", "bob", first, 0, refusedUser)
	refused("a wrong secret", "ann", with(func(x *token) { x.secret[15] ^= 1 }), 0, refusedInvalid)
	refused("another generation", "ann", with(func(x *token) { x.ref.Gen++ }), 0, refusedInvalid)
	refused("an earlier process", "ann", with(func(x *token) { x.ref.Gate.Epoch-- }), 0, refusedExpired)
	refused("another session", "ann", with(func(x *token) { x.ref.ID++ }), 0, refusedExpired)
	refused("garbage", "ann", "AAAA", 0, refusedInvalid)
	refused("more pushes than there were", "ann", first, 2, refusedInvalid)

	// The Welcome may be lost: the token before is good until the client has shown the new one.
	c = r.again("ann", first, 0)
	lost := c.welcome.GetResume()
	r.cut(c)
	c = r.again("ann", first, 0)
	if !c.welcome.GetResumed() {
		t.Fatal("the token is not good any more, and the client has no other")
	}
	c.pushes("1 secret")
	second := c.welcome.GetResume()
	r.cut(c)
	c = r.again("ann", second, 1)
	if !c.welcome.GetResumed() {
		t.Fatal("not resumed with the second")
	}
	refused("one that is older than what the client has shown", "ann", lost, 1, refusedInvalid)
	third := c.welcome.GetResume()
	c.ack(1, 0)
	c.ping()
	r.cut(c)
	refused("a used one", "ann", second, 1, refusedInvalid)
	refused("the first", "ann", first, 1, refusedInvalid)
	if c = r.again("ann", third, 1); !c.welcome.GetResumed() {
		t.Fatal("not resumed with the third")
	}
	if n := r.counter("resumes_total", "invalid"); n < 5 {
		t.Errorf("%v counted", n)
	}
	if s := r.log.String(); strings.Contains(s, first) || strings.Contains(s, third) {
		t.Error("a token is in the log")
	}
}

// Clients that did not ask for it, and all of a gate that does not resume, have sessions that end with their connection; so has one whose client never showed
// that it has a token.
func TestSessionsThatEndWithTheirConnection(t *testing.T) {
	t.Parallel()
	r, off := newRig(t), newRig(t, func(c *Config) { c.ResumeWindow = -1 })
	plain := r.login("ann")
	if plain.welcome.GetResume() != "" || plain.welcome.GetResumeWindowMs() != 0 {
		t.Errorf("%v", plain.welcome)
	}
	silent := r.dial(dialing{})
	silent.helloAs(&wirepb.Hello{Token: "ann"})
	none := off.dial(dialing{})
	if none.helloAs(&wirepb.Hello{Token: "ann"}); none.welcome.GetResume() != "" {
		t.Errorf("%v", none.welcome)
	}
	none.ack(0, 0)
	none.echo("x")
	for _, c := range []*client{plain, silent, none} {
		c.ws.end()
	}
	eventually(t, "they are gone", func() bool { return r.Sessions() == 0 && off.Sessions() == 0 })
	if r.counter("suspends_total") != 0 || off.counter("suspends_total") != 0 {
		t.Error("suspended")
	}
	c := off.again("ann", silent.welcome.GetResume(), 0)
	if c.welcome.GetRefused() != refusedOff || c.welcome.GetResumed() {
		t.Errorf("%v", c.welcome)
	}
}

// How a connection ends decides whether the session goes on.
func TestWhatSuspends(t *testing.T) {
	t.Parallel()
	closeWith := func(code int) func(*rig, *client) {
		return func(_ *rig, c *client) {
			_ = c.ws.(gorillaSocket).WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, "bye"), time.Now().Add(patience))
		}
	}
	for name, x := range map[string]struct {
		how      func(*rig, *client)
		suspends bool
		reason   string
	}{
		"fin":               {func(_ *rig, c *client) { c.ws.end() }, true, "lost"},
		"rst":               {func(_ *rig, c *client) { _ = c.ws.(gorillaSocket).NetConn().(*net.TCPConn).SetLinger(0); c.ws.end() }, true, "lost"},
		"silent":            {func(r *rig, c *client) { s, _ := r.Session(c.ref()); r.onTimer(s.c.Load(), r.now()+int64(time.Hour)) }, true, "silent"},
		"goodbye":           {closeWith(1000), false, "client"},
		"the page is left":  {closeWith(1001), false, "client"},
		"without a code":    {closeWith(1005), false, "client"},
		"the client failed": {closeWith(1008), true, "lost"},
		"kick":              {func(r *rig, c *client) { _ = r.Kick(c.ref(), 4001, "out") }, false, "application"},
		"replaced":          {func(r *rig, c *client) { _ = r.Kick(c.ref(), uint32(CloseReplaced), "elsewhere") }, false, "replaced"},
		"a fault":           {func(_ *rig, c *client) { _ = c.ws.write(opBinary, []byte{0xff}) }, false, "protocol"},
		"a panic": {func(r *rig, c *client) {
			s, _ := r.Session(c.ref())
			s.c.Load().close(CloseInternal, "internal error", closing{})
		}, true, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.kept("ann")
			x.how(r, c)
			go func() { // reads, and so answers the gate's close frame
				for {
					if _, _, err := c.ws.read(); err != nil {
						c.ws.end()
						return
					}
				}
			}()
			if !x.suspends {
				eventually(t, "it is gone", func() bool { return r.Sessions() == 0 })
				if n := r.counter("closes_total", x.reason); n != 1 || r.counter("suspends_total") != 0 {
					t.Errorf("%v with reason %s, %v suspended", n, x.reason, r.counter("suspends_total"))
				}
				return
			}
			eventually(t, "it is suspended", func() bool { return r.Suspended() == 1 })
			if n := r.counter("suspends_total", x.reason); n != 1 || r.counter("closes_total") != 0 {
				t.Errorf("%v with reason %s, %v closed", n, x.reason, r.counter("closes_total"))
			}
			if c := r.again("ann", c.welcome.GetResume(), 0); !c.welcome.GetResumed() {
				t.Error("not resumed")
			}
		})
	}
}

// A client that does not read is closed as slow, and misses nothing for it that is kept; of the rest it is told.
func TestSlowClientsComeBack(t *testing.T) {
	t.Parallel()
	const n = 3000
	for name, keepBytes := range map[string]int{"all is kept": 1 << 20, "not all is": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withSmallBuffers(t), func(c *Config) { c.QueueBytes, c.KeepBytes = 1<<20, keepBytes })
			c := r.kept("ann")
			_ = c.ws.(gorillaSocket).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
			for i := range n {
				r.pushTo(c.ref(), zmsg.Reliable, 1, fmt.Sprintf("%d %s", i+1, strings.Repeat("x", 200)))
			}
			s, _ := r.Session(c.ref())
			s.c.Load().close(CloseSlow, "slow", closing{within: time.Millisecond})
			c.ws.end()
			eventually(t, "it is suspended", func() bool { return r.Suspended() == 1 })
			r.pushTo(c.ref(), zmsg.Reliable, 1, "last")
			c = r.again("ann", c.welcome.GetResume(), 0)
			next := uint64(1)
			f := c.next()
			if keepBytes < n*200 {
				var m wirepb.Control
				if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetGap().GetFirst() != 1 || m.GetGap().GetLast() < n/2 || m.GetGap().GetLast() > n {
					t.Fatalf("no gap: %+v", f)
				}
				next = m.GetGap().GetLast() + 1
				f = c.next()
			}
			for ; next <= n; next++ {
				if f.Seq != next || !bytes.HasPrefix(f.Body, fmt.Appendf(nil, "%d ", next)) {
					t.Fatalf("push %d %.20q instead of %d", f.Seq, f.Body, next)
				}
				f = c.next()
			}
			if f.Seq != n+1 || string(f.Body) != "last" {
				t.Fatalf("%d %.20q", f.Seq, f.Body)
			}
		})
	}
}

// Who is sent away while he is away learns it when he comes back, once.
func TestKickWhileAway(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	r := newRig(t, func(c *Config) {
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			if e := m.Value.(*wirepb.SessionClosed); e.GetCode() != 4007 || e.GetReason() != "cheating" {
				t.Errorf("%v", e)
			}
			told.Add(1)
			m.Release()
			return nil
		}
	})
	c := r.kept("ann")
	if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	r.cut(c)
	if err := r.Kick(c.ref(), 4007, "cheating"); err != nil {
		t.Fatal(err)
	}
	if err := r.Kick(c.ref(), 4008, "cheating"); !errors.Is(err, ErrNoSession) {
		t.Errorf("kick of the kicked: %v", err)
	}
	if told.Load() != 1 || r.Sessions() != 0 {
		t.Errorf("told %d times, %d sessions", told.Load(), r.Sessions())
	}
	token := c.welcome.GetResume()
	c = r.dial(dialing{})
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: token}}})
	if text, _ := c.closedWith(4007); text != "cheating" {
		t.Errorf("%q", text)
	}
	if c = r.again("ann", token, 0); c.welcome.GetRefused() != refusedExpired {
		t.Errorf("%v", c.welcome)
	}
}

// A kick counts where the connection is just breaking, too.
func TestKickOfABrokenConnection(t *testing.T) {
	t.Parallel()
	for range 50 {
		r := newRig(t)
		c := r.kept("ann")
		s, _ := r.Session(c.ref())
		var wg sync.WaitGroup
		kicked := false
		wg.Go(c.ws.end)
		wg.Go(func() { kicked = s.Close(4001, "out") })
		wg.Wait()
		if !kicked {
			t.Error("nobody has ended it before")
		}
		eventually(t, "it is gone", func() bool { return r.Sessions() == 0 })
		if n := r.counter("closes_total", "application"); n != 1 {
			t.Errorf("%v", n)
		}
	}
}

func TestLimitsOfSuspendedSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.MaxSuspended, c.MaxKeepBytes = 2, 4096 })
	var cs []*client
	for range 3 {
		cs = append(cs, r.kept("ann"))
	}
	r.cut(cs[0])
	r.cut(cs[1])
	cs[2].ws.end()
	eventually(t, "the third has ended", func() bool { return r.Sessions() == 2 })
	if r.counter("suspends_total", "full") != 1 {
		t.Error("not counted")
	}
	// What is above the limit of all is not kept, and the client is told.
	for i := range 50 {
		r.pushTo(cs[i%2].ref(), zmsg.Reliable, 1, strings.Repeat("x", 200))
	}
	if n := r.keeps(); n > 4096+300 {
		t.Errorf("%d bytes are kept", n)
	}
	for _, c := range cs[:2] {
		c = r.again("ann", c.welcome.GetResume(), 0)
		if g := c.nextControl().GetGap(); g.GetFirst() != 1 || g.GetLast() > 25 {
			t.Errorf("gap %v", g)
		}
	}
}

// Memory that runs short is taken from those who are behind, not from whoever is pushed to next.
func TestFairShareOfWhatIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.MaxKeepBytes = 64 << 10 })
	var few []*client
	for range 7 {
		few = append(few, r.kept("ann"))
	}
	greedy := r.kept("bob")
	r.cut(greedy)
	text := strings.Repeat("x", 200)
	for range 1000 {
		if r.keeps() < 64<<10-2*int64(len(text)) { // or it would be the one that is too much
			r.pushTo(greedy.ref(), zmsg.Reliable, 1, text)
		}
	}
	for _, c := range few {
		r.cut(c)
	}
	for range 10 {
		for _, c := range few {
			r.pushTo(c.ref(), zmsg.Reliable, 1, text)
		}
		r.pushTo(greedy.ref(), zmsg.Reliable, 1, text)
	}
	if n := r.keeps(); n > 64<<10 {
		t.Errorf("%d bytes are kept", n)
	}
	for i, c := range few {
		c = r.again("ann", c.welcome.GetResume(), 0)
		for n := range 10 {
			if f := c.next(); f.Seq != uint64(n+1) {
				t.Fatalf("client %d: %+v instead of push %d", i, f, n+1)
			}
		}
	}
	greedy = r.again("bob", greedy.welcome.GetResume(), 0)
	if g := greedy.nextControl().GetGap(); g.GetFirst() != 1 || g.GetLast() < 100 {
		t.Errorf("gap %v of who was far behind", g)
	}
}

func TestShutdownAndRejoinEndSuspendedSessions(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"shutdown", "rejoin"} {
		told := make(chan uint32, 10)
		r := newRig(t, func(c *Config) {
			c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
				if passing(m) {
					return nil
				}
				told <- m.Value.(*wirepb.SessionClosed).GetCode()
				m.Release()
				return nil
			}
		})
		c := r.kept("ann")
		if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: 1}); err != nil {
			t.Fatal(err)
		}
		r.cut(c)
		want := CloseShutdown
		if how == "rejoin" {
			want = CloseRejoined
			r.Rejoin(zmsg.NodeRef{ID: testNode.ID, Epoch: testNode.Epoch + 1})
		} else if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if code := <-told; code != uint32(want) || r.Sessions() != 0 {
			t.Errorf("%s: told %d, %d sessions", how, code, r.Sessions())
		}
	}
}
