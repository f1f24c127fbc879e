// Package membus is a zbus.Bus in memory: a Hub stands for the server, each Bus for a connection to it. It is for
// tests and for clusters inside one process, and can do on command what networks do by themselves: cut a connection,
// part two of them, lose single messages.
//
//	hub := membus.New()
//	a, b := hub.Bus(), hub.Bus()
//	hub.Partition(a, b, true) // nothing passes between a and b any more
//
// # Promises
//
// Those of zbus.Bus. A message is in the queue of each of its receivers before Publish returns, so there is one order
// of all messages of a hub, and virtual time (testing/synctest) works.
//
// # Goroutines
//
// One for each receiver; it ends with the receiver's Close or the bus's. Events are told from the goroutine that
// causes them.
//
// # Failure
//
// Only what is asked for: a bus that SetUp took down answers zbus.ErrDown; what Partition and Lose take away is lost in
// silence, as on a network.
package membus

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"zgame/zbus"
)

// Config are the limits of a hub.
type Config struct {
	// MaxPayload is the largest message in bytes. Defaults to 16 MiB, as the embedded NATS server.
	MaxPayload int
	// Queue is how many messages wait for a receiver; more are dropped and reported. Defaults to 65,536.
	Queue int
}

func (c Config) withDefaults() Config {
	if c.MaxPayload <= 0 {
		c.MaxPayload = 16 << 20
	}
	if c.Queue <= 0 {
		c.Queue = 1 << 16
	}
	return c
}

// Hub is the server in memory.
type Hub struct {
	cfg Config

	mu    sync.Mutex // guards all below, and the subscriptions of receivers
	subs  map[string][]*receiver
	buses map[*Bus]struct{}
	cuts  map[[2]*Bus]struct{}
	loses func(subject string, data []byte) bool
}

// New makes a hub with default limits.
func New() *Hub { return NewHub(Config{}) }

// NewHub makes a hub.
func NewHub(cfg Config) *Hub {
	return &Hub{
		cfg:   cfg.withDefaults(),
		subs:  make(map[string][]*receiver),
		buses: make(map[*Bus]struct{}),
		cuts:  make(map[[2]*Bus]struct{}),
	}
}

// Bus makes a connection to the hub. It is up.
func (h *Hub) Bus() *Bus {
	b := &Bus{hub: h}
	b.up.Store(true)
	h.mu.Lock()
	h.buses[b] = struct{}{}
	h.mu.Unlock()
	return b
}

// Subscriptions is how many subscriptions there are, over all buses.
func (h *Hub) Subscriptions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, list := range h.subs {
		n += len(list)
	}
	return n
}

// SetUp stops (false) or starts (true) the hub: all its buses lose or get their connection.
func (h *Hub) SetUp(up bool) {
	h.mu.Lock()
	all := make([]*Bus, 0, len(h.buses))
	for b := range h.buses {
		all = append(all, b)
	}
	h.mu.Unlock()
	for _, b := range all {
		b.SetUp(up)
	}
}

// Partition cuts (or joins again) a and b: what one publishes does not reach the other, and it is nobody to it, so
// that "no responders" is the answer where only the other would have listened.
func (h *Hub) Partition(a, b *Bus, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pair := range [][2]*Bus{{a, b}, {b, a}} {
		if cut {
			h.cuts[pair] = struct{}{}
		} else {
			delete(h.cuts, pair)
		}
	}
}

// Lose has f asked about every message; where it says true the message is lost on the way, without a word to anybody.
// Nil ends it. f is called with the hub locked: it must not call the hub or its buses.
func (h *Hub) Lose(f func(subject string, data []byte) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loses = f
}

// publish gives the message to all that subscribe and whom the publisher reaches.
func (h *Hub) publish(from *Bus, subject, reply string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loses != nil && h.loses(subject, data) {
		return
	}
	msg := zbus.Msg{Subject: strings.Clone(subject), Reply: strings.Clone(reply), Data: bytes.Clone(data)}
	n := h.deliverLocked(from, subject, msg, false)
	if i := strings.LastIndexByte(subject, '.'); i >= 0 {
		n += h.deliverLocked(from, subject[:i+1]+"*", msg, false)
	}
	if n > 0 || reply == "" {
		return
	}
	none := zbus.Msg{Subject: msg.Reply, NoResponders: true}
	h.deliverLocked(from, reply, none, true)
	if i := strings.LastIndexByte(reply, '.'); i >= 0 {
		h.deliverLocked(from, reply[:i+1]+"*", none, true)
	}
}

// deliverLocked gives msg to the subscribers of pattern, only those of the publisher itself where self is set.
func (h *Hub) deliverLocked(from *Bus, pattern string, msg zbus.Msg, self bool) (n int) {
	for _, r := range h.subs[pattern] {
		if r.bus != from {
			if _, cut := h.cuts[[2]*Bus{from, r.bus}]; cut || self || !r.bus.up.Load() {
				continue
			}
		}
		n++
		r.put(msg)
	}
	return n
}

// Bus is a connection to a Hub.
type Bus struct {
	hub       *Hub
	observers zbus.Observers
	up        atomic.Bool
	closed    atomic.Bool

	mu        sync.Mutex // guards receivers
	receivers []*receiver
}

var _ zbus.Bus = (*Bus)(nil)

// SetUp cuts the connection (false) or makes it again (true). Subscriptions outlive it; messages do not.
func (b *Bus) SetUp(up bool) {
	if b.closed.Load() || b.up.Swap(up) == up {
		return
	}
	if up {
		b.observers.Up()
	} else {
		b.observers.Down(fmt.Errorf("membus: cut by SetUp: %w", zbus.ErrDown))
	}
}

// Publish implements zbus.Bus.
func (b *Bus) Publish(subject, reply string, data []byte) error {
	switch {
	case b.closed.Load():
		return zbus.ErrClosed
	case !b.up.Load():
		return zbus.ErrDown
	case len(data) > b.hub.cfg.MaxPayload:
		return zbus.ErrTooLarge
	}
	b.hub.publish(b, subject, reply, data)
	return nil
}

// TryPublish implements zbus.Direct: Publish never waits.
func (b *Bus) TryPublish(subject, reply string, data []byte) (published bool, err error) {
	return true, b.Publish(subject, reply, data)
}

// ReceiveDirect implements zbus.Direct.
func (b *Bus) ReceiveDirect(h func(zbus.Msg)) (zbus.Receiver, error) { return b.Receive(h) }

// Receive implements zbus.Bus.
func (b *Bus) Receive(h func(zbus.Msg)) (zbus.Receiver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return nil, zbus.ErrClosed
	}
	r := newReceiver(b, h)
	b.receivers = append(b.receivers, r)
	return r, nil
}

// Observe implements zbus.Bus.
func (b *Bus) Observe(e zbus.Events) (stop func()) { return b.observers.Add(e) }

// MaxPayload implements zbus.Bus.
func (b *Bus) MaxPayload() int { return b.hub.cfg.MaxPayload }

// Up implements zbus.Bus.
func (b *Bus) Up() bool { return b.up.Load() && !b.closed.Load() }

// Flush implements zbus.Bus: Publish has delivered already.
func (b *Bus) Flush(ctx context.Context) error {
	switch {
	case b.closed.Load():
		return zbus.ErrClosed
	case !b.up.Load():
		return zbus.ErrDown
	}
	return ctx.Err()
}

// Close implements zbus.Bus.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed.Store(true)
	receivers := b.receivers
	b.mu.Unlock()
	var err error
	for _, r := range receivers {
		if e := r.Close(ctx); e != nil {
			err = e
		}
	}
	b.hub.mu.Lock()
	delete(b.hub.buses, b)
	for pair := range b.hub.cuts {
		if pair[0] == b || pair[1] == b {
			delete(b.hub.cuts, pair)
		}
	}
	b.hub.mu.Unlock()
	return err
}
