package zactor

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"zgame/internal/lograte"
)

// watchdog tells of handlers that run too long and of mailboxes that stay too full. It is a chain of calls of the clock that
// exists only while actors have something to do; messages cost nothing for it, the start of an actor's goroutine a few
// nanoseconds.
//
// It sets signalProbe on the actors that work, and their loops take it away between two messages (attend): where it is
// still there, the same handler has been running since. What Spawn runs on its caller's goroutine, OnStop, and an actor that waits for
// its restart are not watched.
//
// While it is on, a timer is pending, for which the runtime reads its clock each time that it schedules on that processor.
type watchdog struct {
	// Set at construction.
	g      *Group
	limit  time.Duration // of a handler; 0: not watched
	mark   float64       // of a mailbox; 0: not watched
	long   time.Duration // how long a mailbox may be over its mark
	period time.Duration // between two rounds

	on atomic.Bool // a round will come, or runs, or none is wanted; written under mu

	mu       sync.Mutex
	ended    bool                    // guarded by mu
	tick     ClockTimer              // guarded by mu; nil before the first round
	contexts []weak.Pointer[Context] // guarded by mu; all that are alive, and some that are not
	prune    int                     // guarded by mu: length at which the dead ones are removed

	// Held through a round, so that end returns after the last one; guards what follows.
	round   sync.Mutex
	over    map[*cell]*fullness
	lately  lograte.Limiter
	pending []slow // of this round
}

func newWatchdog(g *Group) *watchdog {
	w := &watchdog{g: g, limit: max(g.cfg.HandlerLimit, 0), mark: max(g.cfg.QueueMark, 0), long: g.cfg.QueueTime, over: make(map[*cell]*fullness), prune: 64}
	if g.manual != nil {
		w.limit, w.mark = 0, 0
	}
	const often = 8 // a report comes at most an eighth late
	switch {
	case w.limit > 0 && w.mark > 0:
		w.period = min(w.limit, w.long) / often
	case w.limit > 0:
		w.period = w.limit / often
	case w.mark > 0:
		w.period = w.long / often
	default:
		w.on.Store(true) // for good: nobody starts it
	}
	w.period = max(w.period, time.Millisecond)
	return w
}

// watched is the watchdog's part of a Context.
type watched struct {
	on    atomic.Pointer[cell]    // the actor that borrowed it last
	lent  atomic.Pointer[Context] // the suspended handler that has the turn, see reentrant.go
	label context.Context         //nolint:containedctx // names the goroutine for the profile; nil if handlers are not watched

	// Guarded by the watchdog's round.
	probed   *cell     // has had signalProbe set; nil if none
	since    time.Time // when
	reported bool
}

// newContext makes one for the pool, which the watchdog knows.
func (w *watchdog) newContext() any {
	x := new(Context)
	if w.limit > 0 {
		x.label = pprof.WithLabels(context.Background(), pprof.Labels(labelKey, fmt.Sprintf("%p", x)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.contexts) >= w.prune {
		w.contexts = slices.DeleteFunc(w.contexts, func(p weak.Pointer[Context]) bool { return p.Value() == nil })
		w.prune = max(64, 2*len(w.contexts))
	}
	w.contexts = append(w.contexts, weak.Make(x))
	return x
}

// begin makes c known as of, and starts the watchdog if it is off.
func (c *Context) begin(of *cell) {
	if c.on.Load() != of {
		c.on.Store(of)
	}
	if w := of.g.watchdog; !w.on.Load() {
		w.start()
	}
}

// tag gives the calling goroutine the name of c, which goroutines that the handler starts inherit.
func (c *Context) tag() {
	if c.label != nil {
		pprof.SetGoroutineLabels(c.label)
	}
}

func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended && w.on.CompareAndSwap(false, true) {
		w.later()
	}
}

// later asks for the next round; the caller holds mu.
func (w *watchdog) later() {
	if w.tick == nil {
		w.tick = w.g.clock.AfterFunc(w.period, w.look)
	} else {
		w.tick.Reset(w.period)
	}
}

// end stops the rounds for good; none runs when it returns.
func (w *watchdog) end() {
	w.mu.Lock()
	w.ended = true
	if w.tick != nil {
		w.tick.Stop()
	}
	w.mu.Unlock()
	w.round.Lock()
	defer w.round.Unlock()
	clear(w.over)
	w.g.cfg.Metrics.OverMark.Set(0)
}

// look is one round.
func (w *watchdog) look() {
	w.round.Lock()
	defer w.round.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended {
		return
	}
	busy := w.inspect()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	if !busy {
		// Off first, then a last look: an actor that begins after the look finds the watchdog off and starts it, once mu is
		// free; one that began before is seen by the look.
		w.on.Store(false)
		if !w.busyLocked() {
			return
		}
		w.on.Store(true)
	}
	w.later()
}

// busyLocked reports whether some actor has a goroutine.
func (w *watchdog) busyLocked() bool {
	for _, p := range w.contexts {
		if x := p.Value(); x != nil {
			if c := x.on.Load(); c != nil && c.busy() {
				return true
			}
		}
	}
	return false
}

// busy reports whether c has a goroutine, or is about to.
func (c *cell) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || c.dead {
		return false
	}
	e := c.extra.Load()
	return e == nil || e.held == nil
}

// inspect looks at all actors that work, and reports. It returns false if there was nothing to see.
func (w *watchdog) inspect() (busy bool) {
	now := w.g.clock.Now()
	w.mu.Lock()
	all := make([]*Context, 0, len(w.contexts))
	for _, p := range w.contexts {
		if x := p.Value(); x != nil {
			all = append(all, x)
		}
	}
	w.mu.Unlock()
	for _, x := range all {
		c := x.on.Load()
		if c == nil {
			continue
		}
		c.mu.Lock()
		works := c.taken == &x.taken // else x is another's, or nobody's, by now
		full := works && w.mark > 0 && c.overLocked(w.mark)
		running := c.running && !c.dead
		c.mu.Unlock()
		busy = busy || running
		if w.limit > 0 {
			w.probe(x, c, works, now)
		}
		if _, known := w.over[c]; full && !known {
			w.over[c] = &fullness{since: now}
		}
	}
	w.reportSlow()
	w.reportFull(now)
	return busy || len(w.over) > 0
}

// probe looks at one Context: how long its present handler has run at least.
func (w *watchdog) probe(x *Context, c *cell, works bool, now time.Time) {
	switch {
	case !works:
		x.probed = nil
	case x.probed != c || c.signal.Load()&signalProbe == 0:
		c.signal.Or(signalProbe)
		x.probed, x.since, x.reported = c, now, false
	case !x.reported && now.Sub(x.since) >= w.limit:
		x.reported = true
		w.g.cfg.Metrics.SlowHandlers.Inc()
		on := x
		if s := x.lent.Load(); s != nil {
			on = s
		}
		w.pending = append(w.pending, slow{c: c, x: on, took: now.Sub(x.since)})
	}
}

// slow is a handler that has run too long.
type slow struct {
	c    *cell
	x    *Context
	took time.Duration // at least
}

// maxStacks is how many stacks one round writes: a database that hangs may hold a thousand actors.
const maxStacks = 16

// reportSlow tells of the slow handlers that this round has found.
func (w *watchdog) reportSlow() {
	if len(w.pending) == 0 {
		return
	}
	names := make([]string, 0, maxStacks)
	for _, s := range w.pending[:min(len(w.pending), maxStacks)] {
		names = append(names, fmt.Sprintf("%p", s.x))
	}
	stacks := stacksOf(names)
	for _, s := range w.pending {
		id := s.x.messageNow()
		name, typ, message, waitsFor, waiting := s.c.describe(id)
		stack, ok := stacks[fmt.Sprintf("%p", s.x)]
		if !ok {
			stack = "not found: the handler has just ended, or set labels of its own, or too many are slow"
		}
		w.g.log.Warn("handler is slow", "actor", s.c.id, "name", name, "type", typ, "msg_id", id, "msg", message,
			"running", s.took, "waits_for", waitsFor, "waiting", waiting, "stack", stack)
	}
	clear(w.pending)
	w.pending = w.pending[:0]
}

// messageNow returns the id of the message that x's handler is about, 0 if it is about none. The turn owns what it reads: no lock
// can be had from a handler that hangs, and one taken for each message would cost more than the message. Each read is of
// one word that was written long ago, or is a moment's truth in a line of a log.
//
//go:norace
func (c *Context) messageNow() uint32 {
	if it := c.it; it != nil {
		return it.id
	}
	return 0
}

// describe says what a report says of an actor.
func (c *cell) describe(id uint32) (name, typ, message, waitsFor string, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.extra.Load(); e != nil && e.waiting != nil {
		waitsFor = e.waitsFor.String()
	}
	return c.name, c.typ(c.actor), c.messageName(id), waitsFor, c.waitingLocked()
}

// messageName names a message id; the caller holds mu.
func (c *cell) messageName(id uint32) string {
	if h := find(c.handlers, id); h != nil {
		return h.types.name
	}
	if id == 0 {
		return ""
	}
	return "message " + strconv.FormatUint(uint64(id), 10)
}
