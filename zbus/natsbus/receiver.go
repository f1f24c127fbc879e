package natsbus

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"zgame/zbus"
)

// receiver gives the messages of its subscriptions to a handler. All subscriptions share one channel: nats.go's reader
// puts each message into it in the order of the wire, and drops (counting it at the subscription) what finds it full.
type receiver struct {
	bus  *Bus
	ch   chan *nats.Msg
	stop chan struct{} // closed by Close, after nothing can arrive any more
	done chan struct{} // closed when the goroutine has ended

	// losing is set while drops may go uncounted. nats.go tells of a slow consumer once for a run of drops of one
	// subscription, which is early but not complete. A drop happens only while the channel is full, and the next
	// message that the handler's goroutine takes then leaves at most one place free: it looks for that, and counts
	// from there on until it has found the channel empty. So no drop is missed.
	losing atomic.Bool

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

func newReceiver(b *Bus, h func(zbus.Msg)) *receiver {
	r := &receiver{
		bus: b, ch: make(chan *nats.Msg, b.cfg.Pending), stop: make(chan struct{}), done: make(chan struct{}),
		subs: make(map[string]*subscription),
	}
	go r.run(h) // owned by the receiver; ends when Close says so and the channel is empty; Close waits for it
	return r
}

func (r *receiver) run(h func(zbus.Msg)) {
	defer close(r.done)
	for {
		select {
		case m := <-r.ch:
			r.handle(m, h)
		case <-r.stop:
			for {
				select {
				case m := <-r.ch:
					r.handle(m, h)
				default:
					r.countDrops()
					return
				}
			}
		}
	}
}

func (r *receiver) handle(m *nats.Msg, h func(zbus.Msg)) {
	none := len(m.Data) == 0 && m.Header != nil && m.Header.Get("Status") == "503"
	if len(r.ch) >= cap(r.ch)-1 {
		r.losing.Store(true)
	}
	h(zbus.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data, NoResponders: none})
	if r.losing.Load() {
		if len(r.ch) == 0 {
			r.losing.Store(false)
		}
		r.countDrops()
	}
}

// slow starts the counting of drops. It runs on nats.go's goroutine for events.
func (r *receiver) slow() {
	r.losing.Store(true)
	r.countDrops()
}

// countDrops reports the drops that were not reported yet.
func (r *receiver) countDrops() {
	r.mu.Lock()
	total := r.retired
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
		r.bus.cfg.Logger.Warn("bus messages dropped: handler too slow", "count", n)
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
		sub, err := r.bus.nc.ChanSubscribe(subject, r.ch)
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
	r.bus.mu.Lock()
	delete(r.bus.receivers, r)
	r.bus.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
