package zgate

import "sync"

// pastSessions remembers, for as long as they could have been resumed, how sessions ended whose clients may not know it: those that were sent away while they
// had no connection are told when they come back.
type pastSessions struct {
	mu sync.Mutex
	m  map[uint64]pastSession // by id
}

type pastSession struct {
	user    string
	secrets secrets
	how     ending
	until   int64
}

const maxPastSessions = 4096 // beyond, one goes for each that comes

func (p *pastSessions) add(id uint64, s pastSession, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		p.m = make(map[uint64]pastSession)
	}
	if len(p.m) >= maxPastSessions {
		for k, o := range p.m {
			if o.until < now {
				delete(p.m, k)
			}
		}
		for k := range p.m {
			if len(p.m) < maxPastSessions {
				break
			}
			delete(p.m, k)
		}
	}
	p.m[id] = s
}

// take returns how the session of user ended whose token has that secret, and forgets it.
func (p *pastSessions) take(id uint64, user string, t *secret, now int64) (how ending, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.m[id]
	if !ok || s.user != user || !s.secrets.has(t) {
		return how, false
	}
	delete(p.m, id)
	return s.how, s.until >= now
}

// has reports whether a session of the id has ended here.
func (p *pastSessions) has(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.m[id]
	return ok
}

// forget lets go what the session kept for its client, which does not come back to it.
func (s *Session) forget(how ending) {
	r := s.resume
	if r == nil {
		return
	}
	c := s.lock()
	s.g.kept.Add(-int64(r.log.Bytes() + r.latest))
	r.log.Clear()
	s.dropOverlapLocked()
	c.q.latest, r.latest = nil, 0
	p := pastSession{user: s.user, secrets: r.secrets, how: how, until: s.g.now() + int64(r.window)}
	told := !r.shown || how.code.Reconnect()
	c.q.mu.Unlock()
	if !told {
		s.g.past.add(s.ref.ID, p, s.g.now())
	}
}

// closeAway is Close for a session that is suspended; another one stays as it is.
func (s *Session) closeAway(code CloseCode, text string) {
	c := s.lock()
	if s.state != stateSuspended || s.resume.moving != nil {
		c.q.mu.Unlock()
		return
	}
	s.state = stateEnded
	c.q.mu.Unlock()
	s.endAway(c, ending{code, text})
}

// leaving reports whether the session is about to end.
func (s *Session) leaving() bool {
	if !s.c.Load().closingNow.Load() {
		return false
	}
	c := s.lock()
	defer c.q.mu.Unlock()
	return c.endedLocked() && s.state != stateSuspended && !s.outlivesLocked(c)
}
