package zgate

import (
	"strings"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// What is published to a group comes to each gate that has a member of it, in no order with the word that a session goes from one gate to another. So
// for a while both gates give the session what comes, the one before by forwarding it, and each publish has a name by which what comes twice is known.

// publishOverlap is how long the gate before sends on what is published to the groups of a session that went: longer than a subscription takes.
const publishOverlap = 5 * time.Second

// publish names one publish to a group: a node and what it counts; n 0: none.
type publish struct {
	node zmsg.NodeRef
	n    uint64
}

// published is what of publishes has come of late. The zero value is empty.
type published struct {
	mu    sync.Mutex
	ring  []cameOf // nil: nothing yet
	next  int
	names map[zmsg.NodeRef]zmsg.NodeRef // so that what is kept aliases no envelope
}

type cameOf struct {
	publish
	group *group
	at    int64
}

const (
	maxPublished  = 1024
	publishedFor  = int64(2 * time.Second) // far longer than one publish takes to come to all gates
	maxPublishers = 4096
)

// add takes note of a publish, and returns its name, which may be kept.
func (p *published) add(grp *group, node zmsg.NodeRef, n uint64, now int64) publish {
	if n == 0 {
		return publish{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.names[node]
	if !ok {
		if p.names == nil || len(p.names) >= maxPublishers {
			p.names = make(map[zmsg.NodeRef]zmsg.NodeRef)
		}
		own = zmsg.NodeRef{ID: strings.Clone(node.ID), Epoch: node.Epoch}
		p.names[own] = own
	}
	x := publish{own, n}
	if p.ring == nil {
		p.ring = make([]cameOf, maxPublished)
	}
	p.ring[p.next] = cameOf{x, grp, now}
	p.next = (p.next + 1) % maxPublished
	return x
}

// of returns what has come of late to the groups.
func (p *published) of(groups map[string]*group, now int64) (all []publish) {
	if len(groups) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ring {
		c := &p.ring[i]
		if c.n != 0 && now-c.at <= publishedFor && groups[c.group.name] == c.group {
			all = append(all, c.publish)
		}
	}
	return all
}

// overlap is for a session that has come from another gate, which sends on what is published to its groups until this one has its own subscriptions,
// and then says so (SESSION_OP_GROUPS). What comes here meanwhile waits, so that the order of each publisher holds. Guarded by the lock of the session's connection.
type overlap struct {
	had   map[publish]struct{} // by the gate before
	held  []*encoded
	bytes int
	timer *time.Timer
}

const maxHad = 8192 // publishes; beyond, the wait ends early

// beginOverlapLocked begins to wait for the gate before.
func (s *Session) beginOverlapLocked(had []*wirepb.Published) {
	o := &overlap{had: make(map[publish]struct{}, len(had))}
	for _, p := range had {
		o.had[publish{zmsg.NodeRef{ID: p.GetNode(), Epoch: p.GetEpoch()}, p.GetNumber()}] = struct{}{}
	}
	o.timer = time.AfterFunc(publishOverlap+time.Second, s.endOverlap) // the gate before is gone
	s.resume.overlap = o
}

// overlapsLocked reports that e, which was published to a group, is not to be sent now: it has come before, or waits.
func (s *Session) overlapsLocked(e *encoded) bool {
	if e.pub.n == 0 || s.resume == nil || s.resume.overlap == nil {
		return false
	}
	o := s.resume.overlap
	_, twice := o.had[e.pub]
	switch {
	case e.sentOn: // also where it is among those that the gate before was about to give to its sessions when this one left
		o.had[e.pub] = struct{}{}
		return false
	case twice:
		s.g.count.dropTwice.Inc()
		return true
	case len(o.held) >= s.g.cfg.KeepCount || o.bytes+e.weight() > s.g.cfg.KeepBytes || len(o.had) > maxHad:
		s.endOverlapLocked()
		return false
	}
	x := *e
	x.keep()
	o.held = append(o.held, &x)
	o.bytes += x.weight()
	return true
}

// endOverlap is endOverlapLocked for who has no lock.
func (s *Session) endOverlap() {
	c := s.lock()
	defer c.q.mu.Unlock()
	if s.state != stateComing {
		s.endOverlapLocked()
	}
}

// endOverlapLocked has what has waited, and has not come by the gate before, be sent.
func (s *Session) endOverlapLocked() {
	if s.resume == nil || s.resume.overlap == nil {
		return
	}
	o := s.resume.overlap
	s.resume.overlap = nil
	o.timer.Stop()
	for _, e := range o.held {
		if _, twice := o.had[e.pub]; twice {
			s.g.count.dropTwice.Inc()
			continue
		}
		_ = s.pushLocked(e, false) // who is slow, or has ended, is counted
	}
}
