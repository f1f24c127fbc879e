package zactor

import (
	"errors"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// measureEvery is of how many one-way messages one is timed: two readings of the clock and a histogram cost more than the
// message (2 x 30 ns and 35 ns; a tell takes 60).
const measureEvery = 32

// Measure is Middleware that counts the handler's messages by result (ok, deferred, or the code that whoever asked learns)
// and observes how long it ran: for each request, and for one in 32 one-way messages of each actor, the first included.
// What runs later, by Then, Async or Defer, is not in it.
//
// The metrics are labelled with the full name of the message.
func Measure(m *zmetrics.Handlers) Middleware {
	base := time.Now() // real time, whatever the group's clock; time.Since takes two thirds of time.Now
	return func(h HandlerInfo, next Func) Func {
		k := m.Of(h.Name)
		n := uint32(0)
		return func(c *Context) (err error) {
			begun := time.Duration(-1)
			if n%measureEvery == 0 || c.wants() {
				begun = time.Since(base)
			}
			n++
			returned := false
			defer func() {
				switch {
				case !returned: // a panic
					k.Result(zmsg.CodePanicked.String())
				case err == nil:
					k.OK()
				default:
					k.Result(resultOf(err))
				}
				if begun >= 0 {
					k.Seconds.Observe((time.Since(base) - begun).Seconds())
				}
			}()
			err = next(c)
			returned = true
			return err
		}
	}
}

// resultOf names how a handler ended, fit for a label.
func resultOf(err error) string {
	switch {
	case err == nil:
		return zmsg.CodeOK.String()
	case errors.Is(err, ErrDeferred):
		return "deferred"
	default:
		r := handlerReply(err)
		return r.Code.String()
	}
}
