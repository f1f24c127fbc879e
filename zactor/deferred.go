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
// by the Deferred. A handler that returns another error, or panics, has not got so far: that ends the request, as without Defer.
// For a message that nobody waits on, and for the second Defer of one, the Deferred does nothing.
func (c *Context) Defer() Deferred {
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
	c.used, c.deferred = true, d // the first one: a second Defer finds nothing to take
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
	if !d.d.take() {
		d.d.c.g.cfg.Metrics.LateReplies.Inc()
		return false
	}
	d.d.to.Reply(d.d.token, r)
	return true
}

// take takes d out of the cell's set; false when its reply has been given, or was never owed.
func (d *deferral) take() bool {
	if d.to == nil {
		return false
	}
	x := d.c.extra.Load()
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	_, owed := x.deferred[d]
	delete(x.deferred, d)
	return owed
}

// end gives err as the outcome; the caller has taken d out of the cell's set.
func (d *deferral) end(err error) {
	r := zmsg.ErrorReply(err)
	d.to.Reply(d.token, &r)
}
