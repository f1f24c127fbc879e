// Package memdisc is a zdiscovery.Discovery in memory: a Hub stands for the service, each Disc for a client. It is for
// tests and clusters inside one process, and can expire a lease or take the service away on command.
//
//	hub := memdisc.New()
//	disc := hub.Discovery()
//	...
//	hub.Expire("node-1") // as if its lease had ended
//
// Leases are renewed without messages: a member's lease runs out only while the service is away (SetUp), after its
// Disc is closed, or on command. Time is the standard clock, virtual in a testing/synctest bubble.
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
	downAt   time.Time
	revision int64
	members  map[string]*member
	changed  chan struct{} // closed and replaced at each change
}

// New makes a hub with leases of 10 s.
func New() *Hub { return NewTTL(10 * time.Second) }

// NewTTL makes a hub with leases of ttl.
func NewTTL(ttl time.Duration) *Hub {
	return &Hub{ttl: ttl, up: true, members: make(map[string]*member), changed: make(chan struct{})}
}

// Discovery makes a client.
func (h *Hub) Discovery() *Disc {
	ctx, cancel := context.WithCancel(context.Background())
	return &Disc{hub: h, ctx: ctx, cancel: cancel}
}

// SetUp takes the service away (false) or brings it back (true). A node whose lease ran out meanwhile is lost then.
func (h *Hub) SetUp(up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up == up {
		return
	}
	h.up = up
	if !up {
		h.downAt = time.Now()
		return
	}
	if time.Since(h.downAt) >= h.ttl {
		for _, m := range h.members {
			h.dropLocked(m)
		}
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

// dropLocked takes a member off the list and tells it.
func (h *Hub) dropLocked(m *member) {
	if h.members[m.ref.ID] != m {
		return
	}
	delete(h.members, m.ref.ID)
	m.end = time.Now()
	close(m.lost)
	h.changeLocked()
}

func (h *Hub) changeLocked() {
	h.revision++
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

	members []*member // guarded by hub.mu
}

var _ zdiscovery.Discovery = (*Disc)(nil)

// Join implements zdiscovery.Discovery.
func (d *Disc) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
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
		case !h.up:
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
	m := &member{disc: d, ref: ref, node: n, lost: make(chan struct{})}
	h.members[ref.ID] = m
	d.members = append(d.members, m)
	h.changeLocked()
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
	case !h.up:
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
			h.mu.Unlock()
			if s.Revision > seen {
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
	return d.hub.up && d.ctx.Err() == nil
}

// Close implements zdiscovery.Discovery: members that did not leave are like those of a process that died, their
// leases run out.
func (d *Disc) Close(context.Context) error {
	h := d.hub
	h.mu.Lock()
	d.cancel()
	members := d.members
	d.members = nil
	for _, m := range members {
		if h.members[m.ref.ID] != m {
			continue
		}
		m.dead = true
		m.end = time.Now().Add(h.safe())
		time.AfterFunc(h.ttl, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.dropLocked(m)
		})
	}
	h.mu.Unlock()
	d.wg.Wait()
	return nil
}

// safe is the part of a lease in which a member may act.
func (h *Hub) safe() time.Duration { return h.ttl * 6 / 10 }

// member is a place in the list. Its fields are guarded by hub.mu.
type member struct {
	disc *Disc
	ref  zmsg.NodeRef
	lost chan struct{}
	node zdiscovery.Node
	dead bool      // its Disc was closed
	end  time.Time // when it has to stop acting, where that is known
}

// Ref implements zdiscovery.Member.
func (m *member) Ref() zmsg.NodeRef { return m.ref }

// Lost implements zdiscovery.Member.
func (m *member) Lost() <-chan struct{} { return m.lost }

// Update implements zdiscovery.Member.
func (m *member) Update(ctx context.Context, n zdiscovery.Node) error {
	h := m.disc.hub
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.members[m.ref.ID] != m || m.dead:
		return zdiscovery.ErrLost
	case !h.up:
		return zdiscovery.ErrUnavailable
	}
	n.Ref = m.ref
	m.node = n
	h.changeLocked()
	return nil
}

// ServeUntil implements zdiscovery.Member.
func (m *member) ServeUntil() time.Time {
	h := m.disc.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !m.end.IsZero():
		return m.end
	case !h.up:
		return h.downAt.Add(h.safe())
	}
	return time.Now().Add(h.safe())
}

// Leave implements zdiscovery.Member.
func (m *member) Leave(ctx context.Context) error {
	h := m.disc.hub
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.members[m.ref.ID] != m {
		return nil
	}
	if !h.up {
		return zdiscovery.ErrUnavailable
	}
	delete(h.members, m.ref.ID)
	m.end = time.Now()
	h.changeLocked()
	return nil
}
