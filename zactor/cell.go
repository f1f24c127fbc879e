package zactor

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"zgame/zmsg"
)

// cell is what the group keeps for one actor: the mailbox, the instance, and how to make the next. What an idle actor
// does not need is in extra or borrowed from pools during a turn.
//
// The order of the fields: first what senders write, then, in other cache lines, what a turn reads and writes, at the end what is seldom
// needed.
type cell struct {
	mailbox

	signal atomic.Uint32 // see signal.go

	// Owned by the turn.
	pending int32  // continuations that have not come back
	worked  uint32 // messages handled since the shutdown asked last, without those of the Context

	epoch atomic.Uint32 // counts instances: continuations, timers and turns of an older one do not run; counted up in the turn

	// Set at construction.
	run func() // the goroutine's function, made once: `go c.loop()` would allocate each time
	g   *Group

	// Owned by the turn (before the first: by Spawn); actor and handlers are written under mu as well, so that others may read them.
	handlers []Handler
	actor    Actor

	extra     atomic.Pointer[extra] // made when needed, then it stays
	announced atomic.Bool

	// Set at construction.
	opts    *spawnOptions
	id      uint64 // set when the cell enters the table
	name    string // "" if none
	factory func() Actor
}

// extra is what only some actors need.
type extra struct {
	// Owned by the turn.
	timers    timerList
	history   []time.Time // failures
	watches   map[*watch]struct{}
	suspended map[*suspension]struct{} // handlers that wait in Call
	chain     []uint64                 // {uid of the actor}: the chain of a request it makes on its own
	parked    *barrier                 // a shutdown waits for the pending continuations
	seed      uint64                   // of the instance's Rand, 0 until asked for
	draws     uint64                   // turns of the instance that have asked for it
	topics    map[topicKey]*subscription

	// Set at construction.
	parent      *cell
	parentEpoch uint32 // the parent's instance whose child it is
	tap         tap    // see Context.tap

	// Guarded by the mailbox's mu.
	lane     []laneItem
	children map[*cell]struct{}
	watchers map[*watch]struct{} // of actors of this group and of others
	deferred map[*deferral]struct{}
	idle     ClockTimer      // see WithIdle
	lastWork time.Time       // when the actor ran out of work after a message; only with WithIdle
	ctx      context.Context //nolint:containedctx // the actor's life, given to handlers by Context.Context
	cancel   context.CancelCauseFunc
	gone     chan struct{} // closed when the actor is gone
	held     ClockTimer    // the actor waits to be restarted, with no goroutine
	waiting  *future       // what the handler waits for, the token, and of whom
	token    uint64
	waitsFor Ref
	cut      int  // messages that its end has cut
	severed  bool // the actor is cut off, by a shutdown or its parent's restart: its handler must not wait any more
}

// more returns c's extra, making it if needed.
func (c *cell) more() *extra {
	if x := c.extra.Load(); x != nil {
		return x
	}
	c.extra.CompareAndSwap(nil, new(extra))
	return c.extra.Load()
}

func (c *cell) address() zmsg.Address { return zmsg.Address{Node: c.g.self.Ref(), Actor: c.id} }

func (c *cell) policy() Policy {
	if c.opts != nil && c.opts.policy != nil {
		return *c.opts.policy
	}
	return c.g.cfg.Policy
}

// typ names the actor's type for discovery.
func (c *cell) typ(a Actor) string {
	if c.opts != nil && c.opts.typ != "" {
		return c.opts.typ
	}
	t := reflect.TypeOf(a)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.String()
}

// pushUser puts a message into the mailbox, within its bound. On an error the caller asks overflow.
func (c *cell) pushUser(it *item) error {
	c.mu.Lock()
	start, err := c.pushAndUnlock(it, false, &c.g.buffers)
	if start {
		c.wake()
	}
	return err
}

// overflow does what the policy says with a message that pushUser has refused with err, on behalf of a sender that waits as
// p says. A nil error means that the message is given away.
func (c *cell) overflow(it *item, err error, p patience) error {
	start := false
	if c.bounds != nil {
		start, err = c.pushBounded(it, p)
	}
	if err != nil {
		c.g.refused(err)
		return err
	}
	if start {
		c.wake()
	}
	return nil
}

// pushControl puts a control item into the mailbox: only a dead one refuses it.
func (c *cell) pushControl(it *item) error {
	c.mu.Lock()
	start, err := c.pushAndUnlock(it, true, &c.g.buffers)
	if start {
		c.wake()
	}
	return err
}

// deliver puts m into the mailbox and owns it, or returns an error and does not.
func (c *cell) deliver(m *zmsg.Message, p patience) error {
	it := item{msg: m, id: m.ID}
	queued(m)
	if m.Value != nil {
		it.value = m.Value
	}
	if zmsg.SessionEvent(m.ID) && !m.Client {
		return c.pushControl(&it) // an actor that missed it would keep the player for ever
	}
	if m.ID == zmsg.FenceID && !m.Client {
		it.kind = itemFence
		return c.pushControl(&it) // it asks for what a full mailbox holds, and one that is closed
	}
	c.mu.Lock()
	if m.Client {
		if h := find(c.handlers, m.ID); h == nil || !h.has(fromClients) {
			c.mu.Unlock()
			c.g.refused(zmsg.ErrNoRoute)
			return zmsg.ErrNoRoute
		}
	}
	start, err := c.pushAndUnlock(&it, false, &c.g.buffers)
	if start {
		c.wake()
	}
	if err != nil {
		err = c.overflow(&it, err, p)
	}
	return err
}

// deliverTold puts the first messages of list into the mailbox, as far as there is nothing to look at but whether there is room. It
// returns how many.
func (c *cell) deliverTold(a *zmsg.Arrival, list []zmsg.Told) int {
	n, start := c.pushTold(a, list, &c.g.buffers)
	if start {
		c.wake()
	}
	return n
}

// stop asks the actor to stop after its current message.
func (c *cell) stop(why Reason) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.halt(why)
	start := !c.running
	c.running = true
	if x := c.extra.Load(); !start && x != nil && x.held != nil {
		start = x.held.Stop() // else its function runs, and sees halt
		if start {
			x.held = nil
		}
	}
	c.mu.Unlock()
	if start {
		c.wake()
	}
}

// gone returns a channel that is closed when the actor is gone.
func (c *cell) gone() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return closedChan
	}
	x := c.more()
	if x.gone == nil {
		x.gone = make(chan struct{})
	}
	return x.gone
}

var closedChan = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// life returns the context that ends with the actor.
func (c *cell) life() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.more()
	if x.ctx == nil {
		x.ctx, x.cancel = context.WithCancelCause(context.Background())
		if c.dead || x.severed {
			x.cancel(zmsg.ErrStopped)
		}
	}
	return x.ctx
}

// cutReply ends what the handler of an actor waits for that is cut off.
var cutReply = zmsg.Reply{Code: zmsg.CodeCancelled, Outcome: zmsg.Unknown, Text: "the actor is being stopped"}

// sever ends what a handler waits for, now and later: its context, and a request that it waits for.
func (c *cell) sever() {
	x := c.more()
	c.mu.Lock()
	x.severed = true
	if x.cancel != nil {
		x.cancel(zmsg.ErrStopped)
	}
	f, token := x.waiting, x.token
	c.mu.Unlock()
	if f != nil && f.abandon(token) {
		f.reply = cutReply
		f.done()
	}
}
