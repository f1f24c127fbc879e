package zbus

import (
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// The outbox keeps a copy of the replies that it sent last, so that a node that missed a batch gets those in it again: the one who
// asked waits, and nobody else can tell him.
const (
	resendBytes = 4 << 20 // of a generation; there are two, and up to as much again for what is known of small batches
	maxMissing  = 1 << 10 // ranges of batches that wait to be looked up; more are not
)

// missing is a range of batches that a node missed.
type missing struct {
	node        zmsg.NodeRef
	first, last uint64
}

// sentReplies are the replies of one batch: encoded envelopes.
type sentReplies struct {
	lane     *lane
	number   uint64
	from, to int    // in the generation's buf
	until    uint64 // the latest of their deadlines, since Link.base
}

// generation is a part of what was sent; two take turns.
type generation struct {
	buf  []byte
	list []sentReplies
}

// copies are what the outbox keeps. They belong to its goroutine.
type copies struct{ now, before generation }

// note keeps the replies in a batch of the chunk, which the bus has taken.
func (s *copies) note(b *batch, c *chunk) {
	if len(b.buf) > resendBytes {
		return
	}
	if len(s.now.buf)+len(b.buf) > resendBytes {
		s.now, s.before = s.before, s.now
		clear(s.now.list)
		s.now.buf, s.now.list = s.now.buf[:0], s.now.list[:0]
	}
	g := &s.now
	r := sentReplies{lane: b.lane, number: b.lane.number, from: len(g.buf)}
	start := 0
	if b.from > 0 {
		start = c.items[b.from-1].end
	}
	for i := b.from; i <= b.to; i++ {
		it := &c.items[i]
		if it.lane == b.lane && it.kind == wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY && !it.skip {
			g.buf = append(g.buf, c.buf[start:it.end]...)
			r.until = max(r.until, it.mark)
		}
		start = it.end
	}
	r.to = len(g.buf)
	g.list = append(g.list, r)
}

// find calls f for what was sent in batches of the range, once for each batch.
func (s *copies) find(m missing, f func(r *sentReplies, envelopes []byte)) {
	for _, g := range []*generation{&s.before, &s.now} {
		for i := range g.list {
			r := &g.list[i]
			if r.number >= m.first && r.number <= m.last && r.lane != nil && r.lane.node == m.node {
				f(r, g.buf[r.from:r.to])
				r.lane = nil
			}
		}
	}
}

// resendLocked has the replies in batches sent again that the node missed. Link.mu is held.
func (l *Link) resendLocked(node zmsg.NodeRef, first, last uint64) {
	if len(l.missing) >= maxMissing {
		return // those who asked wait until their deadline
	}
	l.missing = append(l.missing, missing{node, first, last})
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// resend puts what others missed before all that waits.
func (o *outbox) resend() {
	l := o.l
	l.mu.Lock()
	list := l.missing
	l.missing = nil
	l.mu.Unlock()
	if len(list) == 0 {
		return
	}
	now := uint64(time.Since(l.base))
	for _, m := range list {
		o.sent.find(m, func(r *sentReplies, envelopes []byte) {
			if r.until > now && !r.lane.gone.Load() {
				// Several envelopes as one item: they were in one batch already.
				o.kept.add(&item{lane: r.lane, n: 1, mark: r.until, kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY}, envelopes)
			}
		})
	}
	n, size := o.kept.take()
	l.mu.Lock()
	l.waiting += n
	l.bytes += size
	l.mu.Unlock()
}
