package zbus

import (
	"time"
)

// What was accepted and cannot be sent because the bus is down is kept until it is up, but for requests, which end at once.
// Replies are kept until the deadline of their request at most: the one who asks may be connected, and wait. One-way envelopes,
// which were accepted shortly before the loss, are kept as long as a request may take by default. All of that counts as waiting
// in the outbox and shares its bounds.
const (
	keptRetry = 50 * time.Millisecond // pause after a bus that says it is up has refused
	keptPrune = time.Second           // how often expired ones are looked for while the bus is down
)

// kept is what the outbox keeps. It belongs to the outbox's goroutine.
type kept struct {
	chunks []*chunk    // in the order of sending; before what is in Link.queue
	paused time.Time   // when a bus that says it is up has refused; zero if it has not
	ups    uint64      // Link.ups before that
	timer  *time.Timer // nil before the first use
	down   bool

	// Of the chunk that is being published: what of it was kept.
	n, size int
}

// again is when the outbox looks at what is kept though nobody woke it; nil while there is nothing.
func (k *kept) again() <-chan time.Time {
	if !k.any() {
		return nil
	}
	wait := keptRetry
	if k.down {
		wait = keptPrune
	}
	if k.timer == nil {
		k.timer = time.NewTimer(wait)
	} else {
		k.timer.Reset(wait)
	}
	return k.timer.C
}

func (k *kept) any() bool { return len(k.chunks) > 0 }

// pausing reports whether the bus is down, or has just said so by refusing.
func (k *kept) pausing(l *Link) bool {
	k.down = !l.up.Load()
	if !k.paused.IsZero() && (k.ups != l.ups.Load() || time.Since(k.paused) >= keptRetry) {
		k.paused = time.Time{}
	}
	return k.down || !k.paused.IsZero()
}

func (k *kept) take() (n, size int) {
	n, size = k.n, k.size
	k.n, k.size = 0, 0
	return n, size
}

// keep keeps what is no request in a batch that the bus refused. It returns how many.
func (o *outbox) keep(b *batch, ups uint64) (n int) {
	k, c := &o.kept, o.chunk
	for i := b.from; i <= b.to; i++ {
		it := &c.items[i]
		if it.lane != b.lane || it.skip || it.slot >= 0 {
			continue
		}
		if it.mark == 0 {
			it.mark = uint64(time.Since(o.l.base) + o.l.cfg.DefaultTimeout)
		}
		start := 0
		if i > 0 {
			start = c.items[i-1].end
		}
		k.add(it, c.buf[start:it.end])
		n += int(it.n)
	}
	if n > 0 && !k.down && k.paused.IsZero() {
		k.paused, k.ups = time.Now(), ups
	}
	return n
}

func (k *kept) add(it *item, envelope []byte) {
	last := len(k.chunks) - 1
	if last < 0 || len(k.chunks[last].buf) >= chunkBytes {
		k.chunks = append(k.chunks, &chunk{})
		last++
	}
	c := k.chunks[last]
	c.buf = append(c.buf, envelope...)
	c.items = append(c.items, item{lane: it.lane, end: len(c.buf), slot: -1, n: it.n, mark: it.mark, kind: it.kind})
	c.n += int(it.n)
	k.n += int(it.n)
	k.size += len(envelope)
}

// publishKept sends what is kept, if the bus is up; else it lets go what is of no use any more, as far as whole chunks are.
func (o *outbox) publishKept() {
	k, l := &o.kept, o.l
	if !k.any() {
		return
	}
	chunks := k.chunks
	k.chunks = nil
	if k.pausing(l) {
		for _, c := range chunks {
			if o.useless(c) {
				o.release(c)
			} else {
				k.chunks = append(k.chunks, c)
			}
		}
		return
	}
	for _, c := range chunks { // what is refused goes into new chunks, and from there on all that follows
		l.mu.Lock()
		o.takeLocked(c)
		l.mu.Unlock()
		o.expire(c)
		o.publishChunk(c)
	}
}

// expire skips what was kept too long.
func (o *outbox) expire(c *chunk) {
	now := uint64(time.Since(o.l.base))
	n := 0
	for i := range c.items {
		if it := &c.items[i]; !it.skip && it.mark <= now {
			it.skip = true
			n += int(it.n)
		}
	}
	o.l.counts.drop("expired", n)
}

// useless reports whether all of the chunk was kept too long, or is for nodes that are lost.
func (o *outbox) useless(c *chunk) bool {
	now := uint64(time.Since(o.l.base))
	for i := range c.items {
		if it := &c.items[i]; it.mark > now && !it.lane.gone.Load() {
			return false
		}
	}
	return true
}

// release drops a useless chunk.
func (o *outbox) release(c *chunk) {
	l := o.l
	l.mu.Lock()
	o.takeLocked(c) // counts those whose node is lost
	l.waiting -= c.n
	l.bytes -= len(c.buf)
	l.mu.Unlock()
	o.expire(c)
}

// dropKept ends the keeping, when the link closes.
func (o *outbox) dropKept() {
	l := o.l
	n := 0
	l.mu.Lock()
	for _, c := range o.kept.chunks {
		n += c.n
		l.waiting -= c.n
		l.bytes -= len(c.buf)
	}
	l.mu.Unlock()
	o.kept.chunks = nil
	l.counts.drop("closed", n)
	if o.kept.timer != nil {
		o.kept.timer.Stop()
	}
}
