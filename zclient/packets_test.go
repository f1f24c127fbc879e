package zclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
)

// overTCP reports whether the clients of a test speak packets over bare TCP.
func overTCP(tb testing.TB) bool {
	tb.Helper()
	return strings.HasPrefix(tb.Name(), "TestOverTCP/")
}

// What holds for a client holds over bare TCP too.
func TestOverTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole of the others again")
	}
	for name, f := range map[string]func(*testing.T){
		"Pushes": TestPushes, "SlowHandler": TestSlowHandler, "CloseCodes": TestCloseCodes, "ServerDelayIsHonoured": TestServerDelayIsHonoured,
		"SlowWelcome": TestSlowWelcome, "Silence": TestSilence, "ServerPings": TestServerPings, "Goaway": TestGoaway, "GoawayInVain": TestGoawayInVain,
		"Close": TestClose, "CloseAgainstAMuteServer": TestCloseAgainstAMuteServer, "CloseWhileWaiting": TestCloseWhileWaiting,
		"Gap": TestGap, "Request": TestRequest, "Responses": TestResponses, "Order": TestOrder, "LostInFlight": TestLostInFlight,
		"NeverWritten": TestNeverWritten, "DeadlineAndCancel": TestDeadlineAndCancel, "Bounds": TestBounds, "Packing": TestPacking, "CutStorm": TestCutStorm,
		"CutsAreNotNoticed": TestCutsAreNotNoticed, "GapOfTheSession": TestGapOfTheSession, "TheServerEndsTheSession": TestTheServerEndsTheSession,
		"SessionLost": TestSessionLost, "WithoutResume": TestWithoutResume, "CloseEndsTheSession": TestCloseEndsTheSession, "Acks": TestAcks,
		"ExpiredCredential": TestExpiredCredential,
	} {
		t.Run(name, f)
	}
}

// serverSocket is either transport, at the server.
type serverSocket interface {
	transport
	NetConn() net.Conn
}

type packetServer struct{ *packetConn }

func (p packetServer) NetConn() net.Conn { return p.Conn }

func newPacketConn(nc net.Conn) *packetConn {
	p := &packetConn{Conn: nc, r: bufio.NewReader(nc), limit: 16 << 20, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// listenPackets serves clients over bare TCP until closePackets.
func (s *server) listenPackets() {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.packets = l
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	s.closePackets = func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for nc := range open {
			_ = nc.Close()
		}
	}
	s.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			s.wg.Go(func() {
				p := newPacketConn(nc)
				if line, err := p.r.ReadString('\n'); err != nil || line != zmsg.SubprotocolPB+"\n" {
					if err == nil {
						s.t.Errorf("opened with %q", line)
					}
					_ = nc.Close()
					return
				}
				s.read(packetServer{p})
			})
		}
	})
}

func TestPacketsOverTLS(t *testing.T) {
	s := newServer(t)
	secure := httptest.NewTLSServer(nil) // for its certificate
	defer secure.Close()
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: secure.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer front.Close()
	wg.Go(func() { // ends with the listener
		for {
			nc, err := front.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				p := newPacketConn(nc)
				if _, err := p.r.ReadString('\n'); err == nil {
					s.read(packetServer{p})
				}
			})
		}
	})
	url := "tcps://" + front.Addr().String()
	c, err := Dial(within(t), Config{URL: url, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Session().User != "ann" {
		t.Errorf("%+v", c.Session())
	}
	_ = c.Close()
	if _, err := Dial(within(t), Config{URL: url}); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

// What is no packet ends the reading, whatever it is, and never takes memory that has not come.
func FuzzPackets(f *testing.F) {
	f.Add([]byte("\x82\x03abc\x89\x01x\x88\x02\x03\xe8"))
	f.Add([]byte("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPacketConn(&readerConn{Reader: bytes.NewReader(b)})
		p.limit = 1 << 16
		for {
			typ, m, err := p.ReadMessage()
			if err != nil {
				return
			}
			if typ != websocket.BinaryMessage && typ != websocket.TextMessage || len(m) > p.limit {
				t.Fatalf("type %d, %d bytes", typ, len(m))
			}
		}
	})
}

// readerConn is a net.Conn of what a Reader has.
type readerConn struct {
	net.Conn
	io.Reader
}

func (c *readerConn) Read(b []byte) (int, error)     { return c.Reader.Read(b) }
func (*readerConn) Write(b []byte) (int, error)      { return len(b), nil }
func (*readerConn) SetWriteDeadline(time.Time) error { return nil }
func (*readerConn) Close() error                     { return nil }

// A control packet waits its turn, and not for ever.
func TestControlWaitsItsTurn(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	p := newPacketConn(a)
	<-p.turn // somebody writes
	if err := p.WriteControl(websocket.PongMessage, nil, time.Now().Add(10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err %v", err)
	}
	if err := p.WriteControl(websocket.PongMessage, make([]byte, 126), time.Now().Add(patience)); err == nil {
		t.Error("a long one was written")
	}
}
