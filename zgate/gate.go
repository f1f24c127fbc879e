package zgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"zgame/internal/lograte"
	"zgame/zgate/internal/keep"
	"zgame/zmsg"
)

// Errors of a gate's life.
var (
	ErrStarted = errors.New("zgate: gate has been started before")
	ErrStopped = errors.New("zgate: gate is shut down")
)

// Gate is the server that clients connect to. Make one with New. All methods may be called from any goroutine.
type Gate struct {
	// Set at construction.
	cfg      Config
	log      *slog.Logger
	count    *counters
	upgrader websocket.Upgrader
	born     time.Time
	traces   uint64          // see conn.newTrace
	ctx      context.Context //nolint:containedctx // the gate's own life: ends when Shutdown cuts authenticators and subscriptions
	cancel   context.CancelCauseFunc
	wheel    *wheel
	allowed  *allowance
	guests   *allowance      // before login
	keep     keep.Limits     // of one session
	staying  context.Context //nolint:containedctx // ends when Shutdown begins
	leave    context.CancelFunc
	stopped  chan struct{} // closed when the wheel may end
	idle     chan struct{} // told when the last request ends while draining
	went     chan struct{} // told when a session has gone, while draining

	self      zmsg.Self
	sessions  sessions
	past      pastSessions
	groups    groups
	objects   boundObjects
	addresses addresses
	flush     flusher
	rebinds   rebinds
	published published

	// Atomic.
	draining        atomic.Bool
	handing         atomic.Bool  // Shutdown waits for other gates to take the sessions
	owed            atomic.Int64 // sessions that were handed over, and whose new gates have not said that they have them
	gone            atomic.Int64 // sessions that were handed over, and whose place is known still
	unauthenticated atomic.Int64 // connections that are no session yet
	active          atomic.Int64 // sessions with a connection
	suspended       atomic.Int64 // sessions without one
	kept            atomic.Int64 // bytes that sessions keep until they are acknowledged
	requests        atomic.Int64 // in flight
	noRouteLog      lograte.Limiter
	rateLog         lograte.Limiter
	refusedLog      lograte.Limiter
	originLog       lograte.Limiter
	encodeLog       lograte.Limiter
	loginLog        lograte.Limiter
	fenceLog        lograte.Limiter
	deaf            atomic.Bool // the last accept failed

	wg      sync.WaitGroup // every goroutine but the wheel's
	wheelWG sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // of websockets; nil: none
	packets  net.Listener // of the transport over bare TCP; nil: none
	conns    map[*conn]struct{}
	accepts  bucket
	started  bool

	counted bool // Shutdown waits for the goroutines that there are: none begins any more but by one of them
	asks    int  // of other gates that are being answered
	asked   asked
	// Sessions that other gates were asked for, and did not answer in time, and when.
	unanswered map[uint64]int64
}

// New makes a gate; Start opens it. The error names every fault of cfg.
func New(cfg Config) (*Gate, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Gate{
		cfg: cfg, log: cfg.Logger, count: newCounters(cfg.Metrics), born: time.Now(), traces: rand.Uint64(),
		stopped: make(chan struct{}), idle: make(chan struct{}, 1), went: make(chan struct{}, 1), conns: make(map[*conn]struct{}),
	}
	g.keep = keep.Limits{Count: cfg.KeepCount, Bytes: cfg.KeepBytes, Age: int64(cfg.KeepTime)}
	g.upgrader = websocket.Upgrader{
		ReadBufferSize:  512,
		WriteBufferSize: 256, // never used: what is written goes another way
		WriteBufferPool: &sync.Pool{},
		Subprotocols:    []string{"zgame.v1.pb"},

		EnableCompression: cfg.Compression,
		CheckOrigin:       func(*http.Request) bool { return true }, // readRequest has judged it
		Error:             handshakeFailed,
	}
	if cfg.AllowText {
		g.upgrader.Subprotocols = append(g.upgrader.Subprotocols, "zgame.v1.json")
	}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	g.staying, g.leave = context.WithCancel(g.ctx)
	g.allowed, g.guests = cfg.allowances()
	g.accepts = bucket{tokens: float64(cfg.AcceptBurst)}
	g.wheel = newWheel(g.now, g.fire)
	g.self.Set(cfg.Node)
	g.groups.g = g
	g.objects.g = g
	g.addresses.conns = make(map[netip.Addr]int)
	return g, nil
}

// now is the monotonic time since the gate was made, in nanoseconds.
func (g *Gate) now() int64 { return int64(time.Since(g.born)) }

// at is t on the scale of now.
func (g *Gate) at(t time.Time) int64 { return int64(t.Sub(g.born)) }

// Start listens and accepts; it returns when the port is open. ctx is for opening it alone. A gate is started once.
func (g *Gate) Start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.draining.Load():
		return ErrStopped
	case g.started:
		return ErrStarted
	}
	l, err := listen(ctx, "Addr", g.cfg.Addr, g.cfg.Listener)
	if err != nil {
		return err
	}
	p, err := listen(ctx, "TCPAddr", g.cfg.TCPAddr, g.cfg.TCPListener)
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		return err
	}
	g.listener, g.packets, g.started = l, p, true
	// Owned by the gate; ends when stopped is closed; Shutdown waits for it.
	g.wheelWG.Go(func() {
		g.wheel.run(g.stopped)
	})
	for _, l := range []net.Listener{g.listener, g.packets} {
		if l != nil {
			g.wg.Add(1)
			// Owned by the gate; ends when the listener is closed; Shutdown waits for it.
			go g.accept(l, l == g.packets)
		}
	}
	return nil
}

// listen opens addr where there is no listener; both may be missing.
func listen(ctx context.Context, field, addr string, l net.Listener) (net.Listener, error) {
	if l != nil || addr == "" {
		return l, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("zgate: cannot listen on %s (%s): %w", addr, field, err)
	}
	return l, nil
}

// Addr returns where the gate listens for websockets; nil before Start, and where it does not.
func (g *Gate) Addr() net.Addr { return g.addrOf(&g.listener) }

// TCPAddr returns where the gate listens for clients over bare TCP; nil before Start, and where it does not.
func (g *Gate) TCPAddr() net.Addr { return g.addrOf(&g.packets) }

func (g *Gate) addrOf(l *net.Listener) net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *l == nil {
		return nil
	}
	return (*l).Addr()
}

// Serving reports whether the gate accepts connections: it has started, is not shutting down, and its last accept did
// not fail.
func (g *Gate) Serving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.started && !g.draining.Load() && !g.deaf.Load()
}

// Sessions returns how many sessions there are, with and without a connection.
func (g *Gate) Sessions() int { return int(g.active.Load() + g.suspended.Load()) }

// Suspended returns how many sessions have no connection, and wait for their clients to come back.
func (g *Gate) Suspended() int { return int(g.suspended.Load()) }

// accept takes connections until the listener is closed.
func (g *Gate) accept(l net.Listener, packets bool) {
	defer g.wg.Done()
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			g.deaf.Store(false)
			g.admit(nc, packets)
			continue
		}
		if g.draining.Load() {
			return
		}
		g.deaf.Store(true)
		// Out of file descriptors, or a client that was gone at once: others may still come.
		pause = min(max(5*time.Millisecond, 2*pause), time.Second)
		if _, ok := g.refusedLog.Allow(time.Now()); ok {
			g.log.Error("accept failed", "err", err, "pause", pause.String())
		}
		select {
		case <-time.After(pause):
		case <-g.staying.Done():
			return
		}
	}
}

// admit gives a new connection a goroutine, or closes it where a limit is reached.
func (g *Gate) admit(nc net.Conn, packets bool) {
	c := &conn{g: g, nc: nc, remote: addrPort(nc.RemoteAddr()), packets: packets}
	c.q.segs, c.q.hand = c.q.room[0:0:1], c.q.room[1:1:2]
	c.timer.conn = c
	c.heard.Store(g.now())
	c.control = bucket{tokens: controlBurst, last: g.now()}
	if sc, ok := nc.(syscall.Conn); ok && canTry && g.cfg.TLS == nil {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw, c.try, c.onRead = raw, c.tryWrite, c.readSome
		}
	}
	if reason := g.register(c); reason != "" {
		g.count.Refused.With(reason).Inc()
		if _, ok := g.refusedLog.Allow(time.Now()); ok {
			g.log.Warn("connection refused", "reason", reason, "remote", c.remote.String())
		}
		_ = nc.Close()
		return
	}
	// Owned by the gate; ends with the handshake, see serve; Shutdown waits for it.
	go func() {
		defer g.wg.Done()
		g.serve(c)
	}()
}

// register counts c against the limits; it returns the one that is reached. With none, g.wg is one up.
func (g *Gate) register(c *conn) (reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.draining.Load():
		return "draining"
	case g.unauthenticated.Load() >= int64(g.cfg.MaxUnauthenticated):
		return "unauthenticated"
	case len(g.conns) >= g.cfg.MaxSessions+g.cfg.MaxUnauthenticated:
		return "connections"
	case !g.countAddress(c, false):
		return "address"
	case g.cfg.AcceptRate > 0 && !g.accepts.take(g.now(), g.cfg.AcceptRate, g.cfg.AcceptBurst):
		g.uncountAddress(c)
		return "accept_rate"
	}
	g.unauthenticated.Add(1)
	g.count.Connections.Inc()
	g.conns[c] = struct{}{}
	g.wg.Add(1)
	c.enter(phaseHandshake, g.cfg.HandshakeTimeout)
	return ""
}

// closed forgets c, whose goroutine is about to end.
func (g *Gate) closed(c *conn) {
	c.phase.CompareAndSwap(phaseActive, phaseGone)
	c.endGuest()
	s := c.session.Load()
	how, suspended := c.finish()
	if suspended {
		s.tellState()
		g.log.Debug("session suspended", "session", s.ref.ID, "user", s.user, "code", int(how.code), "reason", how.code.String(),
			"text", how.text)
		c.ws = nil // it may be a while
		g.wheel.schedule(&c.timer, g.now())
	} else {
		g.wheel.remove(&c.timer)
		if c.upgraded {
			g.count.Closes.With(how.code.String()).Inc()
		}
		if s != nil {
			s.logEnd(how)
			s.end(how)
			g.active.Add(-1)
		}
	}
	g.uncountAddress(c)
	g.count.Connections.Dec()
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
	g.hasGone()
}

func (s *Session) logEnd(how ending) {
	s.g.log.Debug("session closed", "session", s.ref.ID, "user", s.user, "code", int(how.code), "reason", how.code.String(), "text", how.text)
}

// enter starts a phase that may last d.
func (c *conn) enter(phase int32, d time.Duration) {
	at := c.g.now() + int64(d)
	c.deadline.Store(at)
	c.phase.Store(phase)
	c.g.wheel.schedule(&c.timer, at)
}

// pingAfter is the silence after which the gate sends a ping: a quarter above Heartbeat, give or take a tenth, so that
// those who connected together do not go on together.
func (c *conn) pingAfter() time.Duration {
	h := c.g.cfg.Heartbeat
	return h + h*3/20 + rand.N(h/5+1)
}

// onTimer looks after a connection whose time has come; it returns when to do so again. It runs on the wheel's
// goroutine and does not block.
func (g *Gate) onTimer(c *conn, now int64) (next int64) {
	phase := c.phase.Load()
	if phase == phaseGone {
		s := c.session.Load()
		next = s.expire(now)
		if until := s.lapse(c, now); until > 0 {
			return min(next, until, s.age(now))
		}
		return 0 // it has ended, or another connection looks after it
	}
	if phase != phaseActive {
		if at := c.deadline.Load(); now < at {
			return at
		}
		switch {
		case phase == phaseHandshake:
			c.closingNow.Store(true)
			_ = c.nc.Close()
			return 0
		case phase == phaseLogin && c.close(CloseLoginTimeout, "no Hello within "+g.cfg.LoginTimeout.String(), closing{}):
		case phase == phaseAuth && c.close(CloseLoginTimeout, "login took too long", closing{}):
		default:
			_ = c.nc.Close() // closing for long enough
			return 0
		}
		c.deadline.Store(now + 2*int64(g.cfg.CloseTimeout))
		return c.deadline.Load()
	}
	s := c.session.Load()
	next = s.expire(now)
	s.age(now)
	heard := c.heard.Load()
	silent := time.Duration(now - heard)
	switch {
	case silent >= g.cfg.Timeout:
		if !c.close(CloseSilent, "nothing came for "+g.cfg.Timeout.String(), closing{}) {
			return next // closing already: its own limits hold
		}
		return next
	case silent >= g.cfg.Heartbeat*23/20:
		if c.pinged != heard {
			c.pinged = heard
			_ = c.send(opPing, nil, false)
		}
		return min(next, heard+int64(g.cfg.Timeout))
	}
	return min(next, heard+int64(c.pingAfter()))
}

// requestDone counts the end of a request in flight.
func (g *Gate) requestDone() {
	if g.requests.Add(-1) == 0 && g.draining.Load() {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// spread returns a part of DrainSpread.
func (g *Gate) spread() time.Duration { return rand.N(g.cfg.DrainSpread + 1) }

// Shutdown closes the gate: it stops accepting, lets requests in flight end (at most DrainTime), tells each client
// with code 3001 and a delay of its own when to connect again, writes what is queued, and waits until everything has
// ended. When ctx ends first it cuts what is left and says how many connections that were. It may be called more than
// once, and before Start.
//
// Where there are other gates that may take its sessions over (Config.Peers), the clients are told at once, and Shutdown waits until these gates have
// all sessions, at most DrainHandover; what is left then has ended.
func (g *Gate) Shutdown(ctx context.Context) error {
	hand := g.cfg.Peers != nil && g.cfg.ResumeWindow > 0 && g.cfg.DrainHandover > 0 && !g.draining.Load() && g.cfg.Peers.Others()
	if hand {
		g.handing.Store(true)
	}
	g.mu.Lock()
	first := !g.draining.Swap(true)
	if first {
		g.leave()
	}
	listeners := []net.Listener{g.listener, g.packets}
	if !g.started {
		listeners = []net.Listener{g.cfg.Listener, g.cfg.TCPListener}
	}
	for _, l := range listeners {
		if first && l != nil {
			_ = l.Close()
		}
	}
	conns := g.snapshotLocked()
	g.mu.Unlock()

	if first && hand {
		g.handAll(ctx, conns)
	}
	g.handing.Store(false)
	// Those without a session have nothing to wait for.
	for _, c := range conns {
		switch c.phase.Load() {
		case phaseActive:
		case phaseHandshake:
			c.closingNow.Store(true)
			_ = c.nc.Close()
		default:
			c.close(CloseShutdown, "shutting down", closing{delay: g.spread()})
		}
	}
	if first && g.requests.Load() > 0 {
		t := time.NewTimer(g.cfg.DrainTime)
		select {
		case <-g.idle:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	within := g.cfg.CloseTimeout
	if d, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(d))
	}
	g.mu.Lock()
	conns = g.snapshotLocked()
	g.mu.Unlock()
	for _, c := range conns {
		c.close(CloseShutdown, "shutting down", closing{delay: g.spread(), within: within})
	}
	for _, s := range g.sessions.all() {
		s.closeAway(CloseShutdown, "shutting down")
	}
	g.mu.Lock()
	g.counted = true
	g.mu.Unlock()

	// Owned by this call; ends when all others have.
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		g.mu.Lock()
		conns = g.snapshotLocked()
		g.mu.Unlock()
		g.cancel(ErrStopped)
		for _, c := range conns {
			c.closingNow.Store(true)
			_ = c.nc.Close()
		}
		<-done
		if len(conns) > 0 {
			err = fmt.Errorf("zgate: %d connections cut: %w", len(conns), context.Cause(ctx))
		}
	}
	g.cancel(ErrStopped)
	g.mu.Lock()
	select {
	case <-g.stopped:
	default:
		close(g.stopped)
	}
	g.mu.Unlock()
	g.wheelWG.Wait()
	return err
}

// handAll sends the clients away, and waits until other gates have taken their sessions, or those have ended.
func (g *Gate) handAll(ctx context.Context, conns []*conn) {
	wait := g.cfg.DrainHandover
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-left/3) // the rest needs time as well
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for _, c := range conns {
		c.close(CloseShutdown, "shutting down", closing{delay: g.spread()})
	}
	for {
		g.mu.Lock()
		left := len(g.conns) + g.asks
		g.mu.Unlock()
		if left == 0 && g.suspended.Load() == 0 && g.owed.Load() == 0 {
			return
		}
		select {
		case <-g.went:
		case <-late.C:
			g.count.handLeft.Add(float64(g.suspended.Load()))
			return
		case <-ctx.Done():
			return
		}
	}
}

// hasGone is called when a connection, a session or an answer has ended.
func (g *Gate) hasGone() {
	if g.handing.Load() {
		select {
		case g.went <- struct{}{}:
		default:
		}
	}
}

// begin counts a goroutine, or a call, that Shutdown is to wait for; false: it waits already, and what was to be done is not worth it any more. For who
// may be called from outside, or by a clock; whoever runs in a goroutine that counts adds to g.wg itself.
func (g *Gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.beginLocked()
}

func (g *Gate) beginLocked() bool {
	if g.counted {
		return false
	}
	g.wg.Add(1)
	return true
}

func (g *Gate) snapshotLocked() []*conn {
	conns := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	return conns
}
