package zactor

import "time"

// WithIdle passivates the actor: it stops, with the reason StopIdle, when it has handled no message and no continuation for d,
// at least and at most twice as long. Timers do not keep it; replies and continuations that it owes do, and so do
// children. No message is lost: one that comes in the moment of the end is refused with ErrStopped before it has run, and
// Group.Ensure makes the actor anew.
func WithIdle(d time.Duration) SpawnOption { return func(o *spawnOptions) { o.idle = d } }

// armIdle starts the watch over an actor that has just started. One timer for each such actor, set again when it fires: a
// message costs nothing.
func (c *cell) armIdle() {
	if c.opts == nil || c.opts.idle == 0 {
		return
	}
	x := c.more()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	x.lastWork = c.g.clock.Now()
	x.idle = c.g.clock.AfterFunc(c.opts.idle, c.checkIdle)
}

// checkIdle runs on the clock's goroutine.
func (c *cell) checkIdle() {
	x := c.extra.Load()
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	if left := c.opts.idle - c.g.clock.Now().Sub(x.lastWork); left > 0 {
		x.idle.Reset(left)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.pushLane(idleItem{})
}

// idleItem asks the actor, in its turn, whether it may end.
type idleItem struct{}

func (idleItem) run(x *Context) {
	c := x.cell
	e := c.extra.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.worked > 0 || messagesIn(c.queueLocked()) > 0 || messagesIn(x.batch[x.next:]) > 0 || c.pending > 0 || len(e.deferred) > 0 || len(e.children) > 0 {
		e.idle.Reset(c.opts.idle)
		return
	}
	c.closeLocked() // from here on senders are refused
	c.halt(StopIdle)
}
