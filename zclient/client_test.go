package zclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"pgregory.net/rapid"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestPushes(t *testing.T) {
	s := start(t)
	const n = 1000
	var got []uint64
	all := make(chan struct{})
	cancel := On(s.Client, func(l *chatpb.Line) {
		if got = append(got, l.GetSeq()); len(got) == n {
			close(all)
		}
		if l.GetSeq() == 1 { // a handler may make requests
			if _, err := Call[chatpb.Members](within(t), s.Client, &chatpb.Who{}); err != nil {
				t.Error(err)
			}
		}
	})
	var second atomic.Int32
	s.OnPush(1000, func([]byte) { second.Add(1) })
	go func() { s.conn.respond(s.conn.next(), &chatpb.Members{}) }()
	for i := range n {
		s.conn.push(&chatpb.Line{Seq: uint64(i) + 1}, uint64(i)+1)
	}
	receive(t, all, "all pushes")
	for i := range got {
		if got[i] != uint64(i)+1 {
			t.Fatalf("push %d is %d", i, got[i])
		}
	}
	cancel()
	s.conn.push(&chatpb.Line{Seq: 7}, 7)
	s.conn.push(&chatpb.Typing{}, 8)
	s.conn.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: 1009, Body: []byte{0xff}})
	eventually(t, "unhandled pushes", func() bool { return s.Stats().Unhandled == 2 })
	if len(got) != n || second.Load() != n+1 {
		t.Errorf("%d and %d pushes, want %d and %d", len(got), second.Load(), n, n+1)
	}
	On(s.Client, func(*chatpb.Typing) { t.Error("called with rubbish") })
	s.conn.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: 1009, Body: []byte{0xff}})
	eventually(t, "a bad push", func() bool { return s.Stats().BadPushes == 1 })
}

// A handler that does not keep up costs the connection, not the memory.
func TestSlowHandler(t *testing.T) {
	s := start(t, func(cfg *Config, _ *server) { cfg.MaxPushes = 10 })
	release, entered := make(chan struct{}), make(chan struct{}, 100)
	On(s.Client, func(*chatpb.Line) { entered <- struct{}{}; <-release })
	s.conn.push(&chatpb.Line{}, 0)
	<-entered
	for range 11 { // no more than the client takes note of: the server's next one would meet a closed socket
		s.conn.push(&chatpb.Line{}, 0)
	}
	err := s.conn.ended()
	close(release)
	if st := s.until(t, Waiting); st.Reason.Kind != KindSlow {
		t.Errorf("reason %v", st.Reason)
	}
	if !websocket.IsCloseError(err, websocket.ClosePolicyViolation) {
		t.Errorf("the server saw %v", err)
	}
	s.until(t, Online)
}

// A handler that never returns does not make states pile up, and the newest is not lost.
func TestStatesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHandlers(&Client{}, 10)
	for n := range 10_000 {
		h.state(State{Attempt: n})
	}
	h.push(1, nil)
	h.state(State{Attempt: 10_000})
	if n := len(h.queue); n > maxStates+5 {
		t.Errorf("%d events wait", n)
	}
	for i, want := range map[int]int{0: 0, maxStates: 9_999, len(h.queue) - 1: 10_000} {
		if got := h.queue[i].state.Attempt; got != want {
			t.Errorf("event %d is state %d, want %d", i, got, want)
		}
	}
}

// Whoever closes, and how: the range of the code decides (known faults R2, R3), the reason is told (H10).
func TestCloseCodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(c *serverConn)
		again  bool
		kind   Kind
		code   int
		reason string
	}{
		{"shutdown", func(c *serverConn) { c.closing(3001, 0) }, true, KindClosed, 3001, "the reason"},
		{"last transient", func(c *serverConn) { c.closing(3499, 0) }, true, KindClosed, 3499, "the reason"},
		{"first terminal", func(c *serverConn) { c.closing(3500, 0) }, false, KindClosed, 3500, "the reason"},
		{"unauthorized", func(c *serverConn) { c.closing(3501, 0) }, false, KindClosed, 3501, "the reason"},
		{"last terminal", func(c *serverConn) { c.closing(3999, 0) }, false, KindClosed, 3999, "the reason"},
		{"application", func(c *serverConn) { c.closing(4000, 0) }, false, KindClosed, 4000, "the reason"},
		{"last application", func(c *serverConn) { c.closing(4999, 0) }, false, KindClosed, 4999, "the reason"},
		{"close frame alone, terminal", func(c *serverConn) { c.close(3500, "bye") }, false, KindClosed, 3500, "bye"},
		{"close frame alone, transient", func(c *serverConn) { c.close(3001, "bye") }, true, KindClosed, 3001, "bye"},
		{"going away", func(c *serverConn) { c.close(1001, "") }, true, KindClosed, 1001, ""},
		{"normal", func(c *serverConn) { c.close(1000, "") }, true, KindClosed, 1000, ""},
		{"internal", func(c *serverConn) { c.close(1011, "") }, true, KindClosed, 1011, ""},
		{"no code", func(c *serverConn) {
			_ = c.ws.WriteControl(websocket.CloseMessage, nil, time.Now().Add(patience))
		}, true, KindClosed, 1005, ""},
		{"cut", func(c *serverConn) { _ = c.ws.Close() }, true, KindLost, 0, ""},
		{"Closing, then cut", func(c *serverConn) {
			c.control(&wirepb.Control{Control: &wirepb.Control_Closing{Closing: &wirepb.Closing{Code: 3503, Text: "out"}}})
			_ = c.ws.NetConn().(*net.TCPConn).CloseWrite()
		}, false, KindClosed, 3503, "out"},
		{"rubbish", func(c *serverConn) { c.raw(websocket.BinaryMessage, []byte{0xff}) }, true, KindProtocol, 0, ""},
		{"bad control", func(c *serverConn) {
			c.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: []byte{0xff}})
		}, true, KindProtocol, 0, ""},
		{"text", func(c *serverConn) { c.raw(websocket.TextMessage, []byte("{}")) }, true, KindProtocol, 0, "a text message"},
		{"second Welcome", func(c *serverConn) {
			c.control(&wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: &wirepb.Welcome{}}})
		}, true, KindProtocol, 0, "a second Welcome"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			s.until(t, Online)
			tt.end(s.conn)
			st := receive(t, s.states, "a state")
			want := Closed
			if tt.again {
				want = Waiting
			}
			r := st.Reason
			if st.Phase != want || r == nil || r.Kind != tt.kind || r.Code != tt.code || r.Text != tt.reason {
				t.Fatalf("%v: %+v, want %v: %s %d %q", st.Phase, r, want, tt.kind, tt.code, tt.reason)
			}
			if tt.again {
				s.until(t, Online)
				s.server.next()
			} else if err := s.WaitOnline(within(t)); !errors.Is(err, error(r)) {
				t.Errorf("WaitOnline: %v", err)
			}
			if err := s.Send(&chatpb.Who{}); tt.again != (err == nil) || (err != nil && (zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.NotExecuted)) {
				t.Errorf("Send: %v", err)
			}
			if most := s.opened.most.Load(); most != 1 {
				t.Errorf("%d connections at one time", most)
			}
		})
	}
}

func TestServerDelayIsHonoured(t *testing.T) {
	s := start(t)
	s.conn.closing(3001, 123*time.Millisecond)
	if st := s.until(t, Waiting); st.Delay != 123*time.Millisecond || st.Attempt != 1 {
		t.Errorf("%+v", st)
	}
	s.until(t, Online)
}

// A server that is slow to welcome must not collect connections of one client (known fault R4).
func TestSlowWelcome(t *testing.T) {
	s := start(t, func(cfg *Config, _ *server) {
		cfg.HandshakeTimeout, cfg.RetryFirst = 100*time.Millisecond, true // too short for a busy machine is as good
	})
	s.server.mute.Store(true)
	_ = s.conn.ws.Close()
	s.until(t, Waiting)
	for range 10 {
		if st := s.until(t, Waiting); st.Reason.Kind != KindHandshake && st.Reason.Kind != KindDial {
			t.Errorf("reason %v", st.Reason)
		}
	}
	s.server.mute.Store(false)
	s.until(t, Online)
	if most := s.opened.most.Load(); most != 1 {
		t.Errorf("%d connections at one time", most)
	}
}

func TestSilence(t *testing.T) {
	s := start(t, func(_ *Config, s *server) { s.welcome.HeartbeatMs, s.welcome.TimeoutMs = 20, 2000 })
	waitRTT(t, s.Client)
	s.server.mute.Store(true)
	if st := s.until(t, Waiting); st.Reason.Kind != KindSilent {
		t.Errorf("reason %v", st.Reason)
	}
	s.server.mute.Store(false)
	s.until(t, Online)
}

// The server's own pings are answered, in frames and in websocket's own way.
func TestServerPings(t *testing.T) {
	s := start(t)
	for nonce := range uint64(3) {
		s.conn.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: nonce}}})
		f := s.conn.next()
		want, _ := control(&wirepb.Control{Control: &wirepb.Control_Pong{Pong: &wirepb.Pong{Nonce: nonce}}})
		if string(f.Control) != string(want.Control) {
			t.Errorf("%x, want %x", f.Control, want.Control)
		}
	}
}

func TestGoaway(t *testing.T) {
	other := newServer(t)
	s := start(t)
	done := make(chan error)
	go func() { done <- s.Request(within(t), &chatpb.Who{}, nil) }()
	f := s.conn.next()
	s.conn.control(&wirepb.Control{Control: &wirepb.Control_Goaway{Goaway: &wirepb.Goaway{DelayMs: 1, Address: other.ws(), Text: "draining"}}})
	eventually(t, "the end of new requests", func() bool {
		return zmsg.CodeOf(s.Send(&chatpb.Leave{})) == zmsg.CodeUnavailable
	})
	later := make(chan error)
	go func() { later <- s.Request(within(t), &chatpb.Join{}, nil) }() // waits for the next one
	s.conn.respond(f, &chatpb.Members{})                               // the request in flight ends well
	if err := receive(t, done, "the response"); err != nil {
		t.Error(err)
	}
	if st := s.until(t, Waiting); st.Reason.Kind != KindGoaway || st.Reason.Text != "draining" {
		t.Errorf("reason %v", st.Reason)
	}
	if err := s.conn.ended(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the server saw %v", err)
	}
	at := other.next()
	at.respond(at.next(), &chatpb.Joined{})
	if err := receive(t, later, "the response from there"); err != nil {
		t.Error(err)
	}
	s.until(t, Online)
	_ = at.ws.Close() // from then on it is the configured gate again
	s.server.next()
	if most := s.opened.most.Load(); most != 1 {
		t.Errorf("%d connections at one time", most)
	}
}

// A request that never ends does not hold up a Goaway for ever.
func TestGoawayInVain(t *testing.T) {
	s := start(t, func(cfg *Config, _ *server) { cfg.DrainTimeout = 10 * time.Millisecond })
	done := make(chan error)
	go func() { done <- s.Request(within(t), &chatpb.Who{}, nil) }()
	s.conn.next()
	s.conn.control(&wirepb.Control{Control: &wirepb.Control_Goaway{Goaway: &wirepb.Goaway{}}})
	if err := receive(t, done, "the end"); zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("%v", err)
	}
	s.server.next()
}

func TestClose(t *testing.T) {
	s := start(t)
	done := make(chan error)
	go func() { done <- s.Request(within(t), &chatpb.Who{}, nil) }()
	s.conn.next()
	if err := s.Send(&chatpb.Leave{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, done, "the end"); zmsg.CodeOf(err) != zmsg.CodeCancelled || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("%v", err)
	}
	if f := s.conn.next(); f.ID != 1003 {
		t.Errorf("what waited was not written: %+v", f)
	}
	if err := s.conn.ended(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the server saw %v", err)
	}
	if st := s.until(t, Closed); st.Reason.Kind != KindClient {
		t.Errorf("%+v", st)
	}
	if err := s.Send(&chatpb.Who{}); zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Connect(within(t)); !errors.Is(err, ErrStarted) {
		t.Errorf("%v", err)
	}
}

// Close returns though the server never answers, and from within a handler.
func TestCloseAgainstAMuteServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := New(Config{URL: "ws://" + ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	receive(t, c.Done(), "the end")

	s := start(t)
	closed := make(chan struct{})
	On(s.Client, func(*chatpb.Line) {
		_ = s.Close()
		close(closed)
	})
	s.conn.push(&chatpb.Line{}, 1)
	receive(t, closed, "Close in a handler")
	receive(t, s.Done(), "the end")
}

func TestCloseWhileWaiting(t *testing.T) {
	s := start(t, func(cfg *Config, _ *server) {
		cfg.MinBackoff, cfg.MaxBackoff, cfg.rand = time.Hour, time.Hour, func() float64 { return 1 }
	})
	_ = s.conn.ws.Close()
	s.until(t, Waiting)
	_ = s.Close()
	if st := s.until(t, Closed); st.Reason.Kind != KindClient {
		t.Errorf("%+v", st)
	}
}

func TestCloseBeforeConnect(t *testing.T) {
	c, err := New(Config{URL: "ws://localhost:1/ws"})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.State(); s.Phase != Idle {
		t.Errorf("%+v", s)
	}
	if err := c.Send(&chatpb.Who{}); zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Errorf("%v", err)
	}
	_, _ = c.Close(), c.Close()
	receive(t, c.Done(), "the end")
	if err := c.Connect(within(t)); !errors.Is(err, ErrStarted) {
		t.Errorf("%v", err)
	}
}

func TestConnectFails(t *testing.T) {
	const nobody = "ws://127.0.0.1:1" // no port that is given to who asks for any
	status := func(code int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return "ws" + strings.TrimPrefix(s.URL, "http")
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := new(websocket.Upgrader).Upgrade(w, r, nil); err == nil {
			_, _, _ = ws.ReadMessage()
			_ = ws.Close()
		}
	}))
	t.Cleanup(other.Close)
	refuse := newServer(t)
	refuse.mute.Store(true)
	go func() { refuse.next().closing(3501, 0) }()
	early := newServer(t)
	early.mute.Store(true)
	go func() { early.next().push(&chatpb.Line{}, 1) }()
	for _, tt := range []struct {
		name string
		cfg  Config
		kind Kind
		code int
	}{
		{"nobody listens", Config{URL: nobody}, KindDial, 0},
		{"forbidden", Config{URL: status(403), RetryFirst: true}, KindDial, 403},
		{"not here", Config{URL: status(404)}, KindDial, 404},
		{"another protocol", Config{URL: "ws" + strings.TrimPrefix(other.URL, "http")}, KindProtocol, 0},
		{"no token", Config{URL: nobody, TokenFunc: func(context.Context) (string, error) { return "", errors.New("no") }}, KindToken, 0},
		{"bad token", Config{URL: nobody, Token: "\xff"}, KindDial, 0},
		{"refused", Config{URL: refuse.ws(), RetryFirst: true}, KindRefused, 3501},
		{"a frame before Welcome", Config{URL: early.ws()}, KindProtocol, 0},
	} {
		c, err := Dial(within(t), tt.cfg)
		var r *Reason
		if c != nil || !errors.As(err, &r) || r.Kind != tt.kind || r.Code != tt.code {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// What a server says about a websocket that it does not give is in the error, where it is a line for people.
func TestRefusedInWords(t *testing.T) {
	for _, tt := range []struct{ kind, body, want string }{
		{"text/plain; charset=utf-8", "the websocket is at /ws\n", "zclient: dial 404: the websocket is at /ws: websocket: bad handshake"},
		{"text/plain", "one\ntwo", "zclient: dial 404: one: websocket: bad handshake"},
		{"text/plain", "\x1b[2J", "zclient: dial 404: websocket: bad handshake"},
		{"text/html", "<h1>404</h1>", "zclient: dial 404: websocket: bad handshake"},
		{"text/plain", strings.Repeat("x", 2000), "zclient: dial 404: " + strings.Repeat("x", 200) + ": websocket: bad handshake"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, tt.body)
		}))
		if _, err := Dial(within(t), Config{URL: "ws" + strings.TrimPrefix(s.URL, "http")}); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v", tt.kind, err)
		}
		s.Close()
	}
}

func TestRetryFirst(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	var tries atomic.Int32
	tokens := make(chan string, 10)
	c, err := Dial(within(t), Config{
		URL: "ws://" + ln.Addr().String(), RetryFirst: true, MinBackoff: time.Millisecond,
		TokenFunc: func(context.Context) (string, error) { return fmt.Sprint("token-", tries.Add(1)), nil },
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			if tries.Load() < 3 {
				return nil, errors.New("not yet")
			}
			return new(net.Dialer).DialContext(ctx, network, s.http.Listener.Addr().String())
		},
	})
	_ = ln.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { <-c.Done() }()
	defer func() { _ = c.Close() }()
	tokens <- s.next().hello.GetToken()
	if token := <-tokens; token != "token-3" {
		t.Errorf("token %q", token)
	}
}

// The same over TLS (known fault H11).
func TestTLS(t *testing.T) {
	s := startServer(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains about the client that does not trust it
		s.StartTLS()
		return s
	})
	pool := x509.NewCertPool()
	pool.AddCert(s.http.Certificate())
	c, err := Dial(within(t), Config{URL: s.ws(), TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, MinBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	conn := s.next()
	go func() { conn.respond(conn.next(), &chatpb.Members{Members: []string{"ann"}}) }()
	if m, err := Call[chatpb.Members](within(t), c, &chatpb.Who{}); err != nil || len(m.GetMembers()) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	_ = conn.ws.Close()
	conn = s.next()
	_ = c.Close()
	if err := conn.ended(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the server saw %v", err)
	}
	receive(t, c.Done(), "the end")
	if _, err := Dial(within(t), Config{URL: s.ws()}); err == nil {
		t.Error("a certificate of nobody is trusted")
	}
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lowest := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "min"))
		highest := lowest + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more"))
		n := rapid.IntRange(0, 1<<20).Draw(t, "n")
		r := rapid.Float64Range(0, 1).Draw(t, "r")
		hint := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "hint"))
		d := backoff(lowest, highest, n, r, hint)
		if d < hint || d > hint+highest {
			t.Fatalf("%v is out of range", d)
		}
		if next := backoff(lowest, highest, n+1, r, hint); next < d && n > 0 {
			t.Fatalf("%v, then %v", d, next)
		}
	})
	for n, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if d := backoff(time.Second, 10*time.Second, n, 1, 0); d != want*time.Second {
			t.Errorf("bound after %d: %v", n, d)
		}
	}
	if d := backoff(time.Second, time.Minute, 0, 1, 3*time.Second); d != 3*time.Second {
		t.Errorf("the server's hint: %v", d)
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{
		URL: "http://x", Token: "a", TokenFunc: func(context.Context) (string, error) { return "", nil },
		MinBackoff: -1, MaxBackoff: -2, MaxMessage: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"URL is", "TokenFunc", "MinBackoff", "MaxBackoff is -2ns: expected at least", "MaxMessage"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := Dial(within(t), Config{}); err == nil {
		t.Error("accepted")
	}
}

func TestWords(t *testing.T) {
	for p, want := range map[Phase]string{Idle: "idle", Connecting: "connecting", Online: "online", Waiting: "waiting", Closed: "closed"} {
		if p.String() != want {
			t.Errorf("%d is %s", p, p)
		}
	}
	r := &Reason{Kind: KindDial, Code: 503, Text: "full", Err: net.ErrClosed}
	if want := "zclient: dial 503: full: " + net.ErrClosed.Error(); r.Error() != want || !errors.Is(r, net.ErrClosed) {
		t.Errorf("%v", r)
	}
	defer func() {
		if recover() == nil {
			t.Error("On takes a type without an id")
		}
	}()
	On(&Client{}, func(*wirepb.Ping) {})
}
