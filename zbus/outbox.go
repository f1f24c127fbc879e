package zbus

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

const (
	maxKept    = 256 << 10 // the largest buffer that is kept for the next time, in bytes
	chunkBytes = 128 << 10 // from here on a chunk is full
	freeChunks = 16        // empty chunks that are kept
)

// chunk is a part of what waits for the outbox: encoded envelopes, one behind the other, in the order of sending. Chunks
// of bounded size keep a long queue from being copied as it grows.
type chunk struct {
	buf   []byte
	items []item
	n     int // envelopes
}

// item is one envelope of a chunk, or a run of one-way ones to one node; it begins where the one before ends.
type item struct {
	lane *lane
	end  int
	slot int32 // its request, -1: none
	n    int32 // envelopes
	// Of a request: the slot's generation; once taken, its position in its lane. Of others: until when it is of use, since
	// Link.base; 0 is not said.
	mark uint64
	kind wirepb.EnvelopeKind
	skip bool // not to be sent after all: set by takeLocked
}

// batch is a bus message in the making.
type batch struct {
	lane        *lane
	buf         []byte
	envelopes   [len(kindNames)]int // by kind
	requests    int
	first, last uint64 // of the lane's requests; last is 0 without
	from, to    int    // its envelopes are those of the lane among these items of the outbox's chunk
}

func (b *batch) count() (n int) {
	for _, k := range b.envelopes {
		n += k
	}
	return n
}

// enqueueLocked has a one-way envelope sent by the outbox: more may follow soon. Link.mu is held. Errors: errTooLarge.
func (l *Link) enqueueLocked(ln *lane, e *zmsg.Envelope) error {
	err := l.appendLocked(ln, e, -1)
	if err == nil {
		l.wakeLocked()
	}
	return err
}

// appendLocked appends e to what waits for lane ln; pushedLocked is to follow. slot is its request, or -1. Link.mu is held.
// Errors: errTooLarge.
func (l *Link) appendLocked(ln *lane, e *zmsg.Envelope, slot int32) error {
	c := l.lastChunkLocked()
	start := len(c.buf)
	c.buf = zmsg.AppendBatchEnvelope(c.buf, e)
	it := item{lane: ln, slot: slot, kind: e.Kind}
	if slot >= 0 {
		it.mark = l.requests.slots[slot].gen
	}
	return l.enqueuedLocked(c, start, it)
}

// enqueuedLocked notes what was appended to the last chunk, from start on, as the item it; pushedLocked or wakeLocked is to follow.
// Link.mu is held. Errors: errTooLarge.
func (l *Link) enqueuedLocked(c *chunk, start int, it item) error {
	size := len(c.buf) - start
	if int64(size+l.headSize) > l.maxBytes.Load() {
		c.buf = c.buf[:start]
		return errTooLarge
	}
	it.end, it.n = len(c.buf), 1
	if it.slot >= 0 || !l.joinLocked(c, start, &it) {
		c.items = append(c.items, it)
	}
	c.n++
	l.waiting++
	l.bytes += size
	return nil
}

// joinLocked makes it a part of the item before, which ends at start, if that is of the same sort: a loop that sends to one node makes
// an item of 2 KiB, not of each envelope. Link.mu is held.
func (l *Link) joinLocked(c *chunk, start int, it *item) bool {
	k := len(c.items) - 1
	if k < 0 {
		return false
	}
	last := &c.items[k]
	if last.lane != it.lane || last.kind != it.kind || last.slot >= 0 || last.mark != 0 || it.kind == wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY {
		return false
	}
	begin := 0
	if k > 0 {
		begin = c.items[k-1].end
	}
	if start-begin > l.joinBytes {
		return false
	}
	last.end = it.end
	last.n++
	return true
}

// appendReplyLocked is appendLocked for a reply that is of use until deadline, since Link.base.
func (l *Link) appendReplyLocked(ln *lane, e *zmsg.Envelope, deadline time.Duration) error {
	err := l.appendLocked(ln, e, -1)
	if err == nil {
		items := l.queue[len(l.queue)-1].items
		items[len(items)-1].mark = uint64(deadline)
	}
	return err
}

// lastChunkLocked returns the chunk that takes the next envelope. Link.mu is held.
func (l *Link) lastChunkLocked() *chunk {
	if n := len(l.queue); n > 0 && len(l.queue[n-1].buf) < chunkBytes {
		return l.queue[n-1]
	}
	var c *chunk
	if n := len(l.free); n > 0 {
		c, l.free = l.free[n-1], l.free[:n-1]
	} else if c = (&chunk{}); len(l.queue) > 0 { // it will be filled: do not let it grow by doubling
		full := l.queue[len(l.queue)-1]
		c.buf, c.items = make([]byte, 0, chunkBytes+chunkBytes/16), make([]item, 0, len(full.items)+len(full.items)/16)
	}
	l.queue = append(l.queue, c)
	return c
}

// freeLocked empties a chunk and keeps it, if it is worth it. Link.mu is held.
func (l *Link) freeLocked(c *chunk) {
	clear(c.items)
	c.items, c.buf, c.n = c.items[:0], c.buf[:0], 0
	if cap(c.buf) <= maxKept && len(l.free) < freeChunks {
		l.free = append(l.free, c)
	}
}

// outbox is what publishing needs. It belongs to whoever holds owner: the outbox goroutine, but for publishDirect.
type outbox struct {
	owner sync.Mutex // taken before Link.mu, or by TryLock

	l     *Link
	chunk *chunk   // what is being published, or was taken for that, and is to be tried again
	open  []*batch // batches in the making, in the order of their beginning
	free  []*batch
	group bool // the open batch is a group's
	reply []byte
	ended []ended
	kept  kept
	sent  copies
}

// runOutbox publishes what waits, in order. Envelopes to one node are packed into one batch as long as nothing else
// comes between that the same node could see: a group's batch closes all others, and the other way round.
func (l *Link) runOutbox() {
	defer close(l.outDone)
	o := &l.outbox
	for stopping := false; !stopping; {
		select {
		case <-o.kept.again():
		case <-l.wake:
			// Whoever is ready to run gets the chance to add its envelope to the same batch. With nobody ready this
			// returns at once.
			runtime.Gosched()
		case <-l.stop:
			stopping = true
		}
		o.run()
		l.poke()
	}
	l.mu.Lock()
	l.outEnded = true // what comes from here on is refused; what came before the last look is sent
	l.mu.Unlock()
	o.run()
	o.dropKept()
}

// run publishes all that waits, as far as the bus takes it.
func (o *outbox) run() {
	o.owner.Lock()
	defer o.owner.Unlock()
	if o.chunk != nil {
		o.publishChunk(o.chunk)
	}
	o.resend()
	for more := true; more; {
		o.publishKept()
		more = o.publishWaiting()
	}
}

// publishWaiting publishes one chunk. It reports false when nothing waits.
func (o *outbox) publishWaiting() bool {
	l := o.l
	l.mu.Lock()
	behind := l.behind
	l.behind = nil
	if len(l.queue) == 0 || len(l.queue[0].items) == 0 {
		l.woken = len(behind) > 0
		l.mu.Unlock()
		o.publishBehind(behind)
		return len(behind) > 0
	}
	c := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1) // a handful of pointers: at most OutboxBytes / chunkBytes
	o.takeLocked(c)
	l.mu.Unlock()
	o.publishChunk(c)
	o.publishBehind(behind)
	return true
}

// publishChunk publishes what takeLocked left of a chunk, and frees it.
func (o *outbox) publishChunk(c *chunk) {
	l := o.l
	for i := range o.ended {
		l.finish(&o.ended[i], zmsg.CodeTimeout, "the deadline passed before the request was sent")
	}
	l.counts.request("not_sent", len(o.ended))
	clear(o.ended)
	o.ended = o.ended[:0]

	o.chunk = c
	for i := 0; i < len(c.items); {
		if c.items[i].skip {
			i++
			continue
		}
		i = o.add(i)
	}
	o.flush()

	l.mu.Lock()
	o.doneLocked(c)
	l.mu.Unlock()
}

// doneLocked frees a chunk that is published: it waits no longer, but for what of it was kept. Link.mu is held.
func (o *outbox) doneLocked(c *chunk) {
	l := o.l
	n, size := o.kept.take() // they still wait
	l.waiting -= c.n - n
	l.bytes -= len(c.buf) - size
	l.freeLocked(c)
	l.cfg.Metrics.Waiting.Set(float64(l.requests.n))
	o.chunk = nil
}

// takeLocked decides for each envelope whether it is still to be sent. From here on its request counts as sent.
// Link.mu is held.
func (o *outbox) takeLocked(c *chunk) {
	l := o.l
	now := time.Duration(0)
	for i := range c.items {
		it := &c.items[i]
		switch {
		case it.lane.gone.Load():
			it.skip = true
			if it.slot < 0 {
				l.counts.drop("node_lost", int(it.n))
			}
		case it.slot >= 0:
			q := &l.requests.slots[it.slot]
			if q.lane == nil || q.gen != it.mark { // ended while it waited
				it.skip = true
				continue
			}
			if now == 0 {
				now = time.Since(l.base)
			}
			if q.deadline <= now {
				it.skip = true
				o.ended = append(o.ended, l.requests.end(it.slot))
				continue
			}
			q.sent = true
			it.mark = q.seq
		}
	}
}

// add puts the envelope of the chunk's item i into its lane's batch, and with it those behind it that go into the same. It returns the
// first item that does not.
func (o *outbox) add(i int) int {
	c, limit := o.chunk, o.l.cfg.BatchBytes
	start := 0
	if i > 0 {
		start = c.items[i-1].end
	}
	ln := c.items[i].lane
	group := ln.id == 0
	if len(o.open) > 0 && (group != o.group || group && ln.batch == nil) {
		o.flush()
	}
	o.group = group
	b := ln.batch
	if b != nil && len(b.buf)+c.items[i].end-start > limit {
		// Only this one goes: the others are to other nodes.
		o.publish(b)
		b.begin(o.l.me.Load(), ln, i)
	}
	if b == nil {
		if n := len(o.free); n > 0 {
			b, o.free = o.free[n-1], o.free[:n-1]
		} else {
			b = &batch{}
		}
		b.begin(o.l.me.Load(), ln, i)
		ln.batch = b
		o.open = append(o.open, b)
	}
	end := 0
	for first := i; i < len(c.items); i++ {
		it := &c.items[i]
		if it.lane != ln || it.skip || i > first && len(b.buf)+it.end-start > limit {
			break
		}
		end = it.end
		b.envelopes[it.kind] += int(it.n)
		if it.slot >= 0 {
			b.requests++
			if b.last == 0 {
				b.first = it.mark
			}
			b.last = it.mark
		}
	}
	b.to = i - 1
	b.buf = append(b.buf, c.buf[start:end]...)
	return i
}

// begin makes b a batch of the lane that begins with the chunk's item i.
func (b *batch) begin(me *subjects, ln *lane, i int) {
	if ln.me != me {
		if ln.me != nil { // others count what comes from the new name anew
			ln.number = me.series << seriesShift
		}
		ln.me = me
	}
	*b = batch{lane: ln, from: i, buf: zmsg.AppendBatchHead(b.buf[:0], zmsg.BatchHead{From: me.self, Number: ln.number + 1})}
}

// flush publishes all open batches.
func (o *outbox) flush() {
	for i, b := range o.open {
		o.publish(b)
		o.close(b)
		o.open[i] = nil
	}
	o.open = o.open[:0]
}

// close lets go of a batch.
func (o *outbox) close(b *batch) {
	b.lane.batch = nil
	b.lane = nil
	if cap(b.buf) > maxKept {
		b.buf = nil
	}
	o.free = append(o.free, b)
}

// publish hands a batch to the bus, and ends or keeps what is in it if that refuses.
func (o *outbox) publish(b *batch) {
	ups := o.l.ups.Load()
	if err := o.send(b, o.l.cfg.Bus.Publish); err != nil {
		o.failed(b, err, ups)
	}
}

// send hands a batch to the bus. A number is used up only by a batch that the bus took.
func (o *outbox) send(b *batch, publish func(subject, reply string, data []byte) error) error {
	l, ln := o.l, b.lane
	reply := ""
	if ln.id != 0 {
		o.reply = append(o.reply[:0], l.me.Load().notices...)
		o.reply = ln.appendNotice(o.reply, b.first, b.last, b.count()-b.requests)
		reply = string(o.reply)
	}
	if b.requests > 0 {
		o.number(b) // before publishing: the answer that it was missed may come at once
	}
	err := ErrDown
	if !o.kept.any() && !o.kept.pausing(l) { // what is kept goes first
		err = publish(ln.subject, reply, b.buf)
	}
	if err == nil {
		ln.number++
		if b.envelopes[wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY] > 0 {
			o.sent.note(b, o.chunk)
		}
		l.counts.sent(b)
	}
	return err
}

// number notes in the requests of b which batch carries them.
func (o *outbox) number(b *batch) {
	l := o.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := b.from; i <= b.to; i++ {
		it := &o.chunk.items[i]
		if it.lane != b.lane || it.slot < 0 || it.skip {
			continue
		}
		if q := &l.requests.slots[it.slot]; q.lane == b.lane && q.seq == it.mark {
			q.batch = b.lane.number + 1
		}
	}
}

// failed ends the requests of a batch that the bus refused: none was executed. The rest is kept where the bus is down. ups is how
// often the bus had come up before it refused.
func (o *outbox) failed(b *batch, err error, ups uint64) {
	l := o.l
	keeps := 0
	if errors.Is(err, ErrDown) {
		l.sawDown()
		keeps = o.keep(b, ups)
	}
	if keeps == b.count() {
		return
	}
	code, outcome, text := zmsg.CodeUnavailable, "down", "the bus is down"
	switch {
	case errors.Is(err, ErrFull):
		code, outcome, text = zmsg.CodeBusy, "full", "the bus is out of buffer"
	case errors.Is(err, ErrTooLarge):
		code, outcome, text = zmsg.CodeTooLarge, "too_large", "the message is above the bus's limit"
	case errors.Is(err, ErrClosed):
		outcome, text = "closed", "the bus is closed"
	}
	l.counts.drop(outcome, b.count()-b.requests-keeps)
	l.warn("publish", "envelopes not sent", "count", b.count()-keeps, "err", err)
	if b.requests == 0 {
		return
	}
	l.mu.Lock()
	list := l.requests.endRange(nil, b.lane, b.first, b.last)
	l.mu.Unlock()
	for i := range list {
		list[i].sent = false
		l.finish(&list[i], code, text)
	}
	l.counts.request(outcome, len(list))
}
