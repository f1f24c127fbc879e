package zgate

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func fromHex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// deflatedBy is b as a client sends it compressed, made by the standard library.
func deflatedBy(b []byte, level int) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, level)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(b)
	_ = w.Flush()
	return out.Bytes()[:out.Len()-deflateEnd]
}

// inflatedBy is a compressed message as the standard library reads it, of at most limit bytes. It is the oracle.
func inflatedBy(b []byte, limit int) ([]byte, error) {
	src := bytes.NewReader(append(bytes.Clone(b), "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...))
	var out []byte
	for range maxStreams {
		r := flate.NewReaderDict(src, out[max(0, len(out)-32768):])
		more, err := io.ReadAll(io.LimitReader(r, int64(limit+1-len(out))))
		out = append(out, more...)
		switch {
		case len(out) > limit:
			return nil, errInflated
		case err != nil:
			return nil, errCorrupt
		case src.Len() == 0:
			return out, nil
		}
	}
	return nil, errCorrupt
}

// The examples of RFC 7692, section 7.2.3, and what it allows besides; what is wrong; and what is too much.
func TestInflate(t *testing.T) {
	t.Parallel()
	const limit = 1000
	zeros := deflatedBy(make([]byte, limit), 9)
	random := make([]byte, limit)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for name, tt := range map[string]struct {
		b    []byte
		want string
		err  error
	}{
		"one block":            {fromHex("f2 48 cd c9 c9 07 00"), "Hello", nil},
		"stored":               {fromHex("00 05 00 fa ff 48 65 6c 6c 6f 00"), "Hello", nil},
		"the end of a stream":  {fromHex("f3 48 cd c9 c9 07 00 00"), "Hello", nil},
		"two blocks":           {fromHex("f2 48 05 00 00 00 ff ff ca c9 c9 07 00"), "Hello", nil},
		"empty":                {fromHex("00"), "", nil},
		"two streams":          {fromHex("f3 48 cd c9 c9 07 00 f2 48 cd c9 c9 07 00"), "HelloHello", nil},
		"no bytes at all":      {nil, "", errCorrupt},
		"cut":                  {fromHex("f2 48 cd c9"), "", errCorrupt},
		"block type 3":         {fromHex("07 00 00"), "", errCorrupt},
		"wrong complement":     {fromHex("00 05 00 fa fe 48 65 6c 6c 6f 00"), "", errCorrupt},
		"behind the beginning": {fromHex("4b 04 61 00"), "", errCorrupt},
		"many streams":         {bytes.Repeat(fromHex("03 00"), 1000), "", errCorrupt},
		"at the limit":         {zeros, string(make([]byte, limit)), nil},
		"above the limit":      {deflatedBy(make([]byte, limit+1), 9), "", errInflated},
		"8 MiB":                {deflatedBy(make([]byte, 8<<20), 1), "", errInflated},
		"random":               {deflatedBy(random, 9), string(random), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(tt.b)
			var dst bytes.Buffer
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			err := inflate(&dst, tt.b, limit)
			runtime.ReadMemStats(&m1)
			if !errors.Is(err, tt.err) || err == nil && dst.String() != tt.want {
				t.Errorf("%q, %v; expected %q, %v", dst.Bytes(), err, tt.want, tt.err)
			}
			if dst.Len() > limit+1 {
				t.Errorf("%d bytes were inflated", dst.Len())
			}
			if !bytes.Equal(before, tt.b) {
				t.Error("the message has changed")
			}
			if int64(len(tt.b)) > deflatedLimit(limit) && name == "random" {
				t.Errorf("%d bytes compressed are above what may come", len(tt.b))
			}
		})
	}
}

// Whatever the bytes, they mean what the standard library sees in them.
func FuzzInflate(f *testing.F) {
	for _, b := range [][]byte{nil, {0}, fromHex("f3 48 cd c9 c9 07 00 f2 48 cd c9 c9 07 00"), deflatedBy(make([]byte, 5000), 9), deflatedBy([]byte("Hello, Hello"), 1)} {
		f.Add(b, uint16(4000))
		f.Add(b, uint16(6000))
	}
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		want, wantErr := inflatedBy(b, int(limit))
		var dst bytes.Buffer
		err := inflate(&dst, b, int64(limit))
		if !errors.Is(err, wantErr) || err == nil && !bytes.Equal(dst.Bytes(), want) {
			t.Fatalf("%x, %v; expected %x, %v", dst.Bytes(), err, want, wantErr)
		}
		if dst.Len() > int(limit)+1 {
			t.Fatalf("%d bytes of at most %d", dst.Len(), limit)
		}
		// What the gate makes of it is what the standard library reads back, ahead of other blocks too.
		z := deflaters.Get().(*deflater)
		defer z.free()
		if out := z.deflate(b); out != nil {
			if back, err := inflatedBy(out, len(b)); err != nil || !bytes.Equal(back, b) {
				t.Fatalf("%x: %v", back, err)
			}
		} else if len(b) > 200 && len(deflatedBy(b, 1)) < len(b)*3/4 {
			t.Fatalf("%d bytes are not compressed", len(b))
		}
	})
}

// An offer is taken where the answer to it is the one that the gate gives: RFC 7692, sections 5 and 7.1.
func TestDeflateOffers(t *testing.T) {
	t.Parallel()
	for offer, want := range map[string]bool{
		"":                   false,
		"permessage-deflate": true,
		"permessage-deflate; client_max_window_bits":                                                           true,
		"permessage-deflate;client_max_window_bits=15; server_no_context_takeover ;client_no_context_takeover": true,
		`permessage-deflate; client_max_window_bits="9"`:                                                       true,
		"permessage-deflate; client_max_window_bits=7":                                                         false,
		"permessage-deflate; client_max_window_bits=16":                                                        false,
		"permessage-deflate; client_max_window_bits=":                                                          false,
		"permessage-deflate; client_max_window_bits=010":                                                       false,
		"permessage-deflate; server_max_window_bits=10":                                                        false,
		"permessage-deflate; server_max_window_bits=10, permessage-deflate":                                    true,
		"permessage-deflate; client_no_context_takeover; client_no_context_takeover":                           false,
		"permessage-deflate; client_no_context_takeover=1":                                                     false,
		"permessage-deflate; x":                                                                                false,
		"permessage-deflate; ":                                                                                 false,
		"x-webkit-deflate-frame":                                                                               false,
		"x-webkit-deflate-frame, permessage-deflate":                                                           true,
		"permessage-bzip2; client_max_window_bits":                                                             false,
	} {
		if got := takesDeflate(http.Header{"Sec-Websocket-Extensions": {offer}}); got != want {
			t.Errorf("%q: %v", offer, got)
		}
	}
	if !takesDeflate(http.Header{"Sec-Websocket-Extensions": {"foo", "permessage-deflate"}}) || takesDeflate(http.Header{}) {
		t.Error("headers")
	}
}

const deflateAnswer = "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"

// deflateRig is a gate with compression.
func deflateRig(tb testing.TB, change ...func(*Config)) *rig {
	tb.Helper()
	return newRig(tb, append([]func(*Config){func(c *Config) { c.Compression = true }}, change...)...)
}

// dialDeflate is a raw client that takes compressed messages and has logged in.
func (r *rig) dialDeflate(user string) (raw, zmsg.SessionRef) {
	r.t.Helper()
	c := r.dialRaw(false)
	if head := c.upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n"); !strings.Contains(head, deflateAnswer) {
		r.t.Fatalf("not agreed on: %q", head)
	}
	return c, c.hello(user)
}

// It is agreed on where the client offers it, and only then.
func TestCompressionIsAgreedOn(t *testing.T) {
	t.Parallel()
	r := deflateRig(t)
	for _, offer := range []string{"", "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\n", "Sec-WebSocket-Extensions: x\r\n"} {
		c := r.dialRaw(false)
		if head := c.upgrade(offer); strings.Contains(strings.ToLower(head), "sec-websocket-extensions") {
			t.Errorf("answered %q", head)
		}
		ref := c.hello("ann")
		r.pushTo(ref, zmsg.Reliable, 5, strings.Repeat("plain ", 1000))
		if b0, p, err := c.wsRead(); b0 != 0x82 || len(p) < 6000 || err != nil {
			t.Errorf("%x, %d bytes, %v", b0, len(p), err)
		}
		c.frame(0xc2, deflatedBy([]byte("x"), 1))
		if code, _ := c.closeCode(); code != CloseWebsocket {
			t.Errorf("closed with %d", code)
		}
	}
}

// What is large enough is compressed, in both directions, and what is not is not.
func TestCompression(t *testing.T) {
	t.Parallel()
	r := deflateRig(t)
	c, ref := r.dialDeflate("ann")
	read := func() (compressed bool, size int, f zmsg.Frame) {
		t.Helper()
		b0, p, err := c.wsRead()
		if err != nil || b0&0x3f != opBinary {
			t.Fatalf("%x %v", b0, err)
		}
		size = len(p)
		if compressed = b0&rsv1 != 0; compressed {
			if p, err = inflatedBy(p, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if rest, err := zmsg.NextFrame(p, &f); err != nil || len(rest) > 0 {
			t.Fatalf("%v, %d bytes behind it", err, len(rest))
		}
		return compressed, size, f
	}
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	text := strings.Repeat("moves to the next field. ", 400)
	plain, travelled := 0.0, 0.0
	for i, tt := range []struct {
		body string
		want bool
	}{{"short", false}, {text[:400], false}, {text[:600], true}, {text, true}, {string(noise), false}, {text + string(noise), true}} {
		seq := uint64(i + 1)
		msg := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: idEcho, Seq: seq, Body: []byte(tt.body)})
		for level := range 3 { // plain, compressed in one frame, and in three
			switch b := deflatedBy(msg, 9); level {
			case 0:
				c.frame(0x82, msg)
			case 1:
				c.frame(0xc2, b)
			default:
				c.frame(0x42, b[:1])
				c.frame(0x89, []byte("ping"))
				c.frame(0x00, b[1:len(b)-1])
				c.frame(0x80, b[len(b)-1:])
				if b0, p, err := c.wsRead(); b0 != 0x8a || string(p) != "ping" || err != nil {
					t.Fatalf("%x %q %v", b0, p, err)
				}
			}
			compressed, size, f := read()
			if compressed != tt.want || f.Seq != seq || string(f.Body) != tt.body || f.Kind != wirepb.FrameKind_FRAME_KIND_RESPONSE {
				t.Errorf("response %d to a request of kind %d: compressed is %v, %+v", i, level, compressed, f)
			}
			if compressed {
				plain, travelled = plain+float64(len(msg)), travelled+float64(size)
			}
		}
		r.pushTo(ref, zmsg.Reliable, 7, tt.body)
		compressed, _, f := read()
		if compressed != tt.want || string(f.Body) != tt.body || f.Seq != seq || f.ID != 7 {
			t.Errorf("push %d: compressed is %v, %+v", i, compressed, f)
		}
	}
	if sent := r.counter("compression_bytes_total", "plain"); sent < plain || sent > 20*plain { // received ones among them
		t.Errorf("%v plain bytes counted, of %v at least", sent, plain)
	}
	if sent := r.counter("compression_bytes_total", "deflated"); sent < travelled || sent > plain {
		t.Errorf("%v bytes counted, of %v at least", sent, travelled)
	}
}

// A broadcast is compressed once for each form, and shared; clients of every kind get the same.
func TestBroadcastIsCompressedOnce(t *testing.T) {
	t.Parallel()
	r := deflateRig(t)
	kinds := []dialing{{}, {coder: true}, {text: true}, {text: true, coder: true}}
	var clients []*client
	for i := range 12 {
		c := r.login(fmt.Sprint("user", i), kinds[i%len(kinds)])
		s, err := r.Session(c.ref())
		if err != nil {
			t.Fatal(err)
		}
		if !s.c.Load().deflates {
			t.Fatal("not agreed on")
		}
		clients = append(clients, c)
	}
	body := strings.Repeat("a body that is worth it ", 200)
	p := &zmsg.Push{ID: 9, Body: []byte(body)}
	e, err := r.encode(p, false)
	if err != nil {
		t.Fatal(err)
	}
	var first deflated
	for i, c := range clients {
		s, _ := r.Session(c.ref())
		if err := s.push(&e, true); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			first = *e.z
		}
	}
	if e.z == nil || &e.z.pb[0] != &first.pb[0] || &e.z.text[0] != &first.text[0] {
		t.Error("compressed again")
	}
	// One that has not agreed on it gets it as it is.
	plain := r.dialRaw(true)
	s, err := r.Session(plain.hello("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.push(&e, true); err != nil {
		t.Fatal(err)
	}
	if b0, got, err := plain.wsRead(); b0 != 0x82 || len(got) < len(body) || err != nil {
		t.Errorf("without compression: %x, %d bytes, %v", b0, len(got), err)
	}
	clear(p.Body) // the caller's again
	for _, c := range clients {
		c.pushes("1 " + body)
	}
}

// What a client missed, and what waited for it, comes compressed when it is back.
func TestResumeCompressed(t *testing.T) {
	t.Parallel()
	for _, o := range []dialing{{}, {text: true}} {
		r := deflateRig(t)
		c := r.kept("ann", o)
		token := c.welcome.GetResume()
		body := strings.Repeat("what a client has missed ", 100)
		r.pushTo(c.ref(), zmsg.Reliable, 5, body)
		c.pushes("1 " + body)
		r.cut(c)
		r.pushTo(c.ref(), zmsg.Reliable, 5, body+"2")
		r.pushTo(c.ref(), zmsg.Latest, 6, body+"3")
		before, plain := r.counter("compression_bytes_total", "deflated"), r.counter("compression_bytes_total", "plain")
		c = r.again("ann", token, 1, o)
		c.pushes("2 "+body+"2", "3 "+body+"3")
		if n := r.counter("compression_bytes_total", "deflated") - before; n < 100 || n > 2000 {
			t.Errorf("%v bytes travelled", n)
		}
		if n := r.counter("compression_bytes_total", "plain") - plain; n < 2*float64(len(body)) {
			t.Errorf("%v bytes were compressed, of two pushes with %d", n, len(body))
		}
	}
}

// L8: what is compressed is inflated no further than the limit, before login and after it, whole and in fragments; what cannot be inflated ends the connection, and so do
// bits where they do not belong.
func TestCompressedViolations(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		r := deflateRig(t, func(c *Config) {
			if c.MaxMessage = 10_000; secure {
				withTLS(c)
			}
		})
		other := r.login("other")
		bomb := deflatedBy(make([]byte, 4<<20), 1)
		split := func(b0 byte, b []byte) []byte {
			return slices.Concat(maskedFrame(b0, b[:1]), maskedFrame(0x89, nil), maskedFrame(0x80, b[1:]))
		}
		for name, tt := range map[string]struct {
			b    []byte
			code CloseCode
			says string
		}{
			"bomb":                      {maskedFrame(0xc2, bomb), CloseTooLarge, "10000"},
			"bomb in fragments":         {split(0x42, bomb), CloseTooLarge, "10000"},
			"bomb of text":              {maskedFrame(0xc1, bomb), CloseTooLarge, "10000"},
			"one byte above":            {maskedFrame(0xc2, deflatedBy(make([]byte, 10_001), 9)), CloseTooLarge, "10000"},
			"announces more":            {append(binary.BigEndian.AppendUint64([]byte{0xc2, 0xff}, 20_000), 1, 2, 3, 4), CloseTooLarge, "20000"},
			"corrupt":                   {maskedFrame(0xc2, []byte{7, 0, 0}), CloseWebsocket, "corrupt"},
			"corrupt in fragments":      {split(0x42, []byte{7, 0, 0}), CloseWebsocket, "corrupt"},
			"no bytes":                  {maskedFrame(0xc2, nil), CloseWebsocket, "corrupt"},
			"compressed ping":           {maskedFrame(0xc9, []byte{0}), CloseWebsocket, "compressed"},
			"compressed close":          {maskedFrame(0xc8, []byte{3, 232}), CloseWebsocket, "compressed"},
			"compressed continuation":   {append(maskedFrame(0x42, []byte{0}), maskedFrame(0xc0, []byte{0})...), CloseWebsocket, "compressed"},
			"rsv2 too":                  {maskedFrame(0xe2, []byte{0}), CloseWebsocket, "RSV2"},
			"unmasked":                  {append([]byte{0xc2, 1}, 0), CloseWebsocket, "MASK"},
			"an empty message":          {maskedFrame(0xc2, []byte{0}), CloseProtocol, "empty"},
			"not a packet":              {maskedFrame(0xc2, deflatedBy([]byte("garbage"), 1)), CloseProtocol, ""},
			"text that is not utf-8":    {maskedFrame(0xc1, deflatedBy([]byte("\xff"), 1)), CloseProtocol, ""}, // a pb session takes no text at all
			"many ends of many streams": {maskedFrame(0xc2, bytes.Repeat([]byte{3, 0}, 4000)), CloseWebsocket, "corrupt"},
		} {
			t.Run(fmt.Sprintf("%s/tls=%v", name, secure), func(t *testing.T) {
				for _, cut := range []int{1, 1 << 20} {
					c, _ := r.dialDeflate("ann")
					go func() { // ends with the connection
						for rest := tt.b; len(rest) > 0; {
							n := min(cut, len(rest))
							if cut == 1 && len(tt.b)-len(rest) > 40 {
								n = len(rest)
							}
							if _, err := c.Write(rest[:n]); err != nil {
								return
							}
							rest = rest[n:]
						}
					}()
					if code, text := c.closeCode(); code != tt.code || !strings.Contains(text, tt.says) || text == "" {
						t.Errorf("closed with %d %q, expected %d", code, text, tt.code)
					}
					other.echo("still here")
				}
			})
		}
		// Before login the limit is 4 KiB.
		c := r.dialRaw(false)
		c.upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n")
		c.frame(0xc2, deflatedBy(make([]byte, 4097), 9))
		if code, text := c.closeCode(); code != CloseTooLarge || !strings.Contains(text, "4096") {
			t.Errorf("before login: closed with %d %q", code, text)
		}
		// What cannot be compressed may be as large as what is not.
		noise := make([]byte, 9_980)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		big := r.login("big", dialing{})
		big.echo(string(noise))
	}
}

// A bomb costs what the limit says, and no more.
func TestBombCostsTheLimit(t *testing.T) {
	bomb := deflatedBy(make([]byte, 8<<20), 1)
	if len(bomb) > 300<<10 {
		t.Fatal(len(bomb))
	}
	var dst bytes.Buffer
	_ = inflate(&dst, bomb, 64<<10)
	dst = bytes.Buffer{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := inflate(&dst, bomb, 64<<10)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errInflated) || n > 2<<20 {
		t.Errorf("%v, %d bytes", err, n)
	}
}

// BenchmarkCompression is what a push costs with compression, alone and to many; ratio is what is left of its bytes.
func BenchmarkCompression(b *testing.B) {
	for _, size := range []int{128, 512, 2048, 16384} {
		var src []byte
		for i := 0; len(src) < size; i++ {
			src = fmt.Appendf(src, "\x08%c\x12\x07player%d\x1d%c%c%c%c\"\x0bmoved to %d", byte(i*7), i%50, byte(i*13), byte(i*31), byte(i*3), byte(i*17), i*37%91)
		}
		src = src[:size]
		z := deflaters.Get().(*deflater)
		packed := bytes.Clone(z.deflate(src))
		b.Run(fmt.Sprintf("deflate/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(packed))/float64(size), "ratio")
			for b.Loop() {
				z.deflate(src)
			}
		})
		b.Run(fmt.Sprintf("inflate/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			var dst bytes.Buffer
			for b.Loop() {
				dst.Reset()
				if err := inflate(&dst, packed, int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
