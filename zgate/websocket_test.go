package zgate

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
)

// Frames that RFC 6455 forbids end their connection with a code; others go on.
func TestWebsocketViolations(t *testing.T) {
	r := newRig(t)
	other := r.login("other")
	long := func(n uint64) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, n), 1, 2, 3, 4)
	}
	for name, tt := range map[string]struct {
		b    []byte
		code CloseCode
	}{
		"length 2^63":               {long(1 << 63), CloseWebsocket},
		"length 2^64-1":             {long(1<<64 - 1), CloseWebsocket},
		"length 2^63-1":             {long(1<<63 - 1), CloseTooLarge},
		"length of limit+1":         {long(64<<10 + 1), CloseTooLarge},
		"unmasked":                  {append(appendWSHeader(nil, opBinary, 3), "abc"...), CloseWebsocket},
		"rsv1":                      {maskedFrame(0xc2, []byte("abc")), CloseWebsocket},
		"rsv2":                      {maskedFrame(0xa2, []byte("abc")), CloseWebsocket},
		"opcode 3":                  {maskedFrame(0x83, []byte("abc")), CloseWebsocket},
		"opcode 11":                 {maskedFrame(0x8b, []byte("abc")), CloseWebsocket},
		"continuation first":        {maskedFrame(0x80, []byte("abc")), CloseWebsocket},
		"message in a message":      {append(maskedFrame(0x02, []byte("a")), maskedFrame(0x82, []byte("b"))...), CloseWebsocket},
		"fragmented ping":           {maskedFrame(0x09, []byte("a")), CloseWebsocket},
		"ping of 126":               {maskedFrame(0x89, make([]byte, 126)), CloseWebsocket},
		"half a close code":         {maskedFrame(0x88, []byte{3}), CloseWebsocket},
		"close code 1005":           {maskedFrame(0x88, []byte{0x03, 0xed}), CloseWebsocket},
		"close reason not utf-8":    {maskedFrame(0x88, []byte{0x03, 0xe8, 0xff}), CloseWebsocket},
		"65 fragments":              {fragments(65, 1), CloseProtocol},
		"65 empty fragments":        {fragments(65, 0), CloseProtocol},
		"fragments above limit":     {fragments(3, 30_000), CloseTooLarge},
		"text that is not utf-8":    {maskedFrame(0x81, []byte("\xff")), CloseProtocol}, // a pb session takes no text at all
		"compressed, not announced": {maskedFrame(0xc2, bytes.Repeat([]byte{0}, 50)), CloseWebsocket},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dialRaw(true)
			c.hello("ann")
			go func() { _, _ = c.Write(tt.b) }()
			code, text := c.closeCode()
			if code != tt.code || text == "" {
				t.Errorf("closed with %d %q, expected %d", code, text, tt.code)
			}
			// Behind the close frame comes the end.
			if n, err := io.Copy(io.Discard, c); n != 0 {
				t.Errorf("%d bytes behind the close frame, %v", n, err)
			}
			other.echo("still here")
		})
	}
}

// fragments makes a message of n fragments of size bytes.
func fragments(n, size int) (b []byte) {
	for i := range n {
		op := byte(0)
		if i == 0 {
			op = opBinary
		}
		if i == n-1 {
			op |= 0x80
		}
		b = append(b, maskedFrame(op, make([]byte, size))...)
	}
	return b
}

// F6, L7: the limit is 4 KiB before login and MaxMessage afterwards, judged from the header, and the text names both
// numbers.
func TestTooLargeIsNamed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxMessage = 10_000 })
	for _, loggedIn := range []bool{false, true} {
		c := r.dialRaw(true)
		limit := "4096"
		if loggedIn {
			c.hello("ann")
			limit = "10000"
		}
		_, _ = c.Write(append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, 100<<20), 1, 2, 3, 4))
		if code, text := c.closeCode(); code != CloseTooLarge || !strings.Contains(text, limit) || !strings.Contains(text, "104857600") {
			t.Errorf("%d %q", code, text)
		}
	}
	c := r.login("ann")
	c.echo(strings.Repeat("x", 9_900))
}

// 64 fragments, with pings between them and bytes arriving one at a time.
func TestFragmentsAndTrickle(t *testing.T) {
	r := newRig(t)
	c := r.dialRaw(true)
	c.hello("ann")
	msg := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: 3, Body: []byte(strings.Repeat("z", 100))})
	var b []byte
	for i := range 64 {
		op := byte(0)
		if i == 0 {
			op = opBinary
		}
		part := msg[len(msg)*i/64 : len(msg)*(i+1)/64]
		if i == 63 {
			op |= 0x80
		}
		b = append(append(b, maskedFrame(op, part)...), maskedFrame(0x89, []byte{byte(i)})...)
	}
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	pongs := 0
	for {
		b0, p, err := c.wsRead()
		if err != nil {
			t.Fatal(err)
		}
		if b0 == 0x8a {
			pongs++
			continue
		}
		var f zmsg.Frame
		if _, err := zmsg.NextFrame(p, &f); err != nil || f.Seq != 3 || len(f.Body) != 100 {
			t.Fatalf("%+v %v", f, err)
		}
		break
	}
	if pongs != 63 {
		t.Errorf("%d pongs before the answer", pongs)
	}
}

// The guard and gorilla agree about where frames begin, however the bytes are cut.
func TestGuardFollowsCuts(t *testing.T) {
	var stream []byte
	sizes := []int{0, 1, 125, 126, 127, 65535, 65536, 70000}
	for i, n := range sizes {
		stream = append(stream, maskedFrame(0x82, make([]byte, n))...)
		stream = append(stream, maskedFrame(0x89, make([]byte, i))...)
	}
	for range 50 {
		g := guard{limit: 70_000}
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(2000))
			n, err := g.frame(rest[:n])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if g.skip != 0 || g.have != 0 || g.fragments != 0 || g.message != 0 {
			t.Fatalf("not at a border: %+v", g)
		}
	}
	g := guard{limit: 69_999}
	var v *violation
	var err error
	for rest, n := stream, 0; err == nil && len(rest) > 0; rest = rest[n:] {
		n, err = g.frame(rest)
	}
	if !errors.As(err, &v) || v.code != CloseTooLarge {
		t.Errorf("limit: %v", err)
	}
}

// The answer to the client's close frame comes behind the answers that are queued.
func TestCloseReplyBehindAnswers(t *testing.T) {
	r := newRig(t)
	c := r.dialRaw(true)
	c.hello("ann")
	var b []byte
	for i := range 50 {
		b = append(b, maskedFrame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: uint64(i + 1)}))...)
	}
	b = append(b, maskedFrame(0x88, websocket.FormatCloseMessage(1000, "done"))...)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		b0, _, err := c.wsRead()
		if b0 != 0x82 || err != nil {
			t.Fatalf("answer %d: %x %v", i, b0, err)
		}
	}
	if b0, p, err := c.wsRead(); b0 != 0x88 || err != nil || binary.BigEndian.Uint16(p) != 1000 {
		t.Fatalf("close: %x %v %v", b0, p, err)
	}
	if _, _, err := c.wsRead(); !errors.Is(err, io.EOF) {
		t.Errorf("not the end: %v", err)
	}
	eventually(t, "counted", func() bool { return r.counter("closes_total", "client") == 1 })
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{"abc": "abc", "abcdef": "abcd", "abcé": "abc", "a\xffb": "a\uFFFD", "éé": "éé"} {
		if got := cut(in, 4); got != want {
			t.Errorf("cut(%q) = %q, expected %q", in, got, want)
		}
	}
}

// Each code of the table is in its range and has a name of its own.
func TestCloseCodes(t *testing.T) {
	names := map[string]CloseCode{}
	for code := range CloseCode(5000) {
		name := code.String()
		if name == "" {
			t.Errorf("%d has no name", code)
		}
		if name == "reserved" || name == "application" {
			continue
		}
		if other, ok := names[name]; ok {
			t.Errorf("%d and %d are both %s", code, other, name)
		}
		names[name] = code
	}
	if len(names) != 22 {
		t.Errorf("%d names", len(names))
	}
	if !CloseShutdown.Reconnect() || !CloseSlow.Reconnect() || CloseKicked.Reconnect() || !CloseTooLarge.Reconnect() || CloseCode(4000).Reconnect() {
		t.Error("ranges")
	}
}

// L8: compression is not agreed on, whatever a client offers, so that nothing a client sends can grow; what is compressed all the same is
// refused as bits that mean nothing.
func TestNoCompression(t *testing.T) {
	r := newRig(t)
	c := r.dialRaw(false)
	c.http("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Extensions") != "" {
		t.Fatalf("%v %v", resp, err)
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for range 1 << 10 {
		_, _ = w.Write(make([]byte, 1<<10))
	}
	_ = w.Flush()
	c.frame(0xc2, b.Bytes())
	if code, text := c.closeCode(); code != CloseWebsocket || text == "" {
		t.Errorf("closed with %d %q", code, text)
	}
}
