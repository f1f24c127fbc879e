package memdisc

import (
	"context"
	"slices"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// member is a place in the list. Its fields are guarded by hub.mu, but for the first three, which do not change.
type member struct {
	disc    *Disc
	ref     zmsg.NodeRef
	lost    chan struct{}
	node    zdiscovery.Node
	names   map[string]*candidate // that it leads or campaigns for
	dead    bool                  // its lease is not renewed any more: its Disc was closed, or it left while away
	left    bool                  // off the list by its own wish
	dropped bool                  // off the list by the end of its lease
	heard   bool                  // of that: lost is closed
	end     time.Time             // when it has to stop acting, where that is known
}

// Ref implements zdiscovery.Member.
func (m *member) Ref() zmsg.NodeRef { return m.ref }

// Lost implements zdiscovery.Member.
func (m *member) Lost() <-chan struct{} { return m.lost }

// hearLocked tells the member what happened while it was away.
func (m *member) hearLocked() {
	if m.dropped && !m.heard {
		m.heard = true
		close(m.lost)
		m.endLocked()
		m.forgetLocked()
	}
	for _, c := range m.names {
		if c.withdrawn {
			c.outLocked()
		}
	}
}

// endLocked ends all that the member leads.
func (m *member) endLocked() {
	for _, c := range m.names {
		c.lead.endLocked()
	}
}

// forgetLocked takes the member out of its Disc.
func (m *member) forgetLocked() {
	d := m.disc
	d.members = slices.DeleteFunc(slices.Clone(d.members), func(o *member) bool { return o == m })
}

// dieLocked is the death of the member's process, as the service sees it: its lease runs out.
func (m *member) dieLocked() {
	h := m.disc.hub
	m.endLocked()
	if m.dead || h.members[m.ref.ID] != m {
		return
	}
	since := time.Now() // of the last renewal
	if !m.disc.awayAt.IsZero() {
		since = m.disc.awayAt
	}
	m.dead = true
	m.end = since.Add(h.safe())
	time.AfterFunc(time.Until(since.Add(h.ttl)), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dropLocked(m)
	})
}

// Update implements zdiscovery.Member.
func (m *member) Update(ctx context.Context, n zdiscovery.Node) error {
	h := m.disc.hub
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case m.dead || m.left || m.heard:
		return zdiscovery.ErrLost
	case !m.disc.awayAt.IsZero():
		return zdiscovery.ErrUnavailable
	}
	n.Ref = m.ref
	m.node = n
	h.revision++
	h.wakeLocked()
	return nil
}

// ServeUntil implements zdiscovery.Member.
func (m *member) ServeUntil() time.Time {
	h := m.disc.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	return m.serveUntilLocked()
}

func (m *member) serveUntilLocked() time.Time {
	h := m.disc.hub
	switch {
	case !m.end.IsZero():
		return m.end
	case !m.disc.awayAt.IsZero():
		return m.disc.awayAt.Add(h.safe())
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
	m.endLocked()
	if h.members[m.ref.ID] != m {
		return nil
	}
	if !m.disc.awayAt.IsZero() {
		m.dieLocked()
		return zdiscovery.ErrUnavailable
	}
	delete(h.members, m.ref.ID)
	m.end, m.left = time.Now(), true
	for _, c := range m.names {
		c.outLocked()
	}
	m.forgetLocked()
	h.revision++
	h.wakeLocked()
	return nil
}
