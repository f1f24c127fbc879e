package natsbus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"zgame/zbus"
)

// directBytes is how much may have come from the socket at once for the reader itself to run a direct handler, in bytes.
const directBytes = 4 << 10

// receiver gives the messages of its subscriptions to a handler. All subscriptions share one channel: nats.go's reader
// puts each message into it in the order of the wire, and drops (counting it at the subscription) what finds it full.
//
// The handler runs on the receiver's goroutine, which the reader wakes when it has put something into the channel and comes back
// for more. A direct one runs on the reader itself where it is idle and little came: that saves the wake of a goroutine, which is
// most of what handling a lone message costs.
type receiver struct {
	bus    *Bus
	q      *queue
	h      func(zbus.Msg)
	direct bool
	kick   chan struct{} // of one place: something may wait
	stop   chan struct{} // closed by Close, after nothing can arrive any more
	done   chan struct{} // closed when the goroutine has ended

	turn sync.Mutex // held by who handles messages

	telling sync.Mutex // one at a time tells of drops

	mu      sync.Mutex // guards all below
	subs    map[string]*subscription
	told    int // drops that were reported
	retired int // drops of subscriptions that are gone
	closed  bool
}

type subscription struct {
	sub   *nats.Subscription
	count int
}

func newReceiver(b *Bus, h func(zbus.Msg), direct bool) *receiver {
	r := &receiver{
		bus: b, q: newQueue(b.cfg.Pending, b.cfg.PendingBytes), h: h, direct: direct,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		subs: make(map[string]*subscription),
	}
	go r.run() // owned by the receiver; ends when Close says so and nothing waits; Close waits for it
	return r
}

func (r *receiver) run() {
	defer close(r.done)
	for {
		select {
		case <-r.kick:
			r.handleAll()
		case <-r.stop:
			r.handleAll()
			r.countDrops()
			return
		}
	}
}

// handleAll handles what waits.
func (r *receiver) handleAll() {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.handleWaiting()
}

// handleWaiting is handleAll with turn held.
func (r *receiver) handleWaiting() {
	for m := r.q.next(); m != nil; m = r.q.next() {
		r.handle(m)
	}
	if r.q.losing.Load() {
		r.q.losing.Store(false)
		r.countDrops()
	}
}

// arrived is called by the reader when it comes back for more, having read n bytes last. relieve says that it is time to make
// room in the channel.
func (r *receiver) arrived(n int, relieve bool) {
	if len(r.q.ch) == 0 {
		return
	}
	if r.direct && n <= directBytes && r.turn.TryLock() {
		r.handleWaiting()
		r.turn.Unlock()
		return
	}
	if relieve {
		r.q.relieve()
	}
	r.wake()
}

// wake has the goroutine look.
func (r *receiver) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *receiver) handle(m *nats.Msg) {
	none := len(m.Data) == 0 && m.Header != nil && m.Header.Get("Status") == "503"
	r.h(zbus.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data, NoResponders: none})
	if r.q.losing.Load() {
		r.countDrops()
	}
}

// slow starts the counting of drops. It runs on nats.go's goroutine for events.
func (r *receiver) slow() {
	r.q.losing.Store(true)
	r.countDrops()
}

// countDrops reports the drops that were not reported yet.
func (r *receiver) countDrops() {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	total := r.retired + r.q.dropped()
	for _, s := range r.subs {
		n, _ := s.sub.Dropped()
		total += n
	}
	n := total - r.told
	if n > 0 {
		r.told = total
	}
	r.mu.Unlock()
	if n > 0 {
		if suppressed, ok := r.bus.slowLog.Allow(time.Now()); ok {
			r.bus.cfg.Logger.Warn("bus messages dropped: handler too slow", "count", n, "suppressed", suppressed)
		}
		r.bus.observers.Dropped(n)
	}
}

// has reports whether sub is one of r's.
func (r *receiver) has(sub *nats.Subscription) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.subs[sub.Subject]
	return ok && s.sub == sub
}

// Subscribe implements zbus.Receiver.
func (r *receiver) Subscribe(ctx context.Context, subject string) error {
	if !r.bus.closed.Load() && !r.bus.nc.IsConnected() {
		return zbus.ErrDown
	}
	r.mu.Lock()
	if r.closed || r.bus.closed.Load() {
		r.mu.Unlock()
		return zbus.ErrClosed
	}
	s := r.subs[subject]
	if s == nil {
		sub, err := r.bus.nc.ChanSubscribe(subject, r.q.ch)
		if err != nil {
			r.mu.Unlock()
			return r.bus.mapped(err)
		}
		s = &subscription{sub: sub}
		r.subs[subject] = s
	}
	s.count++
	r.mu.Unlock()
	// The server has handled the subscription when it has answered the ping behind it. A later call for the same
	// subject waits for its own.
	if err := r.bus.Flush(ctx); err != nil {
		r.remove(subject)
		return err
	}
	return nil
}

// Unsubscribe implements zbus.Receiver.
func (r *receiver) Unsubscribe(subject string) error {
	r.remove(subject)
	return nil
}

func (r *receiver) remove(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.subs[subject]
	if s == nil {
		return
	}
	if s.count--; s.count == 0 {
		r.dropLocked(subject, s)
	}
}

func (r *receiver) dropLocked(subject string, s *subscription) {
	_ = s.sub.Unsubscribe() // fails only where the connection is closed, and the subscription with it
	n, _ := s.sub.Dropped()
	r.retired += n
	delete(r.subs, subject)
}

// Close implements zbus.Receiver.
func (r *receiver) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for subject, s := range r.subs {
			r.dropLocked(subject, s) // nothing arrives in the channel from here on
		}
		close(r.stop)
	}
	r.mu.Unlock()
	r.bus.forget(r)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
