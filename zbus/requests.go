package zbus

import (
	"time"

	"zgame/zmsg"
)

// A request's number on the wire is its slot in the table and the slot's generation, which rises at each use: a late
// or double reply never meets another request. 0 is no request.
const slotBits = 20

// noSweep is a time that never comes.
const noSweep = time.Duration(1<<63 - 1)

// sweepEvery is the least time between two looks at all requests, so that a crowd of deadlines costs one look.
const sweepEvery = 5 * time.Millisecond

// requests is the table of requests that wait for their outcome. It is guarded by Link.mu.
type requests struct {
	limit int
	slots []request
	free  []int32
	n     int
}

// request is one slot; lane is nil while it is free. The requests of a lane are a list in the order of sending.
type request struct {
	gen        uint64
	lane       *lane
	seq        uint64 // position among the lane's requests
	batch      uint64 // number of the batch that carried it; 0 before
	deadline   time.Duration
	replier    zmsg.Replier
	token      uint64
	prev, next int32
	sent       bool // the outbox has taken it: from here on it may run
}

// ended is what remains of a request that was taken off the table.
type ended struct {
	replier zmsg.Replier
	token   uint64
	sent    bool
}

// add takes a slot at the end of ln's list. It reports false when the table is full.
func (t *requests) add(ln *lane, r zmsg.Replier, token uint64, deadline time.Duration) (slot int32, ok bool) {
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if len(t.slots) >= t.limit {
			return 0, false
		}
		slot = int32(len(t.slots))
		t.slots = append(t.slots, request{gen: 1})
	}
	t.n++
	ln.seq++
	q := &t.slots[slot]
	*q = request{gen: q.gen, lane: ln, seq: ln.seq, deadline: deadline, replier: r, token: token, prev: ln.tail, next: -1}
	if ln.tail >= 0 {
		t.slots[ln.tail].next = slot
	} else {
		ln.head = slot
	}
	ln.tail = slot
	return slot, true
}

// number is the slot's request number on the wire.
func (t *requests) number(slot int32) uint64 { return t.slots[slot].gen<<slotBits | uint64(slot) }

// find returns the slot of a number, -1 if that request does not wait (any more).
func (t *requests) find(number uint64) int32 {
	slot := number & (1<<slotBits - 1)
	if slot >= uint64(len(t.slots)) {
		return -1
	}
	if q := &t.slots[slot]; q.lane == nil || q.gen != number>>slotBits {
		return -1
	}
	return int32(slot)
}

// end frees the slot of a request that waits.
func (t *requests) end(slot int32) ended {
	q := &t.slots[slot]
	e := ended{q.replier, q.token, q.sent}
	ln := q.lane
	if q.prev >= 0 {
		t.slots[q.prev].next = q.next
	} else {
		ln.head = q.next
	}
	if q.next >= 0 {
		t.slots[q.next].prev = q.prev
	} else {
		ln.tail = q.prev
	}
	// The generation has 44 bits on the wire: it does not wrap in the life of a node.
	*q = request{gen: q.gen + 1}
	t.free = append(t.free, slot)
	t.n--
	return e
}

// endRange ends the requests of ln with first <= seq <= last and appends them to list.
func (t *requests) endRange(list []ended, ln *lane, first, last uint64) []ended {
	for slot := ln.head; slot >= 0; {
		q := &t.slots[slot]
		next := q.next
		if q.seq > last {
			break
		}
		if q.seq >= first {
			list = append(list, t.end(slot))
		}
		slot = next
	}
	return list
}

// endBatches ends the requests of ln that batches first to last carried, and appends them to list.
func (t *requests) endBatches(list []ended, ln *lane, first, last uint64) []ended {
	for slot := ln.head; slot >= 0; {
		q := &t.slots[slot]
		next := q.next
		if q.batch == 0 || q.batch > last { // they rise along the list
			break
		}
		if q.batch >= first {
			list = append(list, t.end(slot))
		}
		slot = next
	}
	return list
}

// dueLocked makes sure that the sweeper wakes for the deadline. The timer may fire early (its request had a reply
// meanwhile), never late; so the common case, a later deadline than one that waits, costs nothing.
func (l *Link) dueLocked(deadline time.Duration) {
	if deadline < l.sweepAt {
		l.sweepAt = deadline
		l.timer.Reset(deadline - time.Since(l.base))
	}
}

// runSweeper ends requests at their deadline. While nothing waits it sleeps without a timer.
func (l *Link) runSweeper() {
	defer close(l.swept)
	for {
		select {
		case <-l.timer.C:
			l.sweep()
		case <-l.stop:
			return
		}
	}
}

func (l *Link) sweep() {
	var list []ended
	l.mu.Lock()
	now := time.Since(l.base)
	l.sweepAt = noSweep
	probes, overdue := l.probesLocked(now), l.overdueLocked(now)
	for slot := range l.requests.slots {
		q := &l.requests.slots[slot]
		switch {
		case q.lane == nil:
		case q.deadline <= now:
			list = append(list, l.requests.end(int32(slot)))
		case q.deadline < l.sweepAt:
			l.sweepAt = q.deadline
		}
	}
	if l.sweepAt != noSweep || l.peersAt != 0 {
		l.sweepAt = min(l.sweepAt, now+probeAfter)
		if l.peersAt != 0 {
			l.sweepAt = min(l.sweepAt, l.peersAt)
		}
		l.sweepAt = max(l.sweepAt, now+sweepEvery)
		l.timer.Reset(l.sweepAt - now)
	}
	l.cfg.Metrics.Waiting.Set(float64(l.requests.n))
	l.mu.Unlock()
	for i := range list {
		l.finish(&list[i], zmsg.CodeTimeout, "no reply within the deadline")
	}
	l.counts.request("timeout", len(list))
	l.probe(probes)
	for _, id := range overdue {
		l.left(id)
	}
	l.poke()
}
