package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// MaxPayload is the largest NATS message of the embedded server, in bytes.
const MaxPayload = 16 << 20

// readyWithin bounds how long a server may take to answer after its start.
const readyWithin = 30 * time.Second

// NATS is a NATS server inside this process.
type NATS struct {
	srv  *server.Server
	port int
}

// StartNATS starts a NATS server on loopback with its JetStream store under dir and waits until it answers. Port 0
// takes a free one, as FreePort does. A port that is in use is an error that names it.
func StartNATS(dir string, port int) (*NATS, error) {
	return startNATS(dir, port, nil)
}

// StartNATSAuth is StartNATS for a server that asks for a user and a password.
func StartNATSAuth(dir string, port int, user, password string) (*NATS, error) {
	return startNATS(dir, port, func(o *server.Options) { o.Username, o.Password = user, password })
}

// StartNATSWith is StartNATS with options of the server changed by more.
func StartNATSWith(dir string, port int, more func(*server.Options)) (*NATS, error) {
	return startNATS(dir, port, more)
}

func startNATS(dir string, port int, more func(*server.Options)) (*NATS, error) {
	if dir == "" {
		return nil, errors.New("embedded: NATS needs a store directory")
	}
	return onPort(port, func(port int) (*NATS, error) { return startNATSOn(dir, port, more) })
}

func startNATSOn(dir string, port int, more func(*server.Options)) (*NATS, error) {
	opts := &server.Options{
		ServerName: "zgame-embedded",
		Host:       "127.0.0.1",
		Port:       port,
		NoSigs:     true,
		MaxPayload: MaxPayload,
		JetStream:  true,
		StoreDir:   dir,
		// Lame duck mode (see LameDuck): clients are told at once, and moved within the second after the grace period. A
		// grace period of nothing would cut clients whose notice is still in the server's buffer: they would never hear.
		LameDuckDuration:    3 * time.Second,
		LameDuckGracePeriod: 2 * time.Second,
	}
	if more != nil {
		more(opts)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded: NATS: %w", err)
	}
	log := &natsLog{}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if fatal := log.fatal(); fatal != "" || !srv.ReadyForConnections(readyWithin) {
		srv.Shutdown()
		srv.WaitForShutdown()
		if fatal == "" {
			fatal = "not ready within " + readyWithin.String()
		}
		return nil, fmt.Errorf("embedded: NATS on port %d, store %s: %s", port, dir, fatal)
	}
	n := &NATS{srv: srv}
	if a, ok := srv.Addr().(*net.TCPAddr); ok {
		n.port = a.Port
	}
	return n, nil
}

// URL is where clients connect, nats://127.0.0.1:port.
func (n *NATS) URL() string { return "nats://127.0.0.1:" + strconv.Itoa(n.port) }

// Port is the port it listens on.
func (n *NATS) Port() int { return n.port }

// Subscriptions is the number of subscriptions that clients hold now.
func (n *NATS) Subscriptions() int { return int(n.srv.NumSubscriptions()) }

// LameDuck makes the server tell its clients that it goes, move them away and stop, as an operator's `nats-server
// --signal ldm` does. It returns when the server is gone.
func (n *NATS) LameDuck() {
	n.srv.LameDuckShutdown()
	n.srv.WaitForShutdown()
}

// Stop ends the server and waits for its end. It may be called more than once.
func (n *NATS) Stop() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}

// natsLog swallows the server's log; it keeps the first fatal line, which is how nats-server tells that it could not
// start.
type natsLog struct {
	mu    sync.Mutex
	first string
}

func (l *natsLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// Fatalf keeps the first line.
func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = fmt.Sprintf(format, v...)
	}
}

// Noticef, Warnf, Errorf, Debugf and Tracef drop their line: who wants the log of NATS runs a server of its own.
func (*natsLog) Noticef(string, ...any) {}

// Warnf drops its line.
func (*natsLog) Warnf(string, ...any) {}

// Errorf drops its line.
func (*natsLog) Errorf(string, ...any) {}

// Debugf drops its line.
func (*natsLog) Debugf(string, ...any) {}

// Tracef drops its line.
func (*natsLog) Tracef(string, ...any) {}
