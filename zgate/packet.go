package zgate

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zroute"
)

// packet is an incoming message, frame by frame, whatever its codec. Frames alias the message's buffer.
type packet struct {
	rest   []byte           // binary: what is still to be decoded
	frames []zmsg.TextFrame // text: what is still to be looked at
	count  int
}

// open starts on message m of connection c. A fault is the client's.
func (c *conn) open(m message, p *packet) *violation {
	*p = packet{}
	switch {
	case m.op == opText && !c.g.cfg.AllowText:
		return &violation{CloseProtocol, "text messages are not allowed here: send binary ones"}
	case m.op != c.op():
		return &violation{CloseProtocol, "message of the other type: a connection speaks either text or binary"}
	case len(m.b) == 0:
		return &violation{CloseProtocol, "empty message: expected a packet of frames"}
	case m.op == opBinary:
		p.rest = m.b
		return nil
	case !utf8.Valid(m.b):
		return &violation{CloseBadUTF8, "text message is not UTF-8"}
	}
	frames, err := zmsg.DecodeText(m.b, c.g.cfg.Registry)
	if err != nil {
		return &violation{CloseProtocol, err.Error()}
	}
	p.frames = frames
	return nil
}

func (p *packet) more() bool { return len(p.rest)+len(p.frames) > 0 }

// next decodes the next frame into f. fault is what is wrong with this frame's request alone.
func (p *packet) next(f *zmsg.Frame) (fault *zmsg.Error, v *violation) {
	if p.count++; p.count > maxFrames {
		return nil, &violation{CloseProtocol, "packet has more than " + itoa(maxFrames) + " frames"}
	}
	if len(p.frames) > 0 {
		t := &p.frames[0]
		p.frames = p.frames[1:]
		*f = t.Frame
		return t.Err, nil
	}
	var err error
	if p.rest, err = zmsg.NextFrame(p.rest, f); err != nil {
		return nil, &violation{CloseProtocol, err.Error()}
	}
	return nil, nil
}

// handle handles a message of an active session, which has come by c. A violation ends the connection.
func (s *Session) handle(c *conn, m message) *violation {
	var p packet
	if v := c.open(m, &p); v != nil {
		return v
	}
	return s.frames(c, &p, len(m.b))
}

// frames handles what is left of p; size is what it counts for, in bytes.
func (s *Session) frames(c *conn, p *packet, size int) *violation {
	var f zmsg.Frame
	now := c.readAt
	s.rate.message(s, size, now)
	for p.more() {
		fault, v := p.next(&f)
		if v != nil {
			return v
		}
		switch f.Kind {
		case wirepb.FrameKind_FRAME_KIND_REQUEST:
			s.request(c, &f, fault, now)
		case wirepb.FrameKind_FRAME_KIND_CONTROL:
			if v := s.control(c, &f); v != nil {
				return v
			}
		default:
			return &violation{CloseProtocol, fmt.Sprintf("frame of kind %d: clients send requests and controls", f.Kind)}
		}
		if c.closingNow.Load() {
			return nil
		}
	}
	return nil
}

// control handles a control frame of an active session.
func (s *Session) control(c *conn, f *zmsg.Frame) *violation {
	if push, response, ok := parseAck(f.Control); ok { // the one that comes often
		if c.heartbeat() {
			s.ack(c, push, response)
		}
		return nil
	}
	var m wirepb.Control
	if err := proto.Unmarshal(f.Control, &m); err != nil {
		return &violation{CloseProtocol, "control frame is malformed"}
	}
	switch m := m.GetControl().(type) {
	case *wirepb.Control_Ping:
		c.ping(m.Ping)
	case *wirepb.Control_Ack:
		if c.heartbeat() {
			s.ack(c, m.Ack.GetPush(), m.Ack.GetResponse())
		}
	case *wirepb.Control_Pong:
		c.heartbeat() // counts; there is nothing to answer
	case *wirepb.Control_Hello:
		return s.helloAgain(c, m.Hello)
	default:
		// A control of a later version; the major version is in the subprotocol, so it may be ignored.
		c.heartbeat()
	}
	return nil
}

// ping answers a client's Ping.
func (c *conn) ping(p *wirepb.Ping) {
	if c.heartbeat() {
		c.sendControl(&wirepb.Control{Control: &wirepb.Control_Pong{Pong: &wirepb.Pong{Nonce: p.GetNonce()}}})
	}
}

// helloAgain answers a second Hello on a live connection: the same session, as long as it is the same user.
func (s *Session) helloAgain(c *conn, h *wirepb.Hello) *violation {
	if !c.heartbeat() {
		return nil
	}
	c.uncork() // the authenticator may take its time
	user, v := c.authenticate(h)
	if v != nil {
		return v
	}
	if user != s.user {
		return &violation{CloseProtocol, "Hello of another user on a live session: connect anew"}
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.endedLocked() {
		c.controlLocked(s.welcome(false, granted))
		c.sentLocked(false)
	}
	return nil
}

// request takes a client's request all the way to whoever answers it. Every path ends in one count and, where the
// request has a seq, in one response.
func (s *Session) request(c *conn, f *zmsg.Frame, fault *zmsg.Error, now time.Time) {
	g := s.g
	again := s.requests.seen(f.Seq)
	if !s.rate.request(s, now) {
		g.count.rateLimited.Inc()
		if !again { // which may have run
			s.respondError(f.Seq, errRateLimited)
			return
		}
	}
	switch {
	case again:
		s.again(c, f, fault, now)
		return
	case fault != nil:
		g.count.rejected.Inc()
		s.respondError(f.Seq, fault)
		return
	case f.ID == 0:
		g.count.rejected.Inc()
		s.respondError(f.Seq, errNoID)
		return
	case g.draining.Load() && !g.handing.Load():
		g.count.draining.Inc()
		s.respondError(f.Seq, zmsg.ErrDraining)
		return
	}

	timeout := g.timeout(f)
	var token uint64
	if f.Seq != 0 {
		deadline := g.at(now) + int64(timeout)
		var ok bool
		if token, ok = s.requests.add(f.Seq, deadline, s.rate.inFlight); !ok {
			g.count.busy.Inc()
			s.respondError(f.Seq, errInFlight)
			return
		}
		g.requests.Add(1)
		g.wheel.schedule(&c.timer, deadline)
	}

	m := zmsg.NewMessage(f.ID)
	m.Seq, m.User, m.Session, m.Client = f.Seq, s.user, s.ref, true
	m.Deadline = now.Add(timeout)
	m.Trace.ID = c.newTrace()
	m.SetBody(f.Body) // a copy: the buffer that f lies in is used again
	if token != 0 {
		m.SetReplier(s, token)
	}
	if g.cfg.Tracer.Sample(m.Trace.ID, s.user) {
		sent := s.trace(m, token, now)
		s.route(m, token)
		sent()
		return
	}
	s.route(m, token)
}

// timeout is how long the request of f may take.
func (g *Gate) timeout(f *zmsg.Frame) time.Duration {
	if f.TimeoutMs > 0 {
		return min(time.Duration(f.TimeoutMs)*time.Millisecond, g.cfg.MaxRequestTimeout)
	}
	return g.cfg.RequestTimeout
}

// route hands m on: gate handler, dispatcher, hook. A panic in any of them ends this request alone.
func (s *Session) route(m *zmsg.Message, token uint64) {
	id := m.ID
	defer func() {
		if r := recover(); r != nil {
			s.g.count.failed.Inc()
			s.g.log.Error("panic while a request was routed", "msg_id", id, "session", s.ref.ID, "user", s.user,
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			// Who owns m now is unknown: it is left to the collector.
			s.endRequest(token, errPanicked)
		}
	}()
	if h := s.g.cfg.Handlers[m.ID]; h != nil {
		h(s, m)
		s.g.count.gate.Inc()
		return
	}
	if r := s.ownRoute(m.ID); r != nil {
		s.toOwnRoute(r, m)
		return
	}
	res, tried, err := zroute.NoRoute, 0, error(zmsg.ErrNoRoute)
	if s.g.cfg.Dispatcher != nil {
		res, tried, err = s.g.cfg.Dispatcher.Dispatch(m)
	}
	switch res {
	case zroute.OnLocal:
		s.g.count.local.Inc()
		return
	case zroute.OnRemote, zroute.Parked:
		s.g.count.remote.Inc()
		return
	case zroute.OnObject:
		s.g.count.object.Inc()
		return
	case zroute.Busy:
		s.g.count.busy.Inc()
		m.ReplyError(orElse(err, zmsg.ErrBusy))
	case zroute.NoRoute:
		s.noRoute(m, token, tried, err)
	default:
		s.g.count.failed.Inc()
		m.ReplyError(orElse(err, errFailed))
	}
	m.Release()
}

// noRoute answers m, which nobody takes.
func (s *Session) noRoute(m *zmsg.Message, token uint64, tried int, err error) {
	g := s.g
	if hook := g.cfg.OnNoRoute; hook != nil {
		wanted := m.Wants()
		reply, handled := hook(m, tried)
		switch {
		case handled && reply != nil:
			g.count.noRouteHook.Inc()
			m.Reply(reply)
			return
		case handled && wanted && !m.Wants():
			g.count.noRouteHook.Inc() // it answers, or has answered
			return
		case handled:
			g.count.silenced.Inc()
			if _, _, ok := s.requests.end(token, false); ok {
				g.requestDone()
			}
			return
		}
	}
	g.count.noRoute.Inc()
	if suppressed, ok := g.noRouteLog.Allow(time.Now()); ok {
		text := "no route for a message"
		if tried > 0 {
			text = "no node took a message"
		}
		g.log.Warn(text, "msg_id", m.ID, "tried", tried, "session", s.ref.ID, "user", s.user, "err", err, "suppressed", suppressed) //nolint:sloglint // text is one of two constants
	}
	m.ReplyError(orElse(err, zmsg.ErrNoRoute))
}

// endRequest ends the request of token with err, unless it has ended.
func (s *Session) endRequest(token uint64, err error) {
	seq, _, ok := s.requests.end(token, s.resume != nil)
	if !ok {
		return
	}
	s.respondError(seq, err)
	s.answered(token)
}

// expire answers the requests whose deadline has passed, and returns the next deadline.
func (s *Session) expire(now int64) (next int64) {
	tokens, next := s.requests.expired(nil, now)
	for _, token := range tokens {
		s.endRequest(token, errTimeout)
	}
	return next
}

// again is for a request that has been here, or at a gate before, on a connection which may have broken on the way there or back: it does not run
// again. What the gate does not know of it an object may.
func (s *Session) again(by *conn, f *zmsg.Frame, fault *zmsg.Error, now time.Time) {
	seq := f.Seq
	c := s.lock()
	before := s.resume.log.Bytes()
	frame, ok := s.resume.log.Answer(seq)
	s.g.kept.Add(int64(s.resume.log.Bytes() - before))
	c.q.mu.Unlock()
	if ok {
		s.g.count.againAnswered.Inc()
		s.sendResponse(seq, frame, false)
		return
	}
	// In this order: what flies no more was sent before.
	if !s.requests.flying(seq) {
		c = s.lock()
		ok = s.resume.log.Sent(seq)
		c.q.mu.Unlock()
		if !ok && fault == nil && s.ask(by, f, now) {
			return
		}
		if !ok {
			s.g.count.againForgotten.Inc()
			s.respondError(seq, errForgotten)
			return
		}
	}
	s.g.count.againFlying.Inc()
}

// What the gate itself answers.
var (
	errRateLimited = &zmsg.Error{Code: zmsg.CodeRateLimited, Outcome: zmsg.NotExecuted, Text: "too many requests"}
	errNoID        = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "request has no message id"}
	errInFlight    = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too many requests in flight"}
	errPanicked    = &zmsg.Error{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown}
	errFailed      = &zmsg.Error{Code: zmsg.CodeInternal, Outcome: zmsg.NotExecuted}
	errForgotten   = &zmsg.Error{Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown, Text: "its response is not kept any more"}
	errTimeout     = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown, Text: "no answer within the deadline"}
)

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// newTrace makes a trace id. It names, it does not protect: numbers that are mixed will do, from a random one on.
func (c *conn) newTrace() (t zmsg.TraceID) {
	if c.traces == 0 {
		c.traces = rand.Uint64()
	}
	c.traces += 0x9e3779b97f4a7c15
	binary.LittleEndian.PutUint64(t[:], mix(c.traces))
	binary.LittleEndian.PutUint64(t[8:], mix(c.traces^c.g.traces)|1) // never zero
	return t
}

// mix is the finalizer of splitmix64: of different numbers it makes different ones that look like nothing.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
