// Package memdisc is a zdiscovery.Discovery in memory: a Hub stands for the service, each Disc for a client. It is for
// tests and clusters inside one process, and can expire a lease or take the service away on command.
//
//	hub := memdisc.New()
//	disc := hub.Discovery()
//	...
//	hub.Expire("node-1") // as if its lease had ended
//	disc.SetUp(false)    // as if its network had been cut
//
// Leases are renewed without messages: a member's lease runs out only while the service is away (Hub.SetUp), or its Disc is
// cut off (Disc.SetUp), after its Disc is closed, or on command. Time is the standard clock, virtual in a
// testing/synctest bubble.
//
// # Goroutines
//
// One for each Watch, which ends with its context or Close; timers for leases that run out.
//
// # Failure
//
// Only what is asked for: while the service is away calls answer zdiscovery.ErrUnavailable, and leases run out.
package memdisc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Hub is the service in memory.
type Hub struct {
	ttl time.Duration

	mu       sync.Mutex // guards all below, and the fields of members
	up       bool
	revision int64  // of the list of nodes
	terms    uint64 // that have been given
	members  map[string]*member
	lines    map[string][]*candidate // who wants to lead a name, in the order of their terms: the first leads
	discs    map[*Disc]struct{}      // but those that are closed
	changed  chan struct{}           // closed and replaced when anything above changes, or who is away
}

// New makes a hub with leases of 10 s.
func New() *Hub { return NewTTL(10 * time.Second) }

// NewTTL makes a hub with leases of ttl.
func NewTTL(ttl time.Duration) *Hub {
	return &Hub{
		ttl: ttl, up: true, members: make(map[string]*member), lines: make(map[string][]*candidate), discs: make(map[*Disc]struct{}),
		changed: make(chan struct{}),
	}
}

// Discovery makes a client.
func (h *Hub) Discovery() *Disc {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Disc{hub: h, ctx: ctx, cancel: cancel}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.discs[d] = struct{}{}
	h.reachLocked(d)
	return d
}

// SetUp takes the service away (false) or brings it back (true). A node whose lease ran out meanwhile is lost then.
func (h *Hub) SetUp(up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up = up
	for d := range h.discs {
		h.reachLocked(d)
	}
}

// reachLocked notes whether d reaches the service now.
func (h *Hub) reachLocked(d *Disc) {
	if h.up && !d.cut {
		h.sweepLocked(d)
		d.awayAt = time.Time{}
		for _, m := range d.members {
			m.hearLocked()
		}
	} else if d.awayAt.IsZero() {
		d.awayAt = time.Now()
		time.AfterFunc(h.ttl, func() { // does nothing if d was back meanwhile
			h.mu.Lock()
			defer h.mu.Unlock()
			h.sweepLocked(d)
		})
	} else {
		h.sweepLocked(d)
	}
	h.wakeLocked()
}

// sweepLocked ends d's leases if they have run out, and the service is there to see it.
func (h *Hub) sweepLocked(d *Disc) {
	if !h.up || d.awayAt.IsZero() || time.Since(d.awayAt) < h.ttl {
		return
	}
	for _, m := range slices.Clone(d.members) {
		h.dropLocked(m)
	}
}

// Expire ends the lease of a node. It reports false when there is no such node.
func (h *Hub) Expire(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[id]
	if m == nil {
		return false
	}
	h.dropLocked(m)
	return true
}

// dropLocked takes a member off the list, and tells it if it can be told.
func (h *Hub) dropLocked(m *member) {
	if h.members[m.ref.ID] != m {
		return
	}
	delete(h.members, m.ref.ID)
	m.end = earlier(time.Now(), m.serveUntilLocked())
	m.dropped = true
	for _, c := range m.names {
		h.unlineLocked(c)
	}
	if m.disc.awayAt.IsZero() {
		m.hearLocked()
	}
	h.revision++
	h.wakeLocked()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (h *Hub) wakeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Hub) snapshotLocked() *zdiscovery.Snapshot {
	s := &zdiscovery.Snapshot{Revision: h.revision}
	for _, m := range h.members {
		s.Nodes = append(s.Nodes, m.node)
	}
	slices.SortFunc(s.Nodes, func(a, b zdiscovery.Node) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	return s
}

// Disc is a client of a Hub.
type Disc struct {
	hub    *Hub
	ctx    context.Context //nolint:containedctx // the client's life: ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Guarded by hub.mu.
	cut     bool
	awayAt  time.Time // since when it has not reached the service; zero: it does
	members []*member
}

var _ zdiscovery.Discovery = (*Disc)(nil)

// SetUp cuts this client off from the service (false) or ends that (true): its leases run out meanwhile, for the others to see, and
// it learns of it when it is back.
func (d *Disc) SetUp(up bool) {
	d.hub.mu.Lock()
	defer d.hub.mu.Unlock()
	d.cut = !up
	d.hub.reachLocked(d)
}

// Join implements zdiscovery.Discovery.
func (d *Disc) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
	if err := zdiscovery.CheckID(n.Ref.ID); err != nil {
		return nil, err
	}
	h := d.hub
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		holder := h.members[n.Ref.ID]
		changed := h.changed
		switch {
		case d.ctx.Err() != nil:
			h.mu.Unlock()
			return nil, zdiscovery.ErrClosed
		case !d.awayAt.IsZero():
			h.mu.Unlock()
			return nil, zdiscovery.ErrUnavailable
		case holder == nil:
			m := d.joinLocked(n)
			h.mu.Unlock()
			return m, nil
		case !holder.dead:
			h.mu.Unlock()
			return nil, &zdiscovery.TakenError{Holder: holder.node}
		}
		h.mu.Unlock()
		select { // for the end of the dead holder's lease
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.ctx.Done():
		}
	}
}

func (d *Disc) joinLocked(n zdiscovery.Node) *member {
	h := d.hub
	// The epoch is the revision that the change below gives: greater than all before.
	ref := zmsg.NodeRef{ID: n.Ref.ID, Epoch: uint64(h.revision + 1)}
	n.Ref = ref
	m := &member{disc: d, ref: ref, node: n, lost: make(chan struct{}), names: make(map[string]*candidate)}
	h.members[ref.ID] = m
	d.members = append(d.members, m)
	h.revision++
	h.wakeLocked()
	return m
}

// Watch implements zdiscovery.Discovery.
func (d *Disc) Watch(ctx context.Context) (<-chan *zdiscovery.Snapshot, error) {
	h := d.hub
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case d.ctx.Err() != nil:
		return nil, zdiscovery.ErrClosed
	case !d.awayAt.IsZero():
		return nil, zdiscovery.ErrUnavailable
	}
	ch := zdiscovery.NewLatest()
	first, changed := h.snapshotLocked(), h.changed
	ch.Put(first)
	d.wg.Go(func() { // ends with ctx or the Disc; Close waits for it
		defer close(ch)
		seen := first.Revision
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-d.ctx.Done():
				return
			}
			h.mu.Lock()
			s := h.snapshotLocked()
			changed = h.changed
			away := !d.awayAt.IsZero()
			h.mu.Unlock()
			if !away && s.Revision > seen {
				seen = s.Revision
				ch.Put(s)
			}
		}
	})
	return ch, nil
}

// Up implements zdiscovery.Discovery.
func (d *Disc) Up() bool {
	d.hub.mu.Lock()
	defer d.hub.mu.Unlock()
	return d.awayAt.IsZero() && d.ctx.Err() == nil
}

// Close implements zdiscovery.Discovery: members that did not leave are like those of a process that died, their
// leases run out.
func (d *Disc) Close(context.Context) error {
	h := d.hub
	h.mu.Lock()
	d.cancel()
	delete(h.discs, d)
	for _, m := range d.members {
		m.dieLocked()
	}
	d.members = nil
	h.wakeLocked()
	h.mu.Unlock()
	d.wg.Wait()
	return nil
}

// safe is the part of a lease in which a member may act.
func (h *Hub) safe() time.Duration { return h.ttl * 6 / 10 }
