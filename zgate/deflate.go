package zgate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Compression of whole messages, RFC 7692: permessage-deflate, each message on its own (no context takeover), so that an idle connection has no memory of it.
//
// What is compressed of a push is its body alone, and once for each form, however many sessions it goes to. What differs between sessions is ahead of it, in a block that is
// not compressed:
//
//	websocket header with RSV1 | 00, length, its complement (a stored block) | head with the push's number | blocks of the body
const (
	rsv1        = 0x40     // beside an opcode: the message is compressed
	storedBlock = 5        // ahead of a stored block of up to 64 KiB
	maxStreams  = 16       // ends of a stream (BFINAL) within a message; one that ends none is what everybody sends
	deflateEnd  = 4        // 00 00 ff ff, which ends what is flushed, is not sent: section 7.2.1
	maxWindow   = 32 << 10 // how far back a stream points
)

// inflateTail is behind a message: what the other side has left out, and a block that ends the stream.
const inflateTail = "\x00\x00\xff\xff" + "\x01\x00\x00\xff\xff"

// deflatedLimit is how large a message may be while it is compressed that may have limit bytes then: what cannot be compressed grows a little.
func deflatedLimit(limit int64) int64 { return limit + limit>>8 + 64 }

// takesDeflate reports whether the gate can take one of the offers of a client's handshake. It answers with server_no_context_takeover and client_no_context_takeover, which every client must
// take, and nothing else: an offer that limits the gate's window would need an answer, and is passed over.
func takesDeflate(h http.Header) bool {
	for _, line := range h["Sec-Websocket-Extensions"] {
		for offer := range strings.SplitSeq(line, ",") {
			if goodOffer(offer) {
				return true
			}
		}
	}
	return false
}

func goodOffer(offer string) bool {
	name, rest, _ := strings.Cut(offer, ";")
	if strings.TrimSpace(name) != "permessage-deflate" {
		return false
	}
	var seen [3]bool
	for p := range strings.SplitSeq(rest, ";") {
		key, value, has := strings.Cut(p, "=")
		i := -1
		switch key = strings.TrimSpace(key); key {
		case "":
			if rest == "" {
				continue
			}
		case "server_no_context_takeover":
			i = 0
		case "client_no_context_takeover":
			i = 1
		case "client_max_window_bits":
			if i = 2; has && !goodWindow(strings.Trim(strings.TrimSpace(value), `"`)) {
				return false
			}
			has = false
		}
		if i < 0 || seen[i] || has {
			return false
		}
		seen[i] = true
	}
	return true
}

func goodWindow(bits string) bool {
	switch bits {
	case "8", "9", "10", "11", "12", "13", "14", "15":
		return true
	}
	return false
}

// inflater is memory for a message that is inflated.
type inflater struct {
	r   io.ReadCloser
	src bytes.Reader
	in  []byte
	lim io.LimitedReader
}

var inflaters = sync.Pool{New: func() any { return &inflater{r: flate.NewReader(bytes.NewReader(nil))} }}

var (
	errInflated = errors.New("zgate: compressed message is above the limit")
	errCorrupt  = errors.New("zgate: compressed message is corrupt")
)

// inflate appends the message to dst, which is empty, whose compressed form b is. It fails with errInflated as soon as that is more than limit, and has no more than that
// in memory then, and with errCorrupt.
func inflate(dst *bytes.Buffer, b []byte, limit int64) error {
	z := inflaters.Get().(*inflater)
	defer func() {
		if cap(z.in) <= maxPooled {
			inflaters.Put(z)
		}
	}()
	z.in = append(append(z.in[:0], b...), inflateTail...)
	z.src.Reset(z.in)
	for range maxStreams {
		// A stream may end within the message; another one goes on behind it.
		dict := dst.Bytes()
		if err := z.r.(flate.Resetter).Reset(&z.src, dict[max(0, len(dict)-maxWindow):]); err != nil {
			return errCorrupt
		}
		z.lim = io.LimitedReader{R: z.r, N: limit + 1 - int64(dst.Len())}
		_, err := dst.ReadFrom(&z.lim)
		switch {
		case int64(dst.Len()) > limit:
			return errInflated
		case err != nil:
			return errCorrupt
		case z.src.Len() == 0:
			return nil
		}
	}
	return errCorrupt
}

// inflated is message m, which was compressed, as the client meant it.
func (c *conn) inflated(m message) (message, error) {
	if c.closingNow.Load() {
		return m, nil // nobody looks at it
	}
	dst := messages.Get().(*bytes.Buffer)
	limit := c.guard.limit
	err := inflate(dst, m.b, limit)
	c.g.count.receivedDeflated.Add(float64(len(m.b)))
	c.g.count.receivedPlain.Add(float64(dst.Len()))
	c.freeMessage(m)
	c.buf = dst
	switch {
	case errors.Is(err, errInflated):
		err = &violation{CloseTooLarge, fmt.Sprintf("compressed message has more than the limit of %d bytes", limit)}
	case err != nil:
		err = &violation{CloseWebsocket, "compressed message is corrupt"}
	}
	if err != nil {
		c.wsFailed = true
		c.freeMessage(message{})
		return message{}, err
	}
	return message{m.op, dst.Bytes()}, nil
}

// deflater is memory for a message that is compressed.
type deflater struct {
	w   *flate.Writer
	out bytes.Buffer
}

var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is not one
	}
	return &deflater{w: w}
}}

// deflate returns b as blocks that another block, or the end of a message, may follow; nil where that is not smaller. It is valid until z is used again.
func (z *deflater) deflate(b []byte) []byte {
	z.out.Reset()
	z.w.Reset(&z.out)
	_, err := z.w.Write(b)
	if err = errors.Join(err, z.w.Flush()); err != nil {
		return nil
	}
	out := z.out.Bytes()
	if out = out[:len(out)-deflateEnd]; len(out)+storedBlock >= len(b) {
		return nil
	}
	return out
}

func (z *deflater) free() {
	if z.out.Cap() <= maxPooled {
		deflaters.Put(z)
	}
}

// deflated is the compressed body of a push, in both forms; nil where that has not been made, or is not smaller. It does not change any more: copies of an encoded share it.
type deflated struct {
	pb, text       []byte
	hasPB, hasText bool
}

// body returns that of one form.
func (d *deflated) body(text bool) []byte {
	switch {
	case d == nil:
		return nil
	case text:
		return d.text
	}
	return d.pb
}

// squeezes reports whether n bytes are worth compressing for c's client.
func (c *conn) squeezes(n int) bool { return c.deflates && n >= c.g.cfg.CompressFrom }

// plainBinary reports whether c sends n bytes of a response as they are.
func (c *conn) plainBinary(n int) bool { return !c.text.Load() && !c.squeezes(n) }

// squeeze sees that e has a compressed body for c, where that is worth it. Of a broadcast, the first session's call does it for all of its form.
func (c *conn) squeeze(e *encoded) {
	text, b := c.text.Load(), e.body
	if text {
		b = e.rest
	}
	if !c.squeezes(len(b)) || e.z != nil && (text && e.z.hasText || !text && e.z.hasPB) {
		return
	}
	z := deflaters.Get().(*deflater)
	b = bytes.Clone(z.deflate(b))
	z.free()
	var d deflated
	if e.z != nil {
		d = *e.z
	}
	if text {
		d.text, d.hasText = b, true
	} else {
		d.pb, d.hasPB = b, true
	}
	e.z = &d
}

// squeezedLocked appends a compressed message: head, of at most 64 KiB, as it is, and body, which is compressed, and was plain bytes before; owned says that nobody
// changes it. c.q.mu is held.
func (c *conn) squeezedLocked(op int, head, body []byte, owned bool, plain int) {
	var w [10 + storedBlock]byte
	n := len(head) + len(body)
	if len(head) > 0 {
		n += storedBlock
	}
	pre := appendWSHeader(w[:0], op|rsv1, n)
	if len(head) > 0 {
		pre = append(pre, 0)
		pre = binary.LittleEndian.AppendUint16(pre, uint16(len(head)))
		pre = binary.LittleEndian.AppendUint16(pre, ^uint16(len(head)))
	}
	c.appendLocked(pre)
	c.appendLocked(head)
	c.appendBodyLocked(body, owned)
	c.g.count.sentPlain.Add(float64(len(head) + plain))
	c.g.count.sentDeflated.Add(float64(n))
}
