package zactor

import (
	"container/list"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Overflow says what happens to a message for an actor whose mailbox is full: by WithMailbox, or by WithMailboxBytes. The
// zero value is Reject. What is dropped is a dead letter.
//
// Only Reject without a bound in bytes takes messages from the mailbox in batches; with anything else the actor takes them
// one by one, about 0.1 us more for each, so that the bound and the order of what is dropped are exact.
type Overflow int64

const (
	// Reject turns the new message down: the sender, the asker or the client learns ErrBusy.
	Reject Overflow = 0
	// DropOldest drops what has waited longest to make room; who asked for that learns ErrBusy. What the group itself
	// puts there (outcomes, timers, ends of sessions, stops) stays, and where only that waits the new message is turned down.
	DropOldest Overflow = -1
	// DropNewest drops the new message: a Tell reports no error, an asker learns ErrBusy.
	DropNewest Overflow = -2

	badWait Overflow = math.MinInt64 // Wait with a duration that is none
)

// Wait lets the sender wait for room, the one who came first first, at most d and within the deadline of its context or
// handler; then it learns ErrBusy. Who asks stops waiting when its context ends, all do when the actor ends (ErrStopped).
//
// Not everybody can wait. Learns ErrBusy at once: an actor that sends to itself, and what comes by Deliver (from a gate, another
// node, or a route), which waiting would hold up for all others. A handler that waits handles nothing else, so that two
// actors that send to each other may both wait until d is over: keep d short.
func Wait(d time.Duration) Overflow {
	if d <= 0 {
		return badWait
	}
	return Overflow(d)
}

// String returns reject, drop_oldest, drop_newest, or wait and how long.
func (o Overflow) String() string {
	switch {
	case o == Reject:
		return "reject"
	case o == DropOldest:
		return "drop_oldest"
	case o == DropNewest:
		return "drop_newest"
	case o > 0:
		return "wait " + time.Duration(o).String()
	default:
		return fmt.Sprintf("overflow %d", int64(o))
	}
}

func (o Overflow) validate(where string) error {
	switch {
	case o >= DropNewest:
		return nil
	case o == badWait:
		return fmt.Errorf("zactor: %s: Wait needs a positive duration", where)
	default:
		return fmt.Errorf("zactor: %s is %v: want Reject, DropOldest, DropNewest or Wait", where, o)
	}
}

// maxMailboxBytes is the largest bound by bytes: 1 TiB.
const maxMailboxBytes = 1 << 40

func validateBytes(where string, n int) error {
	if n < 0 || n > maxMailboxBytes {
		return fmt.Errorf("zactor: %s is %d: want 0 (no bound) to %d bytes", where, n, maxMailboxBytes)
	}
	return nil
}

// Sizes are counted in steps of sizeStep bytes, rounded up, so that one fits into what an item has to spare.
const (
	sizeStep = 256
	maxSize  = math.MaxUint16
)

// sizeOf returns the encoded size of a message in steps; what is larger than 16 MiB counts as that.
func sizeOf(it *item) uint16 {
	n := 0
	if m := it.msg; m != nil && m.Body() != nil {
		n = len(m.Body())
	} else if v, ok := it.value.(proto.Message); ok && v != nil {
		n = proto.Size(v)
	}
	return uint16(min((n+sizeStep-1)/sizeStep, maxSize))
}

// bounds is what a mailbox has that is not a plain one: another policy than Reject, or a bound by bytes. All of mailbox.in
// from head on waits, but for tombstones (itemGone); the goroutine takes one item at a time, which is begun then.
//
// Taking and dropping are amortised O(1): both indices only move forward, and what is behind them is removed when it is
// half of the queue.
type bounds struct {
	// Set at construction.
	policy Overflow
	limit  int // messages
	room   int // bytes, in steps; 0: no bound

	// Guarded by the mailbox's mu.
	head    int       // items before it are taken
	tombs   int       // tombstones from head on
	scan    int       // no item before it can be dropped
	users   int       // items that can be dropped
	bytes   int       // their sizes
	passed  int       // items that have gone from the front
	waiters list.List // of *waiter, the oldest first; not empty only while something waits in the mailbox

	// Owned by the turn.
	one [1]item // the batch

	goroutine atomic.Uint64 // the actor's, where senders may wait; 0 before the first
}

// newBounds returns nil for a plain mailbox. bytes is a bound, 0 for none.
func newBounds(policy Overflow, limit, bytes int) *bounds {
	if policy == Reject && bytes == 0 {
		return nil
	}
	q := &bounds{policy: policy, limit: limit}
	if bytes > 0 {
		q.room = max(1, bytes/sizeStep)
	}
	return q
}

// droppable reports whether a policy may drop a waiting item: not what the group itself puts there.
func droppable(it *item) bool {
	return it.kind == itemMessage && (!zmsg.SessionEvent(it.id) || it.msg != nil && it.msg.Client)
}

// fitsLocked reports whether there is room for a message. One that is larger than the bound has it when no other waits.
func (b *mailbox) fitsLocked(size uint16) bool {
	q := b.bounds
	return b.waitingLocked() < q.limit && (q.room == 0 || q.bytes == 0 || q.bytes+int(size) <= q.room)
}

// addLocked appends a message.
func (b *mailbox) addLocked(it *item, pool *sync.Pool) {
	if len(b.in) == cap(b.in) && len(b.in) >= keptItems {
		b.growLocked(pool)
	}
	b.in = append(b.in, *it)
	b.bounds.count(it, 1)
}

// count accounts for an item that comes (by is 1) or goes (-1).
func (q *bounds) count(it *item, by int) {
	if droppable(it) {
		q.users += by
		q.bytes += by * int(it.size)
	}
}

// takeLocked takes the oldest item as the next batch, none if nothing waits, and lets waiters in.
func (b *mailbox) takeLocked(pool *sync.Pool) []item {
	q := b.bounds
	for q.head < len(b.in) && b.in[q.head].kind == itemGone {
		q.head++
		q.tombs--
	}
	if q.head == len(b.in) {
		b.tidyLocked()
		return nil
	}
	it := &b.in[q.head]
	q.count(it, -1)
	q.one[0], *it = *it, item{}
	q.head++
	b.tidyLocked()
	b.admitLocked(pool)
	return q.one[:]
}

// dropOldestLocked drops messages, which it appends to dropped, until one of the size fits. It drops none, and reports
// false, where that would not help.
func (b *mailbox) dropOldestLocked(size uint16, dropped []item) (_ []item, ok bool) {
	q := b.bounds
	if b.waitingLocked()-q.users >= q.limit {
		return dropped, false
	}
	q.scan = max(q.scan, q.head)
	for !b.fitsLocked(size) {
		for !droppable(&b.in[q.scan]) {
			q.scan++
		}
		it := &b.in[q.scan]
		q.count(it, -1)
		dropped = append(dropped, *it)
		*it = item{kind: itemGone}
		q.scan++
		q.tombs++
	}
	b.tidyLocked()
	return dropped, true
}

// tidyLocked removes what is taken and dropped from the queue when it is half of it.
func (b *mailbox) tidyLocked() {
	q := b.bounds
	gone := q.head + q.tombs
	if gone == 0 || gone < len(b.in) && (gone <= keptItems || 2*gone < len(b.in)) {
		return
	}
	n, scan := 0, 0
	for i := q.head; i < len(b.in); i++ {
		if b.in[i].kind == itemGone {
			continue
		}
		if i < q.scan {
			scan++
		}
		b.in[n] = b.in[i]
		n++
	}
	clear(b.in[n:])
	q.passed += len(b.in) - n
	b.in = b.in[:n]
	q.head, q.tombs, q.scan = 0, 0, scan
}

// returnLocked puts the part of a batch that was not begun back to the front of the queue; the goroutine works on no batch
// any more.
func (b *mailbox) returnLocked(rest []item) {
	b.taken = nil
	waiting := b.queueLocked()
	if q := b.bounds; q != nil {
		for i := range rest {
			q.count(&rest[i], 1)
		}
		q.passed += q.head - len(rest)
		q.head, q.scan = 0, 0
	}
	b.in = append(append(make([]item, 0, len(rest)+len(waiting)), rest...), waiting...)
	b.older, b.ahead = nil, 0
	clear(rest)
}

// emptyLocked takes all that waits, tombstones with it, from a mailbox whose actor ends.
func (b *mailbox) emptyLocked() []item {
	in := b.queueLocked()
	b.in, b.older, b.ahead, b.taken = nil, nil, 0, nil
	if q := b.bounds; q != nil {
		q.head, q.tombs, q.scan, q.users, q.bytes = 0, 0, 0, 0, 0
	}
	return in
}

// closeLocked refuses messages from now on, and those that wait for room.
func (b *mailbox) closeLocked() {
	b.closed = true
	if b.bounds != nil {
		b.refuseLocked(zmsg.ErrStopped)
	}
}

// pushBounded is push of a message for a mailbox that is not plain, which the policy may let wait.
func (c *cell) pushBounded(it *item, p patience) (start bool, err error) {
	q := c.bounds
	if q.room > 0 {
		it.size = sizeOf(it)
	}
	var space [1]item
	dropped := space[:0]
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false, zmsg.ErrStopped
	}
	fits := q.waiters.Len() == 0 && c.fitsLocked(it.size)
	if !fits && q.policy == DropOldest {
		dropped, fits = c.dropOldestLocked(it.size, dropped)
	}
	switch {
	case fits:
		c.addLocked(it, &c.g.buffers)
		start, c.running = !c.running, true
		c.mu.Unlock()
		for i := range dropped {
			c.drop(&dropped[i], deadDroppedOldest, zmsg.ErrBusy)
		}
		return start, nil
	case q.policy == DropNewest:
		c.mu.Unlock()
		c.drop(it, deadDroppedNewest, zmsg.ErrBusy)
		return false, nil
	case q.policy > 0 && p.mayWaitFor(c):
		d := p.limit(c.g, time.Duration(q.policy)) // before the message can be in the mailbox, and another's
		w := c.joinLocked(it)
		c.mu.Unlock()
		return false, c.waitForRoom(w, p, d)
	default:
		c.mu.Unlock()
		return false, zmsg.ErrBusy
	}
}
