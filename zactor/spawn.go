package zactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zgame/zmsg"
)

// SpawnOption says more about an actor.
type SpawnOption func(*spawnOptions)

type spawnOptions struct {
	mailbox   int
	bytes     *int
	overflow  *Overflow
	policy    *Policy
	typ       string
	private   bool
	reentrant bool
	recorder  *RecorderOptions
	idle      time.Duration
	until     func() time.Time
}

// WithMailbox is how many messages may wait for the actor, 1 to 268,435,456. Defaults to Config.Mailbox. What happens to the next
// says WithOverflow.
func WithMailbox(n int) SpawnOption { return func(o *spawnOptions) { o.mailbox = n } }

// WithMailboxBytes is how many bytes of messages may wait for the actor, as well as how many messages: their encoded size,
// rounded up to 256 bytes each. A message that is larger than n is taken when no other waits. 0 is no bound by bytes.
func WithMailboxBytes(n int) SpawnOption { return func(o *spawnOptions) { o.bytes = &n } }

// WithOverflow is what happens to a message when the mailbox is full. Defaults to Config.Overflow.
func WithOverflow(v Overflow) SpawnOption { return func(o *spawnOptions) { o.overflow = &v } }

// WithPolicy is what happens when the actor panics. Defaults to Config.Policy.
func WithPolicy(p Policy) SpawnOption {
	p = p.withDefaults()
	return func(o *spawnOptions) { o.policy = &p } // shared by the actors: nobody writes it
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
// Errors: ErrExists, ErrClosed, what is wrong with the options or the handlers, what OnStart returned or panicked with.
func (g *Group) Spawn(name string, factory func() Actor, opts ...SpawnOption) (Ref, error) {
	return g.spawn(nil, name, factory, opts)
}

func (g *Group) spawn(parent *cell, name string, factory func() Actor, opts []SpawnOption) (Ref, error) {
	if p := g.replay; p != nil && p.tapped && parent == nil {
		p.note("spawn %s", name)
		return p.named(name), nil // by a handler, past its Context
	}
	ref, _, err := g.trySpawn(parent, name, factory, opts)
	return ref, err
}

// trySpawn is spawn; taken says that the name is in use.
func (g *Group) trySpawn(parent *cell, name string, factory func() Actor, opts []SpawnOption) (ref Ref, taken bool, err error) {
	c := &cell{g: g, name: name, factory: factory}
	limit, bytes, overflow := g.cfg.Mailbox, g.cfg.MailboxBytes, g.cfg.Overflow
	if len(opts) > 0 {
		c.opts = new(spawnOptions)
		for _, o := range opts {
			o(c.opts)
		}
		if err := c.opts.validate(); err != nil {
			return Ref{}, false, err
		}
		if n := c.opts.mailbox; n > 0 {
			limit = n
		}
		if p := c.opts.bytes; p != nil {
			bytes = *p
		}
		if p := c.opts.overflow; p != nil {
			overflow = *p
		}
	}
	if c.bounds = newBounds(overflow, limit, bytes); c.bounds == nil {
		c.limit = int32(limit)
	}
	if t := g.tapFor(c); t != nil {
		c.more().tap = t
	}
	if c.opts != nil && c.opts.until != nil {
		c.signal.Store(signalUntil)
	}
	c.run = c.loop
	c.running = true // until it has started: senders must not start the goroutine
	if err := g.add(c, parent); err != nil {
		return Ref{}, errors.Is(err, ErrExists), err
	}
	if err := c.start(); err != nil {
		return Ref{}, false, fmt.Errorf("zactor: starting %q: %w", name, err)
	}
	return Ref{cell: c}, false, nil
}

func (o *spawnOptions) validate() error {
	var errs []error
	if o.mailbox < 0 || o.mailbox > maxMailbox {
		errs = append(errs, fmt.Errorf("zactor: WithMailbox(%d): want 1 to %d", o.mailbox, maxMailbox))
	}
	if o.idle < 0 {
		errs = append(errs, fmt.Errorf("zactor: WithIdle(%v): want a positive duration", o.idle))
	}
	if o.bytes != nil {
		errs = append(errs, validateBytes("WithMailboxBytes", *o.bytes))
	}
	if o.overflow != nil {
		errs = append(errs, o.overflow.validate("WithOverflow"))
	}
	if o.recorder != nil {
		errs = append(errs, o.recorder.validate())
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
			c.endChildren(true)
			c.finish(x, 0)
		}
	}()
	if c.opts != nil && c.opts.until != nil && c.over() {
		over = true
		return zmsg.ErrStopped
	}
	if err := c.create(); err != nil {
		over = true
		return err
	}
	if _, ok := c.actor.(Starter); ok {
		x = c.g.borrow(c)
		c.bounds.mark()
		if err := c.onStart(x); err != nil {
			over = true
			return err
		}
		c.bounds.unmark()
		c.g.contexts.Put(x.clean())
		x = nil
	}
	if err := c.announce(); err != nil {
		over = true
		x = c.g.borrow(c)
		c.halt(StopFailed)
		c.endChildren(true)
		c.onStop(x, StopFailed)
		return err
	}
	started = true
	c.g.cfg.Metrics.Spawned.Inc()
	c.armIdle()
	c.mu.Lock()
	work := len(c.in) > 0 || c.wanted()
	c.running = work
	c.mu.Unlock()
	if work {
		c.wake()
	}
	return nil
}

// Ensure returns the actor of the name, or spawns it: of many callers at once one spawns, and all get the same actor, which is
// nobody's child. One that is ending is waited for, until ctx ends; one that is starting is returned: messages to it wait. A
// handler may call it, with its Context.Context; its mailbox waits meanwhile, so an actor must not ensure itself. Errors as
// Spawn, and the cause of ctx.
func (g *Group) Ensure(ctx context.Context, name string, factory func() Actor, opts ...SpawnOption) (Ref, error) {
	if name == "" {
		return Ref{}, errors.New("zactor: Ensure needs a name")
	}
	for {
		ref, there := g.Lookup(name)
		if !there {
			ref, taken, err := g.trySpawn(nil, name, factory, opts)
			if !taken {
				return ref, err
			}
			continue
		}
		if ref.cell == nil || !ref.cell.ending() { // without a cell it is a replay's
			return ref, nil
		}
		if !g.awaitOr(ref.cell.gone(), ctx.Done()) {
			return Ref{}, fmt.Errorf("zactor: waiting for the end of the actor %q: %w", name, context.Cause(ctx))
		}
	}
}

// Reach runs do with the actor of the name, made if need be (Ensure), on the caller's goroutine. When do finds that the actor has begun to
// end meanwhile, as one that is passivated may (WithIdle), which is an error that is zmsg.ErrStopped with Outcome
// NotExecuted, the actor is made anew and do runs again, until ctx ends. Errors: as Ensure, and what do returns.
func (g *Group) Reach(ctx context.Context, name string, factory func() Actor, do func(Ref) error, opts ...SpawnOption) error {
	for {
		ref, err := g.Ensure(ctx, name, factory, opts...)
		if err != nil {
			return err
		}
		err = do(ref)
		again := errors.Is(err, zmsg.ErrStopped) && zmsg.OutcomeOf(err) == zmsg.NotExecuted && ref.cell != nil && ref.cell.ending()
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

// ending reports whether the actor takes no messages any more.
func (c *cell) ending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.reason() != 0
}

// Spec is one actor of SpawnAll; the fields are Spawn's arguments.
type Spec struct {
	Name    string
	New     func() Actor
	Options []SpawnOption
}

// SpawnAll starts actors that belong together, in order: all of them or none. When one does not start, those before it are
// stopped, the last one first, each gone before the next is stopped; then the error is returned.
func (g *Group) SpawnAll(specs ...Spec) ([]Ref, error) {
	refs := make([]Ref, 0, len(specs))
	for _, s := range specs {
		ref, err := g.Spawn(s.Name, s.New, s.Options...)
		if err != nil {
			for _, started := range slices.Backward(refs) {
				started.cell.stop(StopRequested)
				g.await(started.cell.gone())
			}
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}
