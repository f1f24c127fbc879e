package zactor

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Deferred is a reply that a handler owes: from any goroutine, at any time, once. When the actor ends or restarts before
// that, the asker is told (CodeStopped or CodePanicked, Outcome Unknown).
type Deferred struct{ d *deferral }

type deferral struct {
	c     *cell
	to    zmsg.Replier
	token uint64
}

// Defer takes the reply of this message out of the handler's hands: it returns ErrDeferred (or nil), and somebody replies
// by the Deferred. For a message that nobody waits on, the Deferred does nothing.
func (c *Context) Defer() Deferred {
	c.used, c.deferred = true, true
	d := &deferral{c: c.cell}
	switch {
	case c.it.fut != nil:
		d.to, d.token = c.it.fut, c.it.token
		c.it.fut = nil
	case c.it.msg != nil && c.it.kind == itemMessage:
		d.to, d.token = c.it.msg.TakeReplier()
	}
	if d.to == nil {
		return Deferred{d}
	}
	x := c.cell.more()
	c.cell.mu.Lock()
	if x.deferred == nil {
		x.deferred = make(map[*deferral]struct{})
	}
	x.deferred[d] = struct{}{}
	c.cell.mu.Unlock()
	return Deferred{d}
}

// Reply answers the request. It reports false, and counts a late reply, when it has ended before.
func (d Deferred) Reply(answer proto.Message) bool {
	id, _ := zmsg.IDOf(answer)
	return d.give(&zmsg.Reply{ID: id, Value: answer})
}

// Fail ends the request with err. It reports false, and counts a late reply, when it has ended before.
func (d Deferred) Fail(err error) bool {
	r := handlerReply(err)
	return d.give(&r)
}

func (d Deferred) give(r *zmsg.Reply) bool {
	if d.d == nil || d.d.to == nil {
		return false
	}
	c := d.d.c
	x := c.extra.Load()
	c.mu.Lock()
	_, owed := x.deferred[d.d]
	delete(x.deferred, d.d)
	c.mu.Unlock()
	if !owed {
		c.g.cfg.Metrics.LateReplies.Inc()
		return false
	}
	d.d.to.Reply(d.d.token, r)
	return true
}

// end gives err as the outcome; the caller has taken d out of the cell's set.
func (d *deferral) end(err error) {
	r := zmsg.ErrorReply(err)
	d.to.Reply(d.token, &r)
}
