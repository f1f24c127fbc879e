package zgate

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// encoded is one push on its way to any number of sessions: encoded at most once for each codec. What differs between
// sessions is the push's number alone, so each gets a short head of its own and shares the rest.
//
//	pb:   websocket header | packet tag, length | kind, id, seq, body tag, length | body
//	text: websocket header | {"frames":[{"seq":"7", | "kind":"FRAME_KIND_PUSH",...}]}
//
// Fields of a protobuf message in the order of their numbers: the bytes are those of zmsg.AppendPacketFrame. Not safe
// for concurrent use.
type encoded struct {
	g     *Gate
	id    uint32
	class zmsg.Class
	of    string // as body
	body  []byte
	// owned: body is not changed by anybody and may be kept; else it is valid during the call only.
	owned  bool
	rest   []byte    // of the text form, nil until somebody wants it
	err    error     // of the text form
	z      *deflated // body and rest for clients that take them compressed
	pub    publish   // to a group
	sentOn bool      // by the gate that had the session before
}

var errOf error = &opError{"zgate: Push.Of is longer than " + itoa(zmsg.MaxOf) + " bytes", zmsg.CodeBadRequest}

const textHead = `{"frames":[{`

// encode makes p ready to be sent; own says that p.Body may be kept.
func (g *Gate) encode(p *zmsg.Push, own bool) (encoded, error) {
	body, err := p.EncodedBody()
	switch {
	case len(p.Of) > zmsg.MaxOf:
		return encoded{}, errOf
	case err != nil:
		return encoded{}, err
	case len(body) > g.cfg.MaxSend:
		g.count.dropTooLarge.Inc()
		return encoded{}, zmsg.ErrTooLarge
	}
	if p.Body == nil {
		g.count.encodePB.Inc()
	}
	return encoded{g: g, id: p.ID, class: p.Class, of: p.Of, body: body, owned: own || p.Body == nil}, nil
}

// text returns what follows textHead and the seq in the text form.
func (e *encoded) text() ([]byte, error) {
	if e.rest == nil && e.err == nil {
		f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: e.id, Body: e.body}
		e.g.count.encodeText.Inc()
		var b []byte
		if b, e.err = zmsg.EncodeText(nil, e.g.cfg.Registry, &f); e.err == nil {
			e.rest = bytes.TrimPrefix(b, []byte(textHead))
		}
	}
	return e.rest, e.err
}

// keep makes e independent of the caller's memory.
func (e *encoded) keep() {
	if !e.owned {
		e.body, e.of, e.owned = bytes.Clone(e.body), strings.Clone(e.of), true
	}
}

// weight is what e counts in a queue, nearly.
func (e *encoded) weight() int { return len(e.body) + len(e.of) + 40 }

// appendPushLocked appends e as the session's next push to its connection c, which is locked; e is admitted.
func (s *Session) appendPushLocked(c *conn, e *encoded) {
	if c.text.Load() {
		if _, err := e.text(); err != nil {
			return
		}
	}
	s.keepPushLocked(e)
	c.pushLocked(s.pushes, e)
}

// pushLocked appends e as the push with number n. c.q.mu is held.
func (c *conn) pushLocked(n uint64, e *encoded) {
	if c.text.Load() {
		rest, err := e.text()
		if err != nil {
			return
		}
		var h [64]byte
		head := append(h[:0], textHead+`"seq":"`...)
		head = appendUint(head, n)
		head = append(head, `",`...)
		if z := e.z.body(true); z != nil && c.deflates {
			c.squeezedLocked(opText, head, z, true, len(rest))
			return
		}
		var w [10]byte
		c.appendLocked(appendWSHeader(w[:0], opText, len(head)+len(rest)))
		c.appendLocked(head)
		c.appendBodyLocked(rest, true)
		return
	}
	// The head is built behind the room for the headers, whose lengths depend on it.
	var h [64]byte
	head := append(h[:0], 1<<3, byte(wirepb.FrameKind_FRAME_KIND_PUSH))
	if e.id != 0 {
		head = protowire.AppendVarint(append(head, 2<<3), uint64(e.id))
	}
	head = protowire.AppendVarint(append(head, 3<<3), n)
	if len(e.body) > 0 {
		head = protowire.AppendVarint(append(head, 6<<3|2), uint64(len(e.body)))
	}
	frame := len(head) + len(e.body)
	if z := e.z.body(false); z != nil && c.deflates {
		var w [64]byte
		c.squeezedLocked(opBinary, append(protowire.AppendVarint(append(w[:0], 1<<3|2), uint64(frame)), head...), z, true, len(e.body))
		return
	}
	var w [24]byte
	pre := appendWSHeader(w[:0], opBinary, 1+protowire.SizeVarint(uint64(frame))+frame)
	pre = protowire.AppendVarint(append(pre, 1<<3|2), uint64(frame))
	c.appendLocked(pre)
	c.appendLocked(head)
	c.appendBodyLocked(e.body, e.owned)
}

func appendUint(b []byte, n uint64) []byte {
	var d [20]byte
	i := len(d)
	for {
		i--
		d[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return append(b, d[i:]...)
		}
	}
}

// appendBodyLocked appends b, by reference where that is allowed and worth it.
func (c *conn) appendBodyLocked(b []byte, owned bool) {
	if owned && len(b) >= shareFrom {
		c.shareLocked(b)
		return
	}
	c.appendLocked(b)
}

// push queues e. With later, the write is left to the gate's flusher, for a sender that has many sessions to serve.
func (s *Session) push(e *encoded, later bool) error {
	c := s.c.Load()
	if c.text.Load() {
		if _, err := e.text(); err != nil {
			return err
		}
	}
	if c.deflates {
		c.squeeze(e)
	}
	c = s.lock()
	defer c.q.mu.Unlock()
	if e.pub.n != 0 && s.overlapsLocked(e) {
		return nil
	}
	return s.pushLocked(e, later)
}

// pushLocked is push for who holds the session's connection.
func (s *Session) pushLocked(e *encoded, later bool) error {
	c := s.c.Load()
	if c.endedLocked() {
		return s.awayLocked(c, e)
	}
	// What waits for the reader's or the flusher's next write is not behind: only a running writer means that the
	// socket refuses.
	if e.class == zmsg.Latest && c.q.writer {
		return s.waitLatestLocked(c, e)
	}
	if err := c.admitLocked(e.weight(), e.class); err != nil {
		if s.c.Load() != c {
			return s.pushAgain(c, e, later)
		}
		switch {
		case errors.Is(err, ErrDropped):
			c.g.count.dropVolatile.Inc()
		case s.outlivesLocked(c): // too slow, and may come back
			return s.awayLocked(c, e)
		case errors.Is(err, ErrClosed):
			c.g.count.dropClosed.Inc()
		}
		return err
	}
	s.appendPushLocked(c, e)
	c.g.count.Pushes.Inc()
	c.sentLocked(later)
	return nil
}

// pushAgain is push for who has locked c, which was the session's connection until a write let go of the lock: meanwhile it has ended, and the client is back by
// another one. c is locked again when it returns.
func (s *Session) pushAgain(c *conn, e *encoded, later bool) error {
	c.q.mu.Unlock()
	defer c.q.mu.Lock()
	return s.push(e, later)
}

// giveLocked is pushLocked for one of many that are not to be parted: it does not let go of the lock, and leaves the write to sentSoonLocked. It asks for no room in the queue, so they are to be few.
func (s *Session) giveLocked(c *conn, e *encoded) {
	q := &c.q
	switch {
	case c.endedLocked():
		_ = s.awayLocked(c, e) // what is dropped is counted
		return
	case e.class == zmsg.Latest && q.writer && s.latestLocked(c, e):
		return
	case e.class == zmsg.Volatile && q.queued-q.offered > c.g.cfg.QueueBytes/4:
		c.g.count.dropVolatile.Inc()
		return
	}
	s.appendPushLocked(c, e)
	c.g.count.Pushes.Inc()
}

// waitLatestLocked lets e wait for the socket, in the place of an older push of its id, and of the same thing.
func (s *Session) waitLatestLocked(c *conn, e *encoded) error {
	if s.latestLocked(c, e) {
		return nil
	}
	err := ErrSlow
	if len(c.q.latest) >= latestLimit {
		c.closeLocked(CloseSlow, "client does not read: "+itoa(latestLimit)+" different pushes wait for it", closing{})
	} else if err = c.admitLocked(e.weight(), zmsg.Latest); err == nil {
		s.addLatestLocked(c, e)
		return nil
	}
	if s.c.Load() != c {
		return s.pushAgain(c, e, false)
	}
	if s.outlivesLocked(c) {
		return s.awayLocked(c, e)
	}
	return err
}

// latestLocked puts e in the place of an older push of its id that waits; where c has ended, it waits without one. It reports false where it does not
// wait, since that would be too much: then nothing older than it waits any more.
func (s *Session) latestLocked(c *conn, e *encoded) bool {
	old := slices.IndexFunc(c.q.latest, func(w waiting) bool { return w.e.id == e.id && w.e.of == e.of })
	more := e.weight()
	if old >= 0 {
		more -= c.q.latest[old].e.weight()
	}
	away := c.endedLocked()
	fits := more <= 0 || c.q.queued+more <= c.g.cfg.QueueBytes
	if away {
		fits = more <= 0 || s.latestFitsLocked(c, more)
	}
	switch {
	case old >= 0 && fits:
		e.keep()
		s.latestByLocked(c, more)
		c.q.latest[old].e = *e
		c.g.count.dropReplaced.Inc()
		return true
	case old >= 0:
		s.latestByLocked(c, more-e.weight())
		c.q.latest = slices.Delete(c.q.latest, old, old+1)
		c.g.count.dropReplaced.Inc()
	case away && fits && len(c.q.latest) < latestLimit:
		s.addLatestLocked(c, e)
		return true
	}
	return false
}

// latestFitsLocked reports whether so much more may wait for a client that is away: as much of a session as of what else it keeps.
func (s *Session) latestFitsLocked(c *conn, more int) bool {
	n := weightOf(c.q.latest) + more
	return n <= s.g.cfg.KeepBytes && s.resume.log.Bytes()+n <= s.g.share(more)
}

func weightOf(latest []waiting) (n int) {
	for i := range latest {
		n += latest[i].e.weight()
	}
	return n
}

// latestByLocked makes what is added to those that wait count.
func (s *Session) latestByLocked(c *conn, more int) {
	c.q.queued += more
	if s.state == stateSuspended {
		s.resume.latest += more
		s.g.kept.Add(int64(more))
	}
}

func (s *Session) addLatestLocked(c *conn, e *encoded) {
	e.keep()
	c.q.latest = append(c.q.latest, waiting{s, *e})
	s.latestByLocked(c, e.weight())
	c.g.count.Pushes.Inc()
}

// flusher writes for those who have put something into many queues: a broadcast does not wait for the writes of its
// members, and what is published meanwhile leaves with them. Its goroutines run while there is something to do.
type flusher struct {
	mu      sync.Mutex
	dirty   []*conn
	running int
}

const (
	maxFlushers = 2
	flushBatch  = 64
)

// add takes c, whose q.mu is held and q.dirty set.
func (f *flusher) add(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty = append(f.dirty, c)
	if f.running == 0 || f.running < maxFlushers && len(f.dirty) > flushBatch {
		f.running++
		c.g.wg.Add(1)
		// Owned by the gate; ends when no queue is dirty; Shutdown waits for it.
		go f.run(c.g)
	}
}

func (f *flusher) run(g *Gate) {
	defer g.wg.Done()
	var batch [flushBatch]*conn
	for {
		f.mu.Lock()
		from := max(0, len(f.dirty)-flushBatch)
		n := copy(batch[:], f.dirty[from:])
		clear(f.dirty[from:])
		f.dirty = f.dirty[:from]
		if n == 0 {
			if f.running--; f.running == 0 && cap(f.dirty) > 4096 {
				f.dirty = nil
			}
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for i, c := range batch[:n] {
			c.q.mu.Lock()
			c.q.dirty = false
			c.writeLocked()
			c.q.mu.Unlock()
			batch[i] = nil
		}
	}
}
