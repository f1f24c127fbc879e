package zgate

import (
	"crypto/tls"
	"errors"
	"os"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Errors of pushes and replies.
var (
	ErrClosed  error = &opError{"zgate: session is closed", zmsg.CodeNotFound}      // or closing
	ErrSlow          = errors.New("zgate: client does not keep up and is closed")   // nothing more reaches it
	ErrDropped       = errors.New("zgate: volatile push dropped, client is behind") // the session goes on
)

const (
	smallChunk   = 2 << 10
	largeChunk   = 32 << 10
	shareFrom    = 1 << 10  // a shared body of this size and more is referenced, not copied
	corkLimit    = 16 << 10 // a busy reader flushes from here on without waiting for its next read
	latestLimit  = 256      // ids of class latest that may wait
	keepSegments = 16       // room for so many is kept while nothing waits
	maxRounds    = 4        // writes without blocking, before a writer goroutine takes over from a sender
)

// chunk is a piece of queue memory.
type chunk struct{ b []byte }

var (
	smallChunks = sync.Pool{New: func() any { return &chunk{make([]byte, 0, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &chunk{make([]byte, 0, largeChunk)} }}
)

func (c *chunk) free() {
	c.b = c.b[:0]
	if cap(c.b) == smallChunk {
		smallChunks.Put(c)
	} else {
		largeChunks.Put(c)
	}
}

// segment is a run of bytes that waits to be written: in a chunk of its own, or shared with other connections.
type segment struct {
	b     []byte // what is still to be written
	chunk *chunk // nil: shared memory
	at    int64  // when its first byte was refused by the socket; 0: not tried yet
}

// waiting is a push of class latest that waits for the queue to drain.
type waiting struct {
	s *Session
	e encoded
}

// queue is the way out of a connection: the only one. Everything that is written to the websocket is appended here as
// whole frames, under mu, in the order of the calls.
//
// Whoever appends also tries to write, without blocking, unless the connection's reader is at work (corked): then the
// reader does it when it has nothing left to read, so that the answers to a burst leave together. What the socket
// refuses stays, and a writer goroutine runs until the queue is empty; a connection that is idle has none.
type queue struct {
	mu      sync.Mutex
	segs    []segment
	latest  []waiting
	hand    []segment // taken from segs by the one who writes without blocking, and owned by it
	queued  int       // bytes in segs, in latest, and in the hand of the one who writes
	offered int       // bytes in the hand of one who writes
	writing bool      // somebody writes, and looks again before it stops
	writer  bool      // it is the writer goroutine: the socket refuses
	dirty   bool      // in the gate's flusher
	broken  bool      // nothing can be written any more
	hold    bool      // what is queued waits for the Welcome, which goes ahead of it
	closing bool      // the last frame has been appended
	half    bool      // and written, and our side of the connection is shut
	dead    bool      // the connection is closed
	closed  ending

	peerDone bool // the client has sent its close frame

	room [2]segment // for segs and hand, while neither has more than one
}

// ending is how a connection ended; code 0: it has not.
type ending struct {
	code CloseCode
	text string
}

// admitLocked reports whether n more bytes may be queued. When they may not, a push of class volatile is dropped, and
// anything else closes the connection as slow.
func (c *conn) admitLocked(n int, class zmsg.Class) error {
	if c.q.closing || c.q.broken || c.q.dead {
		return ErrClosed
	}
	limit := c.g.cfg.QueueBytes
	if class == zmsg.Volatile {
		limit /= 4
	}
	// What is just being offered to the socket is not behind yet.
	if behind := c.q.queued - c.q.offered; behind == 0 || behind+n <= limit {
		return nil
	}
	if !c.q.writing {
		c.writeLocked() // a busy reader held it back, not the client
		if c.q.closing || c.q.dead {
			return ErrClosed // meanwhile
		}
		if c.q.queued == 0 || c.q.queued+n <= limit {
			return nil
		}
	}
	if class == zmsg.Volatile {
		return ErrDropped
	}
	c.closeLocked(CloseSlow, "client does not read: more than "+itoa(c.g.cfg.QueueBytes)+" bytes wait for it", closing{})
	return ErrSlow
}

// appendLocked copies b to the end of the queue.
func (c *conn) appendLocked(b []byte) {
	q := &c.q
	q.queued += len(b)
	for len(b) > 0 {
		last := len(q.segs) - 1
		if last < 0 || q.segs[last].chunk == nil || len(q.segs[last].chunk.b) == cap(q.segs[last].chunk.b) {
			pool := &largeChunks
			if last < 0 && len(b) <= smallChunk {
				pool = &smallChunks
			}
			c.addLocked(segment{chunk: pool.Get().(*chunk)})
			last = len(q.segs) - 1
		}
		s := &q.segs[last]
		n := min(len(b), cap(s.chunk.b)-len(s.chunk.b))
		// s.b is a suffix of the chunk's bytes: growing the chunk grows it in place.
		written := len(s.chunk.b) - len(s.b)
		s.chunk.b = append(s.chunk.b, b[:n]...)
		s.b = s.chunk.b[written:]
		b = b[n:]
	}
}

// shareLocked puts b, which nobody changes any more, at the end of the queue without copying.
func (c *conn) shareLocked(b []byte) {
	c.q.queued += len(b)
	c.addLocked(segment{b: b})
}

func (c *conn) addLocked(s segment) {
	if c.q.writer {
		s.at = c.g.now()
	}
	c.q.segs = append(c.q.segs, s)
}

// popLocked takes the first segment off.
func (c *conn) popLocked() segment {
	q := &c.q
	s := q.segs[0]
	copy(q.segs, q.segs[1:])
	q.segs[len(q.segs)-1] = segment{}
	q.segs = q.segs[:len(q.segs)-1]
	if len(q.segs) == 0 && cap(q.segs) > keepSegments {
		q.segs = nil
	}
	return s
}

// flushLocked writes what is queued, or leaves that to whoever is about to do so: a busy reader, the flusher.
func (c *conn) flushLocked() {
	if c.corked.Load() && c.q.queued < corkLimit {
		return
	}
	c.writeLocked()
}

// writeLocked offers the queue to the socket; what it refuses goes to a writer goroutine. One caller writes at a time,
// and q.mu is not held meanwhile: others append and go, and the writing one looks again before it stops.
func (c *conn) writeLocked() {
	q := &c.q
	if q.writing || q.broken || q.dead || q.hold {
		return
	}
	if c.raw == nil {
		if len(q.segs)+len(q.latest) > 0 {
			c.startWriterLocked()
		} else {
			c.doneLocked()
		}
		return
	}
	q.writing = true
	for range maxRounds {
		if len(q.segs) == 0 {
			c.latestLocked()
		}
		if len(q.segs) == 0 {
			q.writing = false
			if cap(q.segs) > keepSegments || cap(q.hand) > keepSegments {
				q.segs, q.hand = nil, nil
			}
			c.doneLocked()
			return
		}
		q.hand, q.segs = q.segs, q.hand[:0]
		q.offered = q.queued
		q.mu.Unlock()
		written, err := c.writeHand()
		q.mu.Lock()
		q.offered = 0
		q.queued -= written
		if err != nil {
			q.writing = false
			c.breakLocked(closedLost, err.Error())
			return
		}
		if q.dead { // finish has been here, and has decided about latest, and the session may have another connection
			q.writing = false
			q.segs, q.hand = append(q.hand, q.segs...), nil
			c.dropLocked(true)
			return
		}
		if len(q.hand) > 0 {
			both := append(q.hand, q.segs...)
			clear(q.segs)
			q.hand, q.segs = q.segs[:0], both
			break
		}
	}
	// The socket refuses, or others append as fast as it takes: nobody is to write for them for ever.
	q.writing = false
	c.startWriterLocked()
}

// writeHand writes the segments in hand until the socket refuses; those that are left stay in hand. The caller has
// set q.writing, which makes them its own.
func (c *conn) writeHand() (written int, err error) {
	// The function runs before Write returns; it is made once per connection because a closure would be an allocation
	// per write.
	c.wrote, c.wroteErr = 0, nil
	if err := c.raw.Write(c.try); err != nil {
		return c.wrote, err
	}
	return c.wrote, c.wroteErr
}

// tryWrite is the function of writeHand.
func (c *conn) tryWrite(fd uintptr) bool {
	hand := c.q.hand
	done := 0
	for done < len(hand) {
		s := &hand[done]
		n, err := writeNonblocking(fd, s.b)
		c.wrote += n
		s.b = s.b[n:]
		if err != nil || len(s.b) > 0 {
			c.wroteErr = err
			break
		}
		if s.chunk != nil {
			s.chunk.free()
		}
		done++
	}
	n := copy(hand, hand[done:])
	clear(hand[n:])
	c.q.hand = hand[:n]
	return true // never wait for the socket
}

// startWriterLocked hands the queue to a writer goroutine.
func (c *conn) startWriterLocked() {
	q := &c.q
	now := c.g.now()
	for i := range q.segs {
		if q.segs[i].at == 0 {
			q.segs[i].at = now
		}
	}
	q.writing, q.writer = true, true
	c.g.wg.Add(1)
	// Owned by the connection; ends when the queue is empty, or when the connection is closed, which its reader does
	// in the end; Shutdown waits for it.
	go c.writeLoop()
}

// writeLoop writes with deadlines what the socket refused.
func (c *conn) writeLoop() {
	defer c.g.wg.Done()
	q := &c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() { q.writing, q.writer = false, false }()
	for {
		if q.broken || q.dead {
			return
		}
		if len(q.segs) == 0 {
			c.latestLocked()
		}
		if len(q.segs) == 0 {
			if q.closing {
				c.shutTLSLocked()
				c.doneLocked()
			} else {
				_ = c.nc.SetWriteDeadline(time.Time{}) // or the next try would fail
			}
			return
		}
		s := c.popLocked()
		err := c.writeSegmentLocked(s)
		if s.chunk != nil {
			s.chunk.free()
		}
		if err != nil {
			c.g.count.dropCut.Inc()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.breakLocked(CloseSlow, "client does not read: the oldest byte waited "+c.g.cfg.QueueAge.String())
			} else {
				c.breakLocked(closedLost, err.Error())
			}
			return
		}
	}
}

// writeSegmentLocked writes a segment, waiting for the socket without q.mu. It goes in pieces, each of which is being offered meanwhile: what a
// client has read already is not behind, be the segment ever so large.
func (c *conn) writeSegmentLocked(s segment) (err error) {
	q := &c.q
	for left := s.b; len(left) > 0; {
		piece := left[:min(len(left), largeChunk)]
		left = left[len(piece):]
		q.offered = len(piece)
		q.mu.Unlock()
		if wait := c.g.cfg.QueueAge - time.Duration(c.g.now()-s.at); wait > 0 {
			_ = c.nc.SetWriteDeadline(time.Now().Add(wait))
			_, err = c.tr.Write(piece)
		} else {
			err = os.ErrDeadlineExceeded
		}
		q.mu.Lock()
		q.offered = 0
		q.queued -= len(piece)
		if err != nil {
			q.queued -= len(left)
			return err
		}
	}
	return nil
}

// doneLocked follows the last byte: when that was a close frame, it shuts our side, so that the client reads the end
// right behind it, and gives the client CloseTimeout to close its own. Of a client whose close frame was faster than this, nothing
// more is to come: the reader, which may wait already, is woken.
func (c *conn) doneLocked() {
	q := &c.q
	if !q.closing || q.broken || q.half || q.dead {
		return
	}
	q.half = true
	if q.peerDone {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	} else {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.g.cfg.CloseTimeout))
	}
	if c.raw == nil {
		return // of TLS, the writer has done it
	}
	if h, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// shutTLSLocked shuts our side of a TLS connection, with an alert, which takes a write that may block: only the writer goroutine does so.
func (c *conn) shutTLSLocked() {
	t, ok := c.tr.(*tls.Conn)
	if !ok || c.q.half || c.q.dead {
		return
	}
	c.q.mu.Unlock()
	_ = t.CloseWrite() // has a time limit of its own
	c.q.mu.Lock()
}

// breakLocked ends a connection that cannot be written to any more, without a word.
func (c *conn) breakLocked(code CloseCode, text string) {
	if c.q.closed.code == 0 {
		c.q.closed = ending{code, text}
	}
	c.q.broken = true
	c.q.closing = true
	c.closingNow.Store(true)
	// Wakes the reader, which closes the socket. Closing it here would wait for whoever is inside a call on it, and that
	// may be the caller, or one who waits for q.mu.
	_ = c.nc.SetDeadline(time.Unix(1, 0))
}

// endedLocked reports whether nothing more is taken.
func (c *conn) endedLocked() bool { return c.q.closing || c.q.broken || c.q.dead }

// dropLocked forgets what is queued; but for what is the newest of its id, where the session is to be resumed: away.
func (c *conn) dropLocked(away bool) {
	q := &c.q
	if len(q.segs) > 0 || len(q.latest) > 0 && !away {
		c.g.count.dropCut.Inc()
	}
	for i := range q.segs {
		if ch := q.segs[i].chunk; ch != nil {
			ch.free()
		}
	}
	q.segs = nil
	if !away {
		q.latest = nil
	}
}

// latestLocked moves the waiting pushes of class latest into the queue.
func (c *conn) latestLocked() {
	for i := range c.q.latest {
		w := &c.q.latest[i]
		c.q.queued -= w.e.weight()
		w.s.appendPushLocked(c, &w.e)
		*w = waiting{}
	}
	c.q.latest = c.q.latest[:0]
}

// send queues one websocket frame with payload b (copied) and sees that it is written, with later by the flusher.
func (c *conn) send(op int, b []byte, later bool) error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if err := c.admitLocked(len(b)+wsHeaderSize(len(b)), zmsg.Reliable); err != nil {
		return err
	}
	c.frameLocked(op, b)
	c.sentLocked(later)
	return nil
}

// sentLocked sees that what has just been appended is written.
func (c *conn) sentLocked(later bool) {
	switch {
	case c.q.writing: // whoever it is takes it along
	case !later || c.q.queued >= corkLimit:
		c.flushLocked()
	case !c.q.dirty && !c.corked.Load():
		c.q.dirty = true
		c.g.flush.add(c)
	}
}

// sentSoonLocked sees that others write what has just been appended, a busy reader or the flusher: who calls it keeps the lock.
func (c *conn) sentSoonLocked() {
	if q := &c.q; !c.endedLocked() && q.queued > 0 && !q.writing && !q.dirty && !c.corked.Load() {
		q.dirty = true
		c.g.flush.add(c)
	}
}

// controlLocked appends a control frame.
func (c *conn) controlLocked(m *wirepb.Control) {
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(m)}
	if b, err := c.encode(nil, &f); err == nil {
		c.frameLocked(c.op(), b)
	}
}

func (c *conn) frameLocked(op int, b []byte) {
	var h [10]byte
	c.appendLocked(appendWSHeader(h[:0], op, len(b)))
	c.appendLocked(b)
}

// uncork ends the reader's hold on the queue; it is about to block.
func (c *conn) uncork() {
	// The store comes first: whoever appends after our look into the queue sees that nobody writes for him.
	c.corked.Store(false)
	c.q.mu.Lock()
	if c.q.queued > 0 {
		c.writeLocked()
	}
	c.q.mu.Unlock()
}
