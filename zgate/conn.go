package zgate

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// maxReads is how often a busy reader reads before it lets answers go.
const maxReads = 16

// The phases of a connection; each has a time limit of its own (Gate.onTimer).
const (
	phaseHandshake int32 = iota // TLS, HTTP
	phaseLogin                  // waits for Hello
	phaseAuth                   // the Authenticator is at work
	phaseActive                 // has a session
	phaseGone                   // is closed, and its session waits for another one
)

// conn is one connection of a client: the socket, gorilla's reading side, and the queue out. It is the net.Conn that
// gorilla has, so that it sees every byte that comes in and decides about every byte that goes out.
type conn struct {
	// What every push touches, first and together: a broadcast goes through thousands of connections, none of which is in a cache.

	// Set at construction.
	g   *Gate
	raw syscall.RawConn // nil: no writes without blocking (TLS, pipes, systems without)
	try func(fd uintptr) bool

	// Owned by whoever has set q.writing.
	wrote    int
	wroteErr error

	// Atomic.
	phase      atomic.Int32
	text       atomic.Bool // the client speaks JSON
	corked     atomic.Bool // the reader is at work and flushes before it blocks
	closingNow atomic.Bool // what is read is not looked at any more

	// Set during the handshake, before anybody else has the conn.
	deflates bool // messages may be compressed

	q queue

	// What reading touches.

	// Owned by the reading goroutine.
	in       *chunk        // what has come and has not been taken yet, nil if nothing
	inAt     int           // how much of it has been taken
	buf      *bytes.Buffer // of the message that is being handled, nil: it lies in in
	readAt   time.Time     // when something came the last time
	traces   uint64        // what the last trace id was made of
	reads    int           // since the socket had nothing
	readN    int
	onRead   func(fd uintptr) bool
	readErr  error // why the transport failed
	guard    guard
	packets  bool   // the transport is bare TCP: packets.go
	upgraded bool   // the handshake is over: gorilla's writes are not ours any more
	known    bool   // not counted as unauthenticated any more
	counted  bool   // against MaxPerIP
	wsFailed bool   // messages are read no more
	control  bucket // of heartbeats

	// Atomic.
	heard    atomic.Int64
	deadline atomic.Int64 // of the phase
	session  atomic.Pointer[Session]
	guest    atomic.Pointer[Session] // sends requests before login; nil: there were none

	timer wheelEntry

	// Set at construction.
	nc     net.Conn       // the socket
	remote netip.AddrPort // what a proxy says of it, from the handshake on

	// Set during the handshake, before anybody else has the conn.
	tr net.Conn // what is read and written: nc, or TLS over it
	ws *websocket.Conn

	// Owned by the wheel's goroutine.
	pinged int64 // what heard was at our last ping
}

// op is the websocket message type that the client reads.
func (c *conn) op() int {
	if c.text.Load() {
		return opText
	}
	return opBinary
}

// Read reads for gorilla's buffer, which is small. gorilla calls it when it has nothing left; when the socket has
// nothing either, that is the border at which answers leave. It gets no more than a frame at a time: what follows may be for direct, and
// the guard is never ahead of the message that gorilla reads.
func (c *conn) Read(p []byte) (int, error) {
	if c.in == nil || c.inAt == len(c.in.b) {
		c.dropIn()
		if c.raw == nil {
			return c.readThrough(p)
		}
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
	n, err := c.guard.frame(c.in.b[c.inAt:][:min(len(p), len(c.in.b)-c.inAt)])
	copy(p, c.in.b[c.inAt:c.inAt+n])
	if c.inAt += n; c.inAt == len(c.in.b) {
		c.dropIn()
	}
	return n, err
}

// readThrough is Read where reading may block, and a connection that waits is to hold no buffer. What is read beyond a frame stays in in.
func (c *conn) readThrough(p []byte) (int, error) {
	p = p[:min(len(p), largeChunk)]
	n, err := c.receiveInto(p)
	if err != nil {
		return 0, err
	}
	frame, err := c.guard.frame(p[:n])
	if rest := p[frame:n]; err == nil && len(rest) > 0 {
		pool := &smallChunks
		if len(rest) > smallChunk {
			pool = &largeChunks
		}
		c.in = pool.Get().(*chunk)
		c.in.b = append(c.in.b, rest...)
	}
	return frame, err
}

// receive fills in from the socket. A connection that waits for bytes holds no buffer.
func (c *conn) receive() error {
	if c.reads++; c.reads >= maxReads {
		// A client that sends without a pause does not keep from itself what others send it.
		c.uncork()
		c.reads = 0
	}
	c.readN, c.readErr = 0, nil
	err := c.raw.Read(c.onRead)
	if err == nil {
		err = c.readErr
	}
	if err = c.received(c.readN, err); err != nil {
		c.dropIn()
		return err
	}
	c.in.b = c.in.b[:c.readN]
	return nil
}

// receiveInto is receive where reading cannot be tried: every read may block.
func (c *conn) receiveInto(p []byte) (int, error) {
	c.uncork()
	n, err := c.tr.Read(p)
	if n > 0 {
		err = nil // it comes again
	}
	return n, c.received(n, err)
}

// received notes that n bytes have come, or why not.
func (c *conn) received(n int, err error) error {
	if n <= 0 && err == nil {
		err = io.EOF
	}
	if c.readErr = err; err == nil {
		c.readAt = time.Now()
		c.heard.Store(c.g.at(c.readAt))
		c.corked.Store(c.session.Load() != nil)
	}
	return err
}

func (c *conn) dropIn() {
	if c.in != nil {
		c.in.free()
		c.in, c.inAt = nil, 0
	}
}

// readSome is the function of receive: it takes what the socket has, and flushes when it has nothing, before the
// goroutine is parked.
func (c *conn) readSome(fd uintptr) bool {
	if c.in == nil {
		c.in = smallChunks.Get().(*chunk)
	}
	n, again, err := readNonblocking(fd, c.in.b[:cap(c.in.b)])
	if again {
		c.dropIn()
		c.reads = 0
		c.uncork()
		return false
	}
	c.readN, c.readErr = n, err
	return true
}

// Write passes the HTTP answer of the handshake on. Later, gorilla writes only close frames for what it refuses; they
// are swallowed here, since ours go the way of everything else.
func (c *conn) Write(p []byte) (int, error) {
	if !c.upgraded {
		return c.tr.Write(p)
	}
	return len(p), nil
}

// Close closes the socket.
func (c *conn) Close() error { return c.nc.Close() }

// LocalAddr returns the socket's.
func (c *conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr returns the socket's.
func (c *conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// SetDeadline does nothing: the wheel and the queue have their own limits.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, as SetDeadline.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, as SetDeadline.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// message is one websocket message. Its bytes are valid until freeMessage.
type message struct {
	op int
	b  []byte
}

// readMessage reads the next message, without gorilla where that is easy. The caller gives its memory back with freeMessage before
// it reads the next one. That memory grows with what came, not with what was announced.
func (c *conn) readMessage() (message, error) {
	if c.packets {
		m, err := c.readPacket()
		c.wsFailed = err != nil
		return m, err
	}
	m, ok, err := c.direct()
	if ok {
		return m, err
	}
	op, r := 0, io.Reader(nil)
	if err == nil {
		op, r, err = c.ws.NextReader()
	}
	if err != nil {
		c.wsFailed = true
		return message{}, err
	}
	// Only now: a connection that waits for a message holds no buffer.
	c.buf = messages.Get().(*bytes.Buffer)
	if _, err := c.buf.ReadFrom(r); err != nil {
		c.wsFailed = true
		c.freeMessage(message{})
		return message{}, err
	}
	m = message{op, c.buf.Bytes()}
	if c.guard.deflated {
		return c.inflated(m)
	}
	return m, nil
}

// freeMessage gives the memory of m back. In tests with -tags invariants its bytes are overwritten, so that whoever aliases them shows.
func (c *conn) freeMessage(m message) {
	poison(m.b)
	if c.buf == nil {
		return
	}
	if c.buf.Cap() <= maxPooled {
		c.buf.Reset()
		messages.Put(c.buf)
	}
	c.buf = nil
}

// readFailed says how a connection ends whose reading failed with err.
func (c *conn) readFailed(err error) {
	var v *violation
	var ce *websocket.CloseError
	switch {
	case errors.As(err, &v):
		c.close(v.code, v.text, closing{})
	case errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure:
		c.answerClose(ce)
	case c.readErr != nil:
		c.lost(c.readErr)
	case errors.Is(err, websocket.ErrReadLimit):
		c.close(CloseTooLarge, "message is above the limit", closing{})
	default:
		c.close(CloseWebsocket, err.Error(), closing{})
	}
}

// lost ends a connection that the other side is no longer at.
func (c *conn) lost(err error) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.q.closing {
		return
	}
	text := "connection lost"
	if err != nil && !errors.Is(err, io.EOF) {
		text = err.Error()
	}
	c.breakLocked(closedLost, text)
}

// answerClose answers the client's close frame, after everything that is queued.
func (c *conn) answerClose(ce *websocket.CloseError) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.q.peerDone = true
	if c.q.closing {
		return // ours is on its way, and the client's answers it
	}
	code, how, text := CloseCode(ce.Code), closedByClient, ce.Text
	if ce.Code == websocket.CloseNoStatusReceived {
		code = 0
	}
	if clientSuspends(ce.Code) {
		how, text = closedLost, "the client closed with "+itoa(ce.Code)+": "+ce.Text
	}
	c.endLocked(how, text, 0, func() { c.appendLocked(appendWSClose(nil, code, "")) })
}

// closing is what close tells and waits for beside code and text.
type closing struct {
	delay  time.Duration // the client is asked to wait so long before it connects again
	within time.Duration // for what is queued to be written; 0: Config.CloseTimeout
}

// close ends the connection on purpose: a Closing frame, a close frame, and both behind everything that is queued.
// Only the first call counts; it reports whether this was it. It never blocks.
func (c *conn) close(code CloseCode, text string, o closing) bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.closeLocked(code, text, o)
}

func (c *conn) closeLocked(code CloseCode, text string, o closing) bool {
	if c.q.closing || c.q.dead {
		return false
	}
	text = cut(text, maxReason)
	c.endLocked(code, text, o.within, func() {
		c.controlLocked(&wirepb.Control{Control: &wirepb.Control_Closing{Closing: &wirepb.Closing{
			Code: uint32(code), Text: text, DelayMs: uint32(o.delay.Milliseconds()),
		}}})
		c.appendLocked(appendWSClose(nil, code, text))
	})
	return true
}

// endLocked appends the last frames and sees them out.
func (c *conn) endLocked(code CloseCode, text string, within time.Duration, last func()) {
	if within <= 0 {
		within = c.g.cfg.CloseTimeout
	}
	c.latestLocked()
	if c.q.hold { // the client has not been told of a session
		c.dropLocked(false)
		c.q.queued, c.q.hold = 0, false
	}
	last()
	c.q.closed = ending{code, text}
	c.q.closing = true
	c.closingNow.Store(true)
	_ = c.nc.SetReadDeadline(time.Now().Add(within)) // ends the reader, which ends the rest
	c.writeLocked()
}

// encode appends f as a packet of its own in the client's codec.
func (c *conn) encode(dst []byte, f *zmsg.Frame) ([]byte, error) {
	if c.text.Load() {
		return zmsg.EncodeText(dst, c.g.cfg.Registry, f)
	}
	return zmsg.AppendPacketFrame(dst, f), nil
}

// sendControl sends a control frame; what a closed connection refuses is of no interest.
func (c *conn) sendControl(m *wirepb.Control) {
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(m)}
	if b, err := c.encode(nil, &f); err == nil {
		_ = c.send(c.op(), b, false)
	}
}

// control encodes m for Frame.Control, where nil would say that there is none.
func control(m *wirepb.Control) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{}, m)
	if err != nil {
		return []byte{} // a string that is not UTF-8, which cut has made impossible
	}
	return b
}

// heartbeat answers a ping, unless there are too many of them.
func (c *conn) heartbeat() bool {
	if c.control.take(c.g.now(), controlRate, controlBurst) || c.closingNow.Load() {
		return true
	}
	if c.control.strikes > controlBurst {
		c.close(CloseRate, "too many heartbeats: more than "+itoa(controlRate)+" per second", closing{})
	}
	return false
}

// onPong counts: there is nothing to answer.
func (c *conn) onPong(string) error {
	c.heartbeat()
	return nil
}

// onPing answers a websocket ping.
func (c *conn) onPing(data string) error {
	if c.heartbeat() {
		_ = c.send(opPong, []byte(data), false)
	}
	return nil
}

// drain reads and throws away until the other side has closed, or its time is up, so that our close frame is not lost
// to a reset.
func (c *conn) drain() {
	for !c.wsFailed {
		m, err := c.readMessage()
		if err != nil {
			c.readFailed(err)
			break
		}
		c.freeMessage(m)
	}
	c.uncork()
	c.dropIn()
	var scratch [512]byte
	for !c.over() {
		if _, err := c.tr.Read(scratch[:]); err != nil {
			return
		}
	}
}

// over reports whether nothing more is to be had from the other side, or to be told to it.
func (c *conn) over() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.readErr != nil || c.q.broken || c.q.peerDone && c.q.half
}

// finish closes the socket and forgets what is still queued. It returns how the connection ended, and whether its session goes on without it.
func (c *conn) finish() (how ending, suspended bool) {
	_ = c.nc.Close() // without the lock: it waits for whoever writes
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	q := &c.q
	q.dead = true
	if q.closed.code == 0 {
		q.closed = ending{closedLost, "connection lost"}
	}
	if s := c.session.Load(); s != nil {
		suspended = s.parkLocked(c)
	}
	c.dropLocked(suspended)
	return q.closed, suspended
}

// parseAck decodes a control frame that is an Ack, and an Ack alone.
func parseAck(b []byte) (push, response uint64, ok bool) {
	const ack, first, second = 5<<3 | 2, 1 << 3, 2 << 3 // tags
	if len(b) < 2 || b[0] != ack || int(b[1]) != len(b)-2 {
		return 0, 0, false
	}
	for b = b[2:]; len(b) > 0; {
		x, n := protowire.ConsumeVarint(b[1:])
		switch {
		case n < 0:
			return 0, 0, false
		case b[0] == first:
			push = x
		case b[0] == second:
			response = x
		default:
			return 0, 0, false
		}
		b = b[1+n:]
	}
	return push, response, true
}

func itoa(n int) string { return strconv.Itoa(n) }
