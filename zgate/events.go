package zgate

import (
	"slices"

	"zgame/zmsg"
)

// tellState tells who watches the session, or has it bound, whether its client is there, if that is another thing than they were told last. What
// has changed back before anybody was told is not told. The caller holds no lock.
//
// All that is told of a session goes out with telling held, so that its order is that in which it happened; its end and its move to another gate, which take
// the watchers away, wait for it.
func (s *Session) tellState() {
	if s.g.cfg.Tell == nil {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	c := s.lock()
	state, how := s.state, c.q.closed
	c.q.mu.Unlock()
	away := state == stateSuspended
	if away == s.away || state != stateSuspended && state != stateActive {
		return
	}
	s.away, s.awayHow = away, nil
	if away {
		s.awayHow = &how
	}
	for _, w := range s.listeners() {
		s.tellStateTo(w)
	}
}

// tellStateTo tells one of them. telling is held.
func (s *Session) tellStateTo(to zmsg.Address) {
	var m *zmsg.Message
	if s.away {
		m = zmsg.NewSessionSuspended(s.ref, s.user, s.awayHow.code.told(), s.awayHow.text, s.resume.window)
	} else {
		m = zmsg.NewSessionResumed(s.ref, s.user)
	}
	if err := s.g.cfg.Tell(to, m); err != nil {
		s.g.count.dropWatcher.Inc()
		m.Release()
	}
}

// told returns the code as actors are told: what is known to the gate alone is a connection that is gone.
func (c CloseCode) told() uint32 {
	if c < 1000 {
		return uint32(closedLost)
	}
	return uint32(c)
}

// watchAndTell is watch, which tells one that is not told of the session already that the client is away, if it is.
func (s *Session) watchAndTell(to zmsg.Address) (ended bool, err error) {
	s.telling.Lock() // who begins to watch while others are told is told once
	defer s.telling.Unlock()
	told := s.away && slices.Contains(s.listeners(), to)
	if ended, err = s.watch(to); s.away && !told && !ended && err == nil {
		s.tellStateTo(to)
	}
	return ended, err
}

// tellOwner tells one that has just got the session bound if the client is away, unless it watches, and was told.
func (s *Session) tellOwner(to zmsg.Address) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if !s.away {
		return
	}
	s.mu.Lock()
	watches := slices.Contains(s.watchers, to)
	s.mu.Unlock()
	if !watches {
		s.tellStateTo(to)
	}
}

// listeners returns who watches the session, and the owners of the objects that it is bound to.
func (s *Session) listeners() []zmsg.Address {
	s.mu.Lock()
	all, objects := slices.Clone(s.watchers), slices.Clone(s.objects)
	s.mu.Unlock()
	for _, o := range objects {
		o.mu.Lock()
		owner := o.owner
		o.mu.Unlock()
		if !owner.IsZero() && !slices.Contains(all, owner) {
			all = append(all, owner)
		}
	}
	return all
}
