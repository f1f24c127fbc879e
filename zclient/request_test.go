package zclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestRequest(t *testing.T) {
	s := start(t)
	if s.conn.hello.GetToken() != "ann" || s.conn.hello.GetVersion() != wireVersion || s.conn.hello.GetClient() != "zclient-go" {
		t.Errorf("hello %v", s.conn.hello)
	}
	want := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n1", Epoch: 7}, ID: 5, Gen: 1}
	if got := s.Session(); got.Ref != want || got.User != "ann" || got.MaxInFlight != 64 {
		t.Errorf("session %+v", got)
	}
	go func() {
		f := s.conn.next()
		var say chatpb.Say
		if err := proto.Unmarshal(f.Body, &say); err != nil || f.ID != 1005 || f.Kind != wirepb.FrameKind_FRAME_KIND_REQUEST || f.Seq == 0 {
			t.Errorf("request %+v: %v", f, err)
		}
		if f.TimeoutMs == 0 || f.TimeoutMs > uint32(patience.Milliseconds()) {
			t.Errorf("timeout %d", f.TimeoutMs)
		}
		s.conn.respond(f, &chatpb.Said{Room: say.GetRoom(), Seq: 3})
	}()
	said, err := Call[chatpb.Said](within(t), s.Client, &chatpb.Say{Room: "go", Text: "hello"})
	if err != nil || said.GetRoom() != "go" || said.GetSeq() != 3 {
		t.Errorf("%v, %v", said, err)
	}
}

func TestResponses(t *testing.T) {
	s := start(t)
	response := func(f zmsg.Frame) zmsg.Frame {
		f.Kind = wirepb.FrameKind_FRAME_KIND_RESPONSE
		return f
	}
	for _, tt := range []struct {
		name    string
		answer  zmsg.Frame
		resp    proto.Message
		code    zmsg.Code
		outcome zmsg.Outcome
	}{
		{"error of the framework", zmsg.Frame{Code: zmsg.CodeNoRoute, Outcome: zmsg.NotExecuted, Text: "nobody"}, &chatpb.Said{}, zmsg.CodeNoRoute, zmsg.NotExecuted},
		{"error of the application", zmsg.Frame{Code: 1000, Text: "join first"}, &chatpb.Said{}, 1000, zmsg.Executed},
		{"unknown outcome", zmsg.Frame{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown}, nil, zmsg.CodeTimeout, zmsg.Unknown},
		{"another type", zmsg.Frame{ID: 1002}, &chatpb.Said{}, zmsg.CodeInternal, zmsg.Executed},
		{"not what the id says", zmsg.Frame{ID: 1006, Body: []byte{0xff}}, &chatpb.Said{}, zmsg.CodeInternal, zmsg.Executed},
		{"empty OK", zmsg.Frame{}, &chatpb.Said{}, zmsg.CodeOK, zmsg.Executed},
		{"any", zmsg.Frame{ID: 1002, Body: []byte{1}}, nil, zmsg.CodeOK, zmsg.Executed},
	} {
		go func() {
			f := response(tt.answer)
			f.Seq = s.conn.next().Seq
			s.conn.send(f)
		}()
		err := s.Request(within(t), &chatpb.Say{}, tt.resp)
		if zmsg.CodeOf(err) != tt.code || zmsg.OutcomeOf(err) != tt.outcome {
			t.Errorf("%s: %v", tt.name, err)
		}
		var e *zmsg.Error
		if err != nil && (!errors.As(err, &e) || (tt.answer.Text != "" && e.Text != tt.answer.Text)) {
			t.Errorf("%s: error %#v", tt.name, err)
		}
	}
}

// What one goroutine sends arrives in its order, one-way and requests alike, and responses find their requests.
func TestOrder(t *testing.T) {
	s := start(t)
	const n = 200
	var seqs []uint64
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for len(seqs) < n {
			f := s.conn.next()
			var say chatpb.Say
			if err := proto.Unmarshal(f.Body, &say); err != nil {
				t.Error(err)
			}
			var k uint64
			_, _ = fmt.Sscan(say.GetText(), &k)
			seqs = append(seqs, k)
			if f.Seq != 0 {
				s.conn.respond(f, &chatpb.Said{Seq: k})
			}
		}
	}()
	for i := range n {
		m := &chatpb.Say{Text: fmt.Sprint(i)}
		if i%2 == 0 {
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if said, err := Call[chatpb.Said](within(t), s.Client, m); err != nil || said.GetSeq() != uint64(i) {
			t.Fatalf("%v, %v", said, err)
		}
	}
	receive(t, answered, "all frames")
	if !slices.IsSorted(seqs) {
		t.Errorf("order %v", seqs)
	}
}

// A connection that is lost ends requests in flight at once, long before their deadline.
func TestLostInFlight(t *testing.T) {
	s := start(t)
	errs := make(chan error)
	for range 3 {
		go func() { errs <- s.Request(context.Background(), &chatpb.Who{}, nil) }()
	}
	for range 3 {
		s.conn.next()
	}
	_ = s.conn.ws.Close()
	for range 3 {
		if err := receive(t, errs, "the end of a request"); zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.Unknown {
			t.Errorf("%v", err)
		}
	}
	if st := s.until(t, Waiting); st.Reason.Kind != KindLost {
		t.Errorf("reason %v", st.Reason)
	}
	s.until(t, Online)
}

// stuckConn lets the client's writes block, once told so.
type stuckConn struct {
	net.Conn
	stuck  chan struct{} // closed: block from now on
	closed chan struct{}
	once   sync.Once
	in     chan struct{} // closed when a write blocks
	inOnce sync.Once
}

func (c *stuckConn) Write(b []byte) (int, error) {
	select {
	case <-c.stuck:
		c.inOnce.Do(func() { close(c.in) })
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Write(b)
	}
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// What was never written certainly did not run.
func TestNeverWritten(t *testing.T) {
	stuck, in := make(chan struct{}), make(chan struct{})
	first := true
	s := start(t, func(cfg *Config, _ *server) {
		dial := cfg.Dialer
		cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil || !first {
				return c, err
			}
			first = false
			return &stuckConn{Conn: c, stuck: stuck, closed: make(chan struct{}), in: in}, nil
		}
	})
	waitRTT(t, s.Client) // the ping of the login is out: the writer is idle
	close(stuck)
	written, waiting, expired := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { written <- s.Request(context.Background(), &chatpb.Who{}, nil) }()
	receive(t, in, "a write that blocks")
	go func() { waiting <- s.Request(context.Background(), &chatpb.Who{}, nil) }()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		expired <- s.Request(ctx, &chatpb.Who{}, nil)
	}()
	if err := receive(t, expired, "the deadline"); zmsg.CodeOf(err) != zmsg.CodeTimeout || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("a request that expires before it is written: %v", err)
	}
	eventually(t, "two requests in flight", func() bool { return inFlight(s.Client) == 2 })
	_ = s.conn.ws.Close()
	if err := receive(t, written, "the written one"); zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("the written one: %v", err)
	}
	if err := receive(t, waiting, "the waiting one"); zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("the waiting one: %v", err)
	}
}

func TestDeadlineAndCancel(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.Request(ctx, &chatpb.Who{}, nil)
	if zmsg.CodeOf(err) != zmsg.CodeTimeout {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Request(ctx, &chatpb.Joined{}, nil) }()
	late := s.conn.next()
	for late.ID != 1002 {
		late = s.conn.next()
	}
	cancel()
	if err := receive(t, done, "the end"); zmsg.CodeOf(err) != zmsg.CodeCancelled || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("cancel: %v", err)
	}
	if err := s.Request(ctx, &chatpb.Who{}, nil); zmsg.CodeOf(err) != zmsg.CodeCancelled || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("cancelled before: %v", err)
	}
	s.conn.respond(late, &chatpb.Said{})
	eventually(t, "a late response", func() bool { return s.Stats().LateResponses == 1 })
	if n := inFlight(s.Client); n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
}

func TestDefaultTimeout(t *testing.T) {
	s := start(t, func(cfg *Config, _ *server) { cfg.RequestTimeout = 20 * time.Millisecond })
	if err := s.Request(context.Background(), &chatpb.Who{}, nil); zmsg.CodeOf(err) != zmsg.CodeTimeout {
		t.Errorf("%v", err)
	}
}

func TestBounds(t *testing.T) {
	s := start(t, func(_ *Config, s *server) { s.welcome.MaxInFlight, s.welcome.MaxMessage = 2, 1000 })
	done := make(chan error)
	for range 2 {
		go func() { done <- s.Request(within(t), &chatpb.Who{}, nil) }()
	}
	f1, f2 := s.conn.next(), s.conn.next()
	if err := s.Request(within(t), &chatpb.Who{}, nil); zmsg.CodeOf(err) != zmsg.CodeBusy || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("a third in flight: %v", err)
	}
	if err := s.Send(&chatpb.Who{}); err != nil {
		t.Errorf("one-way is not in flight: %v", err)
	}
	s.conn.respond(f1, &chatpb.Said{})
	s.conn.respond(f2, &chatpb.Said{})
	for range 2 {
		if err := receive(t, done, "a response"); err != nil {
			t.Error(err)
		}
	}
	big := &chatpb.Say{Text: string(make([]byte, 1000))}
	if err := s.Request(within(t), big, nil); zmsg.CodeOf(err) != zmsg.CodeTooLarge || zmsg.OutcomeOf(err) != zmsg.NotExecuted ||
		!strings.Contains(err.Error(), "has 1003 bytes") {
		t.Errorf("too large: %v", err)
	}
	if err := s.Send(big); zmsg.CodeOf(err) != zmsg.CodeTooLarge {
		t.Errorf("too large: %v", err)
	}
	if err := s.Request(within(t), &wirepb.Ping{}, nil); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("no id: %v", err)
	}
	if err := s.Send(&chatpb.Say{Text: "\xff"}); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("not UTF-8: %v", err)
	}
}

// Packets stay below what the gate takes, in bytes and in frames, however much waits.
func TestPacking(t *testing.T) {
	cn := &conn{client: &Client{}, out: make(chan outgoing, maxQueued), session: Session{MaxMessage: 1000, MaxInFlight: 1}}
	for range 50 {
		if err := cn.submit(&zmsg.Frame{ID: 1, Body: make([]byte, 10)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for len(cn.out) < cap(cn.out) {
		if err := cn.submit(&zmsg.Frame{ID: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := cn.submit(&zmsg.Frame{ID: 1}, nil); zmsg.CodeOf(err) != zmsg.CodeBusy {
		t.Errorf("a full queue: %v", err)
	}
	s := start(t, func(_ *Config, s *server) { s.welcome.MaxMessage = 1000 })
	const n = 400
	go func() {
		for i := range n {
			m := &chatpb.Say{Text: string(make([]byte, i%100*9))}
			for s.Send(m) != nil { // Busy: the writer is behind
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for range n {
		s.conn.next()
	}
	if bytes, frames := s.server.largest.Load(), s.server.longest.Load(); bytes > 1000 || frames > maxFrames {
		t.Errorf("a packet of %d bytes, one of %d frames", bytes, frames)
	}
}

// Many callers, a connection that is cut again and again: each request has one outcome, none hangs.
func TestCutStorm(t *testing.T) {
	s := start(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // the server: answers, and cuts
		conn := s.conn
		for cuts := 0; cuts < 20; {
			n := 0
			for f := range conn.in {
				conn.respond(f, &chatpb.Members{})
				if n++; n == 20 {
					_ = conn.ws.Close()
				}
			}
			cuts++
			conn = s.server.next()
		}
		close(stop)
		for f := range conn.in {
			conn.respond(f, &chatpb.Members{})
		}
	})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := s.Request(context.Background(), &chatpb.Who{}, &chatpb.Members{})
				code := zmsg.CodeOf(err)
				if code != zmsg.CodeOK && code != zmsg.CodeUnavailable && code != zmsg.CodeCancelled {
					t.Errorf("%v", err)
				}
				if err != nil {
					_ = s.WaitOnline(within(t))
				}
			}
		})
	}
	receive(t, stop, "20 cuts")
	_ = s.Close()
	wg.Wait()
	if most := s.opened.most.Load(); most != 1 {
		t.Errorf("%d connections at one time", most)
	}
}

func inFlight(c *Client) int {
	if c.current.Load() == nil {
		return 0
	}
	return c.session.inFlight()
}

func waitRTT(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, "a round trip", func() bool { return c.RTT() > 0 })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
