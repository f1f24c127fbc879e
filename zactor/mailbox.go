package zactor

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
)

// item is what waits in a mailbox: 64 bytes, one cache line, by value, so that a local Tell or Ask needs no Message.
type item struct {
	msg *zmsg.Message // the whole message; nil for a local send with nothing to say beyond the fields below
	// proto.Message of itemMessage, *zmsg.Arrival of itemTold, *future of itemDone, *timer of itemTimer, *turnItem of itemTurn
	value    any
	from     *cell   // local sender, nil if none
	fut      *future // who asked, nil for a one-way message; the token is below
	token    uint64
	deadline int64  // when the asker stops waiting, in nanoseconds of the group's clock; 0: not given here
	id       uint32 // message id
	kind     itemKind
	size     uint16 // see sizeOf; 0 where no bound asks
}

// tell makes an item with nothing but a value what t is.
func (it *item) tell(t zmsg.Told) {
	it.kind, it.id, it.token, it.deadline = itemTold, t.ID, uint64(t.Body)<<32|uint64(t.Size), int64(t.At)
	if t.More {
		it.size = 1
	}
}

// told undoes tell.
func (it *item) told() zmsg.Told {
	return zmsg.Told{
		ID: it.id, At: uint32(it.deadline), Body: uint32(it.token >> 32), Size: uint32(it.token & math.MaxUint32), More: it.size != 0,
	}
}

// takenStep is how often the goroutine tells how far it is in its batch, a power of two: telling after each item costs
// senders a cache miss. A mailbox may look fuller by as many items less one.
const takenStep = 16

type itemKind uint8

const (
	itemMessage itemKind = iota
	itemTold             // a one-way message from another node that is not decoded yet; itemMessage from its turn on
	itemDone             // the outcome of a Then or an Async
	itemTimer            // a timer fired
	itemStop             // stop when everything before is handled
	itemBarrier          // the shutdown asks whether this actor has settled
	itemGone             // a policy has dropped what was here
	itemFence            // zmsg.FenceID: answered when its turn comes
	itemTurn             // see Ref.Turn
)

// Buffers up to keptItems stay with their mailbox while it is idle; larger ones go to the group's pool, where idle
// actors do not hold them, and above pooledItems to the garbage collector.
const (
	keptItems   = 8
	pooledItems = 4096
)

// mailbox is a queue of items: senders append to one slice under a mutex, the actor's goroutine swaps it whole for an
// empty one. That goroutine exists only while there is work: the sender that finds it absent starts it.
//
// The bound counts what waits, in both slices; control items (outcomes, timers, session ends, stop) are never refused.
// Their number is bounded by those who make them. What a full mailbox does otherwise, and bounds by bytes, are in bounds.
//
// The order of the fields keeps what every sender touches in one cache line.
type mailbox struct {
	mu      sync.Mutex
	in      []item        // guarded by mu
	taken   *atomic.Int32 // guarded by mu: how many items of the batch the goroutine has begun; not in this cache line
	older   *[][]item     // guarded by mu: what a plain mailbox holds before in, in segments of pooledItems; nil if nothing
	ahead   int32         // guarded by mu: items in older and in the batch that the goroutine works on
	limit   int32         // set at construction; 0 where bounds has it
	running bool          // guarded by mu: a goroutine is there, or a starter, and will look again
	closed  bool          // guarded by mu: messages are refused with ErrStopped
	dead    bool          // guarded by mu: control items are refused too
	removed bool          // guarded by mu: the actor is out of the group's tables, its name is free
	swaps   uint32        // guarded by mu: batches taken
	spare   []item        // guarded by mu; empty, nil while the goroutine works on it
	bounds  *bounds       // set at construction; nil for a plain mailbox
}

// waitingLocked returns how many items wait; the caller holds mu.
func (b *mailbox) waitingLocked() int {
	n := len(b.in)
	if q := b.bounds; q != nil {
		return n - q.head - q.tombs
	}
	if b.ahead > 0 {
		begun := int32(0)
		if b.taken != nil {
			begun = b.taken.Load()
		}
		n += int(max(0, b.ahead-begun))
	}
	return n
}

// bound returns how many messages may wait.
func (b *mailbox) bound() int {
	if q := b.bounds; q != nil {
		return q.limit
	}
	return int(b.limit)
}

// queueLocked returns what waits outside of the batch, tombstones with it.
func (b *mailbox) queueLocked() []item {
	if q := b.bounds; q != nil {
		return b.in[q.head:]
	}
	if b.older != nil {
		return slices.Concat(append(*b.older, b.in)...)
	}
	return b.in
}

// frontLocked returns the oldest part of queueLocked: at least pooledItems of it, or all.
func (b *mailbox) frontLocked() []item {
	if b.older != nil {
		return (*b.older)[0]
	}
	return b.queueLocked()
}

// push appends it, and tells whether the caller has to start the goroutine. control items pass the bound, and a
// mailbox that is closed but not dead. With bounds it takes only those; others are refused with ErrBusy, for pushBounded.
func (b *mailbox) push(it *item, control bool, pool *sync.Pool) (start bool, err error) {
	b.mu.Lock()
	return b.pushAndUnlock(it, control, pool)
}

// pushAndUnlock is push; the caller has locked mu.
func (b *mailbox) pushAndUnlock(it *item, control bool, pool *sync.Pool) (start bool, err error) {
	if !control {
		if b.closed {
			b.mu.Unlock()
			return false, zmsg.ErrStopped
		}
		if n := len(b.in) + int(b.ahead); n >= int(b.limit) && (b.limit == 0 || b.waitingLocked() >= int(b.limit)) {
			b.mu.Unlock()
			return false, zmsg.ErrBusy
		}
	} else if b.dead {
		b.mu.Unlock()
		return false, zmsg.ErrStopped
	}
	if len(b.in) == cap(b.in) && len(b.in) >= keptItems {
		b.growLocked(pool)
	}
	b.in = append(b.in, *it)
	start = !b.running
	b.running = true
	b.mu.Unlock()
	return start, nil
}

// pushTold is push for the first messages of list, up to one that is refused or is no plain message to push. It returns how many it
// took.
func (b *mailbox) pushTold(a *zmsg.Arrival, list []zmsg.Told, pool *sync.Pool) (n int, start bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.bounds != nil {
		return 0, false
	}
	for _, t := range list {
		if t.ID == 0 || zmsg.SessionEvent(t.ID) || t.ID == zmsg.FenceID {
			break
		}
		if len(b.in)+int(b.ahead) >= int(b.limit) && b.waitingLocked() >= int(b.limit) {
			break
		}
		if len(b.in) == cap(b.in) && len(b.in) >= keptItems {
			b.growLocked(pool)
		}
		if len(b.in) < cap(b.in) {
			b.in = b.in[:len(b.in)+1] // what is behind the end is clear
		} else {
			b.in = append(b.in, item{})
		}
		it := &b.in[len(b.in)-1]
		it.value = a
		it.tell(t)
		n++
	}
	if n > 0 {
		start = !b.running
		b.running = true
	}
	return n, start
}

// growLocked makes room for one more item; the caller holds mu. It moves the queue to a larger buffer, from the pool if it has
// one; a plain mailbox of pooledItems goes on in a new segment: moving a long queue again and again costs more than it.
func (b *mailbox) growLocked(pool *sync.Pool) {
	p, _ := pool.Get().(*[]item)
	if len(b.in) >= pooledItems && b.bounds == nil {
		if b.older == nil {
			b.older = new([][]item)
		}
		*b.older = append(*b.older, b.in)
		b.ahead += int32(len(b.in))
		if p != nil {
			b.in = *p
		} else {
			b.in = make([]item, 0, pooledItems)
		}
		return
	}
	if p == nil || cap(*p) <= len(b.in) {
		if p != nil {
			pool.Put(p)
		}
		bigger := make([]item, len(b.in), max(64, 2*cap(b.in)))
		p = &bigger
	}
	bigger := (*p)[:len(b.in)]
	copy(bigger, b.in)
	old := b.in
	b.in = bigger
	clear(old)
	recycle(old, pool)
}

// recycle gives a cleared buffer to the pool if it is of a size worth pooling.
func recycle(buf []item, pool *sync.Pool) {
	if cap(buf) > keptItems && cap(buf) <= pooledItems {
		buf = buf[:0]
		pool.Put(&buf)
	}
}

// swapLocked takes the whole queue as the next batch, with bounds one item; the caller holds mu and is the goroutine, which
// counts in taken what it begins.
func (b *mailbox) swapLocked(taken *atomic.Int32, pool *sync.Pool) []item {
	if b.bounds != nil {
		b.taken = taken
		return b.takeLocked(pool)
	}
	b.swaps++
	taken.Store(0)
	b.taken = taken
	if b.older != nil {
		return b.oldestLocked()
	}
	batch := b.in
	b.in, b.spare = b.spare, nil
	b.ahead = int32(len(batch))
	return batch
}

// stepLocked is swapLocked for a queue that is worked off one by one.
func (b *mailbox) stepLocked(taken *atomic.Int32, pool *sync.Pool) []item {
	if b.bounds != nil {
		return b.takeLocked(pool)
	}
	if b.older != nil {
		b.in, b.older = b.queueLocked(), nil
	}
	n := min(1, len(b.in))
	batch := slices.Clone(b.in[:n])
	b.in = slices.Delete(b.in, 0, n)
	taken.Store(0)
	b.ahead, b.taken = int32(n), taken
	return batch
}

// oldestLocked takes the oldest segment; it stays counted in ahead.
func (b *mailbox) oldestLocked() []item {
	list := *b.older
	oldest := list[0]
	list[0] = nil
	if *b.older = list[1:]; len(list) == 1 {
		b.older = nil
	}
	return oldest
}

// doneLocked gives the worked-off batch back as the spare buffer; the caller holds mu and has cleared it.
func (b *mailbox) doneLocked(batch []item, pool *sync.Pool) {
	b.taken = nil
	if b.bounds != nil {
		return
	}
	b.ahead -= int32(len(batch))
	switch {
	case cap(batch) > pooledItems:
	case b.spare != nil: // of before full segments came
		recycle(batch, pool)
	default:
		b.spare = batch[:0]
	}
}

// idleLocked lets go of what an idle actor does not need; the caller holds mu.
func (b *mailbox) idleLocked(pool *sync.Pool) {
	b.running = false
	if cap(b.in) > keptItems {
		recycle(b.in, pool)
		b.in = nil
	}
	if cap(b.spare) > keptItems {
		recycle(b.spare, pool)
		b.spare = nil
	}
}

// load returns how many items wait.
func (b *mailbox) load() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitingLocked()
}

// messages is load without what the group itself put there.
func (b *mailbox) messages() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.queueLocked()
	n := b.waitingLocked() - (len(in) - messagesIn(in))
	if q := b.bounds; q != nil {
		n += q.tombs // which waitingLocked has not counted
	}
	return n
}

// messagesIn counts without what the group itself put there: ticks of timers keep no actor.
func messagesIn(items []item) (n int) {
	for i := range items {
		if k := items[i].kind; k == itemMessage || k == itemTold {
			n++
		}
	}
	return n
}
