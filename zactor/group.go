package zactor

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"zgame/internal/lograte"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// Group hosts the actors of a node. Its methods may be called from any goroutine.
type Group struct {
	// Set at construction.
	cfg         Config
	log         *slog.Logger
	self        zmsg.Self
	clock       Clock
	futures     *futures
	jobs        pools
	dead        [deadReasons]zmetrics.Counter
	refuse      [4]zmetrics.Counter // busy, stopped, client_mark, draining
	ended       [reasons]zmetrics.Counter
	manual      *Manual // nil: actors have goroutines
	teller      Teller  // Config.Remote, if it is one, else nil
	peers       *peers
	topics      topics
	codes       codeCounters
	topicCounts struct{ local, remote, queue zmetrics.Counter } // delivered
	watchdog    *watchdog
	records     *recordFiles // nil: no recorder works
	replay      *replayer    // of a group that replays a record, else nil

	// Pools: what actors need during a turn only.
	contexts sync.Pool // *Context
	timers   timerPool
	buffers  sync.Pool // *[]item
	turns    sync.Pool // *turnItem

	table table

	failures          failures
	failLog, panicLog lograte.Limiter // handlers that failed; panics that Recover ended

	draining atomic.Bool // takes nothing from outside
	closed   atomic.Bool // the actors are being stopped

	wg sync.WaitGroup // the workers of Async

	mu    sync.RWMutex
	names map[string]*cell // guarded by mu
	live  int              // guarded by mu: actors in the table
	cut   []Cut            // guarded by mu: what the shutdown cut
}

// NewGroup makes a Group. It has no goroutine until there is work. Shutdown ends it.
func NewGroup(cfg Config) (*Group, error) { return newGroup(cfg, nil) }

func newGroup(cfg Config, manual *Manual) (*Group, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, manual: manual, names: make(map[string]*cell)}
	g.self.Set(cfg.Node)
	g.teller, _ = cfg.Remote.(Teller)
	g.peers = newPeers(g)
	g.topics.g = g
	d := cfg.Metrics.Topics.Delivered
	g.topicCounts.local, g.topicCounts.remote, g.topicCounts.queue = d.With("local"), d.With("remote"), d.With("queue")
	g.futures = newFutures(g.clock, cfg.Metrics.LateReplies.Inc)
	g.futures.manual = manual
	g.jobs = newPools(&cfg, &g.wg)
	g.timers.g = g
	g.watchdog = newWatchdog(g)
	g.contexts.New = g.watchdog.newContext
	if cfg.RecordDir != "" {
		g.records = newRecordFiles(g)
	}
	for r := range g.dead {
		g.dead[r] = cfg.Metrics.DeadLetters.With(deadReason(r).String())
	}
	for r := range g.ended {
		g.ended[r] = cfg.Metrics.Stopped.With(Reason(r).String())
	}
	for i, name := range []string{"busy", "stopped", "client_mark", "draining"} {
		g.refuse[i] = cfg.Metrics.Refused.With(name)
	}
	g.codes = newCodeCounters(cfg.Metrics)
	return g, nil
}

// Lookup returns the actor of the name.
func (g *Group) Lookup(name string) (Ref, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	c, ok := g.names[name]
	if !ok && g.replay != nil {
		return g.replay.named(name), true
	}
	return Ref{cell: c}, ok
}

// Len returns how many actors there are.
func (g *Group) Len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.live
}

// Deliver gives m to an actor of this node, from outside of the group: a Link, a gate. A nil error means that it took m
// over; else m stays with the caller, who answers it with the error: ErrUnknownActor, ErrBusy, ErrStopped, ErrDraining,
// or ErrNoRoute where m has the client mark and clients may not call the handler.
func (g *Group) Deliver(actor uint64, m *zmsg.Message) error {
	c := g.table.get(actor)
	if c == nil {
		return zmsg.ErrUnknownActor
	}
	return Ref{cell: c}.Deliver(m)
}

// Receive is Deliver for a caller who has nobody to tell: a refused message is answered and released. It is what a
// Link hands messages to.
func (g *Group) Receive(actor uint64, m *zmsg.Message) {
	if err := g.Deliver(actor, m); err != nil {
		m.ReplyError(err)
		m.Release()
	}
}

// ReceiveTells is Receive for one-way messages that came from another node for one actor, one behind the other.
func (g *Group) ReceiveTells(actor uint64, a *zmsg.Arrival, list []zmsg.Told) {
	c := g.table.get(actor)
	for len(list) > 0 {
		if c != nil && !g.draining.Load() {
			list = list[c.deliverTold(a, list):]
		}
		if len(list) > 0 { // one that wants a closer look, or is turned down
			g.Receive(actor, zmsg.OpenMessage(a, list[0]))
			list = list[1:]
		}
	}
}

// Ref returns the ref of an address. An address of this node that no actor has, or had, gives a ref whose messages are
// refused with ErrUnknownActor.
func (g *Group) Ref(addr zmsg.Address) Ref {
	if g.self.Is(addr.Node) {
		if c := g.table.get(addr.Actor); c != nil {
			return Ref{cell: c}
		}
	}
	return Ref{far: &far{g: g, addr: addr}}
}

// ByID returns a ref that stands for whoever handles a message: each one goes through Config.Router by its id.
func (g *Group) ByID() Ref { return Ref{far: &far{g: g, byID: true}} }

// remove takes an actor that has ended out of the tables.
func (g *Group) remove(c *cell, why Reason, cut int) {
	g.mu.Lock()
	g.table.remove(c)
	if c.name != "" {
		delete(g.names, c.name)
	}
	g.live--
	if cut > 0 && why == StopShutdown {
		g.cut = append(g.cut, Cut{Actor: c.id, Name: c.name, Messages: cut})
	}
	g.mu.Unlock()
	g.cfg.Metrics.Actors.Dec()
	g.ended[why].Inc()
}

// refused counts a message that a mailbox did not take.
func (g *Group) refused(err error) {
	switch zmsg.CodeOf(err) {
	case zmsg.CodeBusy:
		g.refuse[0].Inc()
	case zmsg.CodeNoRoute:
		g.refuse[2].Inc()
	case zmsg.CodeDraining:
		g.refuse[3].Inc()
	case zmsg.CodeCancelled: // the sender took it back
	default:
		g.refuse[1].Inc()
	}
}
