package zrouter

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
)

// What an object does later. These go before the methods and functions of the same names of zactor, and do as they do; fn gets the object's
// Context as it is in that turn. The Context of the handler is over by then.

// in is the object's Context in a turn of its actor.
func (c *cell[S]) in(zc *zactor.Context) *Context[S] {
	c.ctx = Context[S]{zc, c}
	return &c.ctx
}

func (c *Context[S]) turn(fn func(c *Context[S])) func(*zactor.Context) {
	cell := c.cell
	return func(zc *zactor.Context) { fn(cell.in(zc)) }
}

// After is zactor.Context.After.
func (c *Context[S]) After(d time.Duration, fn func(c *Context[S])) zactor.Timer {
	return c.Context.After(d, c.turn(fn))
}

// AfterKey is zactor.Context.AfterKey.
func (c *Context[S]) AfterKey(key string, d time.Duration, fn func(c *Context[S])) zactor.Timer {
	return c.Context.AfterKey(key, d, c.turn(fn))
}

// Every is zactor.Context.Every.
func (c *Context[S]) Every(d time.Duration, fn func(c *Context[S])) zactor.Timer {
	return c.Context.Every(d, c.turn(fn))
}

// EveryKey is zactor.Context.EveryKey.
func (c *Context[S]) EveryKey(key string, d time.Duration, fn func(c *Context[S])) zactor.Timer {
	return c.Context.EveryKey(key, d, c.turn(fn))
}

// Cron is zactor.Context.Cron.
func (c *Context[S]) Cron(spec string, fn func(c *Context[S])) (zactor.Timer, error) {
	return c.Context.Cron(spec, c.turn(fn))
}

// Loop is zactor.Context.Loop.
func (c *Context[S]) Loop(hz int, step func(c *Context[S], t zactor.Tick), opts ...zactor.LoopOption) zactor.Timer {
	cell := c.cell
	return c.Context.Loop(hz, func(zc *zactor.Context, t zactor.Tick) { step(cell.in(zc), t) }, opts...)
}

// Watch is zactor.Context.Watch.
func (c *Context[S]) Watch(ref zactor.Ref, fn func(c *Context[S], d zactor.Down)) zactor.Watch {
	cell := c.cell
	return c.Context.Watch(ref, func(zc *zactor.Context, d zactor.Down) { fn(cell.in(zc), d) })
}

// Then is zactor.Then.
func Then[R, S any, PR message[R]](c *Context[S], to zactor.Ref, req proto.Message, fn func(c *Context[S], answer PR, err error)) {
	cell := c.cell
	zactor.Then(c.Context, to, req, func(zc *zactor.Context, answer PR, err error) { fn(cell.in(zc), answer, err) })
}

// Async is zactor.Async.
func Async[T, S any](c *Context[S], work func(ctx context.Context) (T, error), fn func(c *Context[S], result T, err error),
	opts ...zactor.AsyncOption,
) error {
	cell := c.cell
	return zactor.Async(c.Context, work, func(zc *zactor.Context, result T, err error) { fn(cell.in(zc), result, err) }, opts...)
}
