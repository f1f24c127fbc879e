package zactor

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"zgame/zmsg"
)

// Restarter is an Actor that has work to do before it is replaced: OnRestart runs on the instance that failed, to let go
// of what the next one will open again. It must not rely on the state that the failure left. A panic in it is logged.
type Restarter interface {
	OnRestart(c *Context, cause error)
}

// PanicError is the cause of a failure: what a handler, hook, timer or continuation panicked with.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // nil where nobody logs errors
}

// Error returns the value as text.
func (e *PanicError) Error() string { return fmt.Sprintf("zactor: panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// EscalatedError is the cause of a parent's failure where a child's Policy said Escalate.
type EscalatedError struct {
	Child Ref // gone by now
	Cause error
}

// Error names the child and its cause.
func (e *EscalatedError) Error() string {
	return fmt.Sprintf("zactor: %v failed: %v", e.Child, e.Cause)
}

// Unwrap returns the child's cause.
func (e *EscalatedError) Unwrap() error { return e.Cause }

// crash is a panic that was caught.
type crash struct {
	value any
	stack []byte // nil if nobody reads the log
	told  bool   // mourned already
}

// cause is the crash as an error.
func (k *crash) cause() error {
	if e, ok := k.value.(*EscalatedError); ok {
		return e
	}
	return &PanicError{Value: k.value, Stack: k.stack}
}

func (c *cell) caught(v any) *crash {
	if v == nil {
		v = errGoexit
	}
	if h, ok := v.(handedOn); ok {
		h.crash.told = true
		return h.crash
	}
	k := &crash{value: v}
	if _, child := v.(*EscalatedError); !child && (c.tapped() || c.g.log.Enabled(context.Background(), slog.LevelError)) {
		k.stack = debug.Stack()
	}
	return k
}

// failed deals with a panic: whoever asked learns it at once, the policy decides on what follows. It returns false when
// this goroutine has nothing more to do with the actor: it is gone, or held until its restart.
func (c *cell) failed(x *Context, k *crash) bool {
	if !k.told {
		c.mourn(x, k)
	}
	x.endTurn()
	cause := k.cause()
	v := c.verdict(cause)
	if v.do == Resume {
		c.g.log.Warn("actor resumed", "actor", c.id, "name", c.name)
		return true
	}
	return c.supervise(x, cause, v, false)
}

var errHandlerPanicked error = &zmsg.Error{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "the handler panicked"}

// mourn tells of a panic: the log, and whoever asked.
func (c *cell) mourn(x *Context, k *crash) {
	it := x.it
	c.g.cfg.Metrics.Panics.Inc()
	c.g.failures.add(x, it.id, "panic: "+fmt.Sprint(k.value))
	c.g.log.Error("actor panicked", "actor", c.id, "name", c.name, "msg_id", it.id, "trace", x.Trace().String(),
		"panic", fmt.Sprint(k.value), "stack", string(k.stack))
	if x.tap != nil {
		x.tap.crashed(x, k)
	}
	it.answer(errHandlerPanicked)
	if d := x.deferred; d != nil && d.take() { // an actor that is resumed may never come to it
		d.end(errHandlerPanicked)
	}
	if it.kind == itemDone {
		c.endOutcome(it.value.(*future), it)
	} else if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
	x.endTurn()
}

// verdict asks the policy. One that panics, or ends its goroutine, stops the actor.
func (c *cell) verdict(cause error) verdict {
	e, p, now := c.more(), c.policy(), c.g.clock.Now()
	v := verdict{do: Stop}
	if p.Decide == nil {
		v, e.history = p.decide(e.history, now, cause)
		return v
	}
	done := make(chan struct{})
	go func() { // owned by this call, which waits for it: Decide may call runtime.Goexit
		defer close(done)
		c.guard("Policy.Decide", func() { v, e.history = p.decide(e.history, now, cause) })
	}()
	<-done
	return v
}

// guard runs a function of the application that is no handler: a panic in it is logged.
func (c *cell) guard(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.g.cfg.Metrics.Panics.Inc()
			c.g.log.Error("panic", "in", what, "actor", c.id, "name", c.name, "panic", fmt.Sprint(v), "stack", string(c.caught(v).stack))
		}
	}()
	f()
}

var errPanickedFirst error = &zmsg.Error{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "the actor panicked before it replied"}

// supervise does what the policy decided after a failure that is not resumed. dropped says that the instance that failed
// has been told, and what belonged to it has ended.
func (c *cell) supervise(x *Context, cause error, v verdict, dropped bool) bool {
	for {
		if c.over() {
			c.terminate(x, nil)
			return false
		}
		if v.do == Stop || v.do == Escalate {
			c.g.log.Error("actor failed for good", "actor", c.id, "name", c.name, "directive", v.do.String(), "failures", len(c.more().history))
			c.halt(StopFailed)
			if v.do == Stop {
				cause = nil
			}
			c.terminate(x, cause)
			return false
		}
		if !dropped {
			dropped = true
			c.replace(x, cause, v)
		}
		if v.delay > 0 {
			c.hold(x, v.delay)
			return false
		}
		err := c.instance(x)
		if err == nil {
			return true
		}
		cause, v = err, c.verdict(err)
	}
}

// replace ends the instance that failed.
func (c *cell) replace(x *Context, cause error, v verdict) {
	told := false
	defer func() {
		if !told { // OnRestart has ended its goroutine
			go c.after(x, func() bool { // owned by the cell, in place of this one
				c.endChildren(true)
				c.endInstance(errPanickedFirst)
				return c.supervise(x, cause, v, true)
			})
		}
	}()
	c.endSuspended() // first: what these handlers do, until they return, is the old instance's
	c.onRestart(x, cause)
	told = true
	c.endChildren(true)
	c.endInstance(errPanickedFirst)
}

// after goes on where code of the application has ended the actor's goroutine outside of a message, with step, which reports whether
// the actor goes on with its messages.
func (c *cell) after(x *Context, step func() bool) {
	c.bounds.mark()
	x.tag()
	if step() && c.work(x) {
		c.turns(x)
	}
}

// escalate makes the failure the parent's.
func (c *cell) escalate(cause error) {
	err := &EscalatedError{Child: Ref{cell: c}, Cause: cause}
	if p := c.parent(); p != nil {
		p.pushLane(escalation{err, c.extra.Load().parentEpoch})
		return
	}
	if f := c.g.cfg.OnEscalate; f != nil {
		c.guard("Config.OnEscalate", func() { f(err) })
		return
	}
	c.g.log.Error("nobody to escalate to: the actor has no parent, Config.OnEscalate is not set", "actor", c.id, "name", c.name, "err", cause)
}

// escalation is a child's failure in its parent's lane. It is no business of an instance that has never had the child.
type escalation struct {
	err   *EscalatedError
	epoch uint32 // of the parent
}

func (e escalation) run(x *Context) {
	if e.epoch != x.cell.epoch.Load() {
		return
	}
	if x.tap != nil {
		x.tap.escalated(x, e.err)
	}
	panic(e.err)
}

// hold leaves the actor without a goroutine for a while; messages wait, a stop does not.
func (c *cell) hold(x *Context, d time.Duration) {
	c.mu.Lock()
	c.returnLocked(x.batch[x.next:])
	c.worked += x.worked
	// running stays on: senders must not start a goroutine.
	c.more().held = c.g.clock.AfterFunc(d, c.wake)
	c.mu.Unlock()
	c.g.contexts.Put(x.clean())
}

// takeHeld reports whether the actor was held for a restart, and ends that.
func (c *cell) takeHeld() bool {
	x := c.extra.Load()
	if x == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	held := x.held != nil
	x.held = nil
	return held
}

// restart makes the next instance after a wait.
func (c *cell) restart(x *Context) bool {
	if c.over() {
		return true // turns sees it
	}
	err := c.instance(x)
	return err == nil || c.supervise(x, err, c.verdict(err), true)
}

// instance makes the next instance and starts it.
func (c *cell) instance(x *Context) error {
	returned := false
	defer func() {
		if !returned { // factory, Handlers or OnStart has ended its goroutine
			go c.after(x, func() bool { // owned by the cell, in place of this one
				c.failedInstance(errGoexit)
				return c.supervise(x, errGoexit, c.verdict(errGoexit), true)
			})
		}
	}()
	err := c.create()
	if err == nil {
		err = c.onStart(x)
	}
	returned = true
	if err != nil {
		c.failedInstance(err)
		return err
	}
	c.endTopics(false)
	c.g.cfg.Metrics.Restarts.Inc()
	c.g.log.Warn("actor restarted", "actor", c.id, "name", c.name)
	return nil
}

// failedInstance ends one that did not start.
func (c *cell) failedInstance(err error) {
	c.g.log.Error("actor did not restart", "actor", c.id, "name", c.name, "err", err)
	c.endChildren(true)
	c.endInstance(zmsg.ErrStopped)
}

// endInstance ends what belongs to the present instance: timers, watches, promised replies; continuations become stale.
func (c *cell) endInstance(err error) {
	c.endSuspended()
	c.epoch.Add(1)
	x := c.extra.Load()
	if x == nil {
		return
	}
	c.mu.Lock()
	owed := x.deferred
	x.deferred = nil
	c.mu.Unlock()
	x.seed, x.draws = 0, 0
	x.timers.endAll()
	for w := range x.watches {
		w.end()
	}
	x.watches = nil
	for d := range owed {
		d.end(err)
	}
}
