// Package natsbus is the zbus.Bus on NATS: core NATS, no JetStream.
//
//	bus, err := natsbus.New(natsbus.Config{URL: "nats://127.0.0.1:4222"})
//	...
//	err = bus.Ready(ctx) // New does not insist on a server; Ready waits for it
//
// # Promises
//
// Those of zbus.Bus. A receiver has one channel for all its subscriptions, so the order in which the connection
// brought the messages is the order in which its handler gets them. Nothing is buffered while the connection is down:
// Publish answers zbus.ErrDown. What was written shortly before the loss may or may not have arrived.
//
// # Goroutines
//
// nats.go runs a reader, a writer and a dispatcher of events for the connection, and a loop while it reconnects; each
// receiver has one goroutine, where its handler runs; the handler of a direct one runs on the reader where little came. All end
// with Close.
//
// # Failure
//
// A lost connection is made again for ever, also when the server refuses the credentials meanwhile. A receiver whose
// handler is too slow loses messages, by number or by size (Config.Pending); Events.Dropped tells how many. A write that
// failed or found no room in the socket for Config.WriteTimeout ends the connection, as what was published shortly before is lost.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"zgame/internal/lograte"
	"zgame/zbus"
)

// slowLogEvery is how often drops are logged at most.
const slowLogEvery = 10 * time.Second

// flushWithin bounds Flush and Subscribe where the context has no deadline: nats.go wants one.
const flushWithin = 30 * time.Second

// Bus is a connection to NATS. Make it with New.
type Bus struct {
	// Set at construction.
	cfg       Config
	nc        *nats.Conn
	observers zbus.Observers
	gone      chan struct{} // closed when nats.go has told its last event

	slowLog lograte.Limiter // set at construction

	writing   atomic.Int32                // writes to the socket that are on their way
	receivers atomic.Pointer[[]*receiver] // replaced with mu held
	closed    atomic.Bool
	isUp      atomic.Bool           // between up and down
	told      atomic.Bool           // as isUp, once observers were told: who waits for Ready and observes then is not told of the past
	lastErr   atomic.Pointer[error] // why the connection is down, as far as known

	mu      sync.Mutex                       // guards all below
	waiters []chan struct{}                  // Ready calls
	flushes map[*context.CancelFunc]struct{} // to be called when the connection is lost
}

var _ zbus.Direct = (*Bus)(nil)

// New makes the connection. It tries once before it returns; a server that is not there is no error, the attempts go
// on in the background: see Ready. Errors are those of the Config.
func New(cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, gone: make(chan struct{}), flushes: make(map[*context.CancelFunc]struct{})}
	b.slowLog.Every = slowLogEvery
	b.receivers.Store(&[]*receiver{})
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(cfg.ConnectTimeout),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(cfg.ReconnectWait),
		nats.ReconnectJitter(cfg.ReconnectWait/2, cfg.ReconnectWait/2),
		nats.ReconnectBufSize(-1),      // none: ErrDown at once instead
		nats.ReconnectOnFlusherError(), // a write that failed has lost what was published before: that ends the connection
		nats.SetCustomDialer(&dialer{net.Dialer{Timeout: cfg.ConnectTimeout}, b}),
		nats.PingInterval(cfg.PingInterval),
		nats.MaxPingsOutstanding(cfg.MaxPings),
		nats.FlusherTimeout(cfg.WriteTimeout),
		nats.SkipSubjectValidation(), // zbus subjects are made of valid tokens
		nats.ConnectHandler(b.up),
		nats.ReconnectHandler(b.up),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.down(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.lastErr.Store(&err) }),
		nats.LameDuckModeHandler(func(*nats.Conn) { b.leaving() }),
		nats.ErrorHandler(b.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(b.gone) }),
	}
	access, err := cfg.Access()
	if err != nil {
		return nil, err
	}
	opts = append(opts, access...)
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("natsbus: %s: %w", cfg.where(), err)
	}
	b.nc = nc
	return b, nil
}

// Ready waits until the connection is there. Its error names the servers, wraps zbus.ErrDown and the context's error, and a
// *RefusedError where the server, or its certificate, was why.
func (b *Bus) Ready(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.closed.Load() {
			b.mu.Unlock()
			return zbus.ErrClosed
		}
		if b.told.Load() && b.Up() {
			b.mu.Unlock()
			return nil
		}
		wait := make(chan struct{})
		b.waiters = append(b.waiters, wait)
		b.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			why := "no answer"
			last := b.nc.LastError()
			if p := b.lastErr.Load(); p != nil && *p != nil {
				last = *p
			}
			if refused := b.cfg.refused(last); refused != nil {
				return fmt.Errorf("natsbus: no connection to %s: %w: %w: %w", b.cfg.where(), refused, zbus.ErrDown, ctx.Err())
			}
			if last != nil {
				why = last.Error()
			}
			return fmt.Errorf("natsbus: no connection to %s (%s): %w: %w", b.cfg.where(), why, zbus.ErrDown, ctx.Err())
		}
	}
}

// Publish implements zbus.Bus.
func (b *Bus) Publish(subject, reply string, data []byte) error {
	var err error
	if reply == "" {
		err = b.nc.Publish(subject, data)
	} else {
		err = b.nc.PublishRequest(subject, reply, data)
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		// The write was cut, or there was no room for WriteTimeout; nats.go has thrown away what was published before, and in the
		// second case goes on. That must not pass in silence: the connection ends.
		_ = b.nc.ForceReconnect()
	}
	return b.mapped(err)
}

// arrived is called by nats.go's reader when it comes back for more: what it has read before, n bytes the last time, is in the
// channels of the receivers. relieve says that it is time to make room there.
func (b *Bus) arrived(n int, relieve bool) {
	for _, r := range *b.receivers.Load() {
		r.arrived(n, relieve)
	}
}

// TryPublish implements zbus.Direct. While a write to the socket is on its way, which may be waiting for room, Publish
// would wait for it.
func (b *Bus) TryPublish(subject, reply string, data []byte) (published bool, err error) {
	if b.writing.Load() > 0 {
		return false, nil
	}
	return true, b.Publish(subject, reply, data)
}

// mapped is err in the words of zbus.
func (b *Bus) mapped(err error) error {
	switch {
	case b.closed.Load():
		return zbus.ErrClosed
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
		return zbus.ErrDown
	case errors.Is(err, nats.ErrMaxPayload):
		return zbus.ErrTooLarge
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default: // a write that failed, a flush cut by the loss of the connection: the loss is noticed on its own
		return fmt.Errorf("%w: %w", zbus.ErrDown, err)
	}
}

// Receive implements zbus.Bus.
func (b *Bus) Receive(h func(zbus.Msg)) (zbus.Receiver, error) { return b.receive(h, false) }

// ReceiveDirect implements zbus.Direct: h runs on nats.go's reader where that saves a wake.
func (b *Bus) ReceiveDirect(h func(zbus.Msg)) (zbus.Receiver, error) { return b.receive(h, true) }

func (b *Bus) receive(h func(zbus.Msg), direct bool) (zbus.Receiver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return nil, zbus.ErrClosed
	}
	r := newReceiver(b, h, direct)
	list := append(slices.Clone(*b.receivers.Load()), r)
	b.receivers.Store(&list)
	return r, nil
}

// forget takes r away, which is closed.
func (b *Bus) forget(r *receiver) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*b.receivers.Load()), func(o *receiver) bool { return o == r })
	b.receivers.Store(&list)
}

// Observe implements zbus.Bus.
func (b *Bus) Observe(e zbus.Events) (stop func()) { return b.observers.Add(e) }

// MaxPayload implements zbus.Bus. Before the first connection it is NATS's default of 1 MiB.
func (b *Bus) MaxPayload() int {
	if n := b.nc.MaxPayload(); n > 0 {
		return int(n)
	}
	return 1 << 20
}

// Up implements zbus.Bus. After the loss of a connection it is true again when the server has the subscriptions.
func (b *Bus) Up() bool { return b.isUp.Load() && b.nc.IsConnected() }

// Flush implements zbus.Bus.
func (b *Bus) Flush(ctx context.Context) error {
	if b.closed.Load() {
		return zbus.ErrClosed
	}
	within := flushWithin
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end)
	}
	// A flush that begins when nats.go has just lost the connection, and cleared those that waited, would wait for the next one. So
	// the loss cancels it: either it is registered before that is told, or the connection is seen to be gone.
	cut, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	b.mu.Lock()
	b.flushes[&cancel] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.flushes, &cancel)
		b.mu.Unlock()
	}()
	if !b.nc.IsConnected() {
		return zbus.ErrDown
	}
	err := b.nc.FlushWithContext(cut)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return zbus.ErrDown
	}
	return b.mapped(err)
}

// Close implements zbus.Bus.
func (b *Bus) Close(ctx context.Context) error {
	err := b.Flush(ctx)
	if errors.Is(err, zbus.ErrClosed) || errors.Is(err, zbus.ErrDown) {
		err = nil
	}
	b.mu.Lock()
	b.closed.Store(true)
	all := *b.receivers.Load()
	waiters := b.waiters
	b.waiters = nil
	b.mu.Unlock()
	for _, w := range waiters {
		close(w)
	}
	for _, r := range all {
		if e := r.Close(ctx); e != nil {
			err = e
		}
	}
	b.nc.Close()
	select {
	case <-b.gone:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return err
}

// The functions below run on nats.go's goroutine for events, one at a time.

func (b *Bus) up(nc *nats.Conn) {
	// nats.go has written the subscriptions to the socket; the answer to a ping behind them says that the server has
	// them. A server that is silent is waited for until nats.go gives the connection up (Config.PingInterval): then, as
	// where it is lost at once, that is told next, and up is called again for the connection after it.
	for answered := false; !answered; {
		if !nc.IsConnected() {
			return
		}
		err := nc.FlushTimeout(b.cfg.ConnectTimeout)
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			return
		}
		answered = err == nil
	}
	b.lastErr.Store(nil)
	b.isUp.Store(true)
	b.cfg.Logger.Info("bus connected", "url", b.cfg.where())
	b.observers.Up()
	b.mu.Lock()
	b.told.Store(true)
	waiters := b.waiters
	b.waiters = nil
	b.mu.Unlock()
	for _, w := range waiters {
		close(w)
	}
}

func (b *Bus) down(err error) {
	b.isUp.Store(false)
	b.told.Store(false)
	for _, r := range *b.receivers.Load() {
		r.wake() // the reader of the lost connection does not come back
	}
	b.mu.Lock()
	for cancel := range b.flushes {
		(*cancel)()
	}
	b.mu.Unlock()
	if b.closed.Load() {
		return
	}
	if err == nil {
		err = zbus.ErrDown
	}
	b.lastErr.Store(&err)
	b.cfg.Logger.Warn("bus connection lost", "url", b.cfg.where(), "err", err)
	b.observers.Down(err)
}

func (b *Bus) leaving() {
	b.cfg.Logger.Warn("bus server is going to stop", "url", b.cfg.where())
	b.observers.Leaving()
}

func (b *Bus) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) && sub != nil {
		for _, r := range *b.receivers.Load() {
			if r.has(sub) {
				r.slow()
			}
		}
		return
	}
	if !b.closed.Load() {
		b.cfg.Logger.Warn("bus error", "url", b.cfg.where(), "err", err)
		b.observers.Error(err)
	}
}
