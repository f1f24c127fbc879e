package zactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"zgame/zmsg"
)

// loop is the actor's goroutine: it works off batches until the mailbox stays empty.
func (c *cell) loop() {
	x := c.g.contexts.Get().(*Context)
	x.cell = c
	if h := c.takeHeld(); h {
		if !c.restart(x) {
			return
		}
	}
	c.turns(x, nil)
}

// turns works off the mailbox until it stays empty, the actor ends, or it is held until its restart. done is a batch
// that has been worked off already.
func (c *cell) turns(x *Context, done []item) {
	yielded := false
	for {
		c.mu.Lock()
		if done != nil {
			c.doneLocked(done)
			done = nil
		}
		switch {
		case c.halt.Load() != 0:
			c.mu.Unlock()
			c.terminate(x, nil)
			return
		case len(c.in) > 0:
		case !yielded:
			// Let the others run before going idle, and look once more: with several actors in conversation the next
			// message is there by then, and a wake is what costs (see bench).
			c.mu.Unlock()
			runtime.Gosched()
			yielded = true
			continue
		default:
			c.worked += x.worked
			c.idleLocked(&c.g.buffers)
			c.mu.Unlock()
			c.g.contexts.Put(x.clean())
			return
		}
		batch := c.swapLocked(&x.taken)
		c.mu.Unlock()
		yielded = false
		if !c.work(x, batch, 0) {
			return
		}
		done = batch
	}
}

// work handles batch from item i on. It returns false when the goroutine has nothing more to do with the actor.
func (c *cell) work(x *Context, batch []item, i int) bool {
	begun := i
	for i < len(batch) {
		crash := c.span(x, batch, &i)
		if crash == nil && c.halt.Load() == 0 {
			continue
		}
		c.g.cfg.Metrics.Handled.Add(float64(i - begun))
		begun = i
		if crash != nil && !c.failed(x, crash, batch[i:]) {
			return false
		}
		if c.halt.Load() != 0 {
			c.terminate(x, batch[i:])
			return false
		}
	}
	c.g.cfg.Metrics.Handled.Add(float64(i - begun))
	clear(batch)
	return true
}

// crash is a panic that was caught.
type crash struct {
	value any
	stack []byte // nil if nobody reads the log
}

// errGoexit stands for the value of a panic where code of the user called runtime.Goexit.
var errGoexit = errors.New("zactor: runtime.Goexit was called")

// span handles items until the end of batch, a halt, or a panic, with one deferred call for all of them: *i says
// which item it was.
func (c *cell) span(x *Context, batch []item, i *int) (caught *crash) {
	x.now = time.Time{}
	x.taken.Store(int32(*i + 1))
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
		// Goexit: this goroutine is ending, the rest goes on in another.
		next := *i
		x.goexit = caught
		go c.resume(x, batch, next) // owned by the cell, in place of this one
	}()
	for *i < len(batch) && c.halt.Load() == 0 {
		it := &batch[*i]
		if *i&(takenStep-1) == 0 {
			x.taken.Store(int32(*i + 1))
		}
		*i++
		x.it = it
		c.handle(x, it)
	}
	clean = true
	return nil
}

// resume goes on after a goroutine that ended in the middle of a batch.
func (c *cell) resume(x *Context, batch []item, i int) {
	caught := x.goexit
	x.goexit = nil
	if !c.failed(x, caught, batch[i:]) {
		return
	}
	if c.work(x, batch, i) {
		c.turns(x, batch)
	}
}

func (c *cell) caught(v any) *crash {
	if v == nil {
		v = errGoexit
	}
	k := &crash{value: v}
	if c.g.log.Enabled(context.Background(), slog.LevelError) {
		k.stack = debug.Stack()
	}
	return k
}

// handle does one item.
func (c *cell) handle(x *Context, it *item) {
	switch it.kind {
	case itemMessage:
		x.worked++
		c.message(x, it)
	case itemDone:
		x.worked++
		c.outcome(x, it)
	case itemTimer:
		it.value.(*timer).turn(x)
	case itemStop:
		c.halt.CompareAndSwap(0, uint32(StopRequested))
	case itemBarrier:
		c.barrier(x, it.value.(*barrier))
	}
	if x.used {
		x.endTurn()
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
		if h == nil {
			c.drop(it, deadNoHandler, zmsg.ErrNoRoute)
			return
		}
	}
	it.id = h.types.id
	if m := it.msg; m != nil {
		if m.Client && h.flags&fromClients == 0 {
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
	h.call(x)
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
	if f.epoch == c.epoch {
		f.then(x, &f.reply)
	} else {
		c.g.deadLetter(c, it, deadStale)
	}
	c.endOutcome(f, it)
}

// endOutcome gives back what an outcome held.
func (c *cell) endOutcome(f *future, it *item) {
	f.put()
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

// failed deals with a panic: whoever asked learns it at once, the policy decides on what follows. It returns false when
// this goroutine has nothing more to do with the actor: it is gone, or held until its restart.
func (c *cell) failed(x *Context, k *crash, rest []item) bool {
	it := x.it
	c.g.cfg.Metrics.Panics.Inc()
	c.g.log.Error("actor panicked", "actor", c.id, "name", c.name, "msg_id", it.id, "trace", traceText(x.Trace()),
		"panic", fmt.Sprint(k.value), "stack", string(k.stack))
	it.answer(&zmsg.Error{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "the handler panicked"})
	if it.kind == itemDone {
		c.endOutcome(it.value.(*future), it)
	} else if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
	x.endTurn()
	c.endInstance(&zmsg.Error{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "the actor panicked before it replied"})
	return c.supervise(x, rest)
}

// supervise decides after a failure. With a wait before the restart it puts the rest of the batch back and leaves.
func (c *cell) supervise(x *Context, rest []item) bool {
	for {
		if c.halt.Load() != 0 {
			c.terminate(x, rest)
			return false
		}
		e := c.more()
		var v verdict
		v, e.history = c.policy().decide(e.history, c.g.clock.Now())
		switch {
		case !v.restart:
			c.g.log.Error("actor failed too often", "actor", c.id, "name", c.name, "failures", len(e.history))
			c.halt.CompareAndSwap(0, uint32(StopFailed))
			c.terminate(x, rest)
			return false
		case v.delay > 0:
			c.hold(x, rest, v.delay)
			return false
		}
		if c.instance(x) {
			return true
		}
	}
}

// hold leaves the actor without a goroutine for a while; messages wait, a stop does not.
func (c *cell) hold(x *Context, rest []item, d time.Duration) {
	c.mu.Lock()
	c.in = append(append(make([]item, 0, len(rest)+len(c.in)), rest...), c.in...)
	c.batch, c.taken = 0, nil
	c.worked += x.worked
	clear(rest)
	// running stays on: senders must not start a goroutine.
	c.more().held = c.g.clock.AfterFunc(d, func() {
		go c.run() // owned by the cell; not on the clock's goroutine, for handlers may block
	})
	c.mu.Unlock()
	c.g.contexts.Put(x.clean())
}

// takeHeld reports whether the actor was held for a restart, and ends that.
func (c *cell) takeHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.extra.Load()
	if x == nil || x.held == nil {
		return false
	}
	x.held = nil
	return true
}

// restart makes the next instance after a wait.
func (c *cell) restart(x *Context) bool {
	if c.halt.Load() != 0 || c.instance(x) {
		return true // turns sees the halt
	}
	return c.supervise(x, nil)
}

// instance makes the next instance and starts it; it reports whether that went well.
func (c *cell) instance(x *Context) bool {
	before := adverts(c.handlers)
	err := c.create()
	if err == nil && !slices.Equal(before, adverts(c.handlers)) {
		err = errors.New("zactor: the factory's new actor handles other messages than the one before")
	}
	if err == nil {
		err = c.onStart(x)
	}
	if err != nil {
		c.g.log.Error("actor did not restart", "actor", c.id, "name", c.name, "err", err)
		c.endInstance(zmsg.ErrStopped)
		return false
	}
	c.g.cfg.Metrics.Restarts.Inc()
	c.g.log.Warn("actor restarted", "actor", c.id, "name", c.name)
	return true
}

// endInstance ends what belongs to the present instance: timers, promised replies; continuations become stale.
func (c *cell) endInstance(err error) {
	c.epoch++
	x := c.extra.Load()
	if x == nil {
		return
	}
	c.mu.Lock()
	owed := x.deferred
	x.deferred = nil
	c.mu.Unlock()
	for t := range x.timers {
		t.end()
	}
	x.timers = nil
	for d := range owed {
		d.end(err)
	}
}
