package zroute

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// moves keeps the order of messages of one sender with one key when a change of the tables moves the key: before the first of them
// goes to the new actor, the old one has handled what it got.
//
// While the tables stand nothing is remembered: where the last message of a key went follows from them. After a change the tables
// before it are kept for a while (an era that is open). A message whose pick by those differs from its pick now asks the old actor
// by a fence (zmsg.FenceID), which goes the way of the messages before it and is answered in its turn; until then the lane's
// messages are parked. Lanes that have moved remember where they are, because the tables before do not tell any more.
type moves struct {
	d      *Dispatcher
	local  *Local  // nil: no such table
	remote *Remote // nil: no such table
	keyed  bool    // messages of ids that are not sharded may be picked by key
	wait   time.Duration

	now atomic.Pointer[era] // stored with mu held

	mu      sync.Mutex // guards all below; nothing of others is called with it held
	lanes   map[laneKey]*lane
	waiting int // lanes that wait
	bytes   int // of what is parked
	swept   time.Time
}

// tables are one state of both tables.
type tables struct {
	lookup
	local  *localTable
	remote *remoteTable
}

// era is what messages are picked by. It is never changed.
type era struct {
	tables
	base  *tables   // what they were picked by before the first change of this era; nil: nothing has changed lately
	until time.Time // with base: when it is forgotten, unless there is another change or a lane still waits
}

// laneKey names the messages whose order is kept: those of one sender with one key to one kind of actor.
type laneKey struct {
	actor   uint64 // who sends: an actor of this node, else a session
	session uint64
	key     uint64
	kind    string // type of the actors
}

// lane is one that has moved since the era began, or waits.
type lane struct {
	at     place // where its last message went; zero: nowhere that still matters
	last   time.Time
	waits  bool // a fence is under way, or what was parked is being sent
	full   bool // nothing more is parked
	parked []parked
}

type parked struct {
	m    *zmsg.Message
	size int
}

// place is where a message goes first.
type place struct {
	addr   zmsg.Address // its node is zero for actors of this node
	target Target       // of those
	typ    string       // of the actor
}

func (p *place) none() bool           { return p.addr == zmsg.Address{} }
func (p *place) is(other *place) bool { return p.addr == other.addr }

// Bounds of what is kept beside Config.
const (
	maxLanes   = 1 << 16
	parkRounds = 8   // how often what came while parked messages were sent is sent too, before more is refused
	parkedCost = 256 // bytes, of a message without its body
)

// newMoves returns nil where there is nothing to keep: no time, or tables of others, of which no earlier state is known.
func newMoves(d *Dispatcher) *moves {
	k := &moves{d: d, wait: d.cfg.MoveWait, lanes: make(map[laneKey]*lane)}
	local, remote := d.cfg.Local == nil, d.cfg.Remote == nil
	if !local {
		k.local, local = d.cfg.Local.(*Local)
	}
	if !remote {
		k.remote, remote = d.cfg.Remote.(*Remote)
	}
	if !local || !remote || k.wait < 0 {
		return nil
	}
	k.keyed = mayBeKeyed(d.cfg.Strategy) || mayBeKeyedHere(d.cfg.LocalRouter)
	return k
}

// tables returns the two tables as they are now.
func (k *moves) tables() (l *localTable, r *remoteTable) {
	r = emptyRemote
	if k.local != nil {
		l = k.local.table.Load()
	}
	if k.remote != nil {
		r = k.remote.load()
	}
	return l, r
}

// quiet reports whether nothing has changed lately: then a message goes where its key has been. It is asked after the message's
// candidates were looked up: what was looked up is of this state, or of one whose change has made the era no longer quiet.
func (k *moves) quiet() bool {
	e := k.now.Load()
	if e == nil || e.base != nil {
		return false
	}
	l, r := k.tables()
	return e.local == l && e.remote == r
}

// eraLocked returns the era of now. k.mu is held.
func (k *moves) eraLocked(now time.Time) *era {
	e := k.now.Load()
	l, r := k.tables()
	same := e != nil && e.local == l && e.remote == r
	over := e != nil && e.base != nil && k.waiting == 0 && now.After(e.until)
	if same && !over {
		return e
	}
	next := &era{tables: tables{newLookup(l, r), l, r}}
	switch {
	case e == nil:
	case same:
		clear(k.lanes)
	case e.local == l && e.remote.placement == r.placement: // loads
		if !over {
			next.base, next.until = e.base, e.until
		}
	default:
		// Two waits: what was sent before the change may itself have had to wait.
		next.base, next.until = e.base, now.Add(2*k.wait)
		if e.base == nil || over {
			clear(k.lanes)
			next.base = &e.tables
		}
	}
	k.now.Store(next)
	return next
}

func (k *moves) era() *era {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.eraLocked(time.Now())
}

// dispatch is Dispatcher.dispatch while an era is open, and when one may begin.
func (k *moves) dispatch(m *zmsg.Message) (Result, int, error) {
	const tries = 8 // the tables change all the time: then the order may suffer, not the message
	for try := 1; ; try++ {
		e := k.era()
		var p plan
		k.d.plan(m, &e.lookup, &p)
		if e.base == nil {
			return k.d.carry(m, &e.lookup, &p)
		}
		to := firstOf(&p)
		lk, ok := k.laneOf(m, &p, &to)
		if !ok || to.none() {
			return k.d.carry(m, &e.lookup, &p)
		}
		var old plan
		k.d.plan(m, &e.base.lookup, &old)
		from := firstOf(&old)
		if _, tracked := k.laneOf(m, &old, &from); !tracked {
			from = place{}
		}
		moved, err := k.admit(e, try == tries, lk, m, from, to)
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			k.d.cfg.Metrics.MoveDrops.With("full").Inc()
			return Busy, 0, err
		case moved == nil:
			return k.d.carry(m, &e.lookup, &p)
		case !moved.begins:
			return Parked, 0, nil
		}
		k.ask(moved.lane, moved.lane.at, false)
		return Parked, 0, nil
	}
}

// admission says that a message was parked; begins: it is the first, and a fence is to be sent.
type admission struct {
	lane   *lane
	begins bool
}

// errAgain says that the tables have changed while a message was planned.
var errAgain = errors.New("zroute: the tables have changed")

// admit parks m where it may not go on yet; it returns nil where it may. e is what it was planned by; must says that it is not
// to be planned once more.
func (k *moves) admit(e *era, must bool, lk laneKey, m *zmsg.Message, from, to place) (*admission, error) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch newest := k.now.Load(); {
	case newest == e:
	case !must:
		return nil, errAgain
	case newest.base == nil: // a lane that waits would not be seen by the messages after m
		return nil, nil
	}
	ln := k.lanes[lk]
	switch {
	case ln == nil && from.is(&to):
		return nil, nil
	case ln == nil:
		if len(k.lanes) >= maxLanes && !k.sweepLocked(now) {
			return nil, errMoving
		}
		ln = &lane{at: from}
		k.lanes[lk] = ln
	}
	ln.last = now
	if !ln.waits && (ln.at.none() || ln.at.is(&to)) {
		ln.at = to
		return nil, nil
	}
	size := parkedCost + len(m.Body())
	if m.Body() == nil && m.Value != nil {
		size += proto.Size(m.Value)
	}
	if ln.full || len(ln.parked) >= k.d.cfg.MoveQueue || k.bytes+size > k.d.cfg.MoveBytes && k.bytes > 0 {
		return nil, errMoving
	}
	ln.parked = append(ln.parked, parked{m, size})
	k.bytes += size
	k.d.cfg.Metrics.Parked.Inc()
	if ln.waits {
		return &admission{lane: ln}, nil
	}
	ln.waits = true
	k.waiting++
	return &admission{ln, true}, nil
}

var errMoving error = &zmsg.Error{
	Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too much waits for the actor that had this key until the members changed",
}

// sweepLocked forgets lanes that have sent nothing for so long that nothing of theirs waits. It reports whether there is room. It
// looks once in a wait: it reads all lanes.
func (k *moves) sweepLocked(now time.Time) bool {
	if now.Sub(k.swept) < k.wait {
		return false
	}
	k.swept = now
	for lk, ln := range k.lanes {
		if !ln.waits && now.Sub(ln.last) > 2*k.wait {
			delete(k.lanes, lk)
		}
	}
	return len(k.lanes) < maxLanes
}

// laneOf returns the lane of m, which is planned as p and goes to at. ok is false where no order is kept: no key, or a pick that does not follow
// from it.
func (k *moves) laneOf(m *zmsg.Message, p *plan, at *place) (lk laneKey, ok bool) {
	if m.From.Actor != 0 {
		lk.actor = m.From.Actor
	} else {
		lk.session = m.Session.ID
	}
	lk.kind = at.typ
	if p.o.sharded {
		lk.key = p.o.key
		return lk, p.o.keyed
	}
	if p.here == nil {
		lk.key, ok = affinity(p.by, m, at.typ)
		return lk, ok
	}
	lk.key, ok = affinity(k.d.choose.strategies.of(m, at.typ), m, at.typ)
	here, keyed, fixed := localAffinity(k.d.cfg.LocalRouter, m, at.typ)
	switch {
	case ok && (keyed || fixed):
		return lk, true
	case keyed:
		lk.key = here
		return lk, true
	}
	return lk, false
}

// firstOf returns where p sends a message first; nowhere where that is nobody.
func firstOf(p *plan) place {
	switch {
	case p.err != nil:
		return place{}
	case p.here != nil:
		return place{zmsg.Address{Actor: p.here.Actor}, p.here.Target, p.here.Type}
	}
	o := p.o
	l, r := o.next(nil) // the first needs no message
	switch {
	case l != nil:
		return place{zmsg.Address{Actor: l.Actor}, l.Target, l.Type}
	case r != nil:
		return place{addr: r.Address(), typ: r.Type}
	}
	return place{}
}
