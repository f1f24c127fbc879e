package zactor

import (
	"errors"
	"fmt"
	"slices"

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
	if layers := c.g.cfg.Middleware; hasLayers(hs, layers) {
		if hs, err = layered(hs, layers, HandlerInfo{Actor: c.name, Type: c.typ(a)}); err != nil {
			return err
		}
	}
	if c.actor != nil && !slices.Equal(adverts(c.handlers), adverts(hs)) {
		return errors.New("zactor: the factory's new actor handles other messages than the one before")
	}
	c.mu.Lock()
	c.actor, c.handlers = a, hs
	c.mu.Unlock()
	if e := c.extra.Load(); e != nil && e.tap != nil {
		e.tap.created(c)
	}
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
			k := c.caught(v)
			err = fmt.Errorf("zactor: OnStart panicked: %v\n%s", v, k.stack)
			if x.tap != nil {
				x.tap.crashed(x, k)
			}
		}
		x.endTurn()
	}()
	x.it = x.nothing()
	if x.tap != nil {
		x.tap.started(x)
	}
	return s.OnStart(x)
}

// onStop runs the actor's stop hook, if it has one. A panic is logged.
func (c *cell) onStop(x *Context, why Reason) {
	if s, ok := c.actor.(Stopper); ok {
		c.lastHook(x, "OnStop", func() { s.OnStop(x, why) })
	}
}

// onRestart runs the failed instance's restart hook, if it has one. A panic is logged.
func (c *cell) onRestart(x *Context, cause error) {
	if r, ok := c.actor.(Restarter); ok {
		c.lastHook(x, "OnRestart", func() { r.OnRestart(x, cause) })
	}
}

// lastHook runs a hook of an instance that ends anyway.
func (c *cell) lastHook(x *Context, name string, f func()) {
	defer x.endTurn() // also after runtime.Goexit
	x.it = x.nothing()
	c.guard(name, f)
}

// terminate ends the actor: nobody finds it any more, what waits is answered, the children end, OnStop runs. Answers come
// first: a child may be waiting for one. cause, if not nil, becomes the parent's then.
func (c *cell) terminate(x *Context, cause error) {
	c.unannounce()
	c.endTopics(true)
	c.mu.Lock()
	c.closeLocked()
	in := c.emptyLocked()
	c.mu.Unlock()
	cut := c.discard(x.batch[x.next:]) + c.discard(in)
	c.endSuspended()
	x.batch, x.next = nil, 0
	c.endChildren(false)
	end := func() {
		c.finish(x, cut)
		if cause != nil {
			c.escalate(cause)
		}
	}
	stopped := false
	defer func() {
		if !stopped { // OnStop has ended its goroutine
			go end() // owned by the cell, in place of this one
		}
	}()
	c.onStop(x, c.reason())
	stopped = true
	end()
}

// finish takes the actor out of the group. OnStop has run, or there is nothing it could run for; cut messages have been
// answered without it.
func (c *cell) finish(x *Context, cut int) {
	why := c.reason()
	c.endInstance(&zmsg.Error{Code: zmsg.CodeStopped, Outcome: zmsg.Unknown, Text: "the actor stopped before it replied"})
	c.endTopics(true)
	c.mu.Lock()
	c.closeLocked()
	c.dead = true
	in := c.emptyLocked()
	c.spare = nil
	c.mu.Unlock()
	cut += c.discard(in)
	if e := c.extra.Load(); e != nil && e.parked != nil {
		e.parked.done(true)
		e.parked = nil
	}
	c.g.remove(c, why, cut)
	c.orphan()
	var watchers map[*watch]struct{}
	c.mu.Lock()
	c.removed = true
	if e := c.extra.Load(); e != nil {
		watchers, e.watchers, e.lane = e.watchers, nil, nil
		e.cut = cut
		if e.idle != nil {
			e.idle.Stop()
		}
		if e.cancel != nil {
			e.cancel(zmsg.ErrStopped)
		}
		if e.gone != nil {
			close(e.gone)
		}
	}
	c.mu.Unlock()
	for w := range watchers {
		w.down(why)
	}
	if x != nil {
		x.on.Store(nil)
		c.g.contexts.Put(x.clean())
	}
}

// discard answers what waits in a mailbox whose actor ends, and returns how many messages it was.
func (c *cell) discard(items []item) (messages int) {
	for i := range items {
		it := &items[i]
		switch it.kind {
		case itemMessage, itemTold:
			messages++
			c.drop(it, deadStopped, zmsg.ErrStopped)
		case itemDone:
			c.pending--
			c.endOutcome(it.value.(*future), it)
		case itemBarrier:
			it.value.(*barrier).done(true)
		case itemTurn:
			it.value.(*turnItem).drop(c)
		case itemFence:
			it.msg.ReplyError(zmsg.ErrStopped)
			it.msg.Release()
		case itemTimer, itemStop, itemGone:
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
	if err := routes.Register(c.id, c.typ(c.actor), Ref{cell: c}, ads); err != nil {
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
