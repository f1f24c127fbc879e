package zrouter

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// Objects of kinds with Settings.Remember are brought into memory again after their node has died, without a request: each by its home. What
// starts it is that a node is gone by the list of nodes, or that a record was claimed whose owner was dead, as after all have been
// started anew; then the store is asked once what that node owned. Nothing is looked for while nobody dies.

const (
	maxMourned   = 256                   // dead nodes whose objects were looked for: remembered, so that they are not again
	mournTries   = 10                    // of looking for what a node owned, where the store does not answer
	mournPause   = time.Second           // between them, doubled up to
	mournLong    = time.Minute           // this
	reviveTick   = 10 * time.Millisecond // how often some are begun
	reviveRounds = 3                     // how often an object is tried; then a request has it claimed
)

// mourning is what a set knows of dead nodes.
type mourning struct {
	mu      sync.Mutex
	known   []zmsg.NodeRef // the newest at the end
	early   []zmsg.NodeRef // of known: when their objects were looked for this node was nobody's home yet
	waiting []zmsg.NodeRef // of known: their objects are to be looked for
	runs    bool           // somebody does
}

// NodeGone tells the set that a node may be dead, so that objects of kinds with Remember are brought into memory again by their homes.
// Whether it is the list of nodes says. It does not wait.
func (s *ManagerSet) NodeGone(n zmsg.NodeRef) {
	if n.IsZero() || !s.remembers || s.closing.Load() {
		return
	}
	m := &s.mourning
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.known, n) {
		return
	}
	n = zmsg.NodeRef{ID: strings.Clone(n.ID), Epoch: n.Epoch}
	if len(m.known) >= maxMourned {
		m.forget(m.known[0])
	}
	m.known, m.waiting = append(m.known, n), append(m.waiting, n)
	if !m.runs {
		m.runs = true
		s.loader.do(func() func() { s.mourn(); return nil }) // ends when nothing waits, or with the set's life; Close waits for it
	}
}

// mourn looks for the objects of dead nodes, one node after the other.
func (s *ManagerSet) mourn() {
	m := &s.mourning
	for {
		m.mu.Lock()
		if len(m.waiting) == 0 || s.closing.Load() {
			m.waiting, m.runs = nil, false
			m.mu.Unlock()
			return
		}
		n := m.waiting[0]
		m.waiting = m.waiting[1:]
		if !s.isHome() {
			m.early = append(m.early, n)
		}
		m.mu.Unlock()
		began := s.clock.Now()
		var r revival
		for try := 1; ; try++ {
			err := s.lookForObjectsOf(n, &r)
			if err == nil {
				break
			}
			if try == mournTries || !s.pause(backoff(try, mournPause, mournLong)) {
				s.log.Warn("objects of a dead node are not looked for any more: requests bring them back", "dead", n.String(), "err", err)
				m.mu.Lock()
				m.forget(n)
				m.mu.Unlock()
				break
			}
		}
		s.revive(n, &r)
		if r.owned > 0 {
			s.log.Info("objects of a dead node are in memory again", "dead", n.String(), "it_had", r.owned, "here", r.back, "failed", r.failed,
				"took", s.clock.Now().Sub(began))
		}
	}
}

// forget lets a node be mourned again.
func (m *mourning) forget(n zmsg.NodeRef) {
	is := func(o zmsg.NodeRef) bool { return o == n }
	m.known, m.early = slices.DeleteFunc(m.known, is), slices.DeleteFunc(m.early, is)
}

// toldGone takes the word of another node that has looked for a dead node's objects, and found some whose home this one is.
func (s *ManagerSet) toldGone(n zmsg.NodeRef) {
	if !s.isPast(n) {
		return
	}
	m := &s.mourning
	m.mu.Lock()
	if slices.Contains(m.early, n) && s.isHome() {
		m.forget(n)
	}
	m.mu.Unlock()
	s.NodeGone(n)
}

// isHome reports whether objects of a kind with Remember may have their home here, by the list of nodes.
func (s *ManagerSet) isHome() bool {
	for _, n := range s.members.Nodes().Nodes {
		if s.self.Is(n.Ref) {
			return n.State == zdiscovery.Ready
		}
	}
	return false
}

// revival is what a dead node has left.
type revival struct {
	owned  int // of kinds with Remember
	keys   []zmsg.Key
	others map[zmsg.NodeRef]bool // the homes of the rest

	mu           sync.Mutex
	back, failed int
	again        []zmsg.Key
}

var errLives = errors.New("zrouter: the list of nodes does not prove that it is dead")

// isPast reports that a node never serves again, be it this one's own past.
func (s *ManagerSet) isPast(n zmsg.NodeRef) bool {
	self := s.self.Ref()
	return s.dead(n) || n.ID == self.ID && n.Epoch < self.Epoch
}

// lookForObjectsOf asks the stores what a node owned.
func (s *ManagerSet) lookForObjectsOf(n zmsg.NodeRef, r *revival) error {
	if !s.isPast(n) {
		return errLives
	}
	r.owned, r.keys, r.others = 0, nil, make(map[zmsg.NodeRef]bool)
	scan := func(store zstore.Store, of func(*kind) bool) error {
		return store.Scan(s.ctx, n, func(k zmsg.Key, _ zstore.Own) bool {
			kind := s.kinds[k.Type]
			if kind == nil || kind.set.Remember != On || !of(kind) {
				return true
			}
			r.owned++
			if home := s.home(k, 0); s.self.Is(home) {
				r.keys = append(r.keys, k)
			} else if !home.IsZero() {
				r.others[home] = true
			}
			return !s.closing.Load()
		})
	}
	shared := false
	for _, k := range s.kinds {
		switch {
		case k.set.Remember != On:
		case k.store == nil:
			shared = true
		default:
			if err := scan(k.store, func(o *kind) bool { return o == k }); err != nil {
				return err
			}
		}
	}
	if shared {
		return scan(s.store, func(o *kind) bool { return o.store == nil })
	}
	return nil
}

// revive brings the objects into memory, at most Settings.RememberRate in a second, and tells the homes of the others.
func (s *ManagerSet) revive(n zmsg.NodeRef, r *revival) {
	for home := range r.others { // one that has just been started does not know whom it replaces
		_ = s.link.SendControl(home, &zmsg.Envelope{ID: goneID, Owner: n}) // lost: it sees so by itself, or requests bring them back
	}
	per := max(1, s.settings.RememberRate*int(reviveTick)/int(time.Second))
	tick := max(reviveTick, time.Second/time.Duration(s.settings.RememberRate))
	for round := range reviveRounds {
		var begun sync.WaitGroup
		for i, k := range r.keys {
			if i > 0 && i%per == 0 && !s.pause(tick) || s.closing.Load() {
				break
			}
			if !s.self.Is(s.home(k, 0)) {
				continue // a node has come, and finds it by itself, or by a request
			}
			begun.Add(1)
			s.begin(k, order{req: entry.Req{Own: true}}, func(_ Route, err error) {
				s.kinds[k.Type].counts.revived(r.ended(k, err, round == reviveRounds-1))
				begun.Done()
			})
		}
		begun.Wait() // each ends: with the lease, the store's deadline, or the set
		r.keys, r.again = r.again, nil
		if len(r.keys) == 0 || s.closing.Load() || !s.pause(mournPause) {
			break
		}
	}
}

// ended takes how bringing an object back has ended, and returns what is counted of that: ok, failed, or nothing.
func (r *revival) ended(k zmsg.Key, err error, last bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.back++
		return "ok"
	case errors.Is(err, ErrMoved), errors.Is(err, ErrNotFound): // somebody else was faster
		return ""
	case last || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrBusy):
		r.failed++
		return "failed"
	default:
		r.again = append(r.again, k)
		return ""
	}
}
