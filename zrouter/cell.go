package zrouter

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter/internal/handoffpb"
	"zgame/zstore"
)

// Reason says why an object left the memory of its node.
type Reason uint8

// The reasons.
const (
	Released Reason = iota // saved and given up: idle, removed, or its node closes
	Fenced                 // the record is another's, or may be: what was not saved is lost
	Panicked               // a handler panicked: what was not saved is lost
	Moved                  // with its state to another node, by a transfer
)

var reasonNames = [...]string{"released", "fenced", "panicked", "moved"}

// String returns released, fenced, panicked or moved.
func (r Reason) String() string { return reasonNames[r] }

// Context is what a handler of an object knows: that of its actor, and the object. It is valid only while the handler runs: what runs later, in a
// timer or behind an answer, gets the one of its turn.
type Context[S any] struct {
	*zactor.Context
	cell *cell[S]
}

// State returns the state. The handler may change it, and says so by Dirty.
func (c *Context[S]) State() S { return c.cell.state }

// SetState replaces the state, and is Dirty.
func (c *Context[S]) SetState(s S) {
	c.cell.state = s
	c.Dirty()
}

// Key returns the object's key.
func (c *Context[S]) Key() zmsg.Key { return c.cell.res.o.key }

// Version returns the route version of this ownership: the fencing token for what the handler writes elsewhere.
func (c *Context[S]) Version() zmsg.RouteVersion { return c.cell.res.version }

// Moved returns how long the object took no requests when it came to this node by a move, until it was here: by the clocks of two machines, so it is
// for people to look at. 0: it came otherwise, or the old owner's word was lost.
func (c *Context[S]) Moved() time.Duration { return c.cell.res.pause }

// Dirty says that the state has changed: it is saved within the kind's save delay, and before the answer where that is durable.
func (c *Context[S]) Dirty() {
	if tr := c.SendTrace(); tr.Span != 0 {
		c.cell.res.trace = &tr
	}
	c.cell.res.markDirty()
}

// Save is Dirty, and has the answer wait until the state is in the store, whatever the kind says.
func (c *Context[S]) Save() {
	c.cell.res.saveFirst()
	c.Dirty()
}

// Delete has the object deleted when the handler has returned; the answer waits for that. What is left is a tombstone, which keeps the
// route version; a later message creates the object anew where the kind has Create.
func (c *Context[S]) Delete() {
	c.cell.res.deleted.Store(true)
	c.Save()
}

// Stop has the object leave the memory of this node when the handler has returned: saved, and given up. It goes before that of the
// actor's Context, which would end the actor as it is.
func (c *Context[S]) Stop() { c.cell.res.leave() }

// Private returns the private argument of the transfer that brought the object here, in OnActivate and OnAdopt; nil where there is none.
func (c *Context[S]) Private() []byte { return c.cell.given.GetPrivate() }

// cell is the actor of one object in memory.
type cell[S any] struct {
	shared *shared[S]
	res    *residence
	state  S
	ctx    Context[S]
	up     bool
	given  *handoffpb.Attachment // of the transfer that brought it here, while it is being activated
}

// Handlers implements zactor.Actor.
func (c *cell[S]) Handlers() []zactor.Handler { return c.shared.handlers }

// OnStart implements zactor.Starter: it makes the state of the record.
func (c *cell[S]) OnStart(zc *zactor.Context) (err error) {
	k := &c.shared.kind
	rec := c.res.rec
	c.state, err = decodeState(k.Codec, k.Version, k.Migrate, rec.Schema, rec.State)
	if err != nil {
		return fmt.Errorf("zrouter: loading %s: %w", rec.Key, err)
	}
	c.res.cell = c
	if c.res.frozen != 0 {
		c.res.pause = max(1, c.res.sh.set.clock.Now().Sub(time.UnixMilli(c.res.frozen)))
	}
	c.in(zc)
	if len(rec.Attachment) > 0 {
		c.given = new(handoffpb.Attachment)
		if err := proto.Unmarshal(rec.Attachment, c.given); err != nil {
			return fmt.Errorf("zrouter: what %s was handed over with: %w", rec.Key, err)
		}
		defer func() { c.given = nil }()
	}
	c.res.rebind(zc, c.given.GetGates())
	defer func() {
		if !c.up {
			c.res.left(Fenced)
		}
	}()
	if k.OnActivate != nil {
		if err := k.OnActivate(&c.ctx); err != nil {
			return fmt.Errorf("zrouter: OnActivate of %s: %w", rec.Key, err)
		}
	}
	if c.given != nil {
		if k.OnAdopt != nil {
			if err := k.OnAdopt(&c.ctx, c.given.GetHook()); err != nil {
				return fmt.Errorf("zrouter: OnAdopt of %s: %w", rec.Key, err)
			}
		}
		c.res.dirty.Store(true) // the next write takes the attachment out of the record
	}
	c.res.rec = nil
	c.up = true
	return nil
}

// OnStop implements zactor.Stopper.
func (c *cell[S]) OnStop(zc *zactor.Context, _ zactor.Reason) {
	defer c.res.ended()
	why := c.res.closing()
	if f := c.shared.kind.OnDeactivate; f != nil && c.up {
		f(c.in(zc), why)
	}
	c.res.left(why)
}

// encode makes the write of the state as it is. It runs in a turn of the actor.
func (c *cell[S]) encode() (w zstore.Write, err error) {
	return c.shared.write(c.state)
}

// TraceObject implements zactor.Traced.
func (c *cell[S]) TraceObject() (k zmsg.Key, version zmsg.RouteVersion) {
	return c.res.o.key, c.res.version
}

// enter begins the handling of a message. done says that it was handled before, and has its answer.
func (c *cell[S]) enter(zc *zactor.Context) (done bool, err error) {
	if done, err = c.res.begin(zc.Message(), nil); done || err != nil {
		return done, err
	}
	c.in(zc)
	return false, nil
}

func (c *cell[S]) leave() { c.res.finish() }

// later calls run in a turn of the actor as soon as the lease is valid again.
func (c *cell[S]) later(zc *zactor.Context, run func() error) {
	zc.After(suspendedCheck, func(zc *zactor.Context) {
		if _, err := c.res.begin(nil, nil); err != nil {
			c.later(zc, run)
			return
		}
		c.in(zc)
		_ = run() // nobody waits for it
	})
}

// handoff implements stateful.
func (c *cell[S]) handoff(zc *zactor.Context, private []byte) (attachment []byte, agreed bool, err error) {
	k := &c.shared.kind
	c.in(zc)
	if k.BeforeRemove != nil {
		if err := k.BeforeRemove(&c.ctx); err != nil {
			return nil, false, &vetoError{fmt.Errorf("BeforeRemove: %w", err)}
		}
	}
	var hook []byte
	if k.OnHandoff != nil {
		if hook, err = k.OnHandoff(&c.ctx); err != nil {
			return nil, true, &vetoError{fmt.Errorf("OnHandoff: %w", err)}
		}
	}
	attachment, err = attach(hook, k.OnHandoff != nil || k.OnAdopt != nil, private, c.res.seal())
	return attachment, true, err
}

// aborted implements stateful.
func (c *cell[S]) aborted(zc *zactor.Context) {
	c.res.unseal()
	if f := c.shared.kind.RemoveAborted; f != nil {
		f(c.in(zc))
	}
}
