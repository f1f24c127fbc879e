package zclient

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// gate is a real one; Who is answered by the number of its request, and pushed as well.
type gate struct {
	*zgate.Gate
	cuts  *cutter
	cfg   Config
	mu    sync.Mutex
	ran   map[uint64]int // by the number
	hold  atomic.Bool    // requests are not answered for now
	held  chan *zmsg.Message
	users atomic.Int32 // logins
}

func newGate(t *testing.T, change ...func(*zgate.Config)) *gate {
	t.Helper()
	g := &gate{cuts: &cutter{}, ran: map[uint64]int{}, held: make(chan *zmsg.Message, 1000)}
	say, _ := zmsg.IDOf(&chatpb.Say{})
	cfg := zgate.Config{
		Node: zmsg.NodeRef{ID: "n1", Epoch: 7}, Addr: "127.0.0.1:0", TCPAddr: "127.0.0.1:0", DrainSpread: time.Millisecond,
		Auth: zgate.AuthFunc(func(_ context.Context, h zgate.Hello) (string, error) {
			g.users.Add(1)
			return zgate.DevAuth{}.Authenticate(t.Context(), h)
		}),
		Handlers: map[uint32]zgate.Handler{say: g.say},
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if g.Gate, err = zgate.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = g.Shutdown(ctx)
	})
	g.cfg = Config{
		URL: "ws://" + g.Addr().String() + "/ws", Token: "ann", Dialer: g.cuts.dial, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		HandshakeTimeout: patience, RequestTimeout: patience,
	}
	if overTCP(t) {
		g.cfg.URL = "tcp://" + g.TCPAddr().String()
	}
	return g
}

// say answers with the number that is the text, and pushes it as well.
func (g *gate) say(s *zgate.Session, m *zmsg.Message) {
	if g.hold.Load() {
		g.held <- m
		return
	}
	g.answer(s, m)
}

func (g *gate) answer(s *zgate.Session, m *zmsg.Message) {
	var req chatpb.Say
	_ = proto.Unmarshal(m.Body(), &req)
	n := uint64(len(req.GetText()))
	g.mu.Lock()
	g.ran[n]++
	g.mu.Unlock()
	_ = s.Push(&zmsg.Push{Value: &chatpb.Line{Seq: n}, ID: idOf(&chatpb.Line{})})
	m.Reply(&zmsg.Reply{ID: idOf(&chatpb.Said{}), Value: &chatpb.Said{Seq: n}})
	m.Release()
}

func idOf(m proto.Message) uint32 { id, _ := zmsg.IDOf(m); return id }

func (g *gate) session(t *testing.T, c *Client) *zgate.Session {
	t.Helper()
	s, err := g.Session(c.Session().Ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cutter dials, and cuts what it has dialled.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
	off   bool // dials fail
}

func (x *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.off {
		return nil, errors.New("no network")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		x.conns = append(x.conns, c)
	}
	return c, err
}

// cut breaks what there is; off says that there is no network from now on.
func (x *cutter) cut(off bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	x.conns, x.off = nil, off
}

func (g *gate) dial(t *testing.T) *Client {
	t.Helper()
	c, err := Dial(t.Context(), g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-c.Done() })
	if g.cfg.ResumeWindow >= 0 { // before that, the session ends with its connection
		eventually(t, "the gate has read that the client has its token", func() bool { return c.RTT() > 0 }) // the first Ping comes with the first Ack
	}
	return c
}

// Connections break again and again: every request runs once and is answered, every push comes once and in order, and the session is the same.
func TestCutsAreNotNoticed(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c, err := New(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	const n = 300
	var got []uint64
	all := make(chan struct{})
	On(c, func(l *chatpb.Line) {
		if got = append(got, l.GetSeq()); len(got) == n {
			close(all)
		}
	})
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-c.Done() })
	ref := c.Session().Ref
	var wg sync.WaitGroup
	var done atomic.Int64
	for part := range 5 {
		wg.Go(func() {
			for i := 1 + part; i <= n; i += 5 {
				for {
					said, err := Call[chatpb.Said](t.Context(), c, &chatpb.Say{Text: string(make([]byte, i))})
					if err == nil {
						if said.GetSeq() != uint64(i) {
							t.Errorf("request %d got the answer to %d", i, said.GetSeq())
						}
						break
					}
					if zmsg.OutcomeOf(err) != zmsg.NotExecuted {
						t.Errorf("request %d: %v", i, err)
						break
					}
					_ = c.WaitOnline(t.Context())
				}
				if done.Add(1)%20 == 0 {
					g.cuts.cut(false)
				}
			}
		})
	}
	wg.Wait()
	receive(t, all, "all pushes")
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, times := range g.ran {
		if times != 1 {
			t.Errorf("request %d ran %d times", i, times)
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); len(g.ran) != n || len(got) != n {
		t.Errorf("%d requests ran, %d pushes", len(g.ran), len(got))
	}
	if st := c.Stats(); st.Resumes == 0 || st.Lost != 0 || st.Gaps != 0 || st.LateResponses != 0 || c.Session().Ref != ref {
		t.Errorf("%+v, session %v and then %v", st, ref, c.Session().Ref)
	}
}

// The client is away for longer than the gate waits: it logs in anew by itself, says so, and ends what was in flight.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *zgate.Config) { c.ResumeWindow = time.Millisecond })
	c := g.dial(t)
	lost := make(chan Lost, 10)
	c.OnLost(func(l Lost) { lost <- l })
	first := c.Session()
	g.hold.Store(true)
	failed := make(chan error, 1)
	go func() { failed <- c.Request(t.Context(), &chatpb.Say{Text: "x"}, nil) }()
	m := receive(t, g.held, "the request")
	if err := g.session(t, c).Push(&zmsg.Push{ID: 1, Body: []byte{}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the push has come", func() bool { return c.Stats().Unhandled == 1 })
	g.cuts.cut(true)
	eventually(t, "the session has ended", func() bool { return g.Sessions() == 0 })
	m.Reply(&zmsg.Reply{})
	m.Release()
	g.cuts.cut(false)
	l := receive(t, lost, "the end of the session")
	if l.Why != RefusedExpired || l.Session.Ref != first.Ref || l.LastPush != 1 {
		t.Errorf("%+v", l)
	}
	if err := receive(t, failed, "the end of the request"); zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("%v", err)
	}
	if err := c.WaitOnline(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := c.Session(); s.Resumed || s.Ref.ID == first.Ref.ID {
		t.Errorf("session %+v", s)
	}
	if st := c.Stats(); st.Lost != 1 || st.Resumes != 0 || st.Connects != 2 {
		t.Errorf("%+v", st)
	}
}

// More was missed than the gate keeps: the client is told exactly what.
func TestGapOfTheSession(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *zgate.Config) { c.KeepCount = 2 })
	c := g.dial(t)
	type event struct {
		Gap
		push int
	}
	events := make(chan event, 10)
	c.OnGap(func(gap Gap) { events <- event{Gap: gap} })
	c.OnPush(1, func(b []byte) { events <- event{push: int(b[0])} })
	s := g.session(t, c)
	push := func(n int) {
		if err := s.Push(&zmsg.Push{ID: 1, Body: []byte{byte(n)}}); err != nil {
			t.Error(err)
		}
	}
	push(1)
	if e := receive(t, events, "a push"); e.push != 1 {
		t.Fatalf("%+v", e)
	}
	g.cuts.cut(true)
	eventually(t, "the session is suspended", func() bool { return g.Suspended() == 1 })
	for n := 2; n <= 5; n++ {
		push(n)
	}
	g.cuts.cut(false)
	for _, want := range []event{{Gap: Gap{First: 2, Last: 3}}, {push: 4}, {push: 5}} {
		if e := receive(t, events, "an event"); e != want {
			t.Errorf("%+v, expected %+v", e, want)
		}
	}
	push(6)
	if e := receive(t, events, "a push"); e.push != 6 {
		t.Errorf("%+v", e)
	}
	g.cuts.cut(false)
	eventually(t, "the session is back", func() bool { return c.Stats().Resumes == 2 })
	push(7)
	if e := receive(t, events, "a push"); e.push != 7 {
		t.Errorf("%+v: something came twice", e)
	}
}

// Who does not want it has a session that ends with its connection.
func TestWithoutResume(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.cfg.ResumeWindow = -1
	c := g.dial(t)
	g.cuts.cut(false)
	eventually(t, "a new session", func() bool { return c.Stats().Connects == 2 })
	if st := c.Stats(); st.Resumes != 0 || st.Lost != 0 || g.Suspended() != 0 {
		t.Errorf("%+v", st)
	}
}

// The goodbye of Close ends the session, it does not suspend it.
func TestCloseEndsTheSession(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.dial(t)
	if err := c.Request(t.Context(), &chatpb.Say{Text: "x"}, nil); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	eventually(t, "the session is gone", func() bool { return g.Sessions() == 0 })
}

// What has come is acknowledged, and that there is a token at once.
func TestAcks(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.welcome.Resume, s.welcome.ResumeWindowMs = "token", 30_000
	c, err := Dial(within(t), Config{URL: s.ws(), Token: "ann", MinBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	conn := s.next()
	if h := conn.hello; h.GetResumeWindowMs() != 3_600_000 || h.GetResume() != "" {
		t.Errorf("%v", h)
	}
	ack := func(conn *serverConn) *wirepb.Ack {
		t.Helper()
		var m wirepb.Control
		if f := conn.next(); proto.Unmarshal(f.Control, &m) != nil || m.GetAck() == nil {
			t.Fatalf("not an Ack: %+v", f)
		}
		return m.GetAck()
	}
	if a := ack(conn); a.GetPush() != 0 || a.GetResponse() != 0 {
		t.Errorf("%v", a)
	}
	conn.push(&chatpb.Line{}, 1)
	conn.push(&chatpb.Line{}, 2)
	conn.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, Seq: 9})
	for a := ack(conn); a.GetPush() != 2 || a.GetResponse() != 9; a = ack(conn) {
	}
	_ = conn.ws.Close()
	conn = s.next()
	if h := conn.hello; h.GetResume() != "token" || h.GetLastPush() != 2 {
		t.Errorf("%v", h)
	}
	ack(conn)
}

// R3: a credential that is not taken any more is asked for once more, and then it is over.
func TestExpiredCredential(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	g := newGate(t, func(c *zgate.Config) {
		c.Auth = zgate.AuthFunc(func(_ context.Context, h zgate.Hello) (string, error) {
			if refuse.Load() || h.Token == "old" {
				return "", zmsg.Errorf(zmsg.CodeUnauthorized, "expired")
			}
			return "ann", nil
		})
	})
	var asked atomic.Int32
	g.cfg.Token = ""
	g.cfg.TokenFunc = func(context.Context) (string, error) {
		if asked.Add(1) == 1 {
			return "old", nil
		}
		return "fresh", nil
	}
	asked.Store(1)
	c := g.dial(t)
	ref := c.Session().Ref
	asked.Store(0)
	g.cuts.cut(false)
	eventually(t, "it is back with a fresh one", func() bool { return c.Stats().Resumes == 1 })
	if asked.Load() != 2 || c.Session().Ref != ref {
		t.Errorf("asked %d times", asked.Load())
	}
	refuse.Store(true)
	asked.Store(0)
	g.cuts.cut(false)
	eventually(t, "it gives up", func() bool { return c.State().Phase == Closed })
	if s := c.State(); asked.Load() != 2 || s.Reason.Code != codeUnauthorized {
		t.Errorf("asked %d times, %+v", asked.Load(), s)
	}
}

// R2: the server ends the session: a new one where the code allows it, and none where it does not.
func TestTheServerEndsTheSession(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.dial(t)
	lost := make(chan Lost, 10)
	c.OnLost(func(l Lost) { lost <- l })
	g.session(t, c).Close(zgate.CloseRate, "too much")
	if l := receive(t, lost, "the end"); l.Why != RefusedEnded {
		t.Errorf("%+v", l)
	}
	if err := c.WaitOnline(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new session", func() bool { return c.Stats().Connects == 2 })
	g.session(t, c).Close(4001, "out")
	eventually(t, "it stops", func() bool { return c.State().Phase == Closed })
	if n := len(lost); n != 0 {
		t.Errorf("%d more", n)
	}
}

// A connection that the client gives up, for whatever reason of its own but its Close, is no goodbye: a Welcome that comes too late is of a session that the next try gets.
func TestGivingUpIsNoGoodbye(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindHandshake, KindSlow, KindProtocol, KindSilent} {
		g := newGate(t)
		c := g.dial(t)
		if _, err := Call[chatpb.Said](t.Context(), c, &chatpb.Say{Text: "x"}); err != nil { // the gate has had an Ack
			t.Fatal(err)
		}
		c.current.Load().end(&Reason{Kind: kind})
		eventually(t, string(kind), func() bool { s := c.Stats(); return s.Resumes+s.Lost > 0 && c.State().Phase == Online })
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%s: the session is lost", kind)
		}
	}
}
