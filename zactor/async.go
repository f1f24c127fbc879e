package zactor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"zgame/zmsg"
)

// Async runs work off the actor, on a worker of the group, and then fn with its result in a turn of the actor; meanwhile the
// actor goes on with its messages. work must not touch the actor's state. Its context ends with the actor, and at the
// message's deadline if it has one.
//
// fn is called once, but not any more when the actor ends or restarts first. Its error is what work returned, or: an
// error that is zmsg.ErrPanicked where work panicked; ErrTimeout, not executed, where the deadline was over before a
// worker was free; ErrBusy, not executed, where newer work took the place in the queue (AsyncDropOldest); what a validator
// said (CheckWork, CheckThen).
//
// Errors, and then nothing runs: ErrBusy when the queue is full (AsyncReject), ErrStopped when the group has ended, one that
// names the pool where Config.AsyncPools has none of that name (OnPool).
func Async[T any](c *Context, work func(ctx context.Context) (T, error), fn func(c *Context, result T, err error), opts ...AsyncOption) error {
	j := &asyncJob[T]{work: work, fn: fn, err: errGoexit} // unless work comes back
	for _, o := range opts {
		o(&j.asyncOptions)
	}
	pool, err := c.cell.g.jobs.pool(j.pool)
	if err != nil && c.cell.g.replay == nil { // which runs no work
		return err
	}
	j.f = c.promise(j.then)
	j.token = j.f.arm(1<<63 - 1) // ends with the work, which has the deadline
	j.ctx, j.cancel = c.workContext()
	if c.tap != nil {
		err = c.tap.async(c, j.f, j.token, func() error { return c.cell.g.addJob(j, pool) })
	} else {
		err = c.cell.g.addJob(j, pool)
	}
	if err != nil {
		j.cancel()
		c.takeBack(j.f, j.token)
		return err
	}
	return nil
}

func (g *Group) addJob(j job, pool *jobs) error {
	if g.manual != nil {
		return g.manual.addJob(j, pool)
	}
	return pool.add(j)
}

// AsyncOption says more about one call of Async.
type AsyncOption func(*asyncOptions)

type asyncOptions struct {
	pool      string
	checkWork []func(ctx context.Context) error
	checkThen []func(c *Context) error
}

// CheckWork runs check on the worker right before the work, which may have waited long: with an error the work does not
// run, and fn gets it. It gets the work's context, must not touch the actor's state, and may panic like the work.
// Several run in their order.
func CheckWork(check func(ctx context.Context) error) AsyncOption {
	return func(o *asyncOptions) { o.checkWork = append(o.checkWork, check) }
}

// CheckThen runs check in the actor's turn right before fn, where the work went well: is the result still of use? With an
// error, or a panic, fn gets that and the zero result. Several run in their order.
func CheckThen(check func(c *Context) error) AsyncOption {
	return func(o *asyncOptions) { o.checkThen = append(o.checkThen, check) }
}

// OnPool runs the work on a pool of Config.AsyncPools, so that slow work of one kind does not keep other work waiting.
func OnPool(name string) AsyncOption { return func(o *asyncOptions) { o.pool = name } }

// asyncJob is one call of Async. What it holds goes from the actor to a worker and back, by the pool's lock and the mailbox.
type asyncJob[T any] struct {
	asyncOptions
	work   func(ctx context.Context) (T, error)
	fn     func(c *Context, result T, err error)
	ctx    context.Context //nolint:containedctx // the work's
	cancel context.CancelFunc
	f      *future
	token  uint64

	result T
	err    error
}

// run does the work, on a worker.
func (j *asyncJob[T]) run() {
	defer j.end() // also after runtime.Goexit
	defer caughtAs(&j.err)
	err := overtaken(j.ctx)
	if err == nil {
		err = checkAll(j.checkWork, j.ctx)
	}
	if err != nil {
		j.err = err
		return
	}
	j.result, j.err = j.work(j.ctx)
}

// drop ends the job without the work.
func (j *asyncJob[T]) drop(err error) {
	j.err = err
	j.end()
}

func (j *asyncJob[T]) end() {
	j.cancel()
	j.f.Reply(j.token, &zmsg.Reply{})
}

// then runs in the actor's turn.
func (j *asyncJob[T]) then(c *Context, _ *zmsg.Reply) {
	if c.tap != nil {
		c.tap.result(c, &j.result, &j.err)
	}
	if j.err == nil {
		if j.err = checkAll(j.checkThen, c); j.err != nil {
			var none T
			j.result = none
		}
	}
	j.fn(c, j.result, j.err)
}

// checkAll runs the checks up to the first that has an error; a panic is one.
func checkAll[A any](checks []func(A) error, a A) (err error) {
	if len(checks) == 0 {
		return nil
	}
	defer caughtAs(&err)
	for _, check := range checks {
		if err := check(a); err != nil {
			return err
		}
	}
	return nil
}

// caughtAs is deferred: it ends a panic and makes it an error.
func caughtAs(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%w: %v\n%s", zmsg.ErrPanicked, v, debug.Stack())
	}
}

var errOverdue error = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.NotExecuted, Text: "the deadline was over before the work began"}

// overtaken says why work need not begin any more: nobody is left who would have its result.
func overtaken(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return errOverdue
	default:
		return context.Cause(ctx) // the actor has ended
	}
}

func (c *Context) workContext() (context.Context, context.CancelFunc) {
	ctx, cancel, _ := c.askedContext(c.cell.life())
	return ctx, cancel
}

// takeBack undoes a promise that was armed with the token and that nobody keeps.
func (c *Context) takeBack(f *future, token uint64) {
	f.close(token)
	if f.head != nil {
		f.head.Release()
	}
	f.put()
	c.cell.pending--
}
