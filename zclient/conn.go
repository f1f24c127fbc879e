package zclient

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

const (
	maxQueued    = 256             // frames that wait to be written
	maxFrames    = 32              // frames in one packet; gates take 64
	closeTimeout = time.Second     // for the server to answer a close frame
	wireVersion  = 1               // minor version, for Hello
	maxGoaway    = 5 * time.Minute // longest delay of a server that is waited for, whatever it says
)

// ending is how a connection ended.
type ending struct {
	reason  *Reason
	online  time.Duration // how long it was logged in
	delay   time.Duration // the server asks to wait so long
	address string        // the server asks to go there
}

// conn is one connection. Its life is a call of Client.connect, which reads; a goroutine of its own writes.
type conn struct {
	client *Client
	ws     transport
	net    *watchedConn

	// Owned by the reading goroutine.
	welcomed time.Time // zero before Welcome
	session  Session
	ending   ending

	first    []outgoing    // to be written ahead of out; set before the writer is started
	acks     chan struct{} // tells the writer that something is to be acknowledged
	unacked  atomic.Bool   // it has been told
	out      chan outgoing // what waits to be written
	pong     chan uint64   // nonces of the server's pings that wait for their pong
	gone     chan struct{} // closed when reading has ended
	bye      chan struct{} // closed when writing is to end with a close frame
	byeOnce  sync.Once
	pingSent atomic.Int64 // when the last ping was sent, UnixNano; 0: its pong has come

	mu      sync.Mutex
	state   connState // guarded by mu
	local   *Reason   // guarded by mu; why we end it ourselves: the first counts
	leaving *Reason   // guarded by mu; set when the server said Goaway
}

type connState uint8

const (
	open     connState = iota
	draining           // no new requests: the server wants us elsewhere
	dead
)

type outgoing struct {
	frame zmsg.Frame
	call  *call // nil: one-way
}

// connect lives one connection from dialling to its end, and returns after everything of it is gone.
func (c *Client) connect(url string) ending {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.HandshakeTimeout)
	defer cancel()
	token := c.cfg.Token
	if c.cfg.TokenFunc != nil {
		var err error
		if token, err = c.cfg.TokenFunc(ctx); err != nil {
			return ending{reason: c.because(&Reason{Kind: KindToken, Err: err})}
		}
	}
	cn, reason := c.dial(ctx, url)
	if reason != nil {
		return ending{reason: c.because(reason)}
	}
	// From here on the connection ends by being closed; whoever closes it says why first.
	handshake := time.AfterFunc(c.cfg.HandshakeTimeout, func() { cn.end(&Reason{Kind: KindHandshake, Text: "no Welcome in time"}) })
	defer handshake.Stop()
	stop := context.AfterFunc(c.ctx, cn.goodbye)
	defer stop()

	var writer sync.WaitGroup
	err := cn.hello(token, c.cfg.Name)
	for err == nil {
		var packet []byte
		var typ int
		if typ, packet, err = cn.ws.ReadMessage(); err != nil {
			break
		}
		if typ != websocket.BinaryMessage {
			err = &Reason{Kind: KindProtocol, Text: "a text message"}
			break
		}
		wasWelcome := !cn.welcomed.IsZero()
		err = cn.packet(packet)
		if !wasWelcome && !cn.welcomed.IsZero() {
			handshake.Stop()
			writer.Go(cn.write) // owned by cn; ended by gone or bye; waited for below
			c.online(cn)
		}
	}
	c.current.CompareAndSwap(cn, nil)
	reason = c.because(cn.why(err))
	cn.tell(reason)
	cn.die()
	_ = cn.ws.Close() // unblocks the writer
	writer.Wait()
	cn.ending.reason = reason
	if !cn.welcomed.IsZero() {
		cn.ending.online = max(1, time.Since(cn.welcomed))
	}
	return cn.ending
}

// because is r, or that the client was closed, which explains everything else.
func (c *Client) because(r *Reason) *Reason {
	if c.ctx.Err() != nil {
		return &Reason{Kind: KindClient}
	}
	return r
}

func (c *Client) dial(ctx context.Context, url string) (*conn, *Reason) {
	cn := &conn{
		client: c, out: make(chan outgoing, maxQueued), pong: make(chan uint64, 4), gone: make(chan struct{}),
		bye: make(chan struct{}), acks: make(chan struct{}, 1),
	}
	dialer := websocket.Dialer{
		HandshakeTimeout: c.cfg.HandshakeTimeout,
		TLSClientConfig:  c.cfg.TLS,
		Subprotocols:     []string{zmsg.SubprotocolPB},
	}
	dial := c.cfg.Dialer
	if dial == nil {
		dialer.Proxy = http.ProxyFromEnvironment
		dial = new(net.Dialer).DialContext
	}
	var unwatch func() bool
	netDial := func(dialCtx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(dialCtx, network, addr)
		if err != nil {
			return nil, err
		}
		// The handshake does not watch ctx while it reads. dialCtx ends with the handshake, ctx does not.
		unwatch = context.AfterFunc(ctx, func() { _ = nc.Close() })
		cn.net = &watchedConn{Conn: nc}
		cn.net.timeout.Store(int64(c.cfg.HandshakeTimeout))
		return cn.net, nil
	}
	dialer.NetDialContext = netDial
	if u := packetsURL(url); u != nil {
		p, err := c.dialPackets(ctx, u, netDial)
		if unwatch != nil && !unwatch() && err == nil {
			_ = p.Close()
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, &Reason{Kind: KindDial, Err: err}
		}
		cn.ws = p
		return cn, nil
	}
	ws, resp, err := dialer.DialContext(ctx, url, c.cfg.Header)
	if unwatch != nil && !unwatch() && err == nil {
		_ = ws.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		r := &Reason{Kind: KindDial, Err: err}
		if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
			r.Code, r.Text = resp.StatusCode, wordsOf(resp)
			_ = resp.Body.Close()
		}
		return nil, r
	}
	if ws.Subprotocol() != zmsg.SubprotocolPB {
		_ = ws.Close()
		return nil, &Reason{Kind: KindProtocol, Text: "the server does not speak " + zmsg.SubprotocolPB}
	}
	ws.SetReadLimit(int64(c.cfg.MaxMessage))
	cn.ws = ws
	return cn, nil
}

// wordsOf returns what a server says about a websocket that it does not give, if that is a line for people; a page of a proxy is not.
func wordsOf(resp *http.Response) string {
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/plain" {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // Dial has them in memory
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(b), "")), "\n")
	if strings.ContainsFunc(line, unicode.IsControl) {
		return ""
	}
	return line
}

// online makes cn the connection that requests use.
func (c *Client) online(cn *conn) {
	c.stats.connects.Add(1)
	c.current.Store(cn)
	c.cfg.Logger.Info("connected", "session", cn.session.Ref.ID, "node", cn.session.Ref.Gate.ID, "user", cn.session.User)
	c.setState(State{Phase: Online, Session: cn.session})
}

// end closes the connection because of r.
func (cn *conn) end(r *Reason) {
	cn.mu.Lock()
	if cn.local == nil {
		cn.local = r
	}
	cn.mu.Unlock()
	cn.tell(r)
	_ = cn.ws.Close()
}

// tell tells the server why we close, if it is our decision, so that both sides know one reason.
func (cn *conn) tell(r *Reason) {
	var code int
	switch r.Kind {
	case KindProtocol:
		code = websocket.CloseProtocolError
	case KindSlow:
		code = websocket.ClosePolicyViolation
	case KindGoaway, KindClient:
		code = websocket.CloseNormalClosure
	case KindHandshake:
		code = websocket.CloseTryAgainLater // no goodbye: the session may be there, and is to be had by the next try
	default:
		return
	}
	_ = cn.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, string(r.Kind)),
		time.Now().Add(closeTimeout/4))
}

// goodbye ends the connection politely: what waits to be written is, then a close frame, which the server answers.
func (cn *conn) goodbye() {
	// A server that does not answer is not waited for. The timer is harmless on a connection that has ended.
	time.AfterFunc(closeTimeout, func() { _ = cn.ws.Close() })
	cn.byeOnce.Do(func() { close(cn.bye) })
	cn.mu.Lock()
	early := cn.state == open && cn.session.Heartbeat == 0 // no writer yet
	cn.mu.Unlock()
	if early {
		cn.tell(&Reason{Kind: KindClient})
		_ = cn.ws.Close()
	}
}

// why finds the reason for the end of reading.
func (cn *conn) why(err error) *Reason {
	cn.mu.Lock()
	local := cn.local
	cn.mu.Unlock()
	if local != nil {
		return local
	}
	var ce *websocket.CloseError
	if r := cn.ending.reason; r != nil { // the server announced it
		if errors.As(err, &ce) && r.Code == 0 {
			r.Code = ce.Code
		}
		return r
	}
	if r, ok := errors.AsType[*Reason](err); ok {
		return r
	}
	var ne net.Error
	switch {
	case errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure:
		return &Reason{Kind: cn.closedKind(), Code: ce.Code, Text: ce.Text}
	case errors.Is(err, websocket.ErrReadLimit):
		return &Reason{Kind: KindProtocol, Text: "a message above MaxMessage", Err: err}
	case errors.As(err, &ne) && ne.Timeout() && cn.welcomed.IsZero():
		return &Reason{Kind: KindHandshake, Text: "no Welcome in time", Err: err}
	case errors.As(err, &ne) && ne.Timeout():
		return &Reason{Kind: KindSilent, Err: err}
	default:
		return &Reason{Kind: KindLost, Err: err}
	}
}

func (cn *conn) closedKind() Kind {
	if cn.welcomed.IsZero() {
		return KindRefused
	}
	return KindClosed
}

// die has nothing more go out by cn.
func (cn *conn) die() {
	close(cn.gone)
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.state = dead
}

// watchedConn ends a read when nothing came for timeout.
type watchedConn struct {
	net.Conn
	timeout atomic.Int64 // nanoseconds
}

// Read reads what comes within the timeout.
func (w *watchedConn) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(time.Duration(w.timeout.Load()))); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

// control encodes a control frame.
func control(c *wirepb.Control) (zmsg.Frame, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend([]byte{}, c)
	return zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: b}, err
}
