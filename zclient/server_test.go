package zclient

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for what must happen: far above what a busy machine needs.
const patience = time.Minute

// server is a gate of a few lines: it reads Hello, says Welcome, answers pings, and gives the rest to the test.
type server struct {
	http         *httptest.Server
	packets      net.Listener // for clients over bare TCP
	closePackets func()
	t            *testing.T
	conns        chan *serverConn // every connection, after its Welcome
	welcome      *wirepb.Welcome
	largest      atomic.Int32 // bytes of a packet
	longest      atomic.Int32 // frames of a packet
	mute         atomic.Bool  // answers no Hello and no Ping from now on
	wg           sync.WaitGroup
}

type serverConn struct {
	t     *testing.T
	ws    serverSocket
	mu    sync.Mutex // guards writing
	hello *wirepb.Hello
	in    chan zmsg.Frame // what the client sent but heartbeats; closed when the connection ends
	end   error           // set before in is closed
}

func newServer(t *testing.T) *server {
	t.Helper()
	return startServer(t, httptest.NewServer)
}

func startServer(t *testing.T, start func(http.Handler) *httptest.Server) *server {
	t.Helper()
	s := &server{t: t, conns: make(chan *serverConn, 100), welcome: &wirepb.Welcome{
		Session: 5, Generation: 1, User: "ann", Node: "n1", Epoch: 7, HeartbeatMs: 60_000, TimeoutMs: 120_000,
		MaxMessage: 64 << 10, MaxInFlight: 64, Version: 1,
	}}
	s.http = start(http.HandlerFunc(s.serve))
	s.listenPackets()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
		s.closePackets()
		s.wg.Wait()
	})
	return s
}

// ws is the server's URL.
func (s *server) ws() string {
	if overTCP(s.t) {
		return "tcp://" + s.packets.Addr().String()
	}
	return "ws" + strings.TrimPrefix(s.http.URL, "http")
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.wg.Add(1)
	defer s.wg.Done()
	up := websocket.Upgrader{Subprotocols: []string{zmsg.SubprotocolPB}}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	s.read(ws)
}

func (s *server) read(ws serverSocket) {
	defer func() { _ = ws.Close() }()
	c := &serverConn{t: s.t, ws: ws, in: make(chan zmsg.Frame, 4096)}
	defer close(c.in)
	for {
		_, b, err := ws.ReadMessage()
		if err != nil {
			c.end = err
			return
		}
		s.largest.Store(max(s.largest.Load(), int32(len(b))))
		for n := int32(1); len(b) > 0; n++ {
			s.longest.Store(max(s.longest.Load(), n))
			var f zmsg.Frame
			if b, err = zmsg.NextFrame(b, &f); err != nil {
				s.t.Errorf("the client sent rubbish: %v", err)
				return
			}
			s.frame(c, f)
		}
	}
}

func (s *server) frame(c *serverConn, f zmsg.Frame) {
	if f.Kind != wirepb.FrameKind_FRAME_KIND_CONTROL {
		c.in <- f
		return
	}
	var ctl wirepb.Control
	if err := proto.Unmarshal(f.Control, &ctl); err != nil {
		s.t.Errorf("the client sent rubbish: %v", err)
		return
	}
	switch m := ctl.GetControl().(type) {
	case *wirepb.Control_Hello:
		c.hello = m.Hello
		if !s.mute.Load() {
			c.control(&wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: s.welcome}})
		}
		s.conns <- c
	case *wirepb.Control_Ping:
		if !s.mute.Load() {
			c.control(&wirepb.Control{Control: &wirepb.Control_Pong{Pong: &wirepb.Pong{Nonce: m.Ping.GetNonce()}}})
		}
	default:
		c.in <- f
	}
}

// next returns the next connection.
func (s *server) next() *serverConn {
	s.t.Helper()
	return receive(s.t, s.conns, "a connection")
}

func (c *serverConn) send(frames ...zmsg.Frame) {
	var b []byte
	for i := range frames {
		b = zmsg.AppendPacketFrame(b, &frames[i])
	}
	c.raw(websocket.BinaryMessage, b)
}

func (c *serverConn) raw(typ int, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.ws.WriteMessage(typ, b) // the client may be gone already
}

func (c *serverConn) control(m *wirepb.Control) {
	f, err := control(m)
	if err != nil {
		c.t.Error(err)
	}
	c.send(f)
}

func (c *serverConn) closing(code uint32, delay time.Duration) {
	c.control(&wirepb.Control{Control: &wirepb.Control_Closing{Closing: &wirepb.Closing{
		Code: code, Text: "the reason", DelayMs: uint32(delay.Milliseconds()),
	}}})
	c.close(int(code), "the reason")
}

func (c *serverConn) close(code int, text string) {
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(patience))
}

func (c *serverConn) push(m proto.Message, seq uint64) {
	f := frameOf(c.t, wirepb.FrameKind_FRAME_KIND_PUSH, m)
	f.Seq = seq
	c.send(f)
}

func (c *serverConn) respond(to zmsg.Frame, m proto.Message) {
	f := frameOf(c.t, wirepb.FrameKind_FRAME_KIND_RESPONSE, m)
	f.Seq = to.Seq
	c.send(f)
}

// next returns the next frame of the client.
func (c *serverConn) next() zmsg.Frame {
	c.t.Helper()
	return receive(c.t, c.in, "a frame")
}

// ended waits until the client's connection has ended and returns how.
func (c *serverConn) ended() error {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-c.in:
			if !ok {
				return c.end
			}
		case <-deadline:
			c.t.Fatal("the connection does not end")
		}
	}
}

func frameOf(t *testing.T, kind wirepb.FrameKind, m proto.Message) zmsg.Frame {
	t.Helper()
	id, _ := zmsg.IDOf(m)
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return zmsg.Frame{Kind: kind, ID: id, Body: b}
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// setup is a client that is online, its server and its connection there.
type setup struct {
	*Client
	server *server
	conn   *serverConn
	states chan State
	opened *connCounter
}

func start(t *testing.T, change ...func(*Config, *server)) *setup {
	t.Helper()
	s := &setup{server: newServer(t)}
	s.connect(t, change...)
	return s
}

func (s *setup) connect(t *testing.T, change ...func(*Config, *server)) {
	t.Helper()
	s.states, s.opened = make(chan State, 1000), &connCounter{}
	cfg := Config{URL: s.server.ws(), Token: "ann", MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, Dialer: s.opened.dial}
	for _, f := range change {
		f(&cfg, s.server)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = c
	c.OnState(func(st State) { s.states <- st })
	t.Cleanup(func() {
		_ = c.Close()
		receive(t, c.Done(), "the last handler")
	})
	if err := c.Connect(within(t)); err != nil {
		t.Fatal(err)
	}
	s.conn = s.server.next()
}

// until returns the next state of the phase.
func (s *setup) until(t *testing.T, p Phase) State {
	t.Helper()
	for {
		if st := receive(t, s.states, "phase "+p.String()); st.Phase == p {
			return st
		}
	}
}

// connCounter counts the connections of a client that are open at one time.
type connCounter struct{ now, most, all atomic.Int32 }

func (n *connCounter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.all.Add(1)
	if now := n.now.Add(1); now > n.most.Load() {
		n.most.Store(now)
	}
	return &countedConn{Conn: c, n: n}, nil
}

type countedConn struct {
	net.Conn
	n    *connCounter
	once sync.Once
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.n.now.Add(-1) })
	return err
}
