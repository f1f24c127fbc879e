package zactor

import (
	"errors"
	"runtime"
	"time"

	"zgame/internal/stack"
	"zgame/zmsg"
)

// loop is the actor's goroutine: it works off batches until the mailbox stays empty.
func (c *cell) loop() {
	c.bounds.mark()
	x := c.g.context(c)
	x.tag()
	if c.takeHeld() && !c.restart(x) {
		return
	}
	c.turns(x)
}

// context borrows a Context for c's turns.
func (g *Group) context(c *cell) *Context {
	x := g.borrow(c)
	x.begin(c)
	return x
}

// borrow is context for a hook that the watchdog does not look at.
func (g *Group) borrow(c *cell) *Context {
	x := g.contexts.Get().(*Context)
	x.cell = c
	if e := c.extra.Load(); e != nil {
		x.tap = e.tap
	}
	return x
}

// idleYields is how often an actor that has run out of work lets others run, and looks again, before it goes idle.
const idleYields = 2

// fairShare is how many messages an actor handles before it lets others run, where its mailbox is never empty: without that it has
// its processor for the runtime's 10 ms, and so has each busy actor before the next.
const fairShare = 256

// turns works off the mailbox until it stays empty, the actor ends, or it is held until its restart. x may hold a batch
// that has been worked off already.
func (c *cell) turns(x *Context) {
	yielded := 0
	for slice := x.worked; ; {
		if x.worked-slice >= fairShare {
			slice = x.worked
			runtime.Gosched()
		}
		c.mu.Lock()
		if x.batch != nil {
			c.doneLocked(x.batch, &c.g.buffers)
			x.batch, x.next = nil, 0
		}
		switch {
		case len(c.in) > 0 || c.wanted():
		case yielded < idleYields:
			// Let the others run before going idle, and look once more: with several actors in conversation the next
			// message is there by then, and a wake is what costs (see bench).
			c.mu.Unlock()
			runtime.Gosched()
			yielded++
			continue
		default:
			if c.opts != nil && c.opts.idle > 0 && x.worked > 0 {
				c.extra.Load().lastWork = c.g.clock.Now()
			}
			c.idleLocked(&c.g.buffers)
			c.worked += x.worked
			c.mu.Unlock()
			c.g.contexts.Put(x.clean())
			return
		}
		if c.reason() != 0 {
			c.mu.Unlock()
			c.terminate(x, nil)
			return
		}
		x.batch, x.next = c.swapLocked(&x.taken, &c.g.buffers), 0
		c.mu.Unlock()
		yielded = 0
		if len(x.batch) > 0 && x.batch[0].encoded() {
			stack.Deepen(false)
			if len(x.batch) == 1 {
				yielded = idleYields // from another node, and alone: nobody here is about to send the next
			}
		}
		if !c.work(x) {
			return
		}
	}
}

// work handles the rest of the batch. It returns false when the goroutine has nothing more to do with the actor.
func (c *cell) work(x *Context) bool {
	begun := x.next
	for {
		crash := c.span(x)
		if x.susp != nil {
			c.giveBack(x, crash)
			return false
		}
		if crash == nil && c.reason() == 0 {
			break
		}
		c.g.cfg.Metrics.Handled.Add(float64(x.next - begun))
		begun = x.next
		if crash != nil && !c.failed(x, crash) {
			return false
		}
		if c.reason() != 0 {
			c.terminate(x, nil)
			return false
		}
	}
	c.g.cfg.Metrics.Handled.Add(float64(x.next - begun))
	clear(x.batch)
	return true
}

// errGoexit stands for the value of a panic where code of the user called runtime.Goexit.
var errGoexit = errors.New("zactor: runtime.Goexit was called")

// span handles items until the end of the batch, a halt, or a panic, with one deferred call for all of them: x.next is the
// item after the one that it was.
func (c *cell) span(x *Context) (caught *crash) {
	x.now = time.Time{}
	x.taken.Store(int32(x.next + 1))
	clean := false
	defer func() {
		if clean {
			return
		}
		v := recover()
		caught = c.caught(v)
		if v != nil {
			return
		}
		if x.susp != nil {
			c.giveBack(x, caught)
			return
		}
		// Goexit: this goroutine is ending, the rest goes on in another.
		x.goexit = caught
		go c.resume(x) // owned by the cell, in place of this one
	}()
	for (c.signal.Load() == 0 || c.attend(x)) && x.next < len(x.batch) {
		it := &x.batch[x.next]
		if x.next&(takenStep-1) == 0 {
			x.taken.Store(int32(x.next + 1))
		}
		x.next++
		x.it = it
		if it.kind == itemTold {
			x.open(it)
		}
		if it.kind == itemMessage {
			x.worked++
			c.message(x, it)
		} else {
			c.event(x, it)
		}
		if x.used {
			x.endTurn()
		}
	}
	clean = true
	return nil
}

// resume goes on after a goroutine that ended in the middle of a batch.
func (c *cell) resume(x *Context) {
	c.bounds.mark()
	caught := x.goexit
	x.goexit = nil
	if c.failed(x, caught) && c.work(x) {
		c.turns(x)
	}
}

// event does an item that is no message.
func (c *cell) event(x *Context, it *item) {
	switch it.kind {
	case itemDone:
		x.worked++
		c.outcome(x, it)
	case itemTimer:
		it.value.(*timer).turn(x, it.token)
	case itemTurn:
		x.worked++
		it.value.(*turnItem).turn(x, it.token)
	case itemStop:
		c.halt(StopRequested)
	case itemBarrier:
		c.barrier(x, it.value.(*barrier))
	case itemFence:
		it.msg.Reply(&zmsg.Reply{})
		it.msg.Release()
		it.msg = nil
	case itemMessage, itemTold, itemGone: // the first two are not for here, the other stays in the mailbox
	}
}

// message runs the handler of a message.
func (c *cell) message(x *Context, it *item) {
	var h *Handler
	if it.id == 0 {
		h = findType(c.handlers, it.value)
	} else {
		h = find(c.handlers, it.id)
	}
	if h == nil {
		if it.id == 0 {
			it.id, _ = zmsg.IDOf(x.protoValue())
			h = find(c.handlers, it.id)
		}
		switch {
		case h != nil:
		case it.id != zmsg.SessionClosedID && zmsg.SessionEvent(it.id): // who sends by old names, or goes by ids, need not know
			it.msg.Release()
			it.msg = nil
			return
		default:
			c.drop(it, deadNoHandler, zmsg.ErrNoRoute)
			return
		}
	}
	it.id = h.types.id
	if m := it.msg; m != nil {
		if m.Client && !h.has(fromClients) {
			c.drop(it, deadClientMark, zmsg.ErrNoRoute)
			return
		}
		if !m.Deadline.IsZero() && m.Wants() && !x.batchTime().Before(m.Deadline) {
			c.drop(it, deadExpired, expired)
			return
		}
	}
	if it.fut != nil && !it.fut.open(it.token) {
		it.fut = nil
		c.drop(it, deadCancelled, nil)
		return
	}
	if x.tap != nil {
		x.tap.message(x, h)
	}
	if err := h.call(x); err != nil {
		x.fail(err)
	} else {
		x.answer(0, nil) // if nobody has: one-way handlers, and middleware that went no further
	}
	it = x.it // another one in a reentrant actor
	if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
}

var expired error = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.NotExecuted, Text: "the deadline was over before the handler ran"}

// outcome runs the continuation of a Then or Async.
func (c *cell) outcome(x *Context, it *item) {
	f := it.value.(*future)
	c.pending--
	if s := f.susp; s != nil {
		c.endOutcome(nil, it)
		if s.f == f {
			c.lend(x, s)
		} else {
			f.put()
		}
		return
	}
	if f.epoch == c.epoch.Load() {
		if x.tap != nil {
			x.tap.outcome(x, f)
		}
		f.then(x, &f.reply)
		it = x.it // another one in a reentrant actor
	} else {
		c.g.deadLetter(c, it, deadStale)
	}
	c.endOutcome(f, it)
}

// endOutcome gives back what an outcome held.
func (c *cell) endOutcome(f *future, it *item) {
	if f != nil {
		f.put()
	}
	if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
	if x := c.extra.Load(); c.pending == 0 && x != nil && x.parked != nil {
		x.parked.done(true)
		x.parked = nil
	}
}

// drop ends a message that no handler runs for: whoever asked is told err.
func (c *cell) drop(it *item, why deadReason, err error) {
	c.g.deadLetter(c, it, why)
	if err != nil {
		it.answer(err)
	}
	if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
}

// answer tells whoever asked that the request ended with err.
func (it *item) answer(err error) {
	if it.fut == nil && (it.msg == nil || !it.msg.Wants()) {
		return
	}
	r := zmsg.ErrorReply(err)
	if it.fut != nil {
		it.fut.Reply(it.token, &r)
		it.fut = nil
		return
	}
	it.msg.Reply(&r)
}
