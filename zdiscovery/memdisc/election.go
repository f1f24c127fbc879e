package memdisc

import (
	"context"
	"slices"
	"time"

	"zgame/zdiscovery"
)

// candidate is a member's place in the line of those who want to lead a name. Its fields are guarded by hub.mu.
type candidate struct {
	m         *member
	name      string
	term      uint64
	lead      *leadership // nil until it leads
	withdrawn bool        // it is to leave the line, and could not tell the service yet
}

// unlineLocked takes c out of the line.
func (h *Hub) unlineLocked(c *candidate) {
	line := slices.DeleteFunc(slices.Clone(h.lines[c.name]), func(o *candidate) bool { return o == c })
	if h.lines[c.name] = line; len(line) == 0 {
		delete(h.lines, c.name)
	}
	h.wakeLocked()
}

// outLocked ends the candidate.
func (c *candidate) outLocked() {
	c.m.disc.hub.unlineLocked(c)
	if c.m.names[c.name] == c {
		delete(c.m.names, c.name)
	}
}

// withdrawLocked is outLocked, now or when the service can be told. It reports whether it could.
func (c *candidate) withdrawLocked() bool {
	if !c.m.disc.awayAt.IsZero() {
		c.withdrawn = true
		return false
	}
	c.outLocked()
	return true
}

// Campaign implements zdiscovery.Member.
func (m *member) Campaign(ctx context.Context, name string) (zdiscovery.Leadership, error) {
	if err := zdiscovery.CheckName(name); err != nil {
		return nil, err
	}
	h := m.disc.hub
	var c *candidate
	for {
		h.mu.Lock()
		l, err := m.campaignLocked(ctx, name, &c)
		if err != nil && c != nil {
			c.withdrawLocked()
		}
		changed := h.changed
		h.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-m.disc.ctx.Done():
		}
	}
}

// campaignLocked does what there is to do for c, which it makes: nil without an error is waiting.
func (m *member) campaignLocked(ctx context.Context, name string, c **candidate) (*leadership, error) {
	h := m.disc.hub
	other := m.names[name]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case m.disc.ctx.Err() != nil:
		return nil, zdiscovery.ErrClosed
	case m.left || m.dead || m.heard:
		return nil, zdiscovery.ErrLost
	case other != nil && other != *c && !other.withdrawn:
		return nil, zdiscovery.ErrCampaigning
	case !m.disc.awayAt.IsZero():
		return nil, nil
	}
	if *c == nil {
		h.terms++
		*c = &candidate{m: m, name: name, term: h.terms}
		m.names[name] = *c
		h.lines[name] = append(h.lines[name], *c)
		h.wakeLocked()
	}
	if h.lines[name][0] != *c {
		return nil, nil
	}
	(*c).lead = &leadership{c: *c, lost: make(chan struct{})}
	return (*c).lead, nil
}

// Leader implements zdiscovery.Discovery.
func (d *Disc) Leader(ctx context.Context, name string) (zdiscovery.Leader, error) {
	if err := zdiscovery.CheckName(name); err != nil {
		return zdiscovery.Leader{}, err
	}
	d.hub.mu.Lock()
	defer d.hub.mu.Unlock()
	switch line := d.hub.lines[name]; {
	case ctx.Err() != nil:
		return zdiscovery.Leader{}, ctx.Err()
	case d.ctx.Err() != nil:
		return zdiscovery.Leader{}, zdiscovery.ErrClosed
	case !d.awayAt.IsZero():
		return zdiscovery.Leader{}, zdiscovery.ErrUnavailable
	case len(line) > 0:
		return zdiscovery.Leader{Node: line[0].m.ref, Term: line[0].term}, nil
	}
	return zdiscovery.Leader{}, nil
}

// leadership is a candidate's time as the leader.
type leadership struct {
	c    *candidate
	lost chan struct{}
	end  time.Time // guarded by hub.mu; zero while it lasts
}

// endLocked may be called more than once, and for nil.
func (l *leadership) endLocked() {
	if l != nil && l.end.IsZero() {
		l.end = earlier(time.Now(), l.c.m.serveUntilLocked())
		close(l.lost)
	}
}

// Term implements zdiscovery.Leadership.
func (l *leadership) Term() uint64 { return l.c.term }

// Lost implements zdiscovery.Leadership.
func (l *leadership) Lost() <-chan struct{} { return l.lost }

// Until implements zdiscovery.Leadership.
func (l *leadership) Until() time.Time {
	l.c.m.disc.hub.mu.Lock()
	defer l.c.m.disc.hub.mu.Unlock()
	if !l.end.IsZero() {
		return l.end
	}
	return l.c.m.serveUntilLocked()
}

// Resign implements zdiscovery.Leadership.
func (l *leadership) Resign(ctx context.Context) error {
	m := l.c.m
	h := m.disc.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	l.endLocked()
	switch {
	case m.names[l.c.name] != l.c || m.left || m.heard: // it is out of the line
		return nil
	case m.disc.ctx.Err() != nil:
		return zdiscovery.ErrClosed
	case !l.c.withdrawLocked():
		return zdiscovery.ErrUnavailable
	}
	return ctx.Err()
}
