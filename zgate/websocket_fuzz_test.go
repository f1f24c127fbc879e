package zgate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// What a client's bytes mean, by RFC 6455 and the limits of a gate, in the plainest words: the gate, which reads most messages by itself, the
// others by gorilla, and watches both, is to come to the same. With deflate, messages may be compressed: RFC 7692.
type wsMeaning struct {
	echoes []zmsg.Frame // to be answered, in order
	pings  [][]byte     // likewise
	codes  []CloseCode  // it ends with one of them; 0: with the client's own close frame, whose code is answered
	answer []byte       // the payload of that answer
	open   bool         // it does not end, or what follows is not judged here
}

const wsFuzzLimit = 8 << 10

func meaningOf(b []byte, deflate bool) (m wsMeaning) {
	var message []byte
	op, size, fragments := byte(0), uint64(0), 0 // of the message that is being read
	squeezed, limit := false, uint64(wsFuzzLimit)
	for {
		if len(b) < 2 {
			m.open = true
			return m
		}
		fin, kind, masked, n, head := b[0]&0x80 != 0, b[0]&0x0f, b[1]&0x80 != 0, uint64(b[1]&0x7f), 2
		switch n {
		case 126:
			head += 2
		case 127:
			head += 8
		}
		if masked {
			head += 4
		}
		if len(b) < head {
			m.open = true
			return m
		}
		switch n {
		case 126:
			n = uint64(binary.BigEndian.Uint16(b[2:]))
		case 127:
			n = binary.BigEndian.Uint64(b[2:])
		}
		bad := func(is bool, code CloseCode) {
			if is {
				m.codes = append(m.codes, code)
			}
		}
		control := kind >= 8
		squeeze := deflate && b[0]&0x40 != 0 && (kind == 1 || kind == 2)
		bad(b[0]&0x30 != 0 || b[0]&0x40 != 0 && !squeeze || !masked || n > math.MaxInt64, CloseWebsocket)
		bad(kind > 2 && kind < 8 || kind > 10, CloseWebsocket)
		bad(control && (!fin || n > 125) || kind == 8 && n == 1, CloseWebsocket)
		bad(!control && (kind == 0) != (fragments > 0), CloseWebsocket)
		if kind == 1 || kind == 2 {
			if squeezed, limit = squeeze, wsFuzzLimit; squeezed {
				limit = uint64(deflatedLimit(wsFuzzLimit))
			}
		}
		bad(!control && (n > limit || size+n > limit), CloseTooLarge)
		bad(!control && fragments == maxFragments, CloseProtocol)
		if len(m.codes) > 0 {
			return m
		}
		if uint64(len(b)-head) < n {
			m.open = true
			return m
		}
		payload := bytes.Clone(b[head : head+int(n)])
		for i := range payload {
			payload[i] ^= b[head-4+i%4]
		}
		b = b[head+int(n):]
		switch kind {
		case 8:
			if !goodClose(payload) {
				m.codes = []CloseCode{CloseWebsocket}
				return m
			}
			m.codes, m.answer = []CloseCode{0}, payload[:min(2, len(payload))]
			return m
		case 9:
			m.pings = append(m.pings, payload)
			continue
		case 10:
			continue
		}
		if kind != 0 {
			op = kind
		}
		message = append(message, payload...)
		size, fragments = size+n, fragments+1
		if !fin {
			continue
		}
		if squeezed {
			var err error
			message, err = inflatedBy(message, wsFuzzLimit)
			bad(errors.Is(err, errInflated), CloseTooLarge)
			bad(errors.Is(err, errCorrupt), CloseWebsocket)
			if err != nil {
				return m
			}
		}
		if op != opBinary || len(message) == 0 {
			m.codes = []CloseCode{CloseProtocol}
			return m
		}
		for count := 0; len(message) > 0; count++ {
			var f zmsg.Frame
			rest, err := zmsg.NextFrame(message, &f)
			if err != nil || count == maxFrames {
				m.codes = []CloseCode{CloseProtocol}
				return m
			}
			if f.Kind != wirepb.FrameKind_FRAME_KIND_REQUEST || f.ID != idEcho || f.Seq == 0 {
				m.open = true // garbage that means something
				return m
			}
			f.Body = bytes.Clone(f.Body)
			m.echoes, message = append(m.echoes, f), rest
		}
		message, size, fragments = nil, 0, 0
	}
}

// goodClose reports whether p may be the payload of a close frame: RFC 6455 section 7.4, and what has been registered since.
func goodClose(p []byte) bool {
	if len(p) == 0 {
		return true
	}
	code := binary.BigEndian.Uint16(p)
	ok := code >= 1000 && code <= 1003 || code >= 1007 && code <= 1013 || code >= 3000 && code <= 4999
	return ok && utf8.Valid(p[2:])
}

// wsScript makes a stream of a fuzzer's bytes: mostly what clients send, cut, mixed and spoiled.
func wsScript(script []byte, deflate bool) (stream []byte) {
	next := func() int {
		if len(script) == 0 {
			return 0
		}
		n := script[0]
		script = script[1:]
		return int(n)
	}
	seq := uint64(0)
	echo := func(size int) []byte {
		seq++
		return zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: idEcho, Seq: seq, Body: bytes.Repeat([]byte{byte(seq)}, size)})
	}
	kinds := 12
	if deflate {
		kinds = 16
	}
	for pings := 0; len(script) > 0; {
		switch next() % kinds {
		case 0, 1, 2, 3:
			stream = append(stream, maskedFrame(0x82, echo(next()))...)
		case 4: // several frames in a message
			var b []byte
			for range 1 + next()%8 {
				b = append(b, echo(next())...)
			}
			stream = append(stream, maskedFrame(0x82, b)...)
		case 5: // in fragments, with a ping between them
			b, parts, with := echo(next()*20), 1+next()%70, next()
			for k := range parts {
				op := byte(0)
				if k == 0 {
					op = opBinary
				}
				if k == parts-1 {
					op |= 0x80
				}
				stream = append(stream, maskedFrame(op, b[len(b)*k/parts:len(b)*(k+1)/parts])...)
				if k == with && pings < 20 {
					pings++
					stream = append(stream, maskedFrame(0x89, []byte{byte(k)})...)
				}
			}
		case 6:
			if pings < 20 { // more would be too many
				pings++
				stream = append(stream, maskedFrame(0x89, make([]byte, next()%140))...)
			}
		case 7:
			if pings < 20 {
				pings++
				stream = append(stream, maskedFrame(0x8a, make([]byte, next()%126))...)
			}
		case 8:
			stream = append(stream, maskedFrame(0x82, echo(wsFuzzLimit-20+next()%40))...)
		case 9: // any frame
			head, n := byte(next()), next()%128
			stream = append(stream, maskedFrame(head, script[:min(len(script), n)])...)
		case 10: // any bytes
			n := 1 + next()%14
			n = min(len(script), n)
			stream = append(stream, script[:n]...)
			script = script[n:]
		case 12: // compressed
			stream = append(stream, maskedFrame(0xc2, deflatedBy(echo(next()*8), next()%11-1))...)
		case 13: // and in fragments
			b := deflatedBy(echo(next()*20), 1)
			at := next() % (len(b) + 1)
			stream = append(append(stream, maskedFrame(0x42, b[:at])...), maskedFrame(0x80, b[at:])...)
		case 14: // of about as much as is allowed
			stream = append(stream, maskedFrame(0xc2, deflatedBy(echo(wsFuzzLimit-20+next()%40), 1))...)
		case 15: // and spoiled
			b := deflatedBy(echo(next()), 1)
			b[next()%len(b)] ^= byte(next())
			stream = append(stream, maskedFrame(0xc2, b[:len(b)-next()%2])...)
		case 11: // a bit is turned
			if len(stream) > 0 {
				stream[(next()<<8|next())%len(stream)] ^= 1 << (next() % 8)
			}
		}
	}
	return append(stream, maskedFrame(0x88, []byte{0x03, 0xe8, 'b', 'y', 'e'})...)
}

// Whatever bytes a client sends after its login, in whatever pieces they come, each message is answered that the standard sees in them, and the connection
// ends as it says.
func FuzzWebsocket(f *testing.F) { fuzzWebsocket(f, false) }

// Likewise where the client and the gate have agreed on compression.
func FuzzWebsocketDeflate(f *testing.F) { fuzzWebsocket(f, true) }

func fuzzWebsocket(f *testing.F, deflate bool) {
	f.Helper()
	for _, s := range []string{
		"", "\x00\x05\x01\x40\x06\x03\x07\x02\x00\x00", "\x04\x03abcd\x05\x10\x08\x02\x00\x01", "\x05\xff\x45\x00", "\x08\x00\x08\x13\x08\x14\x08\x15\x08\x27",
		"\x00\x05\x09\x80", "\x00\x05\x09\xc2\x05", "\x00\x01\x09\x02\x05\x00\x01", "\x00\x05\x0a\x0d\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x05\x0a\x0d\x82\xff\x00\x00\x00\x00\x00\x00\x20\x01", "\x06\x7e", "\x00\xff\x00\xff\x0b\x01\x01\x03\x00\x05", "\x09\x88\x01", "\x09\x81\x05abc",
		"\x0c\x10\x06\x0c\x80\x00\x0d\xf0\x05\x00\x03", "\x0c\x10\x06\x0e\x00\x0e\x15\x0e\x27", "\x0f\x30\x05\x01\x00", "\x0f\x30\x00\x00\x01", "\x09\xc9\x01a", "\x0d\x10\x02\x09\xc0\x02ab",
	} {
		f.Add([]byte(s), uint16(7))
		f.Add([]byte(s), uint16(4000))
	}
	r := newRig(f, func(c *Config) { c.Rate, c.MaxMessage, c.Logger, c.Compression = -1, wsFuzzLimit, nil, deflate })
	gate := r.Addr()
	f.Fuzz(func(t *testing.T, script []byte, cut uint16) {
		if len(script) > 200 {
			return
		}
		stream := wsScript(script, deflate)
		want := meaningOf(stream, deflate)
		c := dialRaw(t, gate, !deflate)
		if deflate {
			c.upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n")
		}
		_ = c.tcp.SetLinger(0) // the system is to forget the port at once: there are not as many as executions
		defer c.Close()
		c.hello("ann")
		wrote := make(chan struct{})
		go func() { // ends when all is written, or the gate has closed
			defer close(wrote)
			for rest := stream; len(rest) > 0; {
				n := min(len(rest), 1+int(cut)%5000)
				if _, err := c.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
			if want.open { // it waits for more, perhaps
				_ = c.tcp.CloseWrite()
			}
		}()
		got, err := wsAnswers(c)
		_ = c.SetDeadline(time.Unix(1, 0))
		<-wrote
		if err != nil {
			t.Fatalf("%v\nafter %x", err, stream)
		}
		if problem := want.differs(&got); problem != "" {
			t.Fatalf("%s\nto %x", problem, stream)
		}
	})
}

// wsGot is what a gate has answered.
type wsGot struct {
	echoes []zmsg.Frame
	pongs  [][]byte
	told   CloseCode // by the Closing frame; 0: there was none
	closed []byte    // payload of the close frame, nil: there was none
}

// wsAnswers reads up to the end.
func wsAnswers(c raw) (g wsGot, err error) {
	for {
		b0, p, err := c.wsRead()
		switch {
		case errors.Is(err, io.EOF):
			return g, nil
		case err != nil: // what the client still sent met a closed socket
			if g.closed != nil {
				err = nil
			}
			return g, err
		case g.closed != nil:
			return g, fmt.Errorf("a frame %x behind the close frame", b0)
		case b0 == 0x88:
			g.closed = append([]byte{}, p...)
			continue
		case b0 == 0x8a:
			g.pongs = append(g.pongs, p)
			continue
		case b0 == 0xc2:
			if p, err = inflatedBy(p, 1<<20); err != nil {
				return g, err
			}
		case b0 != 0x82:
			return g, fmt.Errorf("frame %x", b0)
		}
		for len(p) > 0 {
			var f zmsg.Frame
			if p, err = zmsg.NextFrame(p, &f); err != nil {
				return g, err
			}
			var m wirepb.Control
			switch {
			case f.Kind == wirepb.FrameKind_FRAME_KIND_RESPONSE:
				g.echoes = append(g.echoes, f)
			case f.Kind != wirepb.FrameKind_FRAME_KIND_CONTROL || proto.Unmarshal(f.Control, &m) != nil:
				return g, fmt.Errorf("frame %+v", f)
			case m.GetClosing() != nil:
				g.told = CloseCode(m.GetClosing().GetCode())
			}
		}
	}
}

// differs says how g is not what was to come, "" where it is.
func (m *wsMeaning) differs(g *wsGot) string {
	if len(g.echoes) > len(m.echoes) && !m.open || len(g.echoes) < len(m.echoes) && !m.open {
		return fmt.Sprintf("%d answers, want %d", len(g.echoes), len(m.echoes))
	}
	for i := range min(len(g.echoes), len(m.echoes)) {
		if w, h := m.echoes[i], g.echoes[i]; h.Seq != w.Seq || h.Code == 0 && !bytes.Equal(h.Body, w.Body) {
			return fmt.Sprintf("answer %d: %+v, want %+v", i, h, w)
		}
	}
	if m.open {
		return ""
	}
	if !slices.EqualFunc(g.pongs, m.pings, bytes.Equal) {
		return fmt.Sprintf("pongs %x, want %x", g.pongs, m.pings)
	}
	if m.codes[0] == 0 {
		if g.told != 0 || g.closed == nil || !bytes.Equal(g.closed, m.answer) {
			return fmt.Sprintf("told %d, closed with %x, want %x", g.told, g.closed, m.answer)
		}
		return ""
	}
	if len(g.closed) < 2 || CloseCode(binary.BigEndian.Uint16(g.closed)) != g.told || !slices.Contains(m.codes, g.told) {
		return fmt.Sprintf("told %d, closed with %x, want one of %d", g.told, g.closed, m.codes)
	}
	return ""
}
