package zactor

import (
	"errors"
	"fmt"
)

// Func handles a message: a handler, or middleware around one. An error that the outermost one returns is told to whoever
// asked (see Context), once; nil answers a request that has no answer yet with an empty OK.
type Func func(c *Context) error

// Middleware puts code around a handler. It is called when an actor's table of handlers is made: once for each handler of
// each instance, before OnStart, never for a message. So what it makes then (a counter, a bucket) belongs to that actor
// and handler, needs no lock, and is made anew after a restart; what many actors share it makes outside. Middleware that has
// nothing to do for a handler returns next, and costs nothing; three layers cost an actor about 220 bytes for each handler.
//
//	func audit(h zactor.HandlerInfo, next zactor.Func) zactor.Func {
//		if !h.Client {
//			return next
//		}
//		return func(c *zactor.Context) error {
//			err := next(c)
//			log.Info("client message", "msg", h.Name, "user", c.User(), "err", err)
//			return err
//		}
//	}
//
// The Func that it returns runs in the actor's turn, like the handler, and may do what a handler may: turn the message down
// with an error (wrapped by NotRun, since next did not run), Defer, keep next from running. A panic in it is the actor's.
//
// It sees that the handler has returned, not more: next returns ErrDeferred (or nil) where the reply comes later, by
// Defer; what Then, Async and timers run later goes through no middleware. When next has returned nil the answer of a
// typed handler (Handle) has been given already: an error instead is counted, and logged if it has no code, but reaches nobody.
// A message that does not parse as its type fails within next. Where next waits in Call, a reentrant actor (Reentrant) handles
// other messages meanwhile, still one at a time.
type Middleware func(h HandlerInfo, next Func) Func

// HandlerInfo tells middleware what it is put around.
type HandlerInfo struct {
	ID     uint32 // message id
	Name   string // full name of the message; "message ID" for HandleRaw
	Client bool   // clients may call the handler
	Actor  string // name of the actor, "" if it has none
	Type   string // type of the actor, see WithType
}

// With puts middleware around this handler, the first outermost; Config.Middleware is around it.
func With(mw ...Middleware) HandlerOption {
	return func(o *handlerOptions) { o.layers = append(o.layers, mw...) }
}

// hasLayers reports whether there is middleware for a handler of hs.
func hasLayers(hs []Handler, group []Middleware) bool {
	if len(group) > 0 {
		return len(hs) > 0
	}
	for i := range hs {
		if hs[i].opts.layers != nil {
			return true
		}
	}
	return false
}

// layered returns hs with middleware around each handler. It leaves hs alone: actors may share it.
//
// There is no cache for factories that give each actor the same handlers: what middleware keeps for one actor must not be
// another's, whatever the factory does.
func layered(hs []Handler, group []Middleware, info HandlerInfo) ([]Handler, error) {
	out := make([]Handler, len(hs))
	var errs []error
	for i, h := range hs {
		info.ID, info.Name, info.Client = h.types.id, h.types.name, h.has(fromClients)
		for n := len(group) + len(h.opts.layers) - 1; n >= 0; n-- {
			var mw Middleware
			if own := n - len(group); own >= 0 {
				mw = h.opts.layers[own]
			} else {
				mw = group[n]
			}
			if mw != nil {
				h.call = mw(info, h.call)
			}
			if mw == nil || h.call == nil {
				errs = append(errs, fmt.Errorf("zactor: middleware %d of the handler of %s is nil, or returned nil: want a Func", n, info.Name))
				break
			}
		}
		out[i] = h
	}
	return out, errors.Join(errs...)
}
