package zgate

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
)

// The transport over bare TCP, for clients that are no browsers. The client opens with the name of a subprotocol and a line feed,
// "zgame.v1.pb\n"; then both sides send packets behind a prefix with their length. A packet is to be read as an unmasked, unfragmented
// websocket frame:
//
//	byte 0       0x82: a message (0x81: of text); 0x88: close, code and reason; 0x89: ping; 0x8a: pong
//	byte 1       0 to 125: the length; 126: it is in the next 2 bytes; 127: in the next 8, the most significant first
//	then         that many bytes
//
// It is the framing that websocket clients read as well, so that a broadcast is one piece of memory for all of them, and so are codes and limits.

// maxOpening is how long the client's first line may be.
const maxOpening = 32

// openPackets makes c a connection of packets. It returns why it did not, a word of a fixed list.
func (g *Gate) openPackets(c *conn) (refused string) {
	var b [maxOpening]byte
	n := 0
	for n == 0 || b[n-1] != '\n' { // a byte at a time: what follows is for readPacket
		if n == len(b) {
			return "bad_request"
		}
		if _, err := c.tr.Read(b[n : n+1]); err != nil {
			return c.refusedBy("", err)
		}
		n++
	}
	switch string(b[:n-1]) {
	case zmsg.SubprotocolPB:
	case zmsg.SubprotocolJSON:
		if !g.cfg.AllowText {
			return "bad_request"
		}
		c.text.Store(true)
	default:
		return "bad_request"
	}
	c.upgraded = true
	switch {
	case !g.countAddress(c, true):
		c.close(CloseOverloaded, "too many connections of one address", closing{})
		return "address"
	case g.draining.Load():
		c.close(CloseShutdown, "shutting down", closing{delay: g.spread()})
		return "draining"
	}
	return ""
}

// startTLS makes what is read and written TLS, where the gate speaks it.
func (g *Gate) startTLS(c *conn) (refused string) {
	if g.cfg.TLS == nil {
		return ""
	}
	t := tls.Server(c.nc, g.cfg.TLS)
	c.tr = t
	if err := t.HandshakeContext(g.ctx); err != nil {
		reason := c.refusedBy("tls", err)
		if !c.packets && isPlainHTTP(err) { // a client that is told so looks at its URL, not at the network
			c.tr = c.nc
			c.refuse(http.StatusBadRequest, "this gate speaks TLS: connect with wss://")
		}
		return reason
	}
	return ""
}

// undecided reports whether the client has not said which codec it speaks: then its first message does.
func (c *conn) undecided() bool { return c.ws != nil && c.ws.Subprotocol() == "" }

// readPacket is readMessage of a connection of packets. Pings are answered on the way. A close packet is the error that gorilla has for
// a close frame.
func (c *conn) readPacket() (message, error) {
	for {
		op, n, err := c.prefix()
		if err != nil {
			return message{}, err
		}
		b, err := c.payload(n)
		if err != nil {
			return message{}, err
		}
		m := message{op, b}
		switch op {
		case opText, opBinary:
			return m, nil
		case opPing:
			_ = c.onPing(string(b))
		case opPong:
			_ = c.onPong("")
		default:
			err = closePacket(b)
		}
		c.freeMessage(m)
		if err != nil {
			return message{}, err
		}
	}
}

// prefix reads and judges what is ahead of a packet.
func (c *conn) prefix() (op, n int, err error) {
	var h [10]byte
	size := 2
	for have := 0; have < size; have++ {
		if err := c.fill(); err != nil {
			return 0, 0, err
		}
		h[have] = c.in.b[c.inAt]
		c.inAt++
		if have == 1 {
			switch h[1] {
			case 126:
				size = 4
			case 127:
				size = 10
			}
		}
	}
	length := uint64(h[1])
	switch size {
	case 4:
		length = uint64(binary.BigEndian.Uint16(h[2:]))
	case 10:
		length = binary.BigEndian.Uint64(h[2:])
	}
	op = int(h[0] & 0x0f)
	isControl := op >= opClose && op <= opPong
	switch {
	case h[0]&0xf0 != 0x80 || !isControl && op != opText && op != opBinary:
		return 0, 0, &violation{CloseWebsocket, fmt.Sprintf("a packet begins with %#02x: expected 0x81, 0x82, 0x88, 0x89 or 0x8a", h[0])}
	case h[1] > 127 || length > math.MaxInt64:
		return 0, 0, &violation{CloseWebsocket, "a packet's length is malformed"}
	case isControl && length > 125:
		return 0, 0, &violation{CloseWebsocket, "a close, ping or pong is longer than 125 bytes"}
	case !isControl && int64(length) > c.guard.limit:
		return 0, 0, &violation{CloseTooLarge, fmt.Sprintf("message of %d bytes is above the limit of %d", length, c.guard.limit)}
	}
	return op, int(length), nil
}

// payload returns the next n bytes: where they lie, if all have come, else in a buffer, which grows with what comes.
func (c *conn) payload(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	if b := c.in.b[c.inAt:]; len(b) >= n {
		c.inAt += n
		return b[:n:n], nil
	}
	buf := messages.Get().(*bytes.Buffer)
	for left := n; left > 0; {
		if err := c.fill(); err != nil {
			buf.Reset()
			messages.Put(buf)
			return nil, err
		}
		b := c.in.b[c.inAt:]
		b = b[:min(len(b), left)]
		_, _ = buf.Write(b)
		c.inAt, left = c.inAt+len(b), left-len(b)
	}
	c.buf = buf
	return buf.Bytes(), nil
}

// fill sees that in holds a byte.
func (c *conn) fill() error {
	if c.in != nil && c.inAt < len(c.in.b) {
		return nil
	}
	c.dropIn()
	if c.raw != nil {
		return c.receive()
	}
	in := smallChunks.Get().(*chunk)
	n, err := c.receiveInto(in.b[:cap(in.b)])
	if err != nil {
		in.free()
		return err
	}
	in.b = in.b[:n]
	c.in = in
	return nil
}

// closePacket is what the payload of a close packet says: RFC 6455 section 7.4.
func closePacket(b []byte) error {
	if len(b) == 0 {
		return &websocket.CloseError{Code: websocket.CloseNoStatusReceived}
	}
	if len(b) == 1 {
		return &violation{CloseWebsocket, "a close has half a code"}
	}
	code := int(binary.BigEndian.Uint16(b))
	ok := code >= 1000 && code <= 1003 || code >= 1007 && code <= 1013 || code >= 3000 && code <= 4999
	if !ok || !utf8.Valid(b[2:]) {
		return &violation{CloseWebsocket, "a close has a code that is none, or a reason that is not UTF-8"}
	}
	return &websocket.CloseError{Code: code, Text: string(b[2:])}
}
