package zgate

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/proto"

	"zgame/internal/stack"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// serve takes a connection from accept to a session: TLS, HTTP, websocket, Hello. The session is read by a goroutine
// of its own, so that the stack that grew here is not kept.
func (g *Gate) serve(c *conn) {
	stack.Deepen(false)
	s := g.open(c)
	if s == nil {
		g.closed(c)
		return
	}
	g.wg.Add(1)
	// Owned by the connection; ends when its socket fails or is closed; Shutdown waits for it.
	go s.run(c)
}

// open returns the session of a new connection, nil when there is none: then the other side has been told.
func (g *Gate) open(c *conn) (s *Session) {
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("panic while a connection was opened", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			c.close(CloseInternal, "internal error", closing{})
			s = nil
		}
		c.nowKnown()
		if s == nil && c.upgraded {
			c.drain()
		}
	}()
	if reason := g.upgrade(c); reason != "" {
		g.count.Refused.With(reason).Inc()
		return nil
	}
	return g.login(c)
}

// nowKnown ends c's count against MaxUnauthenticated.
func (c *conn) nowKnown() {
	if !c.known {
		c.known = true
		c.g.unauthenticated.Add(-1)
	}
}

// upgrade makes c a websocket, or a connection of packets. It returns why it did not, a word of a fixed list.
func (g *Gate) upgrade(c *conn) (refused string) {
	c.tr = c.nc
	if refused := g.behindProxy(c); refused != "" {
		return refused
	}
	if refused := g.startTLS(c); refused != "" {
		return refused
	}
	if c.packets {
		return g.openPackets(c)
	}
	r, refused := g.readRequest(c)
	if refused == "" {
		refused = g.knowClient(c, r)
	}
	if refused != "" {
		return refused
	}
	w := &hijacker{c: c}
	if g.cfg.Compression {
		// gorilla takes every offer of permessage-deflate, and answers as is wanted. Nothing else of it is used.
		c.deflates = takesDeflate(r.Header)
		r.Header.Del("Sec-Websocket-Extensions")
		if c.deflates {
			r.Header.Set("Sec-Websocket-Extensions", "permessage-deflate")
		}
		c.guard.deflate = c.deflates
	}
	ws, err := g.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return c.refusedBy(w.reason, err)
	}
	c.ws, c.upgraded = ws, true
	c.text.Store(ws.Subprotocol() == zmsg.SubprotocolJSON)
	ws.SetPingHandler(c.onPing)
	ws.SetPongHandler(c.onPong)
	ws.SetCloseHandler(func(int, string) error { return nil }) // answerClose does it
	return ""
}

// isPlainHTTP reports whether a TLS handshake failed because the other side has begun to speak HTTP.
func isPlainHTTP(err error) bool {
	var e tls.RecordHeaderError
	if !errors.As(err, &e) || e.Conn == nil {
		return false
	}
	switch string(e.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// refusedBy returns the reason why a handshake failed: its time limit, the other side's end, or what.
func (c *conn) refusedBy(what string, err error) string {
	switch {
	case c.closingNow.Load() && c.g.draining.Load():
		return "draining"
	case c.closingNow.Load():
		return "handshake_timeout"
	case what != "":
		return what
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "lost"
	default:
		return "bad_request"
	}
}

// readRequest reads the HTTP request and judges everything but what the Upgrader does.
func (g *Gate) readRequest(c *conn) (_ *http.Request, refused string) {
	limited := &io.LimitedReader{R: c.tr, N: maxHeaderBytes}
	br := requestReaders.Get().(*bufio.Reader)
	br.Reset(limited)
	defer func() { br.Reset(nil); requestReaders.Put(br) }()
	r, err := http.ReadRequest(br)
	switch {
	case err != nil && limited.N <= 0:
		c.refuse(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("request headers are above the limit of %d bytes", maxHeaderBytes))
		return nil, "header_too_large"
	case err != nil:
		reason := c.refusedBy("", err)
		if reason == "bad_request" {
			c.refuse(http.StatusBadRequest, "not an HTTP request")
		}
		return nil, reason
	case !r.ProtoAtLeast(1, 1):
		c.refuse(http.StatusHTTPVersionNotSupported, "expected HTTP/1.1")
		return nil, "bad_request"
	case r.Host == "":
		c.refuse(http.StatusBadRequest, "no Host header")
		return nil, "bad_request"
	case r.URL.Path != g.cfg.Path:
		c.refuse(http.StatusNotFound, "the websocket is at "+g.cfg.Path)
		return nil, "bad_path"
	case !websocket.IsWebSocketUpgrade(r):
		c.refuse(http.StatusUpgradeRequired, "this is a websocket")
		return nil, "no_upgrade"
	case !g.originAllowed(r):
		c.refuse(http.StatusForbidden, "origin not allowed")
		if _, ok := g.originLog.Allow(time.Now()); ok {
			g.log.Warn("origin refused; allow it by AllowedOrigins (gate.origins) if the page is yours", "origin", cut(r.Header.Get("Origin"), 100), "host", cut(r.Host, 100))
		}
		return nil, "origin"
	case br.Buffered() > 0 || r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		// gorilla's buffer is its own: bytes that came along would be lost.
		c.refuse(http.StatusBadRequest, "data before the handshake is complete")
		return nil, "bad_request"
	case g.draining.Load():
		c.refuse(http.StatusServiceUnavailable, "shutting down")
		return nil, "draining"
	}
	return r, ""
}

// originAllowed lets in those that are no browsers, pages of the gate's own host, and pages on the list.
func (g *Gate) originAllowed(r *http.Request) bool {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil {
		return false
	}
	if u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return true
	}
	return slices.ContainsFunc(g.cfg.AllowedOrigins, func(o string) bool {
		return o == "*" || strings.EqualFold(o, origins[0])
	})
}

// refuse answers a handshake with an HTTP error.
func (c *conn) refuse(status int, text string) {
	extra := ""
	if status == http.StatusUpgradeRequired {
		extra = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	}
	// The handshake's time limit closes the socket under a write that hangs.
	_, _ = fmt.Fprintf(c.tr, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s\n", status, http.StatusText(status), extra, len(text)+1, text)
	c.q.mu.Lock()
	c.q.closing = true
	c.doneLocked()
	c.q.mu.Unlock()
	// What the client still sends would turn the answer into a reset.
	_, _ = io.CopyN(io.Discard, c.tr, 64<<10)
}

// hijacker is the http.ResponseWriter that gorilla's Upgrader wants, on a bare connection.
type hijacker struct {
	c      *conn
	header http.Header
	reason string
}

func (w *hijacker) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *hijacker) Write(p []byte) (int, error) { return len(p), nil }
func (w *hijacker) WriteHeader(int)             {}

func (w *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	// gorilla makes a reader of its own; of these two it only asks whether one holds anything, and for the buffer of the
	// other, to build the answer in.
	return w.c, bufio.NewReadWriter(bufio.NewReaderSize(w.c.tr, 16), bufio.NewWriterSize(io.Discard, 256)), nil
}

// handshakeFailed is the Upgrader's Error.
func handshakeFailed(w http.ResponseWriter, _ *http.Request, status int, reason error) {
	if h, ok := w.(*hijacker); ok {
		h.reason = "bad_request"
		h.c.refuse(status, reason.Error())
	}
}

// login waits for the Hello and makes a session of it.
func (g *Gate) login(c *conn) *Session {
	c.guard.limit = min(maxHello, int64(g.cfg.MaxMessage))
	c.enter(phaseLogin, g.cfg.LoginTimeout)
	for {
		m, err := c.readMessage()
		if err != nil {
			c.readFailed(err)
			return nil
		}
		s, v := g.hello(c, m)
		c.freeMessage(m)
		if v != nil {
			c.close(v.code, v.text, closing{})
		}
		if s != nil || v != nil {
			return s
		}
		if c.closingNow.Load() {
			return nil
		}
	}
}

// hello handles a message before login: heartbeats, and then a Hello. It returns a session, or why there is none, or
// neither, when there were heartbeats alone.
func (g *Gate) hello(c *conn, m message) (*Session, *violation) {
	if m.op == opText && g.cfg.AllowText && c.undecided() {
		c.text.Store(true) // no subprotocol: the first message decides
	}
	var p packet
	if v := c.open(m, &p); v != nil {
		if v.code == CloseProtocol {
			v.code = CloseBadHandshake
		}
		return nil, v
	}
	for p.more() {
		var f zmsg.Frame
		var ctl wirepb.Control
		fault, v := p.next(&f)
		if v == nil && c.guestRequest(&f, fault) {
			continue
		}
		if v != nil || fault != nil || f.Kind != wirepb.FrameKind_FRAME_KIND_CONTROL || proto.Unmarshal(f.Control, &ctl) != nil {
			return nil, &violation{CloseBadHandshake, "the first frame must be a control frame with a Hello"}
		}
		switch ctl := ctl.GetControl().(type) {
		case *wirepb.Control_Ping:
			c.ping(ctl.Ping)
		case *wirepb.Control_Hello:
			began := time.Now()
			user, v := c.authenticate(ctl.Hello)
			switch {
			case v != nil:
				return nil, v
			case time.Since(began) > slowLogin && hungUp(c.nc):
				return nil, &errGaveUp
			}
			s, refused, v := g.resumed(c, user, ctl.Hello)
			switch {
			case s != nil || v != nil:
			case ctl.Hello.GetResume() != "" && hungUp(c.nc):
				v = &errGaveUp
			default:
				s, v = g.newSession(c, user, ctl.Hello, refused)
			}
			if ctl.Hello.GetResume() != "" && v == nil {
				g.count.Resumes.With(resumeResult(refused)).Inc()
			}
			if v != nil {
				return nil, v
			}
			if v := s.frames(c, &p, len(m.b)); v != nil {
				c.close(v.code, v.text, closing{})
			}
			return s, nil
		default:
			return nil, &violation{CloseBadHandshake, "the first frame must be a control frame with a Hello"}
		}
		if c.closingNow.Load() {
			break
		}
	}
	return nil, nil
}

// slowLogin is how long a login takes before it is worth a look whether the client is there still.
const slowLogin = 50 * time.Millisecond

// errGaveUp ends the login of a client that has hung up while it waited. By now it may be in by another connection, whose session the login would
// take, or have replaced.
var errGaveUp = violation{CloseLoginTimeout, "the client has hung up meanwhile"}

// authenticate asks the Authenticator, within its time.
func (c *conn) authenticate(h *wirepb.Hello) (user string, v *violation) {
	g := c.g
	if c.phase.Load() != phaseActive {
		// A little more than the context's: an authenticator that heeds it says no by itself.
		c.enter(phaseAuth, g.cfg.AuthTimeout+time.Second)
	}
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.AuthTimeout)
	defer cancel()
	user, err := g.cfg.Auth.Authenticate(ctx, Hello{
		Token: h.GetToken(), Client: cut(h.GetClient(), 64), RemoteAddr: c.remote,
	})
	c.readAt = time.Now() // what came with the Hello has its time from now on
	switch {
	case err != nil && ctx.Err() != nil:
		return "", &violation{CloseLoginTimeout, "login took too long"}
	case err != nil:
		text := "not authorized"
		if r := zmsg.ErrorReply(err); r.Text != "" {
			text = r.Text
		} else if errors.Is(err, ErrBadName) {
			text = strings.TrimPrefix(err.Error(), "zgate: ")
		}
		g.log.Debug("login refused", "remote", c.remote.String(), "err", err)
		return "", &violation{CloseUnauthorized, text}
	case user == "":
		g.log.Error("authenticator returned an empty user id")
		return "", &violation{CloseInternal, "internal error"}
	}
	return user, nil
}

// newSession makes c a session of user. Welcome is the first thing that it sends; it says why the client has not got the one back that it asked for.
func (g *Gate) newSession(c *conn, user string, h *wirepb.Hello, refused refusal) (*Session, *violation) {
	id, err := newSessionID()
	if err != nil {
		return nil, &violation{CloseInternal, "internal error"}
	}
	s, a, v := g.startSession(c, user, h, zmsg.SessionRef{Gate: g.self.Ref(), ID: id, Gen: 1}, nil)
	if v == nil && a != zmsg.Admitted {
		turned := turnedAway(a)
		v = &turned
	}
	if v != nil {
		return nil, v // the end of the session is that of the connection
	}
	s.open(c, s.welcome(false, refused))
	return s, nil
}

// startSession makes a session, holds what is sent to it, and asks the Directory. before is the token of the session that it goes on with, nil: none.
func (g *Gate) startSession(c *conn, user string, h *wirepb.Hello, ref zmsg.SessionRef, before *token) (*Session, zmsg.Admission, *violation) {
	s := &Session{g: g, user: user, client: cut(h.GetClient(), 64), ref: ref}
	s.c.Store(c)
	if window := min(g.cfg.ResumeWindow, time.Duration(h.GetResumeWindowMs())*time.Millisecond); window > 0 {
		s.resume = &resumption{window: window}
		fresh, err := newSecret()
		if err != nil {
			return nil, 0, &violation{CloseInternal, "internal error"}
		}
		s.resume.secrets = secrets{fresh}
		if before != nil {
			s.resume.came, s.resume.key, s.resume.asking = &before.ref, before.key, true
		} else if s.resume.key, err = newSecret(); err != nil {
			return nil, 0, &violation{CloseInternal, "internal error"}
		}
	}
	s.rate = newRates(g.allowed, g.now())
	if before != nil {
		s.pushes = h.GetLastPush()
		s.requests.resumed(h.GetLastSeq())
	}
	if int(g.active.Add(1)) > g.cfg.MaxSessions {
		g.active.Add(-1)
		return nil, 0, &violation{CloseOverloaded, "the gate is full"}
	}
	// What is pushed to it from here on waits behind the Welcome.
	c.hold()
	if !g.sessions.put(s) {
		g.active.Add(-1)
		return nil, 0, &violation{CloseLoginTimeout, "the client is at work on another connection"} // both with one token
	}
	g.count.Sessions.Inc()
	c.session.Store(s)
	a, v := g.bindUser(c, s, before)
	return s, a, v
}

// open sends first, a Welcome, ahead of what has been held, and has the session begin.
func (s *Session) open(c *conn, first ...*wirepb.Control) {
	g := s.g
	c.nowKnown()
	c.guard.limit = int64(g.cfg.MaxMessage)
	c.corked.Store(true) // the next read sends it
	c.release(first...)
	c.phase.Store(phaseActive)
	g.wheel.schedule(&c.timer, g.now()+int64(c.pingAfter()))
	s.passedBy(c)
}

// passedBy does what may have passed by before the session could be seen at c.
func (s *Session) passedBy(c *conn) {
	g := s.g
	switch {
	case g.draining.Load():
		c.close(CloseShutdown, "shutting down", closing{delay: g.spread()})
	case s.ref.Gate != g.self.Ref():
		c.close(CloseRejoined, rejoined, closing{delay: g.spread()})
	}
}

// welcome tells the client what it is in for. The session's connection is locked, or nobody else's yet.
func (s *Session) welcome(resumed bool, refused refusal) *wirepb.Control {
	cfg := &s.g.cfg
	var resume string
	var window time.Duration
	if r := s.resume; r != nil {
		t := token{s.ref, *r.secrets.newest(), r.key}
		resume, window = t.String(), r.window
	}
	return &wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: &wirepb.Welcome{
		Resume: resume, Resumed: resumed, Refused: refused, ResumeWindowMs: uint32(window.Milliseconds()),
		Session: s.ref.ID, Generation: s.ref.Gen, User: s.user, Node: s.ref.Gate.ID, Epoch: s.ref.Gate.Epoch,
		HeartbeatMs: uint32(cfg.Heartbeat.Milliseconds()), TimeoutMs: uint32(cfg.Timeout.Milliseconds()),
		MaxMessage: uint32(cfg.MaxMessage), MaxInFlight: uint32(cfg.MaxInFlight), Version: wireVersion,
	}}}
}

// newSessionID returns 63 random bits that are not 0: unique across gates and restarts, and not to be guessed.
func newSessionID() (uint64, error) {
	var b [8]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, err
		}
		if id := binary.LittleEndian.Uint64(b[:]) >> 1; id != 0 {
			return id, nil
		}
	}
}

// run reads the session's messages until its connection c ends, and then takes everything down that does not outlive it.
func (s *Session) run(c *conn) {
	defer s.g.wg.Done()
	s.read(c)
	c.drain()
	s.g.closed(c)
}

// read handles messages until the connection ends. A panic ends this connection alone.
func (s *Session) read(c *conn) {
	defer func() {
		if r := recover(); r != nil {
			s.g.log.Error("panic while a connection was read", "session", s.ref.ID, "user", s.user,
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			c.close(CloseInternal, "internal error", closing{})
		}
	}()
	for {
		m, err := c.readMessage()
		if err != nil {
			c.readFailed(err)
			return
		}
		var v *violation
		if !c.closingNow.Load() {
			v = s.handle(c, m)
		}
		c.freeMessage(m)
		if v != nil {
			c.close(v.code, v.text, closing{})
			return
		}
	}
}
