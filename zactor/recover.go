package zactor

import (
	"fmt"
	"runtime/debug"
)

// Recover is Middleware that ends a panic in the handler: whoever asked learns CodePanicked (Outcome Unknown), the log
// gets one line a second with the stack, and the actor goes on as it is, without restart. So it is for handlers that leave the
// state in order when they panic; where that is not sure, a restart is the better answer. Layers outside of it
// see the error. A reply that the handler has taken by Defer stays with whoever has it.
func Recover() Middleware {
	return func(h HandlerInfo, next Func) Func {
		return func(c *Context) (err error) {
			returned := false
			defer func() {
				if returned {
					return
				}
				if v := recover(); v != nil { // else runtime.Goexit, which nothing ends
					c.recovered(h, v)
					err = errHandlerPanicked
				}
			}()
			err = next(c)
			returned = true
			return err
		}
	}
}

// recovered counts and logs a panic that does not restart the actor; clients may be able to cause it again and again.
func (c *Context) recovered(h HandlerInfo, v any) {
	c.deferred = nil // its reply stays with whoever has it
	g := c.cell.g
	g.cfg.Metrics.Panics.Inc()
	if suppressed, ok := g.panicLog.Allow(c.batchTime()); ok {
		g.log.Error("handler panicked", "actor", c.cell.id, "name", c.cell.name, "msg_id", h.ID, "msg", h.Name,
			"trace", c.Trace().String(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()), "suppressed", suppressed)
	}
}
