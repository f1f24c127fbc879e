package zrouter

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// object is what this node knows of one object that is in memory here, or about which something is under way. Routes to others'
// objects at rest are in the shard's routes. Guarded by the shard's mu.
type object struct {
	sh    *shard
	key   zmsg.Key
	kind  *kind // nil where this node does not host it
	entry entry.Entry

	calls   map[uint64]*call // that wait in the entry, or whose success is held, by Req.ID
	res     *residence       // what is in memory
	old     *residence       // what was, until its actor has ended
	rec     *zstore.Record   // what is to be loaded
	write   *write           // under way
	ios     int              // reads, writes and loads under way
	loads   bool             // Load waits for old to end
	touched bool             // the turn that holds the lock has it in touched
	inert   bool             // abandoned: what ends later changes nothing
	moves   *move            // transfers that were asked for, in order: the first may have begun
	expects *expectation     // room for what this node has agreed to take over
	fence   uint64           // the call that is a fence on its way; 0: none
	last    uint32           // number of what was sent on last
	at      uint32           // when the route was last confirmed, in seconds since the set's start

	orphans  *bound            // of the stay that a panic has ended, for the next
	orphaned zmsg.RouteVersion // of that stay

	why error // why it cannot be created, loaded, or saved

	used    time.Time // when something last came
	saveAt  time.Time // when to save; zero: nothing to
	unsaved time.Time // since when something is not saved; zero: all is
	fails   int       // saves that failed in a row
	hinted  time.Time // when a hint came, by which it is being loaded
	frozen  int64     // likewise: since when it takes no requests, Unix milliseconds
	bytes   int       // of the messages that wait
	looks   int       // reads of the record that failed in a row, which it must see before it serves again
}

// write is one write of the record under way.
type write struct {
	o      *object
	op     entry.Op
	change zstore.Change
	tries  int
	make   func(k zmsg.Key) (zstore.Write, error) // of a Create: the first state
	fresh  bool                                   // of a Create: no client's request has been here before, and that is to be known
	trace  *zmsg.Trace                            // in which the state was changed; nil: none that is recorded
	begun  time.Time                              // when it had the state, where trace is set
}

func (o *object) log() *slog.Logger { return o.sh.set.log.With("key", o.key.String()) }

func (o *object) name() string {
	if o.kind != nil {
		return o.kind.name
	}
	return ""
}

// keep has c found by its id.
func (o *object) keep(c *call) {
	if o.calls == nil {
		o.calls = make(map[uint64]*call)
	}
	o.calls[c.req.ID] = c
	if c.size = 0; c.m != nil {
		c.size = sizeOf(c.m)
		o.bytes += c.size
		o.sh.set.keptBytes.Add(int64(c.size))
	}
	o.sh.set.kept.Add(1)
	o.sh.set.counts.Waiting.Inc()
}

// take finds the call of a request, and forgets it. It is nil for requests that are nobody's.
func (t *turn) take(o *object, id uint64) *call {
	if t.cur != nil && t.cur.req.ID == id {
		c := t.cur
		t.cur = nil
		return c
	}
	c := o.calls[id]
	if c != nil {
		delete(o.calls, id)
		o.bytes -= c.size
		o.sh.set.keptBytes.Add(-int64(c.size))
		o.sh.set.kept.Add(-1)
		o.sh.set.counts.Waiting.Dec()
	}
	return c
}

// resting reports that the routes can keep what is known.
func (o *object) resting() bool {
	return (o.entry.Phase == entry.Absent || o.entry.Phase == entry.Cached) &&
		o.ios == 0 && len(o.calls) == 0 && o.res == nil && o.old == nil && o.write == nil && o.moves == nil && o.expects == nil && o.fence == 0
}

// messageOverhead is what a message that waits takes besides its body, roughly.
const messageOverhead = 512

// sizeOf is how much memory a message takes that waits.
func sizeOf(m *zmsg.Message) int {
	n := messageOverhead + len(m.Body())
	if m.Value != nil {
		n += proto.Size(m.Value)
	}
	return n
}
