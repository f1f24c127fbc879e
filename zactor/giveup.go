package zactor

import (
	"context"

	"zgame/zmsg"
)

// That the one who asked has given up travels with what the handler does for him: to its Context, to what it waits for in Call, to
// work of Async that it begins, and by these to other actors and nodes. It is advice: a handler that looks at none of them
// runs to its end, and its reply is late.

// asker returns who waits for the outcome of this turn's message and can tell when he gives up; nil if nobody.
func (c *Context) asker() (zmsg.Waiter, uint64) {
	switch m := c.it.msg; {
	case c.it.fut != nil:
		return c.it.fut, c.it.token
	case c.it.kind == itemMessage && m != nil && m.Wants():
		return m.Waiter()
	case c.deferred != nil:
		w, _ := c.deferred.to.(zmsg.Waiter)
		return w, c.deferred.token
	default:
		return nil, 0
	}
}

// askedContext is a context that ends with parent, at the message's deadline, and when the one who asked gives up: that is
// what giveUp is told, nil where nobody can tell.
func (c *Context) askedContext(parent context.Context) (_ context.Context, _ context.CancelFunc, giveUp zmsg.GiveUp) {
	w, token := c.asker()
	if w == nil {
		ctx, cancel := c.bounded(parent)
		return ctx, cancel, nil
	}
	told, cancel := context.WithCancelCause(parent)
	ctx, end := c.bounded(told)
	h := &cancelGiveUp{cancel}
	w.OnGiveUp(token, h, 0)
	return ctx, func() {
		w.Forget(token, h)
		end()
		cancel(context.Canceled)
	}, h
}

// bounded is a context that ends with parent, and at the message's deadline if it has one.
func (c *Context) bounded(parent context.Context) (context.Context, context.CancelFunc) {
	if d, ok := c.Deadline(); ok {
		return c.cell.g.withDeadline(parent, d)
	}
	return context.WithCancel(parent)
}

// cancelGiveUp ends a context.
type cancelGiveUp struct{ cancel context.CancelCauseFunc }

func (g *cancelGiveUp) GaveUp(uint64) { g.cancel(zmsg.ErrCancelled) }

var askerReply = zmsg.Reply{Code: zmsg.CodeCancelled, Outcome: zmsg.Unknown, Text: "the one who asked has given up"}

// GaveUp ends, as a zmsg.GiveUp, the request that a handler waits for, because the one it waits for him has given up.
func (f *future) GaveUp(token uint64) {
	if f.abandon(token) {
		f.reply = askerReply
		f.done()
	}
}

// waitWith has f, for which the handler is going to wait, end when the one who asked the handler gives up.
func (c *Context) waitWith(f *future, token uint64) {
	if w, t := c.asker(); w != nil {
		w.OnGiveUp(t, f, token)
	}
}

// waited undoes waitWith.
func (c *Context) waited(f *future) {
	w, t := c.asker()
	if w == nil {
		return
	}
	w.Forget(t, f)
	if c.turn != nil && c.turn.giveUp != nil { // it stood aside meanwhile
		w.OnGiveUp(t, c.turn.giveUp, 0)
	}
}
