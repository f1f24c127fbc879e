package zrouter

import (
	"slices"
	"strings"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// simMembers is the service of leases: who is alive, by its own clock.
type simMembers struct {
	w        *simWorld
	rate     float64
	revision int64
	alive    []*simLease // sorted by id
	ended    map[zmsg.NodeRef]bool
}

// simLease is a node's place in the list.
type simLease struct {
	ref   zmsg.NodeRef
	proc  *simProc
	until time.Duration // of the world
	node  zdiscovery.Node
}

// Rates of clocks are within maxRate of each other.
const maxRate = 1.6

func (w *simWorld) drawRate() float64 {
	if w.chance(0.3) {
		return 1
	}
	return 0.8 + w.rng.Float64()*(0.8*maxRate-0.8)*0.999
}

func (m *simMembers) init(w *simWorld) {
	m.w, m.rate, m.ended = w, w.drawRate(), make(map[zmsg.NodeRef]bool)
}

// lasts is how long a lease lasts, in the world.
func (m *simMembers) lasts() time.Duration { return time.Duration(float64(m.w.cfg.lease) / m.rate) }

func (m *simMembers) find(ref zmsg.NodeRef) *simLease {
	for _, l := range m.alive {
		if l.ref == ref {
			return l
		}
	}
	return nil
}

// join makes a process the node of its id, under a new epoch. The process that was it before is provably gone.
func (m *simMembers) join(p *simProc) zmsg.NodeRef {
	for _, l := range m.alive {
		if l.ref.ID == p.id {
			m.remove(l, "its id starts anew")
			break
		}
	}
	m.revision += int64(1 + m.w.rng.IntN(3))
	ref := zmsg.NodeRef{ID: p.id, Epoch: uint64(m.revision)}
	m.alive = append(m.alive, &simLease{ref: ref, proc: p, until: m.w.now + m.lasts(), node: zdiscovery.Node{Ref: ref, State: zdiscovery.Ready, Kinds: p.kinds}})
	slices.SortFunc(m.alive, func(a, b *simLease) int { return strings.Compare(a.ref.ID, b.ref.ID) })
	m.w.log("%s joins", ref)
	m.watchEnd(ref)
	m.changed()
	return ref
}

func (m *simMembers) watchEnd(ref zmsg.NodeRef) {
	l := m.find(ref)
	if l == nil {
		return
	}
	m.w.after(l.until-m.w.now, nil, func() {
		if l := m.find(ref); l != nil && l.until <= m.w.now {
			m.remove(l, "its lease is over")
			m.changed()
		} else {
			m.watchEnd(ref)
		}
	})
}

func (m *simMembers) remove(l *simLease, why string) {
	m.ended[l.ref] = true
	m.revision++
	m.alive = slices.DeleteFunc(m.alive, func(o *simLease) bool { return o == l })
	m.w.log("%s is off the list: %s", l.ref, why)
}

// draining says that a node takes nothing new.
func (m *simMembers) draining(ref zmsg.NodeRef) {
	if l := m.find(ref); l != nil {
		l.node.State = zdiscovery.Draining
		m.revision++
		m.changed()
	}
}

// leave ends a lease.
func (m *simMembers) leave(ref zmsg.NodeRef) {
	if l := m.find(ref); l != nil {
		m.remove(l, "it left")
		m.changed()
	}
}

// changed has every process learn of the list as it is now, sooner or later.
func (m *simMembers) changed() {
	s := m.snapshot()
	for _, p := range m.w.procs {
		if !p.dead {
			p.hear(s)
		}
	}
}

func (m *simMembers) snapshot() *zdiscovery.Snapshot {
	s := &zdiscovery.Snapshot{Revision: m.revision}
	for _, l := range m.alive {
		s.Nodes = append(s.Nodes, l.node)
	}
	return s
}

// valid reports whether a node may serve, as the world has it.
func (m *simMembers) valid(ref zmsg.NodeRef) bool { return m.find(ref) != nil }

// hear has the process learn of a list after a while, in order.
func (p *simProc) hear(s *zdiscovery.Snapshot) {
	w := p.w
	at := w.now + w.between(0, 20*time.Millisecond)
	if w.chance(0.3) && !w.calm {
		at += w.between(0, 2*time.Second)
	}
	if p.cutLease > at {
		at = p.cutLease + w.between(0, 100*time.Millisecond)
	}
	at = max(at, p.heard)
	p.heard = at
	w.after(at-w.now, p, func() {
		if p.snap != nil && p.snap.Revision >= s.Revision {
			return
		}
		old := p.snap
		p.snap = s
		_, left, _ := zdiscovery.Diff(old, s)
		for i := range left {
			p.lost(left[i].Ref)
		}
	})
}

// renew goes on renewing the lease of the process' identity.
func (p *simProc) renew() {
	w := p.w
	ref, sent := p.ref, p.local()
	if w.now >= p.cutLease && !w.chance(w.cfg.netLoss) {
		w.after(w.between(0, 10*time.Millisecond), nil, func() { // at the service
			l := w.members.find(ref)
			if l != nil {
				l.until = max(l.until, w.now+w.members.lasts())
			}
			if w.now < p.cutLease || w.chance(w.cfg.netLoss) {
				return
			}
			w.after(w.between(0, 10*time.Millisecond), p, func() {
				switch {
				case p.ref != ref || p.leaving:
				case l == nil:
					p.rejoin()
				default:
					p.serve(sent)
				}
			})
		})
	}
	w.after(p.world(w.cfg.lease/5), p, func() {
		if p.ref == ref && !p.leaving {
			p.renew()
		}
	})
}

// serve moves the end of the safe part of the lease, whose renewal was sent then.
func (p *simProc) serve(sent time.Time) {
	if until := sent.Add(p.w.cfg.lease * 6 / 10); until.After(p.until) {
		p.until = until
	}
}

// rejoin makes the process a new identity, after its lease was lost.
func (p *simProc) rejoin() {
	w := p.w
	if p.joining {
		return
	}
	p.joining = true
	w.after(w.between(0, w.cfg.lease/4), p, func() {
		p.joining = false
		if p.leaving {
			return
		}
		if w.now < p.cutLease {
			p.rejoin()
			return
		}
		sent := p.local()
		p.become(w.members.join(p))
		p.serve(sent)
		p.set.Rejoin(p.ref)
		p.renew()
	})
}

// ServeUntil implements Members.
func (p *simProc) ServeUntil() time.Time {
	if m := p.w.mutant; m != nil && m.serveOn {
		return p.local().Add(time.Hour)
	}
	return p.until
}

// Nodes implements Members.
func (p *simProc) Nodes() *zdiscovery.Snapshot {
	if m := p.w.mutant; m != nil && m.notFoundIsDead {
		if p.lied == nil || p.liedOf != p.snap {
			c := *p.snap
			c.Revision = 1 << 62
			p.lied, p.liedOf = &c, p.snap
		}
		return p.lied
	}
	return p.snap
}
