package zgate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idEcho    = 100 // gate handler: the body comes back, id 101
	idHeld    = 102 // gate handler: held until the test answers
	idPanic   = 103
	idUnknown = 999
)

var testNode = zmsg.NodeRef{ID: "n1", Epoch: 7}

// rig is a gate under test.
type rig struct {
	*Gate
	t    testing.TB
	reg  *prometheus.Registry
	held chan *zmsg.Message
	log  *lockedBuffer

	before []byte // what clients send first, ahead of TLS
	tcp    bool   // clients speak packets over bare TCP
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newRig starts a gate on loopback and shuts it down with the test.
func newRig(tb testing.TB, change ...func(*Config)) *rig {
	tb.Helper()
	r := &rig{t: tb, reg: prometheus.NewRegistry(), held: make(chan *zmsg.Message, 10_000), log: &lockedBuffer{}}
	cfg := Config{
		Node: testNode, Addr: "127.0.0.1:0", Auth: DevAuth{}, AllowText: true, DrainSpread: time.Millisecond,
		CloseTimeout: patience, QueueAge: time.Minute, // of a busy machine
		Metrics: zmetrics.NewGate(r.reg),
		Logger:  slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Handlers: map[uint32]Handler{
			idEcho: func(_ *Session, m *zmsg.Message) {
				m.Reply(&zmsg.Reply{ID: idEcho + 1, Body: m.Body()})
				m.Release()
			},
			idHeld:  func(_ *Session, m *zmsg.Message) { r.held <- m },
			idPanic: func(*Session, *zmsg.Message) { panic("on purpose") },
		},
	}
	if strings.HasPrefix(tb.Name(), overTLS) || strings.HasPrefix(tb.Name(), overTCPS) || strings.HasPrefix(tb.Name(), overDeflate+"TLS/") {
		withTLS(&cfg)
	}
	if r.tcp = overTCP(tb); r.tcp {
		cfg.TCPAddr = "127.0.0.1:0"
	}
	if strings.HasPrefix(tb.Name(), overDeflate) {
		cfg.Compression, cfg.CompressFrom = true, 1
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.Gate = g
	if err := g.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // clients that never answer are cut then
		defer cancel()
		_ = g.Shutdown(ctx)
	})
	return r
}

// testCert is a certificate for 127.0.0.1, and who signed it.
var testCert = sync.OnceValue(func() (c struct {
	pair tls.Certificate
	pool *x509.CertPool
},
) {
	c.pair, c.pool = makeCert()
	return c
})

func makeCert() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// withTLS makes the gate speak TLS, and the clients of the test with it.
func withTLS(c *Config) {
	c.TLS = &tls.Config{Certificates: []tls.Certificate{testCert().pair}}
}

// clientTLS is what clients use.
func clientTLS() *tls.Config { return &tls.Config{RootCAs: testCert().pool, ServerName: "127.0.0.1"} }

// counter returns the value of a metric of the gate, such as `messages_total{gate}`.
func (r *rig) counter(name string, label ...string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "zgame_gate_"+name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			if len(label) == 0 || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label[0] {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	return 0
}

// patience is for what must happen, on a busy machine.
const patience = time.Minute

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// socket is a websocket of either library.
type socket interface {
	write(op int, b []byte) error
	read() (op int, b []byte, err error) // err is a *websocket.CloseError for a close frame
	end()
}

type gorillaSocket struct{ *websocket.Conn }

func (s gorillaSocket) write(op int, b []byte) error { return s.WriteMessage(op, b) }
func (s gorillaSocket) end()                         { _ = s.Close() }
func (s gorillaSocket) read() (int, []byte, error) {
	_ = s.SetReadDeadline(time.Now().Add(patience))
	return s.ReadMessage()
}

type coderSocket struct{ *coder.Conn }

func (s coderSocket) write(op int, b []byte) error {
	return s.Write(context.Background(), coder.MessageType(op), b)
}
func (s coderSocket) end() { _ = s.CloseNow() }
func (s coderSocket) read() (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op, b, err := s.Read(ctx)
	if ce, ok := errors.AsType[coder.CloseError](err); ok {
		err = &websocket.CloseError{Code: int(ce.Code), Text: ce.Reason}
	}
	return int(op), b, err
}

// client speaks the client's side of the protocol.
type client struct {
	t    testing.TB
	ws   socket
	text bool
	reg  *zmsg.Registry
	seq  uint64
	in   []zmsg.Frame
	// welcome is what Hello was answered.
	welcome *wirepb.Welcome
}

func (r *rig) url() string {
	scheme := "ws"
	if r.cfg.TLS != nil {
		scheme = "wss"
	}
	return scheme + "://" + r.Addr().String() + r.cfg.Path
}

type dialing struct {
	coder bool
	text  bool
	sub   []string
	head  http.Header
}

// dial connects without a Hello.
func (r *rig) dial(o dialing) *client {
	r.t.Helper()
	c, err := r.tryDial(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) tryDial(o dialing) (*client, error) {
	if o.text && o.sub == nil {
		o.sub = []string{zmsg.SubprotocolJSON}
	}
	c := &client{t: r.t, text: o.text}
	if r.tcp {
		s, err := r.dialPackets(o.text)
		if err == nil {
			c.ws = s
		}
		return c, err
	}
	if o.coder {
		hc := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS()}}
		opts := &coder.DialOptions{Subprotocols: o.sub, HTTPClient: hc, HTTPHeader: o.head}
		if r.cfg.Compression {
			opts.CompressionMode, opts.CompressionThreshold = coder.CompressionNoContextTakeover, 1
		}
		ws, _, err := coder.Dial(context.Background(), r.url(), opts)
		if err != nil {
			return nil, err
		}
		ws.SetReadLimit(64 << 20)
		c.ws = coderSocket{ws}
	} else {
		d := websocket.Dialer{Subprotocols: o.sub, TLSClientConfig: clientTLS(), HandshakeTimeout: patience, EnableCompression: r.cfg.Compression, NetDial: func(network, addr string) (net.Conn, error) {
			nc, err := net.Dial(network, addr)
			if err == nil {
				_, err = nc.Write(r.before)
			}
			return nc, err
		}}
		ws, resp, err := d.Dial(r.url(), o.head)
		if err != nil {
			if resp != nil {
				return nil, fmt.Errorf("%w: %s", err, resp.Status)
			}
			return nil, err
		}
		c.ws = gorillaSocket{ws}
	}
	r.t.Cleanup(c.ws.end)
	return c, nil
}

// login connects as user.
func (r *rig) login(user string, o ...dialing) *client {
	r.t.Helper()
	c := r.dial(append(o, dialing{})[0])
	c.hello(user)
	return c
}

func (c *client) hello(token string) {
	c.t.Helper()
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: token, Client: "test/1"}}})
	f := c.next()
	var m wirepb.Control
	if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetWelcome() == nil {
		c.t.Fatalf("not a Welcome: %+v %v", f, err)
	}
	c.welcome = m.GetWelcome()
}

func (c *client) ref() zmsg.SessionRef {
	return zmsg.SessionRef{Gate: testNode, ID: c.welcome.GetSession(), Gen: c.welcome.GetGeneration()}
}

func (c *client) control(m *wirepb.Control) {
	c.t.Helper()
	c.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(m)})
}

// pack makes one websocket message of frames.
func (c *client) pack(frames ...zmsg.Frame) (op int, b []byte) {
	c.t.Helper()
	if c.text {
		ptrs := make([]*zmsg.Frame, len(frames))
		for i := range frames {
			ptrs[i] = &frames[i]
		}
		b, err := zmsg.EncodeText(nil, c.reg, ptrs...)
		if err != nil {
			c.t.Fatal(err)
		}
		return opText, b
	}
	for i := range frames {
		b = zmsg.AppendPacketFrame(b, &frames[i])
	}
	return opBinary, b
}

func (c *client) send(frames ...zmsg.Frame) {
	c.t.Helper()
	if err := c.ws.write(c.pack(frames...)); err != nil {
		c.t.Fatal(err)
	}
}

func request(id uint32, seq uint64, body string) zmsg.Frame {
	return zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: id, Seq: seq, Body: []byte(body)}
}

// next returns the next frame.
func (c *client) next() zmsg.Frame {
	c.t.Helper()
	f, err := c.tryNext()
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

func (c *client) tryNext() (zmsg.Frame, error) {
	for len(c.in) == 0 {
		op, b, err := c.ws.read()
		if err != nil {
			return zmsg.Frame{}, err
		}
		if (op == opText) != c.text {
			return zmsg.Frame{}, fmt.Errorf("message of type %d, text is %v", op, c.text)
		}
		if c.text {
			frames, err := zmsg.DecodeText(b, c.reg)
			if err != nil {
				return zmsg.Frame{}, err
			}
			for _, f := range frames {
				if f.Err != nil {
					return zmsg.Frame{}, f.Err
				}
				c.in = append(c.in, f.Frame)
			}
			continue
		}
		for len(b) > 0 {
			var f zmsg.Frame
			if b, err = zmsg.NextFrame(b, &f); err != nil {
				return zmsg.Frame{}, err
			}
			c.in = append(c.in, f)
		}
	}
	f := c.in[0]
	c.in = c.in[1:]
	return f, nil
}

// call sends a request and returns its response, which must come next.
func (c *client) call(id uint32, body string) zmsg.Frame {
	c.t.Helper()
	c.seq++
	c.send(request(id, c.seq, body))
	f := c.next()
	if f.Kind != wirepb.FrameKind_FRAME_KIND_RESPONSE || f.Seq != c.seq {
		c.t.Fatalf("not the response for %d: %+v", c.seq, f)
	}
	return f
}

func (c *client) echo(body string) {
	c.t.Helper()
	if f := c.call(idEcho, body); f.Code != 0 || string(f.Body) != body || f.ID != idEcho+1 {
		c.t.Fatalf("echo of %q: %+v", body, f)
	}
}

// closedWith reads to the end: the Closing frame, the close frame with the same code. It returns the text, and the
// frames before.
func (c *client) closedWith(code CloseCode) (text string, before []zmsg.Frame) {
	c.t.Helper()
	var told *wirepb.Closing
	for {
		f, err := c.tryNext()
		if err == nil {
			if told != nil {
				c.t.Errorf("frame behind Closing: %+v", f)
			}
			var m wirepb.Control
			if f.Control != nil && proto.Unmarshal(f.Control, &m) == nil && m.GetClosing() != nil {
				told = m.GetClosing()
				continue
			}
			before = append(before, f)
			continue
		}
		var ce *websocket.CloseError
		if !errors.As(err, &ce) {
			c.t.Fatalf("expected close %d, got %v", code, err)
		}
		if ce.Code != int(code) || told == nil || told.GetCode() != uint32(code) || told.GetText() != ce.Text {
			c.t.Fatalf("expected Closing and close with %d, got %v and %v", code, told, ce)
		}
		return ce.Text, before
	}
}

// raw is a client that sends bytes as it likes.
type raw struct {
	net.Conn
	t   testing.TB
	tcp *net.TCPConn // the same, or what TLS goes over

	packets bool // frames are not masked
}

// dialRaw connects and, with upgrade, makes a websocket of it by hand.
func (r *rig) dialRaw(upgrade bool) raw {
	r.t.Helper()
	addr, secure := r.Addr(), (*tls.Config)(nil)
	if r.cfg.TLS != nil {
		secure = clientTLS()
	}
	if !r.tcp {
		return dialRawWith(r.t, addr, r.before, secure, upgrade)
	}
	c := dialRawWith(r.t, r.TCPAddr(), r.before, secure, false)
	c.packets = true
	if upgrade {
		c.http(zmsg.SubprotocolPB + "\n")
	}
	return c
}

func dialRaw(tb testing.TB, gate net.Addr, upgrade bool) raw {
	tb.Helper()
	return dialRawWith(tb, gate, nil, nil, upgrade)
}

// dialRawWith sends first ahead of everything else, and speaks TLS where secure is not nil.
func dialRawWith(tb testing.TB, gate net.Addr, first []byte, secure *tls.Config, upgrade bool) raw {
	tb.Helper()
	nc, err := net.Dial("tcp", gate.String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	_, _ = nc.Write(first)
	c := raw{Conn: nc, t: tb, tcp: nc.(*net.TCPConn)}
	if secure != nil {
		c.Conn = tls.Client(nc, secure)
	}
	if upgrade {
		c.upgrade("")
	}
	return c
}

// upgrade makes a websocket of c, with more headers, and returns the head of the answer.
func (c raw) upgrade(more string) string {
	tb := c.t
	tb.Helper()
	c.http("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + more + "\r\n")
	var b [1]byte
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := c.Read(b[:]); err != nil {
			tb.Fatalf("%v after %q", err, head)
		}
		head = append(head, b[0])
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 101") {
		tb.Fatalf("not upgraded: %q", head)
	}
	return string(head)
}

func (c raw) http(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// frame sends one masked websocket frame; b0 is its first byte.
func (c raw) frame(b0 byte, payload []byte) {
	c.t.Helper()
	b := maskedFrame(b0, payload)
	if c.packets {
		b = append(appendWSHeader(nil, int(b0&0x0f), len(payload)), payload...)
		b[0] = b0
	}
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func maskedFrame(b0 byte, payload []byte) []byte {
	h := appendWSHeader(nil, int(b0&0x0f), len(payload))
	h[0] = b0
	h[1] |= 0x80
	h = append(h, 1, 2, 3, 4)
	for i, x := range payload {
		h = append(h, x^byte(1+i%4))
	}
	return h
}

// wsRead reads one frame from the gate.
func (c raw) wsRead() (b0 byte, payload []byte, err error) { return readFrame(c) }

func readFrame(r io.Reader) (b0 byte, payload []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	n := int(h[1])
	switch n {
	case 126:
		var l [2]byte
		if _, err := io.ReadFull(r, l[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(l[:]))
	case 127:
		var l [8]byte
		if _, err := io.ReadFull(r, l[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint64(l[:]))
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return h[0], payload, err
}

// hello logs in by hand.
func (c raw) hello(user string) zmsg.SessionRef {
	c.t.Helper()
	b := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(
		&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: user}}})})
	c.frame(0x82, b)
	_, p, err := c.wsRead()
	var f zmsg.Frame
	var m wirepb.Control
	if err == nil {
		_, err = zmsg.NextFrame(p, &f)
	}
	if err == nil {
		err = proto.Unmarshal(f.Control, &m)
	}
	if err != nil || m.GetWelcome() == nil {
		c.t.Fatalf("no Welcome: %v %v", &m, err)
	}
	return zmsg.SessionRef{Gate: testNode, ID: m.GetWelcome().GetSession(), Gen: m.GetWelcome().GetGeneration()}
}

// closeCode reads up to the close frame and returns its code and text.
func (c raw) closeCode() (CloseCode, string) {
	c.t.Helper()
	for {
		b0, p, err := c.wsRead()
		if err != nil {
			c.t.Fatalf("no close frame: %v", err)
		}
		if b0 == 0x88 && len(p) >= 2 {
			return CloseCode(binary.BigEndian.Uint16(p)), string(p[2:])
		}
	}
}

// deafConn is a net.Conn that nobody is at the other end of.
type deafConn struct{ net.Conn }

func (*deafConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*deafConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (*deafConn) Close() error                     { return nil }
func (*deafConn) SetDeadline(time.Time) error      { return nil }
func (*deafConn) SetReadDeadline(time.Time) error  { return nil }
func (*deafConn) SetWriteDeadline(time.Time) error { return nil }

// smallBuffers listens with small socket buffers, so that a client that does not read is noticed soon.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(8 << 10)
	}
	return c, err
}

func withSmallBuffers(tb testing.TB) func(*Config) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if overTCP(tb) {
		return func(c *Config) { c.TCPListener = smallBuffers{l} }
	}
	return func(c *Config) { c.Listener = smallBuffers{l} }
}

// stall logs in a client that does not read from then on.
func (r *rig) stall(user string) (raw, zmsg.SessionRef) {
	r.t.Helper()
	c := r.dialRaw(true)
	_ = c.tcp.SetReadBuffer(4 << 10)
	return c, c.hello(user)
}

// fill pushes to ref until the socket refuses, or the gate does.
func (r *rig) fill(ref zmsg.SessionRef) *Session {
	r.t.Helper()
	s, err := r.Session(ref)
	if err != nil {
		return nil // closed already
	}
	full := func() bool {
		s.c.Load().q.mu.Lock()
		defer s.c.Load().q.mu.Unlock()
		return s.c.Load().q.queued > 24<<10
	}
	for range 100_000 {
		if full() {
			// The kernel may still be making room.
			if time.Sleep(20 * time.Millisecond); full() {
				return s
			}
		}
		if s.Push(&zmsg.Push{ID: 1, Body: make([]byte, 512)}) != nil {
			return s // closed meanwhile
		}
	}
	r.t.Fatal("the socket takes everything")
	return nil
}

// passing takes what a watcher is told of a session that goes on: that its client is away, and back. Who tests that does not call it.
func passing(m *zmsg.Message) bool {
	if m.ID != zmsg.SessionSuspendedID && m.ID != zmsg.SessionResumedID {
		return false
	}
	m.Release()
	return true
}
