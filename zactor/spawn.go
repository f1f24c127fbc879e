package zactor

import (
	"errors"
	"fmt"

	"zgame/zmsg"
)

// SpawnOption says more about an actor.
type SpawnOption func(*spawnOptions)

type spawnOptions struct {
	mailbox int
	policy  *Policy
	typ     string
	private bool
}

// WithMailbox is how many messages may wait for the actor; the next is refused with ErrBusy.
func WithMailbox(n int) SpawnOption { return func(o *spawnOptions) { o.mailbox = n } }

// WithRestart is what happens when the actor panics.
func WithRestart(p Policy) SpawnOption {
	return func(o *spawnOptions) {
		p = p.withDefaults()
		o.policy = &p
	}
}

// WithType names the actor's type for discovery. Defaults to its Go type.
func WithType(typ string) SpawnOption { return func(o *spawnOptions) { o.typ = typ } }

// Private keeps the actor out of the routes: only who has its ref or address can send to it. For actors of which there
// are many, like the rooms of a service.
func Private() SpawnOption { return func(o *spawnOptions) { o.private = true } }

// Spawn makes an actor, starts it on the caller's goroutine (factory, Handlers, OnStart) and announces its handlers.
// Messages sent to it meanwhile wait. The factory is called again for each restart. A name may be used by one actor at a
// time; the empty name is no name.
//
// Errors: ErrExists, ErrClosed, what is wrong with the handlers, what OnStart returned or panicked with.
func (g *Group) Spawn(name string, factory func() Actor, opts ...SpawnOption) (Ref, error) {
	return g.spawn(nil, name, factory, opts)
}

func (g *Group) spawn(parent *cell, name string, factory func() Actor, opts []SpawnOption) (Ref, error) {
	c := &cell{g: g, name: name, factory: factory}
	c.limit = int32(g.cfg.Mailbox)
	if len(opts) > 0 {
		c.opts = new(spawnOptions)
		for _, o := range opts {
			o(c.opts)
		}
		if err := c.opts.validate(); err != nil {
			return Ref{}, err
		}
		if n := c.opts.mailbox; n > 0 {
			c.limit = int32(n)
		}
	}
	c.run = c.loop
	c.running = true // until it has started: senders must not start the goroutine
	if err := g.add(c, parent); err != nil {
		return Ref{}, err
	}
	if err := c.start(); err != nil {
		return Ref{}, fmt.Errorf("zactor: starting %q: %w", name, err)
	}
	return Ref{cell: c}, nil
}

func (o *spawnOptions) validate() error {
	var errs []error
	if o.mailbox < 0 || o.mailbox > maxMailbox {
		errs = append(errs, fmt.Errorf("zactor: WithMailbox(%d): want 1 to %d", o.mailbox, maxMailbox))
	}
	if o.policy != nil {
		errs = append(errs, o.policy.validate())
	}
	return errors.Join(errs...)
}

// add makes c known under its name and a new id.
func (g *Group) add(c, parent *cell) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining.Load() {
		return ErrClosed
	}
	if c.name != "" {
		if _, there := g.names[c.name]; there {
			return fmt.Errorf("%w: %q", ErrExists, c.name)
		}
		g.names[c.name] = c
	}
	if parent != nil && !c.adopt(parent) {
		if c.name != "" {
			delete(g.names, c.name)
		}
		return zmsg.ErrStopped
	}
	g.table.add(c)
	g.live++
	g.cfg.Metrics.Actors.Inc()
	return nil
}

// start brings a new actor to life.
func (c *cell) start() (err error) {
	var x *Context
	started, over := false, false
	defer func() {
		switch {
		case started:
		case over || err != nil:
		default:
			err = errGoexit // OnStart ended the caller's goroutine
		}
		if !started {
			c.halt(StopFailed)
			c.endChildren(x, true)
			c.finish(x, 0)
		}
	}()
	if err := c.create(); err != nil {
		over = true
		return err
	}
	if _, ok := c.actor.(Starter); ok {
		x = c.g.contexts.Get().(*Context)
		x.cell = c
		if err := c.onStart(x); err != nil {
			over = true
			return err
		}
		c.g.contexts.Put(x.clean())
		x = nil
	}
	if err := c.announce(); err != nil {
		over = true
		x = c.g.contexts.Get().(*Context)
		x.cell = c
		c.onStop(x, StopFailed)
		return err
	}
	started = true
	c.g.cfg.Metrics.Spawned.Inc()
	c.mu.Lock()
	work := len(c.in) > 0 || c.signal.Load() != 0
	c.running = work
	c.mu.Unlock()
	if work {
		c.wake()
	}
	return nil
}

// Stop asks an actor of this group to stop after its current message: OnStop runs, messages that wait are answered with
// ErrStopped. It does not wait, see StopWait, and may be called from the actor itself. Stopping twice is no fault.
// Errors: ErrUnknownActor for a ref that names no actor of this group, or none any more.
func (g *Group) Stop(ref Ref) error {
	c := ref.cell
	if c == nil || c.g != g || g.table.get(c.id) != c {
		return zmsg.ErrUnknownActor
	}
	c.stop(StopRequested)
	return nil
}

// StopDrained asks an actor to stop when it has handled what waits now. Errors as Stop.
func (g *Group) StopDrained(ref Ref) error {
	c := ref.cell
	if c == nil || c.g != g || g.table.get(c.id) != c {
		return zmsg.ErrUnknownActor
	}
	c.mu.Lock()
	if c.closed == nil {
		c.closed = zmsg.ErrStopped
	}
	c.mu.Unlock()
	c.unannounce()
	_ = c.pushControl(&item{kind: itemStop}) // refused by an actor that has ended meanwhile: that is what was wanted
	return nil
}
