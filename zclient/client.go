package zclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStarted is returned by a second Connect.
var ErrStarted = errors.New("zclient: Connect was called before")

// Client is one user's connection to a gate, which is made again when it is lost. Its methods may be called from any
// goroutine.
type Client struct {
	// Set at construction.
	cfg      Config
	handlers *handlers
	ctx      context.Context //nolint:containedctx // ends with Close; owned by this struct
	cancel   context.CancelCauseFunc
	loopDone chan struct{} // closed when the goroutine of loop has returned

	current atomic.Pointer[conn] // the connection while Online
	seq     atomic.Uint64        // of requests; never used twice, also over connections
	started atomic.Bool
	rtt     atomic.Int64 // nanoseconds
	waiting atomic.Int64 // requests that wait for a connection
	stats   struct{ connects, unhandled, badPushes, late, gaps, warnings, resumes, lost atomic.Uint64 }
	session session

	mu      sync.Mutex
	state   State         // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced at each change of state
}

// Stats counts what a client has seen.
type Stats struct {
	Connects      uint64 // logins that succeeded
	Unhandled     uint64 // pushes without a handler
	BadPushes     uint64 // pushes that are not what their id says
	Gaps          uint64 // notices that pushes of an object are missing, or may be
	Warnings      uint64 // of the gate, that the client sends too much
	Resumes       uint64 // of the logins, those that brought the session back
	Lost          uint64 // sessions that are over
	LateResponses uint64 // responses whose request had ended before
}

// errClosed is the cause of c.ctx's end.
var errClosed = errors.New("zclient: closed")

// Dial connects and logs in: New and Connect in one. Use the two to register handlers before the first push can come.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// New makes a client that is not connected yet. It fails on a Config with faults, naming them all.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.rand == nil {
		cfg.rand = rand.Float64
	}
	c := &Client{cfg: cfg, loopDone: make(chan struct{}), changed: make(chan struct{})}
	c.session.pending = map[uint64]*call{}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.handlers = newHandlers(c, cfg.MaxPushes)
	return c, nil
}

// Connect connects and logs in, and keeps the client connected from then on. It returns when the client is online. When
// it fails (a *Reason, or ctx's error), the client is closed. It may be called once.
func (c *Client) Connect(ctx context.Context) error {
	if c.started.Swap(true) {
		return ErrStarted
	}
	go c.handlers.run() // owned by c; ended by handlers.end, when loop returns
	go c.loop()         // owned by c; ended by Close or a final reason
	err := c.WaitOnline(ctx)
	if err != nil {
		_ = c.Close()
	}
	return err
}

// Close says goodbye to the gate and closes the connection; requests in flight end with CodeCancelled. It returns when
// the connection is closed. Handlers that run now, and those for what came before, may run on: see Done.
func (c *Client) Close() error {
	c.cancel(errClosed)
	if !c.started.Swap(true) { // never connected
		c.setState(State{Phase: Closed, Reason: &Reason{Kind: KindClient}})
		close(c.loopDone)
		close(c.handlers.done)
	}
	<-c.loopDone
	return nil
}

// Done is closed when the client is closed and the last handler has returned.
func (c *Client) Done() <-chan struct{} { return c.handlers.done }

// RTT is the round trip to the gate and back as last measured, 0 before the first time: at login and with each heartbeat.
func (c *Client) RTT() time.Duration { return time.Duration(c.rtt.Load()) }

// Session is what the gate said at the last login; zero before the first.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Session
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	return Stats{
		Connects: c.stats.connects.Load(), Unhandled: c.stats.unhandled.Load(), BadPushes: c.stats.badPushes.Load(), Gaps: c.stats.gaps.Load(),
		Warnings: c.stats.warnings.Load(), Resumes: c.stats.resumes.Load(), Lost: c.stats.lost.Load(), LateResponses: c.stats.late.Load(),
	}
}

// loop lives one connection after the other, never two at a time.
func (c *Client) loop() {
	defer close(c.loopDone)
	defer c.handlers.end()
	gates, failed, refreshed := newGates(c.cfg.where(), c.cfg.rand), 0, false
	url := gates.url()
	for {
		session := c.Session()
		c.setState(State{Phase: Connecting, Attempt: failed, Session: session})
		end := c.connect(url)
		if end.online > 0 {
			refreshed = false
		}
		// A credential that the gate does not take is asked for once more: it may have expired just now.
		again := end.reason.Code == codeUnauthorized && c.cfg.TokenFunc != nil && c.stats.connects.Load() > 0 && !refreshed
		refreshed = refreshed || again
		c.ended(end.reason, again)
		if end.online >= c.cfg.StableAfter {
			failed = 0
		}
		gates.ended(&end)
		session = c.Session()
		if end.reason.final() && !again || c.ctx.Err() != nil || (gates.left == 0 && c.stats.connects.Load() == 0 && !c.cfg.RetryFirst) {
			c.cfg.Logger.Info("client closed", "reason", string(end.reason.Kind), "code", end.reason.Code, "err", end.reason)
			c.session.fail(end.reason)
			c.setState(State{Phase: Closed, Reason: end.reason, Attempt: failed, Session: session})
			return
		}
		url = gates.url()
		delay := backoff(c.cfg.MinBackoff, c.cfg.MaxBackoff, failed, c.cfg.rand(), end.delay)
		if end.reason.Kind == KindGoaway {
			if failed == 0 {
				delay = 0 // it was waited for already; a second Goaway in a row backs off, though
			}
			if end.address != "" {
				url = end.address
			}
		}
		failed++
		c.cfg.Logger.Info("connection lost", "reason", string(end.reason.Kind), "code", end.reason.Code,
			"delay", delay, "attempt", failed, "err", end.reason)
		c.setState(State{Phase: Waiting, Reason: end.reason, Delay: delay, Attempt: failed, Session: session})
		t := time.NewTimer(delay)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			c.session.fail(&Reason{Kind: KindClient})
			c.setState(State{Phase: Closed, Reason: &Reason{Kind: KindClient}, Attempt: failed, Session: session})
			return
		}
	}
}
