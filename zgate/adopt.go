package zgate

import (
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// adopted goes on with a session whose gate has left it behind: it was killed, or cut off, or has shut down. What this gate has is the word of the
// Directory that the user had such a session, whose client held that token, so it is the same session in its next generation. It keeps its id, by
// which objects of kinds that remember their clients' requests know one that is sent again (see ask). What its gate knew is lost: the client is told of a
// gap with an open end, and of each other request that it sends again that nobody knows whether it ran. With next, the Directory knows of another gate that has gone
// on with it. With none of the three the client gets a new one.
func (g *Gate) adopted(c *conn, user string, h *wirepb.Hello, t *token) (back *Session, next zmsg.SessionRef, why refusal, v *violation) {
	if g.cfg.Directory == nil || h.GetResumeWindowMs() == 0 {
		return nil, next, refusedExpired, nil
	}
	ref := zmsg.SessionRef{Gate: g.self.Ref(), ID: t.ref.ID, Gen: t.ref.Gen + 1}
	s, a, v := g.startSession(c, user, h, ref, t)
	switch {
	case v != nil:
		return nil, next, granted, v
	case a == zmsg.Lapsed:
		s.undo(c)
		return nil, s.resume.elsewhere, refusedExpired, nil
	case a != zmsg.Admitted:
		turned := turnedAway(a)
		return nil, next, granted, &turned
	}
	s.adoptedBy(t)
	g.count.Gaps.Inc()
	s.open(c, s.welcome(true, granted), &wirepb.Control{Control: &wirepb.Control_Gap{Gap: &wirepb.Gap{First: h.GetLastPush() + 1}}})
	g.log.Debug("session of another gate resumed", "session", ref.ID, "user", user, "generation", ref.Gen, "gate", t.ref.Gate.String())
	return s, next, granted, nil
}

// adoptedBy has the client that has brought t, and for which the Directory has spoken, come back with it once more: its Welcome may be lost. Or with a
// newer one: which its gate has sent nobody knows, nor whether this one came late.
func (s *Session) adoptedBy(t *token) {
	c := s.lock()
	defer c.q.mu.Unlock()
	s.resume.asking = false
	s.wakeLocked()
	s.resume.secrets, s.resume.shown, s.resume.any = secrets{t.secret, *s.resume.secrets.newest()}, true, true
}

// undo takes back startSession for a connection that is to have another session.
func (s *Session) undo(c *conn) {
	c.q.mu.Lock()
	s.state = stateEnded
	s.resume.asking, s.resume.failed = false, true
	s.wakeLocked()
	c.dropLocked(false)
	c.q.queued, c.q.hold = 0, false
	c.session.Store(nil)
	c.q.mu.Unlock()
	s.end(ending{closedLost, "the session that it was to go on with is not known"})
	s.g.active.Add(-1)
}
