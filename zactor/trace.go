package zactor

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"time"

	"zgame/zmsg"
)

// Trace is Middleware that starts a trace where the message is not part of one yet: what the handler sends carries its id
// on (see Context.Trace), also what it sends later by Then and Async. When the handler has returned it logs one line at
// level Debug: message, trace, duration, result (ok, deferred or the code). log defaults to the group's logger.
func Trace(log *slog.Logger) Middleware {
	return func(h HandlerInfo, next Func) Func {
		half, count := rand.Uint64(), rand.Uint64() // of the ids that are made here
		return func(c *Context) error {
			start := c.Trace().IsZero()
			if start {
				count++
				c.startTrace(half, count)
			}
			log := log
			if log == nil {
				log = c.cell.g.log
			}
			var err error
			if log.Enabled(context.Background(), slog.LevelDebug) {
				err = traced(c, h, next, log)
			} else {
				err = next(c)
			}
			switch {
			case !start:
			case err == nil:
				c.trace = zmsg.Trace{}
			default:
				c.used = true // the end of the turn takes it away, when the error has been logged
			}
			return err
		}
	}
}

// traced calls next and logs how that went.
func traced(c *Context, h HandlerInfo, next Func, log *slog.Logger) error {
	trace, begun := c.Trace().String(), time.Now()
	err := next(c)
	log.LogAttrs(context.Background(), slog.LevelDebug, "message handled",
		slog.Uint64("actor", c.cell.id), slog.String("name", c.cell.name),
		slog.Uint64("msg_id", uint64(h.ID)), slog.String("msg", h.Name), slog.String("trace", trace),
		slog.Duration("duration", time.Since(begun)), slog.String("result", resultOf(err)))
	return err
}

// startTrace makes the message of this turn the first of a trace.
func (c *Context) startTrace(half, count uint64) {
	id := &c.trace.ID // written in place: to copy what has just been written in halves makes the processor wait
	if c.it.msg != nil {
		id = &c.it.msg.Trace.ID
	}
	binary.LittleEndian.PutUint64(id[:], half|1) // zero means none
	binary.LittleEndian.PutUint64(id[8:], count)
}
