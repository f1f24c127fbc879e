package zclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
)

// transport carries messages: a websocket, or packets over bare TCP. As with gorilla's, one goroutine reads and one writes messages; the others
// may be called from any.
type transport interface {
	// ReadMessage returns the next message. Errors: *websocket.CloseError for the other side's close, websocket.ErrReadLimit, or what reading says.
	ReadMessage() (typ int, b []byte, err error)
	WriteMessage(typ int, b []byte) error
	SetWriteDeadline(t time.Time) error
	// WriteControl writes a close or a pong, between messages.
	WriteControl(typ int, b []byte, deadline time.Time) error
	Close() error
}

var (
	_ transport = (*websocket.Conn)(nil)
	_ transport = (*packetConn)(nil)
)

// controlWait is how long the pong to a gate's ping may take.
const controlWait = time.Second

// packetConn is the transport over bare TCP: docs/wire.md.
type packetConn struct {
	net.Conn

	r     *bufio.Reader
	limit int           // of a message, in bytes
	turn  chan struct{} // holds one token: who has it writes
	lasts time.Time     // the deadline of messages; owned by who writes them
	head  []byte        // likewise
}

// dialPackets opens the transport to tcp://host:port or tcps://host:port with dial.
func (c *Client) dialPackets(ctx context.Context, u *url.URL, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (transport, error) {
	nc, err := dial(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "tcps" {
		cfg := c.cfg.TLS.Clone()
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if cfg.ServerName == "" {
			cfg.ServerName = u.Hostname()
		}
		t := tls.Client(nc, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, err
		}
		nc = t
	}
	if _, err := io.WriteString(nc, zmsg.SubprotocolPB+"\n"); err != nil {
		_ = nc.Close()
		return nil, err
	}
	p := &packetConn{Conn: nc, r: bufio.NewReader(nc), limit: c.cfg.MaxMessage, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p, nil
}

// packetsURL returns the address where it is one of this transport, else nil.
func packetsURL(s string) *url.URL {
	if u, err := url.Parse(s); err == nil && (u.Scheme == "tcp" || u.Scheme == "tcps") {
		return u
	}
	return nil
}

func (p *packetConn) ReadMessage() (typ int, b []byte, err error) {
	for {
		var h [10]byte
		if _, err := io.ReadFull(p.r, h[:2]); err != nil {
			return 0, nil, err
		}
		size := 2
		switch h[1] {
		case 126:
			size = 4
		case 127:
			size = 10
		}
		if _, err := io.ReadFull(p.r, h[2:size]); err != nil {
			return 0, nil, err
		}
		n := uint64(h[1])
		switch size {
		case 4:
			n = uint64(binary.BigEndian.Uint16(h[2:]))
		case 10:
			n = binary.BigEndian.Uint64(h[2:])
		}
		typ := int(h[0] & 0x0f)
		control := typ >= websocket.CloseMessage
		switch {
		case h[0]&0xf0 != 0x80 || h[1] > 127 || typ != websocket.TextMessage && typ != websocket.BinaryMessage && !control || typ > websocket.PongMessage || control && n > 125:
			return 0, nil, &Reason{Kind: KindProtocol, Text: "not a packet"}
		case n > uint64(p.limit):
			return 0, nil, websocket.ErrReadLimit
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(p.r, b); err != nil {
			return 0, nil, err
		}
		switch typ {
		case websocket.PingMessage:
			_ = p.WriteControl(websocket.PongMessage, b, time.Now().Add(controlWait))
		case websocket.PongMessage:
		case websocket.CloseMessage:
			_ = p.WriteControl(websocket.CloseMessage, b[:min(2, len(b))], time.Now().Add(controlWait))
			ce := &websocket.CloseError{Code: websocket.CloseNoStatusReceived}
			if len(b) >= 2 {
				ce.Code, ce.Text = int(binary.BigEndian.Uint16(b)), string(b[2:])
			}
			return 0, nil, ce
		default:
			return typ, b, nil
		}
	}
}

func (p *packetConn) SetWriteDeadline(t time.Time) error {
	p.lasts = t
	return nil
}

func (p *packetConn) WriteMessage(typ int, b []byte) error {
	p.head = append(p.head[:0], 0x80|byte(typ))
	switch n := len(b); {
	case n < 126:
		p.head = append(p.head, byte(n))
	case n < 1<<16:
		p.head = append(p.head, 126, byte(n>>8), byte(n))
	default:
		p.head = binary.BigEndian.AppendUint64(append(p.head, 127), uint64(n))
	}
	<-p.turn
	defer func() { p.turn <- struct{}{} }()
	return p.send(p.lasts, p.head, b)
}

func (p *packetConn) WriteControl(typ int, b []byte, deadline time.Time) error {
	if len(b) > 125 {
		return errors.New("zclient: a control packet of more than 125 bytes")
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-p.turn:
	case <-t.C:
		return context.DeadlineExceeded
	}
	defer func() { p.turn <- struct{}{} }()
	return p.send(deadline, append([]byte{0x80 | byte(typ), byte(len(b))}, b...))
}

// send writes the parts of one packet. A packet that is cut ends the connection: nothing behind it would be understood.
func (p *packetConn) send(deadline time.Time, parts ...[]byte) error {
	if err := p.Conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	buffers := net.Buffers(parts)
	_, err := buffers.WriteTo(p.Conn)
	if err != nil {
		_ = p.Close()
	}
	return err
}
