package zroute

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Result says what became of a dispatched message.
type Result uint8

// The results. After OnLocal, OnRemote and OnObject the message belongs to whom it went, after Parked to the dispatcher; after the
// others still to the caller, who answers it.
const (
	OnLocal  Result = iota // in the mailbox of an actor of this node
	OnRemote               // on its way to another node
	Busy                   // the picked local actor, or shard, or whoever routes objects has no room: the answer is CodeBusy
	NoRoute                // nobody is there, or nobody of those could be reached
	Failed                 // the LocalRouter failed, or nobody can take the message as it is (too large; it names no object)
	Parked                 // it waits until the actor that had its key before has handled what it got; then it goes on
	OnObject               // with whoever routes objects
	results  = iota
)

var resultNames = [results]string{"local", "remote", "busy", "no_route", "failed", "parked", "object"}

// String returns local, remote, busy, no_route, failed, parked or object.
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

// Objects knows which message ids are for stateful actors, and takes messages to them; zrouter's ManagerSet is one. It does not block. A nil
// error of Deliver means that it took m over; with CodeNoRoute nobody is there for it, or not for clients.
type Objects interface {
	Owns(id uint32) bool
	Deliver(m *zmsg.Message) error
}

// Config says where a Dispatcher looks and how it picks. Local, Remote and Sender may be nil: then there are no such
// candidates.
type Config struct {
	Node   zmsg.NodeRef // this node: its id takes part in picking shards
	Local  LocalTable
	Remote RemoteTable
	Sender Sender
	// Objects is asked first: an id that it owns goes nowhere else. May be nil.
	Objects Objects

	// LocalRouter picks among local candidates; LocalRouters is one for each message id or type. Defaults to LocalFirst.
	LocalRouter LocalRouter
	// Strategy picks among remote candidates; Strategies is one for each message id or type. Defaults to First.
	Strategy RemoteStrategy
	// NextBest lets the strategy pick again when a candidate cannot be reached or did not run the request, instead of going on in
	// list order: keys go where they will be once that candidate is gone, load is spread. KeepDraining implies it.
	NextBest bool

	// MoveWait is how long messages of a key wait for the actor that had it before, when a change of the members moves it; see
	// "Order across a change" in docs/routing.md. Then they end NotExecuted. Defaults to 5 s; below 0 nothing waits, and order across
	// a change is not kept.
	MoveWait time.Duration
	// MoveQueue bounds the messages of one sender with one key that wait so, MoveBytes those of all; more are refused with
	// CodeBusy. Default to 1,024 and 16 MiB.
	MoveQueue, MoveBytes int

	Metrics *zmetrics.Route // defaults to one that counts into the void
}

func (c Config) withDefaults() Config {
	if c.LocalRouter == nil {
		c.LocalRouter = LocalFirst()
	}
	if c.Strategy == nil {
		c.Strategy = First()
	}
	if c.MoveWait == 0 {
		c.MoveWait = 5 * time.Second
	}
	if c.MoveQueue == 0 {
		c.MoveQueue = 1024
	}
	if c.MoveBytes == 0 {
		c.MoveBytes = 16 << 20
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
	if c.MoveQueue < 0 || c.MoveBytes < 0 {
		errs = append(errs, fmt.Errorf("zroute: Config.MoveQueue is %d, MoveBytes %d: expected numbers above 0", c.MoveQueue, c.MoveBytes))
	}
	return errors.Join(errs...)
}

// Dispatcher takes messages to the actors that handle their ids: an object where the id belongs to a kind of objects, else local first,
// then remote, then no route. Its methods may be called from any goroutine and do not block.
type Dispatcher struct {
	cfg    Config
	lookup lookup
	choose chooser
	moves  *moves // nil where nothing waits for keys that move

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
	d.moves = newMoves(d)
	d.fallbacks.New = func() any { return &fallback{d: d} }
	return d, nil
}

// Dispatch takes m where it belongs. tried is the number of candidates beyond the local pick that were tried. On
// OnLocal, OnRemote, Parked and OnObject m is given away, else it and the duty to answer stay with the caller; err then is a *zmsg.Error with
// the code to answer, except that a LocalRouter's own error is handed on as it is.
//
// A request that went to a remote actor and comes back with the word that it did not run goes to the next candidate;
// when none is left it ends with CodeUnavailable, NotExecuted, and how many were tried.
func (d *Dispatcher) Dispatch(m *zmsg.Message) (res Result, tried int, err error) {
	res, tried, err = d.dispatch(m)
	d.counts[res].Inc()
	return res, tried, err
}

func (d *Dispatcher) dispatch(m *zmsg.Message) (Result, int, error) {
	if o := d.cfg.Objects; o != nil && o.Owns(m.ID) {
		return object(o.Deliver(m))
	}
	if d.moves == nil || !d.moves.keyed { // the short way to an actor of this node: without a plan, which is a large thing
		local := d.lookup.locals(m.ID, m.Client)
		if _, sharded := d.lookup.shard(m.ID); !sharded && len(local) > 0 {
			c, err := d.here(m, local)
			if err != nil {
				return Failed, 0, err
			}
			if c != nil {
				if err = c.Target.Deliver(m); err == nil {
					return OnLocal, 0, nil
				}
				if !gone(err) {
					return Busy, 0, err
				}
			}
			var p plan
			d.planRemote(m, &d.lookup, &p)
			return d.walk(m, &p.o)
		}
	}
	return d.dispatchPlanned(m)
}

// object is what became of a message for an object.
func object(err error) (Result, int, error) {
	switch {
	case err == nil:
		return OnObject, 0, nil
	case zmsg.CodeOf(err) == zmsg.CodeBusy:
		return Busy, 0, err
	case zmsg.CodeOf(err) == zmsg.CodeNoRoute:
		return NoRoute, 0, err
	default:
		return Failed, 0, err
	}
}

func (d *Dispatcher) dispatchPlanned(m *zmsg.Message) (Result, int, error) {
	var p plan
	d.plan(m, &d.lookup, &p)
	if d.moves != nil && (p.o.sharded || d.moves.keyed) && !d.moves.quiet() {
		return d.moves.dispatch(m)
	}
	return d.carry(m, &d.lookup, &p)
}

// here lets the LocalRouter pick; it returns nil where it sends the message on.
func (d *Dispatcher) here(m *zmsg.Message, local []LocalCandidate) (*LocalCandidate, error) {
	i, err := d.cfg.LocalRouter.Pick(m, local)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case i < 0 || i >= len(local):
		i = 0
	}
	return &local[i], nil
}

// plan is where a message goes first, by one state of the tables.
type plan struct {
	here *LocalCandidate // the pick among local actors, of an id that is not sharded
	err  error           // of the LocalRouter
	by   RemoteStrategy  // what picked among the other candidates
	o    order           // the other candidates, or all of a sharded id
}

// plan makes p, which is zero, by the tables of k.
func (d *Dispatcher) plan(m *zmsg.Message, k *lookup, p *plan) {
	local := k.locals(m.ID, m.Client)
	if field, sharded := k.shard(m.ID); sharded {
		p.o = order{sharded: true, self: d.cfg.Node.ID, local: local, remote: k.remotes(m.ID, m.Client)}
		p.o.key, p.o.keyed = shardKey(m, field)
		return
	}
	if len(local) > 0 {
		c, err := d.here(m, local)
		if c != nil {
			p.here = c
			return
		}
		if p.err = err; err != nil {
			return
		}
	}
	d.planRemote(m, k, p)
}

// planRemote plans for the remote candidates of an id that is not sharded.
func (d *Dispatcher) planRemote(m *zmsg.Message, k *lookup, p *plan) {
	with, remote := d.remotes(m, k)
	if len(remote) == 0 {
		return
	}
	i := inRange(with.strategy.Pick(m, remote), len(remote))
	if i < 0 {
		return
	}
	p.by = with.strategy
	p.o = order{remote: remote, preferred: i}
	if with.draining || d.cfg.NextBest {
		p.o.strategy = with.strategy
	}
}

// carry does what p says. k are the tables that it was made by.
func (d *Dispatcher) carry(m *zmsg.Message, k *lookup, p *plan) (Result, int, error) {
	switch {
	case p.err != nil:
		return Failed, 0, p.err
	case p.here != nil:
		err := p.here.Target.Deliver(m)
		if err == nil {
			return OnLocal, 0, nil
		}
		if !gone(err) {
			return Busy, 0, err
		}
		d.planRemote(m, k, p)
	}
	return d.walk(m, &p.o)
}

// remotes returns the remote candidates of m and what picks among them.
func (d *Dispatcher) remotes(m *zmsg.Message, k *lookup) (choice, []RemoteCandidate) {
	if !d.choose.draining {
		remote := k.remotes(m.ID, m.Client)
		return d.choose.of(m, remote), remote
	}
	every := k.every(m.ID, m.Client)
	with := d.choose.of(m, every)
	if with.draining {
		return with, every
	}
	return with, k.remotes(m.ID, m.Client)
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
	if tried == 0 && len(d.lookup.remotes(m.ID, m.Client)) == 0 && len(d.lookup.every(m.ID, m.Client)) > 0 {
		return NoRoute, 0, errAllDrain
	}
	return NoRoute, tried, noRoute(tried, last)
}

// noRoute is the end of a message that nobody took. Where nobody handles its id that is CodeNoRoute: the same again helps nothing. Where
// somebody does, and could not be reached or did not want it now, it is CodeUnavailable: try again later.
func noRoute(tried int, last error) error {
	if tried == 0 {
		return zmsg.ErrNoRoute
	}
	e := &zmsg.Error{
		Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted,
		Text: fmt.Sprintf("%d tried, the last failed with %s", tried, zmsg.CodeOf(last)),
	}
	if zmsg.CodeOf(last) == zmsg.CodeNoRoute { // nor did he
		e.Code = zmsg.CodeNoRoute
	}
	return e
}

var errAllDrain error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "all nodes that handle it are draining"}

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
