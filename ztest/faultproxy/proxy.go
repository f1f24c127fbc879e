package faultproxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/internal/freeport"
)

// dialWithin bounds how long the target may take to accept a connection.
const dialWithin = 10 * time.Second

// Proxy listens on loopback and passes what it gets to a target. Make it with Start. All methods may be called from any
// goroutine.
type Proxy struct {
	// Set at construction.
	tb     testing.TB
	target string
	addr   string
	ctx    context.Context //nolint:containedctx // the proxy's life: ends with Close
	cancel context.CancelFunc

	wg sync.WaitGroup // Add with mu held and closed false

	mu       sync.Mutex // guards all below; taken before a Conn's
	listener net.Listener
	closed   bool
	faults   [2]Fault // of new connections
	conns    []*Conn  // in the order of their coming
	resets   int      // calls of Reset: a connection that waits for the target was there before some of them
	accepted int
	failed   int
	past     [2]Bytes // of those that have ended
}

// Start starts a proxy to target, host:port, on a free port of 127.0.0.1 that nobody is given while the proxy refuses: who connects then
// does not meet another test's server. It closes with the test.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, target: target}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.listen(); err != nil {
		tb.Fatalf("faultproxy: %v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr is where clients connect, 127.0.0.1:port. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Set changes what is wrong with the directions d of all connections, those that are there and those that come.
func (p *Proxy) Set(d Dir, f Fault) {
	p.mu.Lock()
	p.setNew(d, f)
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.Set(d, f)
	}
}

// SetNew is Set for connections that come from now on; those that are there stay as they are.
func (p *Proxy) SetNew(d Dir, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setNew(d, f)
}

func (p *Proxy) setNew(d Dir, f Fault) { d.each(func(i int) { p.faults[i] = f }) }

// Heal takes all faults away, also Refuse. What cannot be made good stays: a connection whose bytes vanished is reset, and what
// was told to have ended has ended.
func (p *Proxy) Heal() {
	p.Set(Both, Fault{})
	p.Accept()
}

// Reset resets all connections that are there.
func (p *Proxy) Reset() {
	p.mu.Lock()
	p.resets++
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.Reset()
	}
}

// HalfClose is Conn.HalfClose for all connections that are there.
func (p *Proxy) HalfClose(d Dir) {
	for _, c := range p.Conns() {
		c.HalfClose(d)
	}
}

// Refuse has new connections refused, as by a machine on which nobody listens. Connections that are there stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// Accept ends Refuse. Should another process have taken the port meanwhile, it waits for it, and fails the test after ten seconds.
func (p *Proxy) Accept() {
	p.tb.Helper()
	for deadline := time.Now().Add(dialWithin); ; time.Sleep(5 * time.Millisecond) {
		err := p.listen()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.tb.Errorf("faultproxy: %v", err)
			return
		}
	}
}

// Cut is Refuse and Reset: the target is gone until Heal.
func (p *Proxy) Cut() {
	p.Refuse()
	p.Reset()
}

// Conns returns the connections that are there, oldest first.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

// Accepted counts the connections that reached the target, also those that have ended.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Failed counts the connections for which the target could not be dialed.
func (p *Proxy) Failed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Bytes counts those of the directions d of all connections, also of those that have ended.
func (p *Proxy) Bytes(d Dir) (sum Bytes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.each(func(i int) { sum.add(p.past[i]) })
	for _, c := range p.conns {
		sum.add(c.Bytes(d))
	}
	return sum
}

// Close ends all connections, and waits for the goroutines. It may be called more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.Refuse()
	for _, c := range p.Conns() {
		c.end(false)
	}
	p.wg.Wait()
}

// listen opens the port unless it is open, or the proxy closed.
func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	var l net.Listener
	var err error
	if p.addr == "" { // by Start: nobody else has the proxy yet
		if l, err = freeport.Listen(p.ctx); err == nil {
			p.addr = l.Addr().String()
		}
	} else {
		var lc net.ListenConfig
		l, err = lc.Listen(p.ctx, "tcp", p.addr)
	}
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) }) // ends with l: Refuse or Close
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		s, err := l.Accept()
		if err != nil {
			return
		}
		client, ok := s.(*net.TCPConn)
		if !ok {
			s.Close()
			continue
		}
		p.mu.Lock()
		resets, refused := p.resets, p.listener != l
		if !refused {
			p.wg.Go(func() { p.connect(client, resets) }) // ends when the target has answered, at most after dialWithin
		}
		p.mu.Unlock()
		if refused { // meanwhile
			reset(client)
		}
	}
}

// connect dials the target for a client that came after so many resets.
func (p *Proxy) connect(client *net.TCPConn, resets int) {
	d := net.Dialer{Timeout: dialWithin}
	s, err := d.DialContext(p.ctx, "tcp", p.target)
	p.mu.Lock()
	defer p.mu.Unlock()
	target, ok := s.(*net.TCPConn)
	switch {
	case !ok:
		if err != nil && !p.closed {
			p.failed++
		}
		reset(client)
	case p.closed || p.resets != resets:
		reset(client)
		reset(target)
	default:
		c := newConn(p, client, target, p.faults)
		p.conns = append(p.conns, c)
		p.accepted++
		c.run()
	}
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails on a socket that is closed
	_ = c.Close()
}

// forget notes that c has ended.
func (p *Proxy) forget(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		Both.each(func(i int) { p.past[i].add(c.Bytes(Up << i)) })
	}
}
