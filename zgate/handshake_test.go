package zgate

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// kinds runs f with each client library, over plain text and TLS (H11), in both codecs.
func kinds(t *testing.T, change func(*Config), f func(t *testing.T, r *rig, o dialing)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		for name, o := range map[string]dialing{
			"gorilla/pb": {}, "coder/pb": {coder: true, sub: []string{zmsg.SubprotocolPB}},
			"gorilla/text": {text: true}, "coder/text": {coder: true, text: true},
		} {
			scheme := map[bool]string{false: "ws", true: "wss"}[secure]
			t.Run(scheme+"/"+name, func(t *testing.T) {
				var opts []func(*Config)
				if secure {
					opts = append(opts, withTLS)
				}
				if change != nil {
					opts = append(opts, change)
				}
				f(t, newRig(t, opts...), o)
			})
		}
	}
}

func TestLoginEchoPushClose(t *testing.T) {
	kinds(t, nil, func(t *testing.T, r *rig, o dialing) {
		t.Helper()
		c := r.login("ann", o)
		w := c.welcome
		if w.GetSession() == 0 || w.GetSession()>>63 != 0 || w.GetGeneration() != 1 || w.GetUser() != "ann" ||
			w.GetNode() != "n1" || w.GetEpoch() != 7 || w.GetHeartbeatMs() != 20_000 || w.GetTimeoutMs() != 40_000 ||
			w.GetMaxMessage() != 64<<10 || w.GetMaxInFlight() != 128 || w.GetResumed() || w.GetResume() != "" {
			t.Errorf("Welcome: %v", w)
		}
		c.echo("hello")
		c.echo(strings.Repeat("x", 40_000))
		s, err := r.Session(c.ref())
		if err != nil || s.User() != "ann" || s.Client() != "test/1" || !s.RemoteAddr().IsValid() {
			t.Fatalf("session %v %v", s, err)
		}
		for i, body := range []string{"", "one", strings.Repeat("y", 100_000)} {
			if err := r.Push(c.ref(), &zmsg.Push{ID: 7, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
			f := c.next()
			if f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || f.ID != 7 || f.Seq != uint64(i+1) || string(f.Body) != body {
				t.Fatalf("push %d: kind %v id %d seq %d, %d bytes", i, f.Kind, f.ID, f.Seq, len(f.Body))
			}
		}
		c.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 5}}})
		if f := c.next(); !strings.Contains(string(f.Control), "\x08\x05") {
			t.Errorf("no Pong: %+v", f)
		}
		if err := r.Kick(c.ref(), 4001, "bye"); err != nil {
			t.Fatal(err)
		}
		if text, before := c.closedWith(4001); text != "bye" || len(before) > 0 {
			t.Errorf("closed with %q after %v", text, before)
		}
		eventually(t, "session gone", func() bool { return r.Sessions() == 0 })
		if _, err := r.Session(c.ref()); !errors.Is(err, ErrNoSession) {
			t.Errorf("session after the end: %v", err)
		}
		if n := r.counter("closes_total", "application"); n != 1 {
			t.Errorf("closes: %v", n)
		}
	})
}

// F1: whatever the first message is, it ends its own connection, with an error frame and code; others go on.
func TestBadHello(t *testing.T) {
	r := newRig(t)
	other := r.login("other")
	text := dialing{text: true}
	for name, tt := range map[string]struct {
		o    dialing
		op   int
		b    string
		code CloseCode
	}{
		"empty":              {op: opBinary, b: "", code: CloseBadHandshake},
		"empty text":         {o: text, op: opText, b: "", code: CloseBadHandshake},
		"broken json":        {o: text, op: opText, b: `{type":"x"}`, code: CloseBadHandshake},
		"json without frame": {o: text, op: opText, b: `{}`, code: CloseBadHandshake},
		"json null frame":    {o: text, op: opText, b: `{"frames":[null]}`, code: CloseBadHandshake},
		"brackets":           {o: text, op: opText, b: strings.Repeat("[", 4000), code: CloseBadHandshake},
		"1 MB of brackets":   {o: text, op: opText, b: strings.Repeat("[", 1<<20), code: CloseTooLarge},
		"bad utf-8":          {o: text, op: opText, b: "{\"frames\":[\"\xff\"]}", code: CloseBadUTF8},
		"garbage":            {op: opBinary, b: "\xff\xff\xff\xff", code: CloseBadHandshake},
		"a request":          {op: opBinary, b: string(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: 100, Seq: 1})), code: CloseBadHandshake},
		"empty control":      {op: opBinary, b: string(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{}})), code: CloseBadHandshake},
		"broken control":     {op: opBinary, b: string(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x0a, 0x7f}})), code: CloseBadHandshake},
		"large":              {op: opBinary, b: strings.Repeat("x", 5000), code: CloseTooLarge},
		"no name":            {op: opBinary, b: string(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x0a, 0}})), code: CloseUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial(tt.o)
			c.t = t
			if err := c.ws.write(tt.op, []byte(tt.b)); err != nil && tt.code != CloseTooLarge {
				t.Fatal(err)
			}
			if text, _ := c.closedWith(tt.code); text == "" {
				t.Error("no text")
			}
			c.ws.end()
			other.echo("still here")
		})
	}
	eventually(t, "all counted", func() bool { return r.counter("connections") == 1 })
	if n := r.counter("closes_total", "bad_handshake"); n != 10 {
		t.Errorf("counted %v bad handshakes", n)
	}
	if r.Sessions() != 1 {
		t.Errorf("%d sessions", r.Sessions())
	}
}

func TestTextNeedsSetting(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AllowText = false })
	c := r.dial(dialing{text: true})
	_ = c.ws.write(opText, []byte(`{"frames":[]}`))
	c.text = false // the gate has not agreed on it
	c.closedWith(CloseBadHandshake)
	c = r.login("ann")
	_ = c.ws.write(opText, []byte(`{"frames":[]}`))
	c.closedWith(CloseProtocol)
}

// Without a subprotocol the first message decides, so that a browser's console needs no more than a URL.
func TestTextWithoutSubprotocol(t *testing.T) {
	r := newRig(t)
	c := r.dial(dialing{})
	c.text = true
	c.hello("ann")
	c.echo("x")
}

func TestRefusedHandshakes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AllowedOrigins = []string{"https://friend.example"} })
	const rest = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	get := "GET /ws HTTP/1.1\r\nHost: game.example:7000\r\n"
	for name, tt := range map[string]struct {
		send   string
		status int
		reason string
	}{
		"native":          {get + rest + "\r\n", 101, ""},
		"same origin":     {get + rest + "Origin: https://game.example:7000\r\n\r\n", 101, ""},                 // L3
		"listed origin":   {get + rest + "Origin: https://friend.example\r\n\r\n", 101, ""},                    // L3
		"evil origin":     {get + rest + "Origin: https://evil.example\r\n\r\n", 403, "origin"},                // L3
		"other port":      {get + rest + "Origin: https://game.example\r\n\r\n", 403, "origin"},                // L3
		"null origin":     {get + rest + "Origin: null\r\n\r\n", 403, "origin"},                                // L3
		"two origins":     {get + rest + "Origin: https://friend.example\r\nOrigin: x\r\n\r\n", 403, "origin"}, // L3
		"path":            {"GET / HTTP/1.1\r\nHost: x\r\n" + rest + "\r\n", 404, "bad_path"},
		"no upgrade":      {get + "\r\n", 426, "no_upgrade"},
		"post":            {"POST /ws HTTP/1.1\r\nHost: x\r\n" + rest + "\r\n", 405, "bad_request"},
		"version 12":      {get + strings.Replace(rest, "13", "12", 1) + "\r\n", 400, "bad_request"},
		"short key":       {get + strings.Replace(rest, "AAAA", "", 1) + "\r\n", 400, "bad_request"},
		"http 1.0":        {"GET /ws HTTP/1.0\r\nHost: x\r\n" + rest + "\r\n", 505, "bad_request"},
		"no host":         {"GET /ws HTTP/1.1\r\n" + rest + "\r\n", 400, "bad_request"},
		"garbage":         {"\x00\x01\x02\x03\r\n\r\n", 400, "bad_request"},
		"body":            {get + rest + "Content-Length: 3\r\n\r\nabc", 400, "bad_request"},
		"early data":      {get + rest + "\r\n\x82\x80abcd", 400, "bad_request"},
		"headers of 1 MB": {get + rest + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431, "header_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.counter("refused_total", tt.reason)
			c := r.dialRaw(false)
			go func() { _, _ = io.WriteString(c, tt.send) }() // the gate may not take all of it
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, expected %d", resp.StatusCode, tt.status)
			}
			if tt.status == 426 && resp.Header.Get("Upgrade") != "websocket" {
				t.Errorf("headers of 426: %v", resp.Header)
			}
			_ = c.Close()
			if tt.reason != "" {
				eventually(t, "counted as "+tt.reason, func() bool { return r.counter("refused_total", tt.reason) > before })
			}
		})
	}
	eventually(t, "all connections gone", func() bool { return r.counter("connections") == 0 })
}

// A client that is silent in any phase before login is closed; H3: heartbeats do not help.
func TestSlowHandshakeAndLogin(t *testing.T) {
	r := newRig(t, func(c *Config) { c.HandshakeTimeout = 200 * time.Millisecond })
	c := r.dialRaw(false)
	c.http("GET /ws HTTP/1.1\r\nHost: x\r\n")
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("silent in HTTP: %v", err)
	}
	eventually(t, "counted", func() bool { return r.counter("refused_total", "handshake_timeout") == 1 })

	r = newRig(t, func(c *Config) {
		c.LoginTimeout, c.AuthTimeout = 2*time.Second, 100*time.Millisecond // the first with room for a heartbeat on a busy machine
		c.Auth = AuthFunc(func(ctx context.Context, h Hello) (string, error) {
			if h.Token == "slow" {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return h.Token, nil
		})
	})
	b := r.dial(dialing{})
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				ping := control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 1}}})
				_, p := b.pack(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: ping})
				_ = b.ws.write(opBinary, p)
			}
		}
	}()
	_, before := b.closedWith(CloseLoginTimeout)
	close(stop)
	if len(before) == 0 {
		t.Error("heartbeats before login were not answered")
	}

	d := r.dial(dialing{})
	d.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "slow"}}})
	d.closedWith(CloseLoginTimeout)
}

func TestAuthenticatorErrors(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Auth = AuthFunc(func(_ context.Context, h Hello) (string, error) {
			switch h.Token {
			case "coded":
				return "", zmsg.Errorf(zmsg.CodeUnauthorized, "token expired")
			case "secret":
				return "", errors.New("database password is wrong")
			case "panic":
				panic("in the authenticator")
			}
			return "", nil
		})
	})
	for token, want := range map[string]struct {
		code CloseCode
		text string
	}{
		"coded": {CloseUnauthorized, "token expired"}, "secret": {CloseUnauthorized, "not authorized"},
		"panic": {CloseInternal, "internal error"}, "empty": {CloseInternal, "internal error"},
	} {
		c := r.dial(dialing{})
		c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: token}}})
		if text, _ := c.closedWith(want.code); text != want.text {
			t.Errorf("%s: %q", token, text)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "stack=") || strings.Contains(log, "coded") {
		t.Errorf("log has no stack, or a token: %s", log)
	}
}

func TestDevAuth(t *testing.T) {
	for name, ok := range map[string]bool{
		"ann": true, "Zoë": true, "a b": true, "x@y.z-1_2": true, "李": true,
		"": false, " a": false, "a ": false, "a\nb": false, "a/b": false, "\xff": false, strings.Repeat("x", 33): false,
	} {
		user, err := DevAuth{}.Authenticate(t.Context(), Hello{Token: name})
		if (err == nil) != ok || ok && user != name || !ok && !errors.Is(err, ErrBadName) {
			t.Errorf("%q: %q, %v", name, user, err)
		}
	}
}

// L2: caps for all, for one address, and for those that do not log in; the others are not affected.
func TestConnectionLimits(t *testing.T) {
	t.Run("unauthenticated", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxUnauthenticated = 3 })
		ann := r.login("ann")
		for range 3 {
			r.dialRaw(true)
		}
		if _, err := r.tryDial(dialing{}); err == nil {
			t.Error("a fourth connection without login was let in")
		}
		ann.echo("x")
		if r.counter("refused_total", "unauthenticated") == 0 {
			t.Error("not counted")
		}
	})
	t.Run("address", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxPerIP = 2 })
		a, b := r.login("a"), r.login("b")
		if _, err := r.tryDial(dialing{}); err == nil {
			t.Error("a third connection was let in")
		}
		a.ws.end()
		eventually(t, "a place is free", func() bool {
			c, err := r.tryDial(dialing{})
			if err == nil {
				c.hello("c")
			}
			return err == nil
		})
		b.echo("x")
		if r.counter("refused_total", "address") == 0 {
			t.Error("not counted")
		}
	})
	t.Run("sessions", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxSessions = 1 })
		a := r.login("a")
		b := r.dial(dialing{})
		b.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "b"}}})
		b.closedWith(CloseOverloaded)
		a.echo("x")
	})
}

func TestSubscriber(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3.4:5": "1.2.3.4", "[::ffff:1.2.3.4]:5": "1.2.3.4",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::", "[fe80::1%eth0]:1": "fe80::",
	} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := subscriber(addrPort(a).Addr()); got.String() != want {
			t.Errorf("%s: %s, expected %s", in, got, want)
		}
	}
	if addrPort(nil).IsValid() {
		t.Error("nil has an address")
	}
}

// S5: a second Hello on a live connection is the same session; another user's ends it (S3: nobody's requests ever run
// under a name that is not theirs).
func TestHelloAgain(t *testing.T) {
	r := newRig(t)
	c := r.login("ann")
	first := c.ref()
	c.hello("ann")
	if c.ref() != first || r.Sessions() != 1 {
		t.Errorf("second Hello: %v, %v, %d sessions", first, c.ref(), r.Sessions())
	}
	for range 2 {
		if err := r.Join(first, "g"); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := r.PublishLocal("g", &zmsg.Push{ID: 5}); n != 1 {
		t.Errorf("%d copies", n)
	}
	c.next()
	c.echo("no second copy")
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "bob"}}})
	c.closedWith(CloseProtocol)
}

// Requests that come with the Hello, in its packet, run after it.
func TestRequestBehindHello(t *testing.T) {
	r := newRig(t)
	c := r.dial(dialing{})
	c.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(&wirepb.Control{
		Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann"}},
	})}, request(idEcho, 1, "early"))
	if f := c.next(); f.Control == nil {
		t.Fatalf("not a Welcome: %+v", f)
	}
	if f := c.next(); string(f.Body) != "early" {
		t.Fatalf("not the echo: %+v", f)
	}
}

// The transport may be anything that is a net.Conn.
func TestPipe(t *testing.T) {
	l := &pipeListener{ch: make(chan net.Conn), done: make(chan struct{})}
	r := newRig(t, func(c *Config) { c.Listener = l })
	d := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		l.ch <- a
		return b, nil
	}}
	ws, _, err := d.Dial("ws://pipe/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	c := &client{t: t, ws: gorillaSocket{ws}}
	c.hello("ann")
	c.echo("x")
	_ = r.Kick(c.ref(), 0, "out")
	c.closedWith(CloseKicked)
}

type pipeListener struct {
	ch   chan net.Conn
	done chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
