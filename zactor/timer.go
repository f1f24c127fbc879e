package zactor

import (
	"sync"
	"sync/atomic"
	"time"
)

// Timer is a timer of an actor. It ends with the actor's instance.
type Timer struct{ t *timer }

type timer struct {
	c      *cell
	epoch  uint32
	period time.Duration // 0: once
	fn     func(c *Context)

	mu      sync.Mutex  // orders the first tick behind the making of t
	t       ClockTimer  // guarded by mu
	waiting atomic.Bool // a tick is in the mailbox
	ended   atomic.Bool
}

// After runs fn once, in a turn of the actor, after d.
func (c *Context) After(d time.Duration, fn func(c *Context)) Timer { return c.timer(d, 0, fn) }

// Every runs fn in a turn of the actor each time d has passed. A tick that comes while the one before still waits is left
// out and counted: a slow actor does not pile them up.
func (c *Context) Every(d time.Duration, fn func(c *Context)) Timer {
	if d <= 0 {
		panic("zactor: Every needs a positive duration")
	}
	return c.timer(d, d, fn)
}

func (c *Context) timer(d, period time.Duration, fn func(c *Context)) Timer {
	t := &timer{c: c.cell, epoch: c.cell.epoch, period: period, fn: fn}
	x := c.cell.more()
	if x.timers == nil {
		x.timers = make(map[*timer]struct{})
	}
	x.timers[t] = struct{}{}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t = c.cell.g.clock.AfterFunc(d, t.fire)
	return Timer{t}
}

// Stop ends the timer: fn does not run any more. It is called in a turn of the actor.
func (t Timer) Stop() {
	if t.t == nil {
		return
	}
	t.t.end()
	if x := t.t.c.extra.Load(); x != nil {
		delete(x.timers, t.t)
	}
}

func (t *timer) end() {
	t.ended.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Stop()
}

// fire runs on a goroutine of the runtime.
func (t *timer) fire() {
	t.mu.Lock()
	ended := t.ended.Load() || t.c.g.draining.Load()
	if !ended && t.period > 0 {
		t.t.Reset(t.period) // under mu: end stops it after this, or is seen
	}
	t.mu.Unlock()
	if ended {
		return
	}
	g := t.c.g
	if !t.waiting.CompareAndSwap(false, true) {
		g.cfg.Metrics.TimerSkips.Inc()
		return
	}
	_ = t.c.pushControl(&item{kind: itemTimer, value: t}) // refused by an actor that has ended: so has the timer
}

// turn runs fn in the actor's turn.
func (t *timer) turn(c *Context) {
	t.waiting.Store(false)
	if t.ended.Load() || t.epoch != c.cell.epoch {
		return
	}
	if t.period == 0 {
		t.ended.Store(true)
		delete(c.cell.more().timers, t)
	}
	t.fn(c)
}
