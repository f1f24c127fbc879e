package membus

import (
	"context"
	"slices"
	"sync"

	"zgame/zbus"
)

// receiver is the ordered stream of a Bus.Receive.
type receiver struct {
	bus  *Bus
	done chan struct{} // closed when the goroutine has ended

	counts map[string]int // guarded by hub.mu: subscriptions by subject

	mu     sync.Mutex // guards all below; taken inside hub.mu
	wake   sync.Cond
	queue  []zbus.Msg
	drops  int
	closed bool
}

func newReceiver(b *Bus, h func(zbus.Msg)) *receiver {
	r := &receiver{bus: b, done: make(chan struct{}), counts: make(map[string]int)}
	r.wake.L = &r.mu
	go r.run(h) // owned by the receiver; ends when it is closed and empty; Close waits for it
	return r
}

// put appends m to the queue. It is called with the hub locked.
func (r *receiver) put(m zbus.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
	case len(r.queue) >= r.bus.hub.cfg.Queue:
		r.drops++
	default:
		r.queue = append(r.queue, m)
		r.wake.Signal()
	}
}

func (r *receiver) run(h func(zbus.Msg)) {
	defer close(r.done)
	var batch []zbus.Msg
	for {
		r.mu.Lock()
		for len(r.queue) == 0 && !r.closed {
			r.wake.Wait()
		}
		if len(r.queue) == 0 {
			r.mu.Unlock()
			return
		}
		batch, r.queue = r.queue, batch[:0]
		drops := r.drops
		r.drops = 0
		r.mu.Unlock()
		if drops > 0 {
			r.bus.observers.Dropped(drops)
		}
		for i := range batch {
			h(batch[i])
			batch[i] = zbus.Msg{}
		}
	}
}

// Subscribe implements zbus.Receiver.
func (r *receiver) Subscribe(ctx context.Context, subject string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h := r.bus.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	switch {
	case closed || r.bus.closed.Load():
		return zbus.ErrClosed
	case !r.bus.up.Load():
		return zbus.ErrDown
	}
	if r.counts[subject]++; r.counts[subject] == 1 {
		h.subs[subject] = append(h.subs[subject], r)
	}
	return nil
}

// Unsubscribe implements zbus.Receiver.
func (r *receiver) Unsubscribe(subject string) error {
	h := r.bus.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.counts[subject] > 1 {
		r.counts[subject]--
		return nil
	}
	r.dropLocked(subject)
	return nil
}

// dropLocked removes the subscription. The hub is locked.
func (r *receiver) dropLocked(subject string) {
	h := r.bus.hub
	delete(r.counts, subject)
	list := slices.DeleteFunc(h.subs[subject], func(o *receiver) bool { return o == r })
	if len(list) == 0 {
		delete(h.subs, subject)
	} else {
		h.subs[subject] = list
	}
}

// Close implements zbus.Receiver.
func (r *receiver) Close(ctx context.Context) error {
	h := r.bus.hub
	h.mu.Lock()
	for subject := range r.counts {
		r.dropLocked(subject)
	}
	h.mu.Unlock()
	r.mu.Lock()
	r.closed = true
	r.wake.Signal()
	r.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
