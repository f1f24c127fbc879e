package entry

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"zgame/zmsg"
)

// The world of the exhaustive search: some nodes, one object, some requests, a store with one record, and everything that
// can go wrong a bounded number of times, in every order.

const (
	maxNodes = 3
	maxReqs  = 3
)

// lease is what the cluster knows of a node's epoch.
type lease uint8

const (
	valid  lease = iota
	lapsed       // the node may not serve; nobody may take over yet
	dead         // proven: this epoch never serves again
)

// record is the store's document. State has a bit for each request whose effect is in it.
type record struct {
	found bool
	route Route
	rev   uint64
	state uint8
	wid   uint8
}

// write is one that was issued.
type write struct {
	op    Op
	by    zmsg.NodeRef
	route Route // as the record must have it
	rev   uint64
	state uint8
	wid   uint8
	to    zmsg.NodeRef // who becomes the owner
	limbo bool         // its outcome is unknown to who issued it
	done  bool         // it has landed
}

// wnode is a node of the world.
type wnode struct {
	up       bool
	draining bool
	epoch    uint64
	lease    lease
	e        Entry

	memory  uint8
	loaded  record // what Load makes the memory of
	mailbox []Req
	started *Req
	zombie  bool // started runs on under a lease that ended since

	reading  bool
	captured bool
	read     record
	writing  *write
	resolve  bool
	loading  bool

	moved     uint8 // the state that Move wrote
	unheard   bool  // a word about adopting was lost
	transfers int   // that have not ended
}

// message is on its way from one node to another: a request, or a word of a transfer.
type message struct {
	op        Op // Forward, Prepare, Adopt or one of the Tells
	to, from  int
	toEpoch   uint64
	fromEpoch uint64
	route     Route
	req       Req
	parked    []Req
	rev       uint64
	state     uint8
}

// fate is how a request ended.
type fate uint8

const (
	open fate = iota
	acked
	notExecuted
	unknownFate
	withNode // the node that had it died: its asker learns node_lost
	perhaps  // it was with a new owner that did not answer: unknown, and what that owner says later comes too late
)

type world struct {
	nodes   [maxNodes]wnode
	rec     record
	owners  []zmsg.NodeRef // by version, from 1: who committed it
	flight  []message
	orphans []write // of nodes that died, or joined again
	asked   [maxReqs]bool
	fates   [maxReqs]fate
	ran     [maxReqs]uint8
	wids    uint8
	budget  budget
}

// budget is how often each fault may still happen.
type budget struct{ faults, crash, lapse, unknown, fail, readFail, leave, panics, expire, told, drain, move, unquiet, loss, again uint8 }

// search explores a world from its beginning.
type search struct {
	t        *testing.T
	nodes    int
	reqs     int
	onDemand bool
	skew     bool // node 2 always takes itself for the home
	own      bool // request 0 asks to own
	faults   uint8
	mutant   mutant
	broken   string // the first promise that did not hold, and how that came about

	w    *world
	path []string
}

var refNames = [maxNodes]string{"n0", "n1", "n2"}

func (w *world) ref(n int) zmsg.NodeRef {
	return zmsg.NodeRef{ID: refNames[n], Epoch: w.nodes[n].epoch}
}

func index(r zmsg.NodeRef) int { return slices.Index(refNames[:], r.ID) }

// gone reports whether it is proven that r never serves again.
func (w *world) gone(r zmsg.NodeRef) bool {
	n := &w.nodes[index(r)]
	return n.epoch > r.Epoch || n.lease == dead
}

func (w *world) clone() *world {
	c := *w
	c.owners, c.flight, c.orphans = slices.Clone(w.owners), slices.Clone(w.flight), slices.Clone(w.orphans)
	for i := range c.nodes {
		n := &c.nodes[i]
		n.e.Parked = slices.Clone(n.e.Parked)
		n.e.Queue, n.e.held, n.mailbox = slices.Clone(n.e.Queue), slices.Clone(n.e.held), slices.Clone(n.mailbox)
		if n.started != nil {
			r := *n.started
			n.started = &r
		}
		if n.writing != nil {
			x := *n.writing
			n.writing = &x
		}
	}
	return &c
}

// enc writes a world as bytes. Write ids and revisions only compare with each other: ids are named in the order in which they
// appear, revisions by how far they are behind the record.
type enc struct {
	b    []byte
	wids []uint8
	rev  uint64
}

func (e *enc) wid(x uint8) {
	i := slices.Index(e.wids, x)
	if i < 0 {
		i = len(e.wids)
		e.wids = append(e.wids, x)
	}
	e.n(uint64(i))
}

func (e *enc) n(v ...uint64) {
	for _, x := range v {
		e.b = binary.AppendUvarint(e.b, x)
	}
}

func (e *enc) is(v ...bool) {
	x := uint64(0)
	for _, b := range v {
		x <<= 1
		if b {
			x |= 1
		}
	}
	e.n(x)
}

func (e *enc) node(r zmsg.NodeRef) { e.n(uint64(index(r)+1), r.Epoch) }

func (e *enc) route(r Route) {
	e.node(r.Owner)
	e.n(uint64(r.Version))
}

func (e *enc) req(r Req) {
	e.n(r.ID, uint64(r.Hint), uint64(r.Hops))
	e.is(r.Durable, r.Own, r.Again)
}

func (e *enc) reqs(l []Req) {
	e.n(uint64(len(l)))
	for _, r := range l {
		e.req(r)
	}
}

func (e *enc) record(r record) {
	e.route(r.route)
	e.n(e.rev-r.rev, uint64(r.state))
	e.wid(r.wid)
	e.is(r.found)
}

func (e *enc) write(x write) {
	e.node(x.by)
	e.route(x.route)
	e.n(uint64(x.op), e.rev-x.rev, uint64(x.state))
	e.wid(x.wid)
	e.node(x.to)
	e.is(x.limbo, x.done)
}

func (e *enc) entry(x *Entry) {
	e.n(uint64(x.Phase), uint64(x.Running), uint64(x.rounds))
	if x.Phase >= Loading {
		e.n(e.rev - x.Rev)
	}
	e.route(x.Route)
	e.reqs(x.Queue)
	e.is(x.Dirty, x.Writing, x.Unknown, x.Suspended, x.Leaving, x.TooOld, x.reading, x.again, x.resumed, x.bare, x.Notify, x.unclear)
	e.node(x.Target)
	e.n(uint64(x.Expect), uint64(x.Taken), uint64(x.declined))
	e.reqs(x.Parked)
	e.n(uint64(len(x.held)))
	for _, h := range x.held {
		e.req(h.req)
		e.is(h.saved)
	}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// key tells worlds apart, by 128 bits of hash.
func (w *world) key() [2]uint64 {
	e := &enc{b: make([]byte, 0, 512), wids: make([]uint8, 0, 8), rev: w.rec.rev}
	e.record(w.rec)
	for _, o := range w.owners {
		e.node(o)
	}
	e.n(uint64(len(w.flight)))
	for _, m := range w.flight {
		e.n(uint64(m.op), uint64(m.to), uint64(m.from), m.toEpoch, m.fromEpoch, uint64(m.state), e.rev-m.rev)
		e.route(m.route)
		e.req(m.req)
		e.reqs(m.parked)
	}
	e.n(uint64(len(w.orphans)))
	for _, x := range w.orphans {
		e.write(x)
	}
	for r := range w.fates {
		e.n(uint64(w.fates[r]), uint64(w.ran[r]))
		e.is(w.asked[r])
	}
	b := w.budget
	e.b = append(e.b, b.faults, b.crash, b.lapse, b.unknown, b.fail, b.readFail, b.leave, b.panics, b.expire, b.told, b.drain, b.move, b.unquiet, b.loss, b.again)
	for i := range w.nodes {
		n := &w.nodes[i]
		e.n(uint64(n.moved), uint64(n.transfers))
		e.is(n.unheard, n.up, n.draining, n.zombie, n.reading, n.captured, n.resolve, n.loading, n.started != nil, n.writing != nil)
		e.n(n.epoch, uint64(n.lease), uint64(n.memory))
		e.entry(&n.e)
		if n.loading {
			e.record(n.loaded)
		}
		e.reqs(n.mailbox)
		if n.captured {
			e.record(n.read)
		}
		if n.started != nil {
			e.req(*n.started)
		}
		if n.writing != nil {
			e.write(*n.writing)
		}
	}
	return [2]uint64{maphash.Bytes(seeds[0], e.b), maphash.Bytes(seeds[1], e.b)}
}

func (s *search) fail(format string, args ...any) {
	if s.broken == "" {
		s.broken = fmt.Sprintf(format, args...) + "\n  " + strings.Join(s.path, "\n  ")
	}
}

func (s *search) facts(n int) *Facts {
	w := s.w
	f := &Facts{Self: w.ref(n), CanOwn: w.nodes[n].lease == valid && !w.nodes[n].draining, OnDemand: s.onDemand, MaxHops: 2 + s.faults, MaxQueue: 2}
	for k := range s.nodes {
		if w.nodes[k].up && w.nodes[k].lease == valid && !w.nodes[k].draining {
			f.Home = w.ref(k)
			break
		}
	}
	if s.skew && n == 2 && f.CanOwn {
		f.Home = f.Self
	}
	return f
}

// tell has node n step, and carries out what can be done at once.
func (s *search) tell(n int, ev Event) {
	w := s.w
	node := &w.nodes[n]
	out := s.mutant.step(&node.e, s.facts(n), &ev)
	for _, x := range out {
		s.effect(n, x)
	}
	if node.e.Phase == Cached || node.e.Phase.Resident() {
		r := node.e.Route
		if v := int(r.Version); v < 1 || v > len(w.owners) || w.owners[v-1] != r.Owner {
			s.fail("I3: %s remembers the route %v, which nobody has committed", refNames[n], r)
		}
	}
}

func (s *search) end(r Req, f fate) {
	w := s.w
	switch {
	case w.fates[r.ID] == withNode, w.fates[r.ID] == perhaps, f == perhaps && w.fates[r.ID] != open:
		return // a late answer
	}
	if w.fates[r.ID] != open {
		s.fail("I6: request %d ends twice: %v and %v", r.ID, w.fates[r.ID], f)
	}
	w.fates[r.ID] = f
	if f == notExecuted && w.ran[r.ID] > 0 {
		s.fail("request %d was told not executed, and has run", r.ID)
	}
}

func (s *search) effect(n int, x Effect) {
	w := s.w
	node := &w.nodes[n]
	send := func(m message) {
		m.from, m.fromEpoch = n, node.epoch
		w.flight = append(w.flight, m)
	}
	issue := func(state uint8) {
		if node.writing != nil {
			s.fail("%s issues %s while a write is under way", refNames[n], x.Op)
		}
		w.wids++
		node.writing = &write{op: x.Op, by: w.ref(n), to: node.e.Target, route: x.Route, rev: x.Rev, state: state, wid: w.wids}
	}
	switch x.Op {
	case Read:
		if node.reading {
			s.fail("%s reads twice at once", refNames[n])
		}
		node.reading, node.captured = true, false
	case Create, Claim:
		if !s.onDemand && !s.own {
			s.fail("I14: %s claims for a request that only looks", refNames[n])
		}
		if node.lease != valid || node.draining {
			s.fail("I11: %s claims without a lease, or while it drains", refNames[n])
		}
		issue(0)
	case Save:
		issue(node.memory)
	case Release:
		if node.e.bare {
			issue(node.loaded.state)
		} else {
			issue(node.memory)
		}
	case Resolve:
		node.resolve = true
	case Load:
		if w.rec.route.Owner == w.ref(n) && w.rec.route.Version == node.e.Route.Version && w.rec.rev != node.e.Rev {
			s.fail("%s loads revision %d of its record, which is at %d", refNames[n], node.e.Rev, w.rec.rev)
		}
		node.loading, node.loaded = true, w.rec
	case Run:
		node.mailbox = append(node.mailbox, x.Req)
	case Forward:
		send(message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route, req: x.Req})
	case Prepare, TellPrepared, TellUnprepared, TellAdopted, TellNotAdopted:
		send(message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route})
	case Move:
		node.moved = node.memory
		issue(node.memory)
	case Adopt:
		node.unheard = false
		send(message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route, parked: x.Parked, rev: x.Rev, state: node.moved})
	case LoadGiven: // deliver has put it there
		node.loading = true
		if r := w.rec; r.route == node.e.Route && (r.rev != node.e.Rev || r.state != node.loaded.state) {
			s.fail("I10: %s is given %03b of revision %d; the record has %03b of %d", refNames[n], node.loaded.state, node.e.Rev, r.state, r.rev)
		}
	case TransferDone, TransferNot:
		if node.transfers--; node.transfers < 0 {
			s.fail("%s ends a transfer twice", refNames[n])
		}
	case Answer:
		if x.Cause == Hops {
			s.fail("I8: request %d has made %d hops", x.Req.ID, x.Req.Hops)
		}
		if x.Cause == Unconfirmed {
			s.end(x.Req, perhaps)
		} else if x.Cause.Executed() {
			s.end(x.Req, unknownFate)
		} else {
			s.end(x.Req, notExecuted)
		}
	case Ack:
		s.end(x.Req, acked)
		landed := w.rec.state>>x.Req.ID&1 == 1
		if x.Req.Own {
			landed = w.rec.route.Owner == w.ref(n)
		}
		switch {
		case x.Req.Durable && x.Req.ID != readOnly && !landed:
			s.fail("I10: request %d is told durable, and is not in the record", x.Req.ID)
		case node.lease != valid && !landed && x.Req.ID != readOnly:
			s.fail("I4: %s tells a success of request %d without a lease, and no write proves it", refNames[n], x.Req.ID)
		case w.rec.route.Owner != w.ref(n) && !landed && !s.justReleased(n):
			s.fail("I4: %s tells a success of request %d, and does not own the record", refNames[n], x.Req.ID)
		}
	case Drop:
		if node.writing != nil && node.writing.limbo && !s.dropAllowed(n) {
			s.fail("I9: %s drops its memory while a write is unknown", refNames[n])
		}
		s.drop(n)
	}
}

// justReleased: the write that gave the ownership up, or away, proves that it was there until then.
func (s *search) justReleased(n int) bool {
	w := s.w
	return len(w.owners) > 1 && w.owners[len(w.owners)-2] == w.ref(n)
}

// dropAllowed: a panic has spoiled the memory, which must not be saved whatever is unknown.
func (s *search) dropAllowed(n int) bool {
	return s.w.nodes[n].e.Phase == Settling || strings.HasPrefix(s.path[len(s.path)-1], "panic")
}

func (s *search) drop(n int) {
	node := &s.w.nodes[n]
	for _, r := range node.mailbox {
		s.end(r, notExecuted)
	}
	if node.started != nil {
		s.end(*node.started, unknownFate)
	}
	node.mailbox, node.started, node.zombie, node.memory = nil, nil, false, 0
}

// readOnly is the request that changes nothing.
const readOnly = 2

// apply lands a write, or says why not.
func (s *search) apply(x *write) (landed bool) {
	w := s.w
	r := &w.rec
	if x.done || r.wid == x.wid && x.wid != 0 {
		return r.wid == x.wid
	}
	own := func(o zmsg.NodeRef, v zmsg.RouteVersion) {
		if !o.IsZero() || x.op == Release {
			w.owners = append(w.owners, o)
			if int(v) != len(w.owners) {
				s.fail("I2: version %d is committed as the change number %d", v, len(w.owners))
			}
		}
		r.route = Route{o, v}
	}
	if s.mutant.overwrites && x.op == Save {
		x.route, x.rev = r.route, r.rev
	}
	switch x.op {
	case Create:
		if r.found {
			return false
		}
		r.found = true
		own(x.by, r.route.Version+1)
		r.state = 0
	default:
		if !r.found || r.route != x.route || r.rev != x.rev {
			return false
		}
		if x.op == Claim {
			if o := r.route.Owner; !o.IsZero() && o != x.by && !w.gone(o) {
				s.fail("I1: %v takes the object from %v, which is not dead", x.by, o)
			}
			own(x.by, r.route.Version+1)
		} else {
			if r.state&^x.state != 0 {
				s.fail("a save of %v loses what the record had: %03b becomes %03b", x.by, r.state, x.state)
			}
			r.state = x.state
			switch x.op {
			case Release:
				own(zmsg.NodeRef{}, r.route.Version+1)
			case Move:
				own(x.to, r.route.Version+1)
			}
		}
	}
	r.rev++
	r.wid = x.wid
	return true
}

// step is one thing that can happen.
type choice struct {
	name string
	do   func(s *search)
}

// choices returns what can happen in s.w.
func (s *search) choices() (normal, faults []choice) {
	w := s.w
	add := func(list *[]choice, name string, do func(s *search)) { *list = append(*list, choice{name, do}) }
	fault := func(name string, n *uint8, do func(s *search)) {
		if *n > 0 && w.budget.faults > 0 {
			add(&faults, name, do)
		}
	}
	for r := range s.reqs {
		if !w.asked[r] && (r == 0 || w.asked[r-1]) {
			for n := range s.nodes {
				if w.nodes[n].up {
					add(&normal, fmt.Sprintf("request %d at n%d", r, n), func(s *search) {
						s.w.asked[r] = true
						s.tell(n, Event{Kind: Asked, Req: Req{ID: uint64(r), Durable: r == 1, Own: s.own && r == 0}})
					})
				}
			}
		}
	}
	for i, m := range w.flight {
		if i > 0 && slices.ContainsFunc(w.flight[:i], func(o message) bool { return o.from == m.from && o.to == m.to }) {
			continue // one ordered stream
		}
		what := fmt.Sprintf("%s of %s to %s", m.op, refNames[m.from], refNames[m.to])
		if m.op == Forward {
			what = fmt.Sprintf("request %d, %s", m.req.ID, what)
		}
		add(&normal, what+" arrives", func(s *search) {
			s.w.flight = slices.Delete(s.w.flight, i, i+1)
			s.deliver(m)
		})
		if m.op != Forward {
			fault(what+" is lost", &w.budget.loss, func(s *search) {
				s.spend(&s.w.budget.loss)
				s.w.flight = slices.Delete(s.w.flight, i, i+1)
				s.unheard(m)
			})
		}
	}
	for i := range w.orphans {
		add(&normal, fmt.Sprintf("orphan write %d lands or not", w.orphans[i].wid), func(s *search) {
			x := s.w.orphans[i]
			s.w.orphans = slices.Delete(s.w.orphans, i, i+1)
			s.apply(&x)
		})
		add(&normal, "orphan write vanishes", func(s *search) { s.w.orphans = slices.Delete(s.w.orphans, i, i+1) })
	}
	for n := range s.nodes {
		s.nodeChoices(n, add, &normal, fault)
	}
	return normal, faults
}

// alive reports whether a node is still the one of that epoch.
func (w *world) alive(n int, epoch uint64) bool { return w.nodes[n].up && w.nodes[n].epoch == epoch }

// deliver hands a message over, or tells its sender that nobody is there.
func (s *search) deliver(m message) {
	w := s.w
	if !w.alive(m.to, m.toEpoch) {
		switch sender := w.alive(m.from, m.fromEpoch); {
		case m.op == Forward && sender:
			s.tell(m.from, Event{Kind: Undelivered, Req: m.req, Route: m.route})
		case m.op == Forward:
			s.end(m.req, withNode)
		case m.op == Prepare && sender:
			s.tell(m.from, Event{Kind: Unprepared})
		case m.op == Adopt && sender:
			s.tell(m.from, Event{Kind: AdoptUndelivered})
		}
		return
	}
	from := zmsg.NodeRef{ID: refNames[m.from], Epoch: m.fromEpoch}
	switch m.op { //nolint:exhaustive // what is sent
	case Forward:
		s.tell(m.to, Event{Kind: Asked, Req: m.req})
	case Prepare:
		s.tell(m.to, Event{Kind: PrepareAsked, From: from, Route: Route{from, m.route.Version}})
	case TellPrepared:
		s.tell(m.to, Event{Kind: Prepared})
	case TellUnprepared:
		s.tell(m.to, Event{Kind: Unprepared})
	case Adopt:
		node := &w.nodes[m.to]
		before := node.loaded
		if !node.loading {
			node.loaded = record{found: true, route: m.route, rev: m.rev, state: m.state}
		}
		s.tell(m.to, Event{Kind: AdoptAsked, From: from, Route: m.route, Rev: m.rev, Parked: slices.Clone(m.parked)})
		if !node.loading {
			node.loaded = before
		}
	case TellAdopted, TellNotAdopted:
		if e := &w.nodes[m.to].e; e.Phase != Handing || e.Route.Version != m.route.Version {
			return // of an earlier transfer: whoever drives the entry tells them apart by the version
		}
		k := Adopted
		if m.op == TellNotAdopted {
			k = NotAdopted
		}
		s.tell(m.to, Event{Kind: k})
	}
}

// unheard tells of the loss of a word in time.
func (s *search) unheard(m message) {
	w := s.w
	switch m.op { //nolint:exhaustive // words of a transfer
	case Prepare:
		if w.alive(m.from, m.fromEpoch) {
			s.tell(m.from, Event{Kind: Unprepared})
		}
	case TellPrepared, TellUnprepared:
		if w.alive(m.to, m.toEpoch) {
			s.tell(m.to, Event{Kind: Unprepared})
		}
	case Adopt:
		if w.alive(m.from, m.fromEpoch) {
			w.nodes[m.from].unheard = true
		}
	case TellAdopted, TellNotAdopted:
		if w.alive(m.to, m.toEpoch) {
			w.nodes[m.to].unheard = true
		}
	}
}

func (s *search) nodeChoices(n int, add func(*[]choice, string, func(*search)), normal *[]choice, fault func(string, *uint8, func(*search))) {
	w := s.w
	node := &w.nodes[n]
	name := refNames[n]
	b := &w.budget
	if !node.up {
		add(normal, name+" starts again", func(s *search) {
			x := &s.w.nodes[n]
			*x = wnode{up: true, epoch: x.epoch + 1}
		})
		if node.lease != dead {
			add(normal, name+" is proven dead", func(s *search) { s.w.nodes[n].lease = dead })
		}
		return
	}
	if node.reading && !node.captured {
		add(normal, name+" read", func(s *search) {
			x := &s.w.nodes[n]
			x.captured, x.read = true, s.w.rec
		})
		fault(name+" cannot read", &b.readFail, func(s *search) {
			s.spend(&s.w.budget.readFail)
			s.w.nodes[n].reading = false
			s.tell(n, Event{Kind: ReadFailed})
		})
	}
	if node.reading && node.captured {
		add(normal, name+" has read", func(s *search) {
			x := &s.w.nodes[n]
			r := x.read
			x.reading, x.captured, x.read = false, false, record{}
			o := r.route.Owner
			s.tell(n, Event{Kind: HasRead, Found: r.found, Route: r.route, Rev: r.rev, OwnerDead: !o.IsZero() && s.w.gone(o)})
		})
	}
	if node.loading {
		add(normal, name+" has loaded", func(s *search) {
			x := &s.w.nodes[n]
			x.loading, x.memory = false, x.loaded.state
			s.tell(n, Event{Kind: Loaded})
		})
		fault(name+" cannot load", &b.fail, func(s *search) {
			s.spend(&s.w.budget.fail)
			s.w.nodes[n].loading = false
			s.tell(n, Event{Kind: LoadFailed})
		})
	}
	if x := node.writing; x != nil && !x.limbo {
		what := fmt.Sprintf("%s %s(%d)", name, x.op, x.wid)
		add(normal, what+" ends", func(s *search) { s.finish(n) })
		fault(what+" fails", &b.fail, func(s *search) {
			s.spend(&s.w.budget.fail)
			s.w.nodes[n].writing = nil
			s.tell(n, Event{Kind: Failed})
		})
		fault(what+" lands, unknown", &b.unknown, func(s *search) {
			s.spend(&s.w.budget.unknown)
			x := s.w.nodes[n].writing
			x.limbo, x.done = true, s.apply(x)
			s.tell(n, Event{Kind: Unclear})
		})
		fault(what+" does not land, unknown", &b.unknown, func(s *search) {
			s.spend(&s.w.budget.unknown)
			s.w.nodes[n].writing.limbo = true
			s.tell(n, Event{Kind: Unclear})
		})
	}
	if x := node.writing; x != nil && x.limbo && !x.done {
		add(normal, fmt.Sprintf("%s %s(%d) lands late", name, x.op, x.wid), func(s *search) {
			x := s.w.nodes[n].writing
			x.done = s.apply(x)
		})
	}
	if node.resolve {
		add(normal, name+" resolves", func(s *search) {
			s.w.nodes[n].resolve = false
			s.finish(n)
		})
	}
	if node.started == nil && len(node.mailbox) > 0 {
		add(normal, fmt.Sprintf("%s starts request %d", name, node.mailbox[0].ID), func(s *search) { s.start(n) })
	}
	if node.started != nil {
		r := *node.started
		add(normal, fmt.Sprintf("%s ran request %d", name, r.ID), func(s *search) {
			x := &s.w.nodes[n]
			x.started, x.zombie = nil, false
			s.w.ran[r.ID]++
			if s.w.ran[r.ID] > 1 {
				s.fail("I7: request %d ran twice", r.ID)
			}
			if r.ID != readOnly {
				x.memory |= 1 << r.ID
			}
			s.tell(n, Event{Kind: Ran, Req: r, Dirty: r.ID != readOnly})
		})
		fault(fmt.Sprintf("panic in request %d on %s", r.ID, name), &b.panics, func(s *search) {
			s.spend(&s.w.budget.panics)
			x := &s.w.nodes[n]
			x.started, x.zombie = nil, false
			s.w.ran[r.ID]++
			s.tell(n, Event{Kind: Panicked, Req: r})
		})
	}
	if node.e.Dirty && !node.e.Writing && (node.e.Phase == Active || node.e.Phase == Checking) {
		add(normal, name+" is to save", func(s *search) { s.tell(n, Event{Kind: SaveDue}) })
	}
	if !node.draining {
		fault(name+" drains", &b.drain, func(s *search) {
			s.spend(&s.w.budget.drain)
			s.w.nodes[n].draining = true
		})
	}
	for v, o := range w.owners {
		if o.IsZero() {
			continue
		}
		fault(fmt.Sprintf("%s is told of version %d", name, v+1), &b.told, func(s *search) {
			s.spend(&s.w.budget.told)
			before := s.w.nodes[n].e.Route
			s.tell(n, Event{Kind: Told, Route: Route{o, zmsg.RouteVersion(v + 1)}})
			if now := s.w.nodes[n].e.Route; now.Version < before.Version {
				s.fail("I3: %s goes back from %v to %v", refNames[n], before, now)
			}
		})
	}
	if node.e.Phase == Active && node.e.Target.IsZero() {
		for k := range s.nodes {
			if k == n {
				continue
			}
			for _, notify := range []bool{true, false} {
				fault(fmt.Sprintf("%s is to hand over to %s, notify %v", name, refNames[k], notify), &b.move, func(s *search) {
					s.spend(&s.w.budget.move)
					s.w.nodes[n].transfers++
					s.tell(n, Event{Kind: Transfer, Target: s.w.ref(k), Notify: notify})
				})
			}
		}
	}
	if node.e.Phase == Freezing && node.e.Running > 0 {
		fault(name+" is not quiet in time", &b.unquiet, func(s *search) {
			s.spend(&s.w.budget.unquiet)
			s.tell(n, Event{Kind: Unquiet})
		})
	}
	if node.e.Phase == Handing {
		switch target := node.e.Target; {
		case w.gone(target):
			add(normal, name+" learns that the target is dead", func(s *search) { s.tell(n, Event{Kind: AdoptOver, OwnerDead: true}) })
		case node.unheard:
			add(normal, name+" asks the target again", func(s *search) { s.tell(n, Event{Kind: AdoptUnclear}) })
		default:
			fault(name+" asks the target twice", &b.again, func(s *search) {
				s.spend(&s.w.budget.again)
				s.tell(n, Event{Kind: AdoptUnclear})
			})
		}
		fault(name+" gives up on the target", &b.unquiet, func(s *search) {
			s.spend(&s.w.budget.unquiet)
			s.tell(n, Event{Kind: AdoptOver, OwnerDead: s.w.gone(s.w.nodes[n].e.Target)})
		})
	}
	if node.e.Phase == Cached {
		fault(name+"'s route expires", &b.expire, func(s *search) {
			s.spend(&s.w.budget.expire)
			s.tell(n, Event{Kind: Expired})
		})
	}
	if node.e.Phase.Resident() && !node.e.Leaving {
		fault(name+" is to leave", &b.leave, func(s *search) {
			s.spend(&s.w.budget.leave)
			s.tell(n, Event{Kind: Leave})
		})
	}
	fault(name+" crashes", &b.crash, func(s *search) {
		s.spend(&s.w.budget.crash)
		s.lose(n)
		x := &s.w.nodes[n]
		*x = wnode{epoch: x.epoch, lease: max(x.lease, lapsed)}
	})
	if node.lease == valid && node.e.Suspended && !node.reading {
		add(normal, name+" is told again that its lease is valid", func(s *search) { s.tell(n, Event{Kind: Resume}) })
	}
	switch node.lease {
	case valid:
		fault(name+"'s lease lapses", &b.lapse, func(s *search) {
			s.spend(&s.w.budget.lapse)
			x := &s.w.nodes[n]
			x.lease, x.zombie = lapsed, x.started != nil
			s.tell(n, Event{Kind: Suspend})
		})
	case lapsed:
		add(normal, name+"'s lease is back", func(s *search) {
			x := &s.w.nodes[n]
			x.lease, x.zombie = valid, false
			s.tell(n, Event{Kind: Resume})
		})
		add(normal, name+"'s lease ends", func(s *search) { s.w.nodes[n].lease = dead })
	case dead:
		add(normal, name+" joins again", func(s *search) {
			s.drop(n)
			s.lose(n)
			x := &s.w.nodes[n]
			*x = wnode{up: true, epoch: x.epoch + 1}
		})
	}
}

func (s *search) spend(n *uint8) {
	*n--
	s.w.budget.faults--
}

// lose ends what the entry and the mailbox of a node have, whose asker learns that the node is gone.
func (s *search) lose(n int) {
	node := &s.w.nodes[n]
	for _, r := range node.e.Queue {
		s.w.fates[r.ID] = withNode
	}
	for _, r := range node.e.Parked {
		if s.w.fates[r.ID] == open {
			s.w.fates[r.ID] = withNode
		}
	}
	for _, h := range node.e.held {
		s.w.fates[h.req.ID] = withNode
	}
	for _, r := range node.mailbox {
		s.w.fates[r.ID] = withNode
	}
	if node.started != nil {
		s.w.fates[node.started.ID] = withNode
	}
	if node.writing != nil {
		s.w.orphans = append(s.w.orphans, *node.writing)
	}
}

func (s *search) start(n int) {
	w := s.w
	node := &w.nodes[n]
	r := node.mailbox[0]
	node.mailbox = slices.Delete(node.mailbox, 0, 1)
	if node.lease != valid {
		// Whoever carries out Run looks at the lease again before it starts.
		s.end(r, notExecuted)
		s.skipped(n)
		return
	}
	if w.rec.route.Owner != w.ref(n) || w.rec.route.Version != node.e.Route.Version {
		s.fail("I4: %s starts request %d on version %d; the record has %v", refNames[n], r.ID, node.e.Route.Version, w.rec.route)
	}
	for k := range s.nodes {
		if o := &w.nodes[k]; k != n && o.started != nil && !o.zombie {
			s.fail("I5: requests %d and %d run at once", r.ID, o.started.ID)
		}
	}
	node.started = &r
}

// skipped tells the entry of a request that ended before it was started.
func (s *search) skipped(n int) {
	s.w.nodes[n].e.Running--
	s.w.nodes[n].e.Step(s.facts(n), &Event{Kind: Told}, nil)
}

// finish lands the write of node n, or finds that it cannot, and tells.
func (s *search) finish(n int) {
	node := &s.w.nodes[n]
	x := node.writing
	landed := s.apply(x)
	node.writing = nil
	if !landed {
		s.tell(n, Event{Kind: Conflicted})
		return
	}
	s.tell(n, Event{Kind: Wrote, Route: s.w.rec.route, Rev: s.w.rec.rev})
}

// run explores all worlds from w on, breadth first, and returns how many there are.
func (s *search) run(first *world, most int) (states int) {
	type item struct {
		w    *world
		path *trail
	}
	seen := map[[2]uint64]struct{}{first.key(): {}}
	queue := []item{{first, nil}}
	for len(queue) > 0 {
		it := queue[0]
		queue[0] = item{}
		queue = queue[1:]
		s.w = it.w
		normal, faults := s.choices()
		if len(normal) == 0 {
			s.path = it.path.list()
			for r := range s.reqs {
				if it.w.fates[r] == open {
					s.fail("I6: nothing can happen any more, and request %d has not ended", r)
				}
			}
			for n := range s.nodes {
				if x := &it.w.nodes[n]; x.transfers != 0 {
					s.fail("nothing can happen any more, and %s has not ended a transfer", refNames[n])
				} else if x.e.Phase.Resident() && x.memory != it.w.rec.state {
					s.fail("I10: nothing can happen any more, and the memory %03b of %s is not saved", x.memory, refNames[n])
				}
			}
			if s.broken != "" {
				return len(seen)
			}
		}
		for _, c := range append(normal, faults...) {
			s.w = it.w.clone()
			p := &trail{it.path, c.name}
			s.path = []string{c.name}
			c.do(s)
			if s.broken != "" {
				s.broken = strings.SplitN(s.broken, "\n", 2)[0] + "\n  " + strings.Join(p.list(), "\n  ")
				return len(seen)
			}
			k := s.w.key()
			if _, ok := seen[k]; ok {
				continue
			}
			seen[k] = struct{}{}
			if len(seen) >= most {
				s.t.Fatalf("more than %d states: the bounds of the search are too wide", most)
			}
			queue = append(queue, item{s.w, p})
		}
	}
	return len(seen)
}

// trail is how a world was reached.
type trail struct {
	before *trail
	name   string
}

func (t *trail) list() []string {
	var l []string
	for ; t != nil; t = t.before {
		l = append(l, t.name)
	}
	slices.Reverse(l)
	return l
}

func newWorld(nodes int, b budget) *world {
	w := &world{budget: b}
	for n := range nodes {
		w.nodes[n] = wnode{up: true, epoch: 1}
	}
	return w
}

// scope is how large a searched world is.
type scope struct {
	nodes, reqs int
	faults      uint8
	onDemand    bool
	skew        bool
	own         bool // request 0 asks that the object be owned where it arrives
}

func (c scope) search(t *testing.T, m mutant) (*search, int) {
	t.Helper()
	s := &search{t: t, nodes: c.nodes, reqs: c.reqs, onDemand: c.onDemand, skew: c.skew, own: c.own, mutant: m, faults: c.faults}
	w := newWorld(c.nodes, budget{
		faults: c.faults, crash: 1, lapse: 1, unknown: 1, fail: 1, readFail: 1, leave: 1, panics: 1, expire: 1, told: 1, drain: 1,
		move: 1, unquiet: 1, loss: 1, again: 1,
	})
	return s, s.run(w, 4_000_000)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	all := 0
	for _, c := range []scope{
		{nodes: 2, reqs: 2, faults: 2, onDemand: true},
		{nodes: 3, reqs: 2, faults: 1, onDemand: true, skew: true},
		{nodes: 2, reqs: 3, faults: 1, onDemand: true},
		{nodes: 2, reqs: 3, faults: 2, own: true},
		{nodes: 3, reqs: 2, faults: 1, own: true, skew: true},
		{nodes: 3, reqs: 3, faults: 1, onDemand: true},
	} {
		if raceEnabled && c.nodes+c.reqs+int(c.faults) > 6 {
			continue // one goroutine: the race detector only makes it slow
		}
		s, n := c.search(t, mutant{})
		if s.broken != "" {
			t.Fatalf("%+v: %s", c, s.broken)
		}
		all += n
		t.Logf("%+v: %d states", c, n)
	}
	t.Logf("%d states", all)
}
