package zactor

import (
	"math"
	"time"

	"zgame/zmsg"
)

var errRateLimited = NotRun(&zmsg.Error{Code: zmsg.CodeRateLimited, Outcome: zmsg.NotExecuted, Text: "too many requests"})

// Limit is Middleware that lets rate messages a second of one id through to one actor, and burst at once after a pause.
// One above is turned down: CodeRateLimited, not executed, fit to be sent again, and counted under that code among the errors
// of handlers. What gates tell of sessions (zmsg.SessionEvent) always passes.
//
// It panics where rate is not above 0 or burst is below 1: that is a mistake of whoever wrote it down.
func Limit(rate float64, burst int) Middleware {
	if !(rate > 0) || math.IsInf(rate, 1) || burst < 1 {
		panic("zactor: Limit wants a rate above 0 and a burst of at least 1")
	}
	return func(h HandlerInfo, next Func) Func {
		if zmsg.SessionEvent(h.ID) {
			return next
		}
		b := &bucket{tokens: float64(burst)}
		return func(c *Context) error {
			if b.take(c.batchTime(), rate, burst) {
				return next(c)
			}
			// The batch's time stands still while the messages before this one are handled: look at the clock before
			// saying no.
			c.now = time.Time{}
			if b.take(c.batchTime(), rate, burst) {
				return next(c)
			}
			return errRateLimited
		}
	}
}

// bucket is a token bucket, owned by the actor's turn. golang.org/x/time/rate does the same with a mutex for each message
// and 80 bytes for each actor and handler; this has 32 and none.
type bucket struct {
	tokens float64
	last   time.Time // when tokens was right; zero before the first message
}

// take takes a token at now, if there is one. Time that goes back adds nothing.
func (b *bucket) take(now time.Time, rate float64, burst int) bool {
	if d := now.Sub(b.last); d > 0 {
		if !b.last.IsZero() {
			b.tokens = min(float64(burst), b.tokens+d.Seconds()*rate)
		}
		b.last = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
