package zactor

import (
	"time"

	"zgame/zmsg"
	"zgame/ztrace"
)

// Traced is an actor that stands for an object: its spans have the object's name.
type Traced interface {
	// TraceObject returns which object, and since which version it is owned.
	TraceObject() (k zmsg.Key, version zmsg.RouteVersion)
}

// Spans is Middleware that records each handler of a message whose trace is recorded, and has what the handler sends carry its span on; see ztrace.
func Spans(t *ztrace.Tracer) Middleware {
	return func(h HandlerInfo, next Func) Func {
		return func(c *Context) error {
			if c.SendTrace().Span == 0 && !c.follow(t) {
				return next(c)
			}
			return c.record(t, &h, next)
		}
	}
}

// follow begins to record where somebody follows the object that this actor is.
func (c *Context) follow(t *ztrace.Tracer) bool {
	o, ok := c.cell.actor.(Traced)
	if !ok {
		return false
	}
	k, _ := o.TraceObject()
	if !t.SampleObject(k) {
		return false
	}
	if tr := c.traceOf(); tr.IsZero() {
		tr.ID = t.NewTrace()
	}
	return true
}

// traceOf is where the trace of the turn stands.
func (c *Context) traceOf() *zmsg.Trace {
	if c.it.msg != nil {
		return &c.it.msg.Trace
	}
	c.used = true
	return &c.trace
}

// record is next, recorded.
func (c *Context) record(t *ztrace.Tracer, h *HandlerInfo, next Func) error {
	tr := c.traceOf()
	s := ztrace.Span{
		Trace: tr.ID, ID: t.NewSpan(), Parent: tr.Span, Kind: ztrace.Handler, Name: h.Name,
		Session: c.Session(), User: c.User(), Actor: c.cell.id, ActorName: h.Actor,
		Start: time.Now(), Result: zmsg.CodePanicked.String(),
	}
	if s.ActorName == "" {
		s.ActorName = h.Type
	}
	if o, ok := c.cell.actor.(Traced); ok {
		s.Key, s.Version = o.TraceObject()
	}
	if m := c.it.msg; m != nil && m.Queued != 0 {
		s.Wait = max(0, s.Start.Sub(time.Unix(0, m.Queued)))
	}
	tr.Span = s.ID // what it sends, now and later, is sent in it
	defer func() {
		s.Duration = time.Since(s.Start)
		t.End(&s)
	}()
	err := next(c)
	s.Result = resultOf(err)
	return err
}

// queued notes when a message goes into a mailbox, if that is recorded.
func queued(m *zmsg.Message) {
	if m.Trace.Span != 0 {
		m.Queued = time.Now().UnixNano()
	}
}
