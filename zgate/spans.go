package zgate

import (
	"strconv"
	"time"

	"zgame/zmsg"
	"zgame/ztrace"
)

// tracedRequest is where the response to a request goes whose trace is recorded. It is the request's Replier.
type tracedRequest struct {
	*Session
	span ztrace.Span
}

// trace begins to record m, a request of the session with the token (0: one-way), and returns what is to be done when it is on its way.
func (s *Session) trace(m *zmsg.Message, token uint64, now time.Time) (sent func()) {
	t := s.g.cfg.Tracer
	r := &tracedRequest{s, ztrace.Span{
		Trace: m.Trace.ID, ID: t.NewSpan(), Parent: m.Trace.Span, Kind: ztrace.Request, Name: s.g.nameOf(m.ID), Start: now,
		Session: s.ref, User: s.user, Result: zmsg.CodeOK.String(),
	}}
	m.Trace.Span = r.span.ID
	if token != 0 {
		m.SetReplier(r, token)
		return func() {}
	}
	return func() { r.end() }
}

func (r *tracedRequest) end() {
	r.span.Duration = time.Since(r.span.Start)
	r.g.cfg.Tracer.End(&r.span)
}

// Reply implements zmsg.Replier.
func (r *tracedRequest) Reply(token uint64, reply *zmsg.Reply) {
	r.span.Result = reply.Code.String()
	r.Session.Reply(token, reply)
	r.end()
}

// pushed records a push that n sessions got: s, or those of a group, or several.
func (g *Gate) pushed(p *zmsg.Push, s *Session, n int, began time.Time, err error) {
	x := ztrace.Span{
		Trace: p.Trace.ID, Parent: p.Trace.Span, Kind: ztrace.Push, Name: g.nameOf(p.ID), Start: began, Duration: time.Since(began),
		Key: p.Key, Version: p.Version, Sessions: n, Result: zmsg.CodeOK.String(),
	}
	if s != nil {
		x.Session, x.User = s.ref, s.user
	}
	if err != nil {
		x.Result = zmsg.CodeOf(err).String()
	}
	g.cfg.Tracer.End(&x)
}

// records reports whether p's trace is recorded.
func (g *Gate) records(p *zmsg.Push) bool { return p.Trace.Span != 0 && g.cfg.Tracer != nil }

// nameOf is what a message is called in spans.
func (g *Gate) nameOf(id uint32) string {
	if g.cfg.Registry != nil {
		if name := g.cfg.Registry.Name(id); name != "" {
			return name
		}
	}
	return "message " + strconv.FormatUint(uint64(id), 10)
}
