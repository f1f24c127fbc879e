package zgate

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
)

// The transports that the tests of connections run over beside websockets on TCP, by what their names begin with.
const (
	overTLS  = "TestOverTLS/"
	overTCPS = "TestOverTCPS/"

	overDeflate = "TestOverDeflate" // and over TLS: TestOverDeflateTLS
)

func overTCP(tb testing.TB) bool {
	tb.Helper()
	return strings.HasPrefix(tb.Name(), "TestOverTCP/") || strings.HasPrefix(tb.Name(), overTCPS)
}

// connectionTests are those that hold for every transport.
var connectionTests = map[string]func(*testing.T){
	"Life":                           TestLife,
	"ShutdownDrains":                 TestShutdownDrains,
	"ShutdownSpreads":                TestShutdownSpreads,
	"ShutdownCuts":                   TestShutdownCuts,
	"BadHello":                       TestBadHello,
	"TextNeedsSetting":               TestTextNeedsSetting,
	"TextWithoutSubprotocol":         TestTextWithoutSubprotocol,
	"RefusedHandshakes":              TestRefusedHandshakes,
	"SlowHandshakeAndLogin":          TestSlowHandshakeAndLogin,
	"AuthenticatorErrors":            TestAuthenticatorErrors,
	"ConnectionLimits":               TestConnectionLimits,
	"HelloAgain":                     TestHelloAgain,
	"RequestBehindHello":             TestRequestBehindHello,
	"Outcomes":                       TestOutcomes,
	"OnNoRoute":                      TestOnNoRoute,
	"BrokenPackets":                  TestBrokenPackets,
	"SameFateInBothCodecs":           TestSameFateInBothCodecs,
	"RequestsInFlightKeepTheirBytes": TestRequestsInFlightKeepTheirBytes,
	"Timeout":                        TestTimeout,
	"TooManyInFlight":                TestTooManyInFlight,
	"Rate":                           TestRate,
	"ByteRate":                       TestByteRate,
	"HeartbeatFlood":                 TestHeartbeatFlood,
	"AcceptRate":                     TestAcceptRate,
	"BeforeLogin":                    TestBeforeLogin,
	"AnswersOfOthersDoNotWait":       TestAnswersOfOthersDoNotWait,
	"BroadcastIsEncodedOnce":         TestBroadcastIsEncodedOnce,
	"KickIsTheLastThing":             TestKickIsTheLastThing,
	"ManyWriters":                    TestManyWriters,
	"QueueAge":                       TestQueueAge,
	"LatestArrives":                  TestLatestArrives,
	"LargePush":                      TestLargePush,
	"ClientGoes":                     TestClientGoes,
	"CloseFromEverywhere":            TestCloseFromEverywhere,
	"Silence":                        TestSilence,
	"WebsocketViolations":            TestWebsocketViolations,
	"TooLargeIsNamed":                TestTooLargeIsNamed,
	"FragmentsAndTrickle":            TestFragmentsAndTrickle,
	"CloseReplyBehindAnswers":        TestCloseReplyBehindAnswers,
	"StalledClientIsClosed":          TestStalledClientIsClosed,
	"StalledClientBlocksNobody":      TestStalledClientBlocksNobody,
}

// websocketTests are those among them that make websocket frames or HTTP by hand.
var websocketTests = []string{
	"CloseReplyBehindAnswers", "FragmentsAndTrickle", "HeartbeatFlood", "RefusedHandshakes", "TextWithoutSubprotocol", "TextNeedsSetting", "SlowHandshakeAndLogin", "TooLargeIsNamed", "WebsocketViolations",
}

// H11: every test of connections again, over TLS.
func TestOverTLS(t *testing.T) { again(t, nil) }

// And over bare TCP.
func TestOverTCP(t *testing.T) { again(t, websocketTests) }

// And with messages compressed both ways, whatever their size; but for those in which there are none, or hardly any, and where a queue is to fill.
func TestOverDeflate(t *testing.T) {
	again(t, []string{"Silence", "SlowHandshakeAndLogin", "AcceptRate", "ConnectionLimits", "RefusedHandshakes", "AuthenticatorErrors", "HeartbeatFlood", "LatestArrives"})
}

// And some of them with TLS, where frames are cut another way.
func TestOverDeflateTLS(t *testing.T) {
	for _, name := range []string{"Life", "Outcomes", "BroadcastIsEncodedOnce", "FragmentsAndTrickle", "WebsocketViolations"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectionTests[name](t)
		})
	}
}

// And some of them over both.
func TestOverTCPS(t *testing.T) {
	for _, name := range []string{"Life", "BadHello", "Outcomes", "KickIsTheLastThing", "ClientGoes", "StalledClientIsClosed", "ShutdownDrains"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectionTests[name](t)
		})
	}
}

func again(t *testing.T, without []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("the whole of the others again")
	}
	for name, f := range connectionTests {
		if !slices.Contains(without, name) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t)
			})
		}
	}
}

// packetSocket is a client of the transport over bare TCP.
type packetSocket struct {
	raw

	r *bufio.Reader
}

// dialPackets connects. There is no handshake that the gate answers: a ping shows that it has let the client in.
func (r *rig) dialPackets(text bool) (*packetSocket, error) {
	nc, err := net.Dial("tcp", r.TCPAddr().String())
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	if _, err := nc.Write(r.before); err != nil {
		return nil, err
	}
	if r.cfg.TLS != nil {
		nc = tls.Client(nc, clientTLS())
	}
	sub := zmsg.SubprotocolPB
	if text {
		sub = zmsg.SubprotocolJSON
	}
	s := &packetSocket{raw: raw{Conn: nc, t: r.t, packets: true}, r: bufio.NewReader(nc)}
	if _, err := io.WriteString(nc, sub+"\n\x89\x00"); err != nil {
		return nil, err
	}
	_ = s.SetReadDeadline(time.Now().Add(patience))
	if b0, _, err := readFrame(s.r); err != nil || b0 != 0x8a {
		return nil, fmt.Errorf("not let in: %#x %w", b0, err)
	}
	return s, nil
}

func (s *packetSocket) write(op int, b []byte) error {
	_, err := s.Write(append(appendWSHeader(nil, op, len(b)), b...))
	return err
}

func (s *packetSocket) end() { _ = s.Close() }

func (s *packetSocket) read() (op int, b []byte, err error) {
	_ = s.SetReadDeadline(time.Now().Add(patience))
	for {
		b0, b, err := readFrame(s.r)
		if err != nil {
			return 0, nil, err
		}
		switch b0 {
		case 0x88:
			ce := &websocket.CloseError{Code: websocket.CloseNoStatusReceived}
			if len(b) >= 2 {
				ce.Code, ce.Text = int(binary.BigEndian.Uint16(b)), string(b[2:])
			}
			_ = s.write(opClose, b[:min(2, len(b))])
			return 0, nil, ce
		case 0x89:
			_ = s.write(opPong, b)
		case 0x8a:
		default:
			return int(b0 & 0x0f), b, nil
		}
	}
}

// Packets that are not what they should be end their connection with a code; others go on.
func TestPacketViolations(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TCPAddr = "127.0.0.1:0" })
	r.tcp = true
	other := r.login("other")
	long := func(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{0x82, 127}, n) }
	for name, tt := range map[string]struct {
		b    string
		code CloseCode
	}{
		"length 2^63":            {string(long(1 << 63)), CloseWebsocket},
		"length 2^64-1":          {string(long(1<<64 - 1)), CloseWebsocket},
		"length 2^63-1":          {string(long(1<<63 - 1)), CloseTooLarge},
		"length of limit+1":      {string(long(64<<10 + 1)), CloseTooLarge},
		"masked":                 {string(maskedFrame(0x82, []byte("abc"))), CloseWebsocket},
		"fragment":               {"\x02\x03abc", CloseWebsocket},
		"rsv1":                   {"\xc2\x03abc", CloseWebsocket},
		"opcode 0":               {"\x80\x03abc", CloseWebsocket},
		"opcode 3":               {"\x83\x03abc", CloseWebsocket},
		"opcode 11":              {"\x8b\x03abc", CloseWebsocket},
		"ping of 126":            {"\x89\x7e\x00\x7e" + strings.Repeat("x", 126), CloseWebsocket},
		"half a close code":      {"\x88\x01\x03", CloseWebsocket},
		"close code 1005":        {"\x88\x02\x03\xed", CloseWebsocket},
		"close reason not utf-8": {"\x88\x03\x03\xe8\xff", CloseWebsocket},
		"empty":                  {"\x82\x00", CloseProtocol},
		"text":                   {"\x81\x02{}", CloseProtocol},
		"garbage":                {"\x82\x04\xff\xff\xff\xff", CloseProtocol},
		"http":                   {"GET /ws HTTP/1.1\r\n", CloseWebsocket},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dialRaw(true)
			c.hello("ann")
			go func() { _, _ = io.WriteString(c, tt.b) }()
			code, text := c.closeCode()
			if code != tt.code || text == "" {
				t.Errorf("closed with %d %q, expected %d", code, text, tt.code)
			}
			if n, err := io.Copy(io.Discard, c); n != 0 {
				t.Errorf("%d bytes behind the close, %v", n, err)
			}
			other.echo("still here")
		})
	}
}

// What does not open as a client of this transport is closed without a word, counted, and in time.
func TestPacketOpening(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.TCPAddr, c.AllowText, c.HandshakeTimeout = "127.0.0.1:0", false, patience/100
	})
	r.tcp = true
	for _, b := range []string{
		"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("x", 100), "\n", "zgame.v2.pb\n", "zgame.v1.json\n", "zgame.v1.pb\r\n",
	} {
		c := r.dialRaw(false)
		_, _ = io.WriteString(c, b)
		_ = c.tcp.CloseWrite()
		if n, err := io.Copy(io.Discard, c); n > 0 || errors.Is(err, net.ErrClosed) {
			t.Errorf("%q: %d bytes, %v", b, n, err)
		}
	}
	eventually(t, "counted", func() bool { return r.counter("refused_total", "bad_request") == 6 })
	c := r.dialRaw(false)
	_, _ = io.WriteString(c, "zgame.v1.p") // and no more
	if n, _ := io.Copy(io.Discard, c); n > 0 {
		t.Error("an answer to half a line")
	}
	eventually(t, "counted", func() bool { return r.counter("refused_total", "handshake_timeout") == 1 })
}

// Packets of every size that a prefix has a form for, a byte at a time and many at once, with pings between them.
func TestPacketSizes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TCPAddr, c.MaxMessage = "127.0.0.1:0", 128<<10 })
	r.tcp = true
	for _, step := range []int{1, 1000, 1 << 20} {
		c := r.dialRaw(true)
		c.hello("ann")
		var b []byte
		sizes := []int{0, 1, 110, 120, 130, 2030, 2040, 2050, 5000, 65500, 65530, 70000}
		if step == 1 {
			sizes = sizes[:9]
		}
		for i, n := range sizes {
			msg := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: uint64(i + 1), Body: []byte(strings.Repeat("z", n))})
			b = append(append(b, appendWSHeader(nil, opBinary, len(msg))...), msg...)
			b = append(append(b, appendWSHeader(nil, opPing, i)...), strings.Repeat("p", i)...)
		}
		go func() { // ends when all is written, or the test has closed the connection
			for len(b) > 0 {
				n := min(len(b), step)
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
		}()
		pongs := 0
		for i := 0; i < len(sizes); {
			b0, p, err := c.wsRead()
			if err != nil {
				t.Fatalf("step %d, answer %d: %v", step, i, err)
			}
			if b0 == 0x8a {
				if string(p) != strings.Repeat("p", pongs) {
					t.Fatalf("pong %d: %q", pongs, p)
				}
				pongs++
				continue
			}
			for len(p) > 0 {
				var f zmsg.Frame
				if p, err = zmsg.NextFrame(p, &f); err != nil || f.Seq != uint64(i+1) || len(f.Body) != sizes[i] {
					t.Fatalf("step %d, answer %d: seq %d, %d bytes, %v", step, i, f.Seq, len(f.Body), err)
				}
				i++
			}
		}
	}
}

// One gate serves both at once: a broadcast reaches all, as one piece of memory.
func TestBothTransports(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TCPAddr = "127.0.0.1:0" })
	ws := r.login("ann")
	r.tcp = true
	tcp := r.login("bob")
	text := r.login("cid", dialing{text: true})
	for _, c := range []*client{ws, tcp, text} {
		if err := r.Join(c.ref(), "g"); err != nil {
			t.Fatal(err)
		}
	}
	body := strings.Repeat("x", 5000) // shared, not copied
	if n, failed := r.PublishLocal("g", &zmsg.Push{ID: 5, Body: []byte(body)}); n != 3 || failed != 0 {
		t.Errorf("%d reached, %d failed", n, failed)
	}
	for _, c := range []*client{ws, tcp, text} {
		if f := c.next(); f.ID != 5 || string(f.Body) != body {
			t.Errorf("%+v", f)
		}
	}
	if n := r.counter("push_encodes_total"); n != 1 { // into text; the body came encoded
		t.Errorf("%v encodes", n)
	}
}

// A gate may serve one transport alone.
func TestTCPAlone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Addr, c.TCPAddr = "", "127.0.0.1:0" })
	r.tcp = true
	r.login("ann").echo("x")
	if r.Addr() != nil || !r.Serving() {
		t.Errorf("listens at %v, serving %v", r.Addr(), r.Serving())
	}
	var cfg Config
	cfg.Node, cfg.Auth = testNode, DevAuth{}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "TCPAddr") {
		t.Errorf("no address: %v", err)
	}
	cfg.TCPAddr = ":0"
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "TCPAddr") {
		t.Errorf("plain text: %v", err)
	}
}
