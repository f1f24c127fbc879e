package zactor

import (
	"fmt"

	"zgame/zmsg"
)

// create makes an instance and its table of handlers. A panic of the factory becomes an error.
func (c *cell) create() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("zactor: factory panicked: %v\n%s", v, c.caught(v).stack)
		}
	}()
	a := c.factory()
	if a == nil {
		return fmt.Errorf("zactor: factory of %q returned no actor", c.name)
	}
	hs, err := handlerTable(a.Handlers())
	if err != nil {
		return err
	}
	c.actor = a
	c.mu.Lock()
	c.handlers = hs
	c.mu.Unlock()
	return nil
}

// onStart runs the actor's start hook, if it has one. A panic becomes an error.
func (c *cell) onStart(x *Context) (err error) {
	s, ok := c.actor.(Starter)
	if !ok {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			c.g.cfg.Metrics.Panics.Inc()
			err = fmt.Errorf("zactor: OnStart panicked: %v\n%s", v, c.caught(v).stack)
		}
		x.endTurn()
	}()
	x.it = new(item)
	return s.OnStart(x)
}

// onStop runs the actor's stop hook, if it has one. A panic is logged.
func (c *cell) onStop(x *Context, why Reason) {
	s, ok := c.actor.(Stopper)
	if !ok {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.g.cfg.Metrics.Panics.Inc()
			c.g.log.Error("actor panicked in OnStop", "actor", c.id, "name", c.name, "panic", fmt.Sprint(v), "stack", string(c.caught(v).stack))
		}
		x.endTurn()
	}()
	x.it = new(item)
	s.OnStop(x, why)
}

// terminate ends the actor: nobody finds it any more, OnStop runs, what waits is answered. rest is what is left of the
// batch.
func (c *cell) terminate(x *Context, rest []item) {
	why := Reason(c.halt.Load())
	c.unannounce()
	c.mu.Lock()
	c.closed = zmsg.ErrStopped
	c.mu.Unlock()
	c.onStop(x, why)
	c.finish(x, rest, why)
}

// finish takes the actor out of the group. OnStop has run, or there is nothing it could run for.
func (c *cell) finish(x *Context, rest []item, why Reason) {
	c.endInstance(&zmsg.Error{Code: zmsg.CodeStopped, Outcome: zmsg.Unknown, Text: "the actor stopped before it replied"})
	c.mu.Lock()
	c.closed, c.dead = zmsg.ErrStopped, true
	in := c.in
	c.in, c.spare, c.batch, c.taken = nil, nil, 0, nil
	c.mu.Unlock()
	cut := c.discard(rest) + c.discard(in)
	if e := c.extra.Load(); e != nil && e.parked != nil {
		e.parked.done(true)
		e.parked = nil
	}
	c.g.remove(c, why, cut)
	c.mu.Lock()
	c.removed = true
	if e := c.extra.Load(); e != nil {
		if e.cancel != nil {
			e.cancel(zmsg.ErrStopped)
		}
		if e.gone != nil {
			close(e.gone)
		}
	}
	c.mu.Unlock()
	if x != nil {
		c.g.contexts.Put(x.clean())
	}
}

// discard answers what waits in a mailbox whose actor ends, and returns how many messages it was.
func (c *cell) discard(items []item) (messages int) {
	for i := range items {
		it := &items[i]
		switch it.kind {
		case itemMessage:
			messages++
			c.drop(it, deadStopped, zmsg.ErrStopped)
		case itemDone:
			c.pending--
			c.endOutcome(it.value.(*future), it)
		case itemBarrier:
			it.value.(*barrier).done(true)
		case itemTimer, itemStop:
		}
	}
	clear(items)
	return messages
}

// announce tells the routes what the actor handles.
func (c *cell) announce() error {
	routes := c.g.cfg.Routes
	if routes == nil || c.opts != nil && c.opts.private {
		return nil
	}
	ads := adverts(c.handlers)
	if len(ads) == 0 {
		return nil
	}
	if err := routes.Register(c.id, c.typ(), Ref{cell: c}, ads); err != nil {
		return fmt.Errorf("zactor: announcing %q: %w", c.name, err)
	}
	c.announced.Store(true)
	return nil
}

func (c *cell) unannounce() {
	if c.announced.CompareAndSwap(true, false) {
		c.g.cfg.Routes.Unregister(c.id)
	}
}
