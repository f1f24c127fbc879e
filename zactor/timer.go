package zactor

import "time"

// Timer is a timer of an actor: a handle, small and comparable. It ends with the actor's instance; the zero Timer is one that
// has ended. Its methods are called in a turn of the actor, as those of Context that make timers are.
type Timer struct {
	t   *timer
	gen uint64
}

// After runs fn once, in a turn of the actor, after d.
func (c *Context) After(d time.Duration, fn func(c *Context)) Timer { return c.once("", false, d, fn) }

// AfterKey is After under a key: a timer that the actor has under the same key ends first. A handler that puts off a
// deadline again and again needs no handle for it.
func (c *Context) AfterKey(key string, d time.Duration, fn func(c *Context)) Timer {
	return c.once(key, true, d, fn)
}

// Every runs fn in a turn of the actor each time d has passed, the first time d from now. It does not drift: the n-th tick
// is due n*d from now however long fn takes. A tick that falls due while the one before still waits for its turn is left
// out and counted (Timer.Skipped, the metric timer_skips_total): a slow actor does not pile them up, and what it has missed
// does not come in a burst. It panics when d is not positive.
func (c *Context) Every(d time.Duration, fn func(c *Context)) Timer {
	return c.repeated("", false, d, fn)
}

// EveryKey is Every under a key, see AfterKey.
func (c *Context) EveryKey(key string, d time.Duration, fn func(c *Context)) Timer {
	return c.repeated(key, true, d, fn)
}

// StopKey ends the timer that the actor has under the key. It reports whether there was one.
func (c *Context) StopKey(key string) bool {
	x := c.cell.extra.Load()
	if x == nil {
		return false
	}
	t := x.timers.keys[key]
	if t == nil {
		return false
	}
	x.timers.end(t)
	return true
}

// Stop ends the timer: its function does not run any more. It reports whether there was something to end; a Timer that has
// run for the last time, or was stopped before, is left alone, and so is whatever came after it.
func (t Timer) Stop() bool {
	c := t.owner()
	if c == nil {
		return false
	}
	c.extra.Load().timers.end(t.t)
	return true
}

// Skipped returns how many ticks, times or steps the timer has left out so far, 0 once it has ended.
func (t Timer) Skipped() uint64 {
	if t.owner() == nil {
		return 0
	}
	return t.t.skipped
}

// owner returns the cell whose timer this is, nil when it has ended.
func (t Timer) owner() *cell {
	if t.t == nil {
		return nil
	}
	t.t.mu.Lock()
	defer t.t.mu.Unlock()
	if t.t.gen != t.gen {
		return nil
	}
	return t.t.cell
}

func (c *Context) once(key string, keyed bool, d time.Duration, fn func(c *Context)) Timer {
	t := c.newTimer(key, keyed)
	t.fn = fn
	return t.arm(d)
}

func (c *Context) repeated(key string, keyed bool, d time.Duration, fn func(c *Context)) Timer {
	if d <= 0 {
		panic("zactor: Every needs a positive duration")
	}
	t := c.newTimer(key, keyed)
	t.fn, t.period, t.due = fn, d, c.cell.g.futures.now()+int64(d)
	return t.arm(d)
}

// newTimer returns a timer of the actor that is not armed yet.
func (c *Context) newTimer(key string, keyed bool) *timer {
	t := c.cell.g.timers.get(c.cell)
	c.cell.more().timers.add(t, key, keyed)
	if c.tap != nil {
		t.op = c.tap.timer(c)
	}
	return t
}

// turn is what a tick of the generation does in the actor's turn. What goes on is armed again before its function runs: so
// it lasts when that panics and the actor is resumed, and what takes long delays no later tick.
func (t *timer) turn(c *Context, gen uint64) {
	if (Timer{t, gen}).owner() == nil {
		return // ended while its tick was in the mailbox
	}
	if c.tap != nil {
		c.tap.tick(c, t)
	}
	switch {
	case t.loop != nil:
		t.loop.turn(c, t, gen)
	case t.cron != nil:
		t.cron.turn(c, t)
	case t.period > 0:
		now := t.now()
		t.skip(missed(now-t.due, t.period))
		t.due = nextDue(now, t.due, t.period)
		fn := t.fn
		t.again(time.Duration(t.due - now))
		fn(c)
	default:
		fn := t.fn
		c.cell.extra.Load().timers.end(t) // fn may use it for its next timer
		fn(c)
	}
}

// missed returns how many further ticks have fallen due since the one that is late by so many nanoseconds.
func missed(late int64, period time.Duration) uint64 { return uint64(max(0, late/int64(period))) }

// nextDue returns the due time after now, in the grid of due and period.
func nextDue(now, due int64, period time.Duration) int64 {
	return due + int64(missed(now-due, period)+1)*int64(period)
}
