// Package keep holds what a session was sent and is not known to have arrived, so that a client that lost its connection gets it again.
//
// A Log is a queue of records in the order in which they were sent: pushes, which have numbers without a hole, responses by the seq of their
// request, and notices. What a client acknowledges goes from its front, with all that was sent before; so does what is above the limits, the oldest
// first, and then the Log knows which pushes are missing. When the client comes back, Resume says what it is to be sent.
//
//	sent         1  r5  2  3  r6  4        r5: the response to request 5
//	Ack(2, 0)             3  r6  4         2 has arrived, so 1 and r5 have
//	Resume(3)                    4         to be sent again; r6 waits for the client to ask for it: request 6, once more
//
// A Log that holds nothing holds no memory but itself. Its methods do not allocate, but for bodies that are large, or not its own, and Resume.
// It is not safe for concurrent use.
package keep

import (
	"bytes"
	"encoding/binary"
	"iter"
	"sync"
)

// Kind is what a record is.
type Kind uint8

// The kinds.
const (
	Push     Kind = iota // N: its number
	Response             // N: the seq of its request
	Notice               // has no number
)

// Item is a record. Body is valid until the Log changes.
type Item struct {
	Kind Kind
	N    uint64
	ID   uint32 // of a push: the message id
	Body []byte
	Own  bool // nobody changes Body any more
}

// Limits say how much a Log holds at most; the oldest records go.
type Limits struct {
	Count int
	Bytes int
	Age   int64 // on the scale of now
}

// Log is what a session was sent and is not known to have arrived. The zero Log is empty.
type Log struct {
	*held         // nil: nothing
	gone   uint64 // number of the newest push that is not here any more
	blind  bool   // a notice is missing
	before uint64 // blind: number of the last push that was sent before it, at least
}

// held is what a Log has while it has something.
type held struct {
	segs   []segment
	room   [2]segment // for segs
	shared [][]byte   // bodies of records that lie elsewhere, in their order
	taken  int        // of shared
	count  int
	bytes  int

	answers []answer // responses of connections before, the oldest first
}

type segment struct {
	c    *chunk
	at   int   // what of it has gone
	last int64 // when its last record came
}

type answer struct {
	seq  uint64
	body []byte
	at   int64
}

type chunk struct{ b []byte }

const (
	smallChunk = 1 << 10
	largeChunk = 16 << 10
	maxHead    = 1 + 3*binary.MaxVarintLen64
	overhead   = 16       // what a record counts beside its body
	elsewhere  = Kind(16) // in the head: the body is in shared
	keepShared = 64       // room for so many is kept while there are none
)

var (
	smallChunks = sync.Pool{New: func() any { return &chunk{make([]byte, 0, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &chunk{make([]byte, 0, largeChunk)} }}
	helds       = sync.Pool{New: func() any { return new(held) }}
)

func (c *chunk) free() {
	c.b = c.b[:0]
	if cap(c.b) == smallChunk {
		smallChunks.Put(c)
	} else {
		largeChunks.Put(c)
	}
}

// Len is the number of records.
func (l *Log) Len() int {
	if l.held == nil {
		return 0
	}
	return l.count + len(l.answers)
}

// Bytes is what the records count, which is nearly what they use.
func (l *Log) Bytes() int {
	if l.held == nil {
		return 0
	}
	return l.bytes
}

// settle gives the memory of a Log back that holds nothing any more.
func (l *Log) settle() {
	if l.held != nil && l.Len() == 0 {
		*l.held = held{shared: l.shared[:0]}
		helds.Put(l.held)
		l.held = nil
	}
}

// Gone is the number of the newest push that is not here any more: it has arrived, or was dropped.
func (l *Log) Gone() uint64 { return l.gone }

// Push adds the push with number n, which is one more than that of the push before. With own, nobody changes body any more.
func (l *Log) Push(n uint64, id uint32, body []byte, own bool, now int64) {
	l.add(Push, n, id, body, own, now)
}

// Response adds the response to the request with seq, as it is sent.
func (l *Log) Response(seq uint64, body []byte, now int64) { l.add(Response, seq, 0, body, false, now) }

// Notice adds a frame without a number, as it is sent.
func (l *Log) Notice(body []byte, now int64) { l.add(Notice, 0, 0, body, false, now) }

func (l *Log) add(kind Kind, n uint64, id uint32, body []byte, own bool, now int64) {
	if l.held == nil {
		l.held = helds.Get().(*held)
	}
	share := own && len(body) >= smallChunk || len(body) > largeChunk-maxHead
	if share {
		if !own {
			body = bytes.Clone(body)
		}
		l.share(body)
		kind |= elsewhere
	}
	need := maxHead
	if !share {
		need += len(body)
	}
	if l.segs == nil {
		l.segs = l.room[:0]
	}
	last := len(l.segs) - 1
	if last < 0 || cap(l.segs[last].c.b)-len(l.segs[last].c.b) < need {
		pool := &largeChunks
		if last < 0 && need <= smallChunk {
			pool = &smallChunks
		}
		l.segs = append(l.segs, segment{c: pool.Get().(*chunk)})
		last++
	}
	s := &l.segs[last]
	b := append(s.c.b, byte(kind))
	b = binary.AppendUvarint(b, n)
	b = binary.AppendUvarint(b, uint64(id))
	if !share {
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	s.c.b, s.last = b, now
	l.count++
	l.bytes += len(body) + overhead
}

// share adds body to shared, whose room is used again.
func (l *Log) share(body []byte) {
	if len(l.shared) == cap(l.shared) && l.taken > 0 {
		n := copy(l.shared, l.shared[l.taken:])
		clear(l.shared[n:])
		l.shared, l.taken = l.shared[:n], 0
	}
	l.shared = append(l.shared, body)
}

// cursor is a place in a Log.
type cursor struct{ seg, at, shared int }

// read returns the record at c and moves c behind it; false at the end.
func (l *Log) read(c *cursor) (it Item, ok bool) {
	if l.held == nil {
		return it, false
	}
	for c.seg < len(l.segs) {
		b := l.segs[c.seg].c.b
		if c.at >= len(b) {
			c.seg++
			c.at = 0
			continue
		}
		it.Kind = Kind(b[c.at])
		c.at++
		it.N = l.uvarint(b, c)
		it.ID = uint32(l.uvarint(b, c))
		if it.Kind&elsewhere != 0 {
			it.Kind &^= elsewhere
			it.Body, it.Own = l.shared[c.shared], true
			c.shared++
			return it, true
		}
		n := int(l.uvarint(b, c))
		it.Body = b[c.at : c.at+n : c.at+n]
		c.at += n
		return it, true
	}
	return it, false
}

func (l *Log) uvarint(b []byte, c *cursor) uint64 {
	x, n := binary.Uvarint(b[c.at:])
	c.at += n
	return x
}

// front is where the oldest record is.
func (l *Log) front() cursor {
	if l.held == nil || len(l.segs) == 0 {
		return cursor{}
	}
	return cursor{at: l.segs[0].at, shared: l.taken}
}

// pop takes the oldest record off; there is one.
func (l *Log) pop() Item {
	c := l.front()
	it, _ := l.read(&c)
	l.count--
	l.bytes -= len(it.Body) + overhead
	if it.Kind == Push {
		l.gone = it.N
	}
	if c.shared > l.taken {
		l.shared[l.taken] = nil
		if l.taken++; l.taken == len(l.shared) {
			l.shared, l.taken = l.shared[:0], 0
			if cap(l.shared) > keepShared {
				l.shared = nil
			}
		}
	}
	l.segs[0].at = c.at // a record lies in one segment: c is in the first one that is not empty
	if c.seg > 0 || c.at >= len(l.segs[0].c.b) {
		l.shift()
	}
	return it
}

// shift lets the first segment go, which is empty.
func (l *Log) shift() {
	l.segs[0].c.free()
	n := copy(l.segs, l.segs[1:])
	l.segs[n] = segment{}
	if l.segs = l.segs[:n]; n == 0 {
		l.segs = nil
	}
}

// Ack takes off what has arrived: the push with that number, the response with that seq, and all that was sent before either of them. What is not here is ignored.
func (l *Log) Ack(push, response uint64) {
	if push > l.before {
		l.blind = false // that was sent behind it
	}
	if l.held == nil {
		return
	}
	upto := 0
	c := l.front()
scan:
	for i := 1; i <= l.count; i++ {
		it, _ := l.read(&c)
		switch {
		case it.Kind == Push && it.N <= push:
			upto = i
		case it.Kind == Response && it.N == response && response != 0:
			upto, response = i, 0
		case it.Kind == Push && response == 0:
			break scan // those behind it have greater numbers
		}
	}
	for range upto {
		l.pop()
	}
	l.settle()
}

// Trim lets the oldest records go until the others are within the limits, and returns how many those were. A body that is above the limit alone goes as well.
func (l *Log) Trim(lim *Limits, now int64) (dropped int) {
	if l.held == nil {
		return 0
	}
	for len(l.answers) > 0 && (l.over(lim) || l.answers[0].at < now-lim.Age) {
		l.bytes -= len(l.answers[0].body) + overhead
		l.answers[0] = answer{}
		if l.answers = l.answers[1:]; len(l.answers) == 0 {
			l.answers = nil
		}
		dropped++
	}
	for l.count > 0 && (l.over(lim) || l.segs[0].last < now-lim.Age) {
		if it := l.pop(); it.Kind == Notice {
			l.blind, l.before = true, l.gone
		}
		dropped++
	}
	l.settle()
	return dropped
}

func (l *Log) over(lim *Limits) bool { return l.Len() > lim.Count || l.bytes > lim.Bytes }

// Gap is what a client that comes back is not going to get. First 0: nothing is missing.
type Gap struct {
	First, Last uint64 // numbers of pushes; Last 0: nobody knows how far
}

// Resume is for a client that comes back and has the pushes up to last. It says what is missing; Missed is what the client is to be sent. The
// responses that are here wait for Answer from now on: what is acknowledged on the new connection says nothing about them.
func (l *Log) Resume(last uint64, now int64) Gap {
	l.Ack(last, 0)
	var gap Gap
	switch {
	case l.blind:
		gap.First = last + 1 // a notice may have told of anything
	case l.gone > last:
		gap = Gap{last + 1, l.gone}
	}
	l.blind = false
	if l.held == nil {
		return gap
	}
	// All of it once more, without the responses.
	old := *l
	l.held = &held{answers: old.answers}
	for i := range l.answers {
		l.bytes += len(l.answers[i].body) + overhead
	}
	for c := old.front(); ; {
		at := old.age(c)
		it, ok := old.read(&c)
		if !ok {
			break
		}
		if it.Kind == Response {
			l.answers = append(l.answers, answer{it.N, bytes.Clone(it.Body), now})
			l.bytes += len(it.Body) + overhead
			continue
		}
		l.add(it.Kind, it.N, it.ID, it.Body, it.Own, at)
	}
	for i := range old.segs {
		old.segs[i].c.free()
	}
	l.settle()
	return gap
}

// age is when the last record of the segment at c came.
func (l *Log) age(c cursor) int64 {
	for ; c.seg < len(l.segs); c.seg, c.at = c.seg+1, 0 {
		if c.at < len(l.segs[c.seg].c.b) {
			return l.segs[c.seg].last
		}
	}
	return 0
}

// Missed is what a client that has come back is to be sent: pushes and notices, in their order. The Log must not change meanwhile.
func (l *Log) Missed() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for c := l.front(); ; {
			it, ok := l.read(&c)
			if !ok || it.Kind != Response && !yield(it) {
				return
			}
		}
	}
}

// Answer returns the response to the request with seq, which was sent on a connection before, and takes it off: it is to be sent, and added, once more.
func (l *Log) Answer(seq uint64) (body []byte, ok bool) {
	if l.held == nil {
		return nil, false
	}
	for i := range l.answers {
		if a := l.answers[i]; a.seq == seq {
			l.bytes -= len(a.body) + overhead
			l.answers = append(l.answers[:i], l.answers[i+1:]...)
			l.settle()
			return a.body, true
		}
	}
	return nil, false
}

// Sent reports whether the response to the request with seq has been sent on this connection.
func (l *Log) Sent(seq uint64) bool {
	for c := l.front(); ; {
		it, ok := l.read(&c)
		if !ok || it.Kind == Response && it.N == seq {
			return ok
		}
	}
}

// Restart lets everything go; the next push has the number n+1.
func (l *Log) Restart(n uint64) {
	l.Clear()
	l.gone, l.blind, l.before = n, false, 0
}

// Clear lets everything go.
func (l *Log) Clear() {
	if l.held == nil {
		return
	}
	for i := range l.segs {
		l.segs[i].c.free()
	}
	l.held = nil
}
