package zroute

import (
	"errors"
	"fmt"
	"sync"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Result says what became of a dispatched message.
type Result uint8

// The results. After OnLocal and OnRemote the message belongs to whom it went; after the others still to the caller,
// who answers it.
const (
	OnLocal  Result = iota // in the mailbox of an actor of this node
	OnRemote               // on its way to another node
	Busy                   // the picked local actor, or shard, has no room: the answer is CodeBusy
	NoRoute                // nobody is there, or nobody of those could be reached
	Failed                 // the LocalRouter failed, or no node can take the message as it is (too large)
	results  = iota
)

var resultNames = [results]string{"local", "remote", "busy", "no_route", "failed"}

// String returns local, remote, busy, no_route or failed.
func (r Result) String() string {
	if int(r) < len(resultNames) {
		return resultNames[r]
	}
	return "invalid"
}

// Sender sends a message to an actor of another node; zbus.Link is one. It encodes m before it returns and does not keep
// it. With r set and a nil error, r gets exactly one outcome for token; on an error nothing was sent and r is not called.
type Sender interface {
	Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error
}

// Config says where a Dispatcher looks and how it picks. Local, Remote and Sender may be nil: then there are no such
// candidates.
type Config struct {
	Node   zmsg.NodeRef // this node: its id takes part in picking shards
	Local  LocalTable
	Remote RemoteTable
	Sender Sender

	// LocalRouter picks among local candidates; LocalRouters is one for each message id or type. Defaults to LocalFirst.
	LocalRouter LocalRouter
	// Strategy picks among remote candidates; Strategies is one for each message id or type. Defaults to First.
	Strategy RemoteStrategy
	// NextBest lets the strategy pick again when a candidate cannot be reached or did not run the request, instead of going on in
	// list order: keys go where they will be once that candidate is gone, load is spread. KeepDraining implies it.
	NextBest bool

	Metrics *zmetrics.Route // defaults to one that counts into the void
}

func (c Config) withDefaults() Config {
	if c.LocalRouter == nil {
		c.LocalRouter = LocalFirst()
	}
	if c.Strategy == nil {
		c.Strategy = First()
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewRoute(nil)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Remote != nil && c.Sender == nil {
		errs = append(errs, errors.New("zroute: Config.Remote is set without Config.Sender: give both or neither"))
	}
	if c.Remote != nil && c.Node.ID == "" {
		errs = append(errs, errors.New("zroute: Config.Node has no id: give the id of this node, other nodes pick shards by it"))
	}
	return errors.Join(errs...)
}

// Dispatcher takes messages to the actors that handle their ids: local first, then remote, then no route. Its methods
// may be called from any goroutine and do not block.
type Dispatcher struct {
	cfg    Config
	lookup lookup
	choose chooser

	counts       [results]zmetrics.Counter
	fallbackSync zmetrics.Counter
	fallbackLate zmetrics.Counter
	fallbacks    sync.Pool // *fallback
}

// New makes a Dispatcher.
func New(cfg Config) (*Dispatcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Dispatcher{cfg: cfg, lookup: newLookup(cfg.Local, cfg.Remote), choose: newChooser(cfg.Strategy)}
	for r := range d.counts {
		d.counts[r] = cfg.Metrics.Messages.With(Result(r).String())
	}
	d.fallbackSync = cfg.Metrics.Fallbacks.With("sync")
	d.fallbackLate = cfg.Metrics.Fallbacks.With("reply")
	d.fallbacks.New = func() any { return &fallback{d: d} }
	return d, nil
}

// Dispatch takes m where it belongs. tried is the number of candidates beyond the local pick that were tried. On
// OnLocal and OnRemote m is given away, else it and the duty to answer stay with the caller; err then is a *zmsg.Error with
// the code to answer, except that a LocalRouter's own error is handed on as it is.
//
// A request that went to a remote actor and comes back with the word that it did not run goes to the next candidate;
// when none is left it ends with CodeNoRoute.
func (d *Dispatcher) Dispatch(m *zmsg.Message) (res Result, tried int, err error) {
	res, tried, err = d.dispatch(m)
	d.counts[res].Inc()
	return res, tried, err
}

func (d *Dispatcher) dispatch(m *zmsg.Message) (Result, int, error) {
	local := d.lookup.locals(m.ID, m.Client)
	if field, sharded := d.lookup.shard(m.ID); sharded {
		o := order{sharded: true, self: d.cfg.Node.ID, local: local, remote: d.lookup.remotes(m.ID, m.Client)}
		o.key, o.keyed = shardKey(m, field)
		return d.walk(m, &o)
	}
	if len(local) > 0 {
		i, err := d.cfg.LocalRouter.Pick(m, local)
		switch {
		case err == nil:
			if i < 0 || i >= len(local) {
				i = 0
			}
			err := local[i].Target.Deliver(m)
			if err == nil {
				return OnLocal, 0, nil
			}
			if !gone(err) {
				return Busy, 0, err
			}
		case !errors.Is(err, ErrNotFound):
			return Failed, 0, err
		}
	}
	with, remote := d.remotes(m)
	if len(remote) == 0 {
		return NoRoute, 0, zmsg.ErrNoRoute
	}
	i := inRange(with.strategy.Pick(m, remote), len(remote))
	if i < 0 {
		return NoRoute, 0, zmsg.ErrNoRoute
	}
	o := order{remote: remote, preferred: i}
	if with.draining || d.cfg.NextBest {
		o.strategy = with.strategy
	}
	return d.walk(m, &o)
}

// remotes returns the remote candidates of m and what picks among them.
func (d *Dispatcher) remotes(m *zmsg.Message) (choice, []RemoteCandidate) {
	if !d.choose.draining {
		remote := d.lookup.remotes(m.ID, m.Client)
		return d.choose.of(m, remote), remote
	}
	every := d.lookup.every(m.ID, m.Client)
	with := d.choose.of(m, every)
	if with.draining {
		return with, every
	}
	return with, d.lookup.remotes(m.ID, m.Client)
}

// inRange makes sense of what a strategy returned for n candidates: -1 is none, out of range counts as 0.
func inRange(i, n int) int {
	if i < -1 || i >= n {
		return 0
	}
	return i
}

// gone reports whether a local target's refusal means that it is on its way out of the table, as if it were not there.
func gone(err error) bool {
	switch zmsg.CodeOf(err) {
	case zmsg.CodeStopped, zmsg.CodeUnknownActor, zmsg.CodeDraining, zmsg.CodeNoRoute:
		return true
	default:
		return false
	}
}

// walk tries the candidates of o until one takes m.
func (d *Dispatcher) walk(m *zmsg.Message, o *order) (Result, int, error) {
	var f *fallback // holds the reply slot while a remote candidate has the request
	var last error
	tried := 0
	for {
		l, r := o.next(m)
		if l == nil && r == nil {
			break
		}
		if tried > 0 {
			d.fallbackSync.Inc()
		}
		tried++
		if l != nil {
			err := l.Target.Deliver(m)
			if err == nil {
				return OnLocal, tried, nil
			}
			if !gone(err) {
				return Busy, tried, err
			}
			last = err
			continue
		}
		if m.Wants() {
			f = d.fallbacks.Get().(*fallback)
			f.hold(m, o, tried)
			if last = d.cfg.Sender.Send(r.Address(), m, f, f.arm()); last == nil {
				return OnRemote, tried, nil // from here on m and f belong to the outcome
			}
			*o = f.o
			f.giveBack()
		} else if last = d.cfg.Sender.Send(r.Address(), m, nil, 0); last == nil {
			m.Release()
			return OnRemote, tried, nil
		}
		if zmsg.CodeOf(last) == zmsg.CodeTooLarge {
			return Failed, tried, last
		}
	}
	return NoRoute, tried, noRoute(tried, last)
}

func noRoute(tried int, last error) error {
	if tried == 0 {
		return zmsg.ErrNoRoute
	}
	return &zmsg.Error{
		Code: zmsg.CodeNoRoute, Outcome: zmsg.NotExecuted,
		Text: fmt.Sprintf("%d tried, the last failed with %s", tried, zmsg.CodeOf(last)),
	}
}

// Router is a Dispatcher as actors want it: an error where Dispatch has a result.
type Router struct{ d *Dispatcher }

// Router returns d with a Dispatch that has one result.
func (d *Dispatcher) Router() Router { return Router{d} }

// Dispatch takes m where it belongs. On an error, a *zmsg.Error with the code to answer or a LocalRouter's own, m stays
// with the caller.
func (r Router) Dispatch(m *zmsg.Message) error {
	_, _, err := r.d.Dispatch(m)
	return err
}
