package zactor

import (
	"context"
	"time"
)

// Clock is where a group takes the time from, and what it waits by: package time, or in tests a clock that is moved by hand
// (zactortest.Clock). Its methods may be called from any goroutine.
//
// A group measures with it: readings of Now must not be set back against each other. Those of package time carry a monotonic
// reading, so that a jump of the wall clock moves nothing; only Cron looks at the wall.
type Clock interface {
	// Now returns the present time.
	Now() time.Time
	// AfterFunc calls f once, d from now. It must not call f before it returns; f does not block.
	AfterFunc(d time.Duration, f func()) ClockTimer
}

// ClockTimer is one call that a Clock has been asked for; a *time.Timer of time.AfterFunc is one.
type ClockTimer interface {
	// Stop takes the call back. It reports false when the call was begun, or taken back, before.
	Stop() bool
	// Reset asks for the call d from now, in place of one that has not begun. It reports whether there was one.
	Reset(d time.Duration) bool
}

// realClock is package time. It has no fields and *time.Timer is a pointer: neither costs an allocation.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) ClockTimer { return time.AfterFunc(d, f) }

// virtual reports whether the group's clock is not that of package context, by which deadlines of callers are measured.
func (g *Group) virtual() bool {
	_, same := g.clock.(realClock)
	return !same
}

// until returns the deadline of a caller's context on the group's clock. A virtual clock has another idea of now: what is
// left of the time is what goes over.
func (g *Group) until(d time.Time) int64 {
	if g.virtual() {
		return g.futures.now() + int64(time.Until(d))
	}
	return int64(d.Sub(g.futures.base))
}

// withDeadline is context.WithDeadline for a time of the group's clock. Under a virtual clock the context names no deadline,
// because others would compare it with package time; it ends at it all the same, with the cause context.DeadlineExceeded.
func (g *Group) withDeadline(parent context.Context, d time.Time) (context.Context, context.CancelFunc) {
	if !g.virtual() {
		return context.WithDeadline(parent, d)
	}
	ctx, cancel := context.WithCancelCause(parent)
	t := g.clock.AfterFunc(d.Sub(g.clock.Now()), func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}
