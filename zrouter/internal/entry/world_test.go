package entry

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
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
	transfers int   // that have not ended
}

// message is on its way from one node to another: a request, or a word of a transfer.
type message struct {
	op        Op // Forward, Prepare, Hint or one of the Tells
	to, from  int
	toEpoch   uint64
	fromEpoch uint64
	route     Route
	req       Req
	knows     Route // a newer one, of who turns a transfer down
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
)

type world struct {
	nodes   [maxNodes]wnode
	rec     record
	owners  []zmsg.NodeRef // by version, from 1: who committed it
	flight  []message
	orphans []write // of nodes that died, or joined again
	asked   [maxReqs]bool
	askedAt [maxReqs]uint8 // at which node, and which start of it
	began   [maxReqs]bool
	given   bool // up, at least once
	fates   [maxReqs]fate
	ran     [maxReqs]uint8
	wids    uint8
	budget  budget
}

// budget is how often each fault may still happen.
type budget struct{ faults, crash, lapse, unknown, fail, readFail, leave, panics, expire, told, drain, move, unquiet, loss, unexpect uint8 }

// search explores a world from its beginning.
type search struct {
	t        *testing.T
	nodes    int
	reqs     int
	onDemand bool
	skew     bool // node 2 always takes itself for the home
	own      bool // request 0 asks to own
	shy      bool // request 0 is shy
	then     bool // while request 0 runs, it asks for something to run behind the save
	order    bool // it is checked that requests of one node are handled in the order in which they were asked for
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
	e.is(r.Durable, r.Own, r.Again, r.Fence, r.Shy, r.Then)
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
	e.is(x.Dirty, x.Writing, x.Unknown, x.Suspended, x.Leaving, x.TooOld, x.reading, x.again, x.resumed, x.bare, x.Moves, x.Notify, x.Fencing)
	e.route(x.Lane)
	e.node(x.Target)
	e.n(uint64(x.Expect))
	e.n(uint64(len(x.held)))
	for _, h := range x.held {
		e.req(h.req)
		e.is(h.saved, h.idle)
	}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// key tells worlds apart, by 128 bits of hash.
func (w *world) key() [2]uint64 {
	e := &enc{b: make([]byte, 0, 512), wids: make([]uint8, 0, 8), rev: w.rec.rev}
	e.is(w.given)
	e.record(w.rec)
	for _, o := range w.owners {
		e.node(o)
	}
	e.n(uint64(len(w.flight)))
	for _, m := range w.flight {
		e.n(uint64(m.op), uint64(m.to), uint64(m.from), m.toEpoch, m.fromEpoch, uint64(m.state), e.rev-m.rev)
		e.route(m.route)
		e.route(m.knows)
		e.req(m.req)
	}
	e.n(uint64(len(w.orphans)))
	for _, x := range w.orphans {
		e.write(x)
	}
	for r := range w.fates {
		e.n(uint64(w.fates[r]), uint64(w.ran[r]))
		e.is(w.asked[r], w.began[r])
		e.n(uint64(w.askedAt[r]))
	}
	b := w.budget
	e.b = append(e.b, b.faults, b.crash, b.lapse, b.unknown, b.fail, b.readFail, b.leave, b.panics, b.expire, b.told, b.drain, b.move, b.unquiet, b.loss, b.unexpect)
	for i := range w.nodes {
		n := &w.nodes[i]
		e.n(uint64(n.moved), uint64(n.transfers))
		e.is(n.up, n.draining, n.zombie, n.reading, n.captured, n.resolve, n.loading, n.started != nil, n.writing != nil)
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
