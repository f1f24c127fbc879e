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
//
// A session that goes on meanwhile, from B to C, leaves B as a link of a chain: what A still sends on, and then what has waited at B, goes on to C, and the
// word that this was all goes from A to B to C. Nobody overtakes on such a chain. docs/decisions/0029 says why.

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
	cameAt
	group string
}

// cameAt is a publish, and when it has come.
type cameAt struct {
	publish
	at int64
}

const (
	maxPublished  = 4096
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
	p.ring[p.next] = cameOf{cameAt{x, now}, grp.name}
	p.next = (p.next + 1) % maxPublished
	return x
}

// of returns what has come of late to the groups.
func (p *published) of(groups map[string]*group, now int64) (all []cameAt) {
	if len(groups) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ring { // the newest first
		c := &p.ring[(p.next-1-i+2*maxPublished)%maxPublished]
		if c.n == 0 || now-c.at > publishedFor {
			break
		}
		if groups[c.group] != nil {
			all = append(all, c.cameAt)
		}
	}
	return all
}

// overlap is for a session that has come from another gate, which sends on what is published to its groups until this one has its own subscriptions,
// and then says so (SESSION_OP_GROUPS). What comes here meanwhile waits, so that the order of each publisher holds. Guarded by the lock of the session's connection.
type overlap struct {
	had   map[publish]int64    // by the gate before, and when that was heard of
	gave  map[publish]struct{} // that this gate gave it without having waited; nil: none
	held  []*encoded
	bytes int
	over  bool // nothing waits any more; what it has had is remembered, since a gate may be slow with what has come to it
	until int64
	timer *time.Timer
}

const maxHad = 8192 // publishes; beyond, the wait ends early

// beginOverlapLocked begins to wait for the gate before.
func (s *Session) beginOverlapLocked(had []*wirepb.Published) {
	now := s.g.now()
	o := &overlap{had: make(map[publish]int64, len(had)), until: now + int64(publishOverlap+time.Second)}
	for _, p := range had {
		o.had[publish{zmsg.NodeRef{ID: p.GetNode(), Epoch: p.GetEpoch()}, p.GetNumber()}] = now - int64(p.GetAgeMs())*int64(time.Millisecond)
	}
	o.timer = time.AfterFunc(publishOverlap+time.Second, s.overlapLate)
	s.resume.overlap = o
	s.resume.passing.Store(true)
}

// publishedLocked is what the session has had of what was published of late, or has by this gate still. s.mu and the session's connection are held.
func (s *Session) publishedLocked(now int64) []cameAt {
	all := s.g.published.of(s.groups, now)
	o := s.resume.overlap
	if o == nil {
		return all
	}
	here := make(map[publish]struct{}, len(all))
	for _, p := range all {
		here[p.publish] = struct{}{}
	}
	for p, at := range o.had {
		if _, twice := here[p]; !twice && now-at <= publishedFor {
			all = append(all, cameAt{p, at})
		}
	}
	return all
}

// overlapsLocked reports that e, which was published to a group, is not to be sent now: it has come before, or waits.
func (s *Session) overlapsLocked(e *encoded) bool {
	if e.pub.n == 0 || s.resume == nil || s.resume.overlap == nil {
		return false
	}
	o := s.resume.overlap
	_, twice := o.had[e.pub]
	if e.sentOn { // also where it is among those that the gate before was about to give to its sessions when this one left
		_, twice = o.gave[e.pub]
	}
	switch {
	case twice:
		s.g.count.dropTwice.Inc()
		return true
	case e.sentOn:
		if len(o.had) <= maxHad {
			o.had[e.pub] = s.g.now()
		}
		return false
	case o.over:
		o.gaveLocked(e.pub)
		return false
	case len(o.held) >= s.g.cfg.KeepCount || o.bytes+e.weight() > s.g.cfg.KeepBytes || len(o.had) > maxHad:
		s.cutOverlapLocked()
		o.gaveLocked(e.pub)
		return false
	}
	x := *e
	x.keep()
	o.held = append(o.held, &x)
	o.bytes += x.weight()
	return true
}

// gaveLocked takes note of what is given ahead of what the gate before may send on, where it was not waited for that.
func (o *overlap) gaveLocked(p publish) {
	if o.gave != nil && len(o.gave) <= maxHad {
		o.gave[p] = struct{}{}
	}
}

// overlapLate is called when the gate before has not said for so long that it is done; or when it has, and what came twice has come.
func (s *Session) overlapLate() {
	c := s.lock()
	defer c.q.mu.Unlock()
	switch o := s.resume.overlap; {
	case o == nil || s.g.now() < o.until: // the timer runs again
	case o.over:
		s.resume.overlap = nil
	default:
		s.cutOverlapLocked()
	}
}

// cutOverlapLocked ends a wait for the gate before, which is slow, or gone: of what it was to send on something may be missing.
func (s *Session) cutOverlapLocked() {
	s.resume.overlap.gave = make(map[publish]struct{})
	s.g.log.Debug("the gate before is slow with what is published, or gone", "session", s.ref.ID, "generation", s.ref.Gen, "waiting", len(s.resume.overlap.held))
	s.gapLocked(s.c.Load(), &wirepb.Gap{})
	s.endOverlapLocked()
}

// endOverlap is endOverlapLocked for who has no lock.
func (s *Session) endOverlap() {
	c := s.lock()
	defer c.q.mu.Unlock()
	s.endOverlapLocked()
}

// endOverlapLocked has what has waited, and has not come by the gate before, be sent.
func (s *Session) endOverlapLocked() {
	if s.resume == nil || s.resume.overlap == nil || s.resume.overlap.over {
		return
	}
	o := s.resume.overlap
	held := o.held
	o.over, o.held, o.bytes, o.until = true, nil, 0, s.g.now()+publishedFor
	o.timer.Reset(time.Duration(publishedFor))
	c := s.c.Load()
	for _, e := range held { // in one piece: a write lets go of the lock, and what is published then would come between
		if _, twice := o.had[e.pub]; twice {
			s.g.count.dropTwice.Inc()
			continue
		}
		o.gaveLocked(e.pub)
		e.sentOn = true // to the gate where the session is, if it has gone on: there it has not come by itself
		s.giveLocked(c, e)
	}
	c.sentSoonLocked()
	s.resume.passing.Store(false)
	s.sayGroupsLocked()
}

// dropOverlapLocked is for a session that has ended.
func (s *Session) dropOverlapLocked() {
	if o := s.resume.overlap; o != nil {
		o.timer.Stop()
		s.resume.overlap = nil
		s.resume.passing.Store(false)
	}
}
