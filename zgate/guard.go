package zgate

import (
	"encoding/binary"
	"fmt"
)

// violation is why the guard ends a connection: a close code and the text for the client.
type violation struct {
	code CloseCode
	text string
}

// Error returns the text.
func (v *violation) Error() string { return "zgate: " + v.text }

// guard follows the websocket frames in the stream of a connection's bytes, ahead of gorilla, and stops what gorilla
// lets pass or cannot name: a message above the limit (with its size, from the header alone), too many fragments,
// lengths of 2^63 and more, a close frame with half a code. Everything else about frames is gorilla's.
//
// It looks at headers only and skips payloads; it takes RSV1 off what is compressed. Owned by the reading goroutine.
type guard struct {
	limit     int64 // largest message
	deflate   bool  // messages may be compressed: gorilla does not see the bit that says so
	deflated  bool  // the current message is
	message   int64 // bytes announced by the fragments of the current message so far
	skip      int64 // payload bytes of the current frame still to come
	fragments int
	hdr       [14]byte
	have      uint8 // bytes of hdr
}

// frame looks at the next bytes of the stream, up to the end of the frame that p begins with, or is in the middle of. It returns how many bytes
// that are. After a violation it is not called again.
func (g *guard) frame(p []byte) (n int, err error) {
	if g.skip == 0 {
		// Bytes of the header, as many as it turns out to have.
		for need := g.headerSize(); int(g.have) < need && n < len(p); need = g.headerSize() {
			g.hdr[g.have] = p[n]
			if g.have == 0 && g.deflate {
				p[n] &^= rsv1
			}
			g.have++
			n++
		}
		if int(g.have) < g.headerSize() {
			return n, nil
		}
		g.have = 0
		if err := g.header(); err != nil {
			return 0, err
		}
		if g.skip == 0 {
			return n, nil
		}
	}
	rest := min(g.skip, int64(len(p)-n))
	g.skip -= rest
	return n + int(rest), nil
}

// headerSize is the size of the header in hdr, as far as its first bytes tell.
func (g *guard) headerSize() int {
	if g.have < 2 {
		return 2
	}
	n := 2
	switch g.hdr[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if g.hdr[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// header judges the complete header in hdr.
func (g *guard) header() error {
	op, final := int(g.hdr[0]&0x0f), g.hdr[0]&0x80 != 0
	size := uint64(g.hdr[1] & 0x7f)
	switch size {
	case 126:
		size = uint64(binary.BigEndian.Uint16(g.hdr[2:]))
	case 127:
		size = binary.BigEndian.Uint64(g.hdr[2:])
	}
	if size >= 1<<63 {
		return &violation{CloseWebsocket, "a frame announces a length of 2^63 or more"}
	}
	deflated := g.deflate && g.hdr[0]&rsv1 != 0
	if deflated && op != opText && op != opBinary {
		return &violation{CloseWebsocket, "a frame that does not begin a message says that it is compressed"} // RFC 7692, section 6
	}
	if op >= opClose { // control frames: gorilla checks their length
		if op == opClose && size == 1 {
			return &violation{CloseWebsocket, "a close frame has half a code"}
		}
		g.skip = int64(size)
		return nil
	}
	if op != 0 {
		g.deflated = deflated
	}
	limit := g.limit
	if g.deflated {
		limit = deflatedLimit(limit)
	}
	if size > uint64(limit) || g.message+int64(size) > limit {
		return &violation{
			CloseTooLarge,
			fmt.Sprintf("message of %d bytes is above the limit of %d", uint64(g.message)+size, limit),
		}
	}
	g.message += int64(size)
	g.fragments++
	if g.fragments > maxFragments {
		return &violation{CloseProtocol, fmt.Sprintf("message has more than %d fragments", maxFragments)}
	}
	if final {
		g.message, g.fragments = 0, 0
	}
	g.skip = int64(size)
	return nil
}
