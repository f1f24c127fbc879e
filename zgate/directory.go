package zgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Directory knows the sessions of each user, over all gates. zuser.Users satisfies it. Its methods may be called from many goroutines at once.
type Directory interface {
	// Bind makes a session known as one of its user's, or says why it is none; it is to bind the session to the object KeyOf names (Gate.Bind),
	// by which the gate sees that what the directory knew is lost: then it binds the session again, under the number it was given. It
	// may block until ctx ends. An error says that the directory could not be asked: one with CodeBadRequest that asking again helps nothing; but for
	// *zmsg.ElsewhereError: the session that it was to go on with goes on at another gate.
	Bind(ctx context.Context, l zmsg.Login) (number uint64, a zmsg.Admission, err error)
	// KeyOf returns the object that a user's sessions are bound to. It does not block.
	KeyOf(user string) zmsg.Key
}

// LoginPolicy says what becomes of a login of a user who has as many sessions as he may.
type LoginPolicy uint8

// The policies.
const (
	ReplaceOldest LoginPolicy = iota // the oldest session is closed (3504), wherever it is
	RefuseNewest                     // the new one is (3505)
)

// hold has what is sent to the connection wait for its welcome.
func (c *conn) hold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.q.hold = true
}

// release ends the hold: first goes ahead of what waits.
func (c *conn) release(first ...*wirepb.Control) {
	q := &c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hold {
		return // closed meanwhile
	}
	waits := q.segs
	q.hold, q.segs = false, nil
	for _, m := range first {
		c.controlLocked(m)
	}
	q.segs = append(q.segs, waits...)
	c.flushLocked()
}

// bindUser asks the Directory about the session of a new connection. A violation says that it could not be asked.
func (g *Gate) bindUser(c *conn, s *Session, before *token) (zmsg.Admission, *violation) {
	if g.cfg.Directory == nil {
		return zmsg.Admitted, nil
	}
	c.enter(phaseAuth, g.cfg.AuthTimeout+time.Second)
	number, a, err := g.askDirectory(g.ctx, s, before)
	c.readAt = time.Now() // what came with the Hello has its time from now on
	if e, ok := errors.AsType[*zmsg.ElsewhereError](err); ok && before != nil && e.Session.Gen > before.ref.Gen {
		s.resume.elsewhere = e.Session
		return zmsg.Lapsed, nil
	}
	switch {
	case err != nil && zmsg.CodeOf(err) == zmsg.CodeBadRequest:
		return a, &violation{CloseUnauthorized, "no id of a user: " + zmsg.ErrorReply(err).Text}
	case err != nil:
		c.close(CloseUnavailable, unavailable, closing{delay: time.Second/2 + rand.N(time.Second)})
		return a, &violation{CloseUnavailable, unavailable}
	case a == zmsg.Admitted:
		s.login.Store(number)
	}
	return a, nil
}

const unavailable = "logins are not possible now"

func turnedAway(a zmsg.Admission) violation {
	if a == zmsg.Refused {
		return violation{CloseRefused, "logged in elsewhere already"}
	}
	return violation{CloseReplaced, "logged in elsewhere"}
}

// askDirectory makes the session known, within AuthTimeout and while ctx lasts, as one that goes on with the session of the token before, if it is not nil.
func (g *Gate) askDirectory(ctx context.Context, s *Session, before *token) (number uint64, a zmsg.Admission, err error) {
	timed, cancel := context.WithTimeout(ctx, g.cfg.AuthTimeout)
	defer cancel()
	l := zmsg.Login{User: s.user, Session: s.ref, Number: s.login.Load(), Most: max(0, g.cfg.UserSessions), Refuse: g.cfg.SecondLogin == RefuseNewest}
	if s.resume != nil {
		own := s.lock()
		l.Window = s.resume.window
		if s.resume.key != (secret{}) { // else it is just coming
			l.Proof = s.resume.key.proof()
		}
		own.q.mu.Unlock()
	}
	if s.resume != nil && before == nil && s.resume.came != nil { // handed over: the directory may not know it by this name yet
		l.Resumes, l.Handed = *s.resume.came, true
	}
	if before != nil {
		l.Resumes, l.Claim = before.ref, before.key.proof()
	}
	number, a, err = g.cfg.Directory.Bind(timed, l)
	switch {
	case err != nil && ctx.Err() != nil: // the gate leaves: nobody asks any more
	case errors.As(err, new(*zmsg.ElsewhereError)):
		g.count.logins[zmsg.Lapsed].Inc()
	case err != nil:
		g.count.loginFailed.Inc()
		if suppressed, ok := g.loginLog.Allow(time.Now()); ok {
			g.log.Warn("the directory of users could not be asked", "user", s.user, "session", s.ref.ID, "err", err, "suppressed", suppressed)
		}
	case a == zmsg.Admitted && l.Number != 0:
		g.count.loginAgain.Inc()
	default:
		g.count.logins[a].Inc()
	}
	return number, a, err
}

// isUser reports whether an object is one that the Directory binds sessions to.
func (g *Gate) isUser(k zmsg.Key) bool {
	d := g.cfg.Directory
	return d != nil && d.KeyOf(k.ID) == k
}

// rebinds are the sessions whose user's object was lost, and that the Directory is to be told of again.
type rebinds struct {
	mu      sync.Mutex
	waiting map[*Session]struct{} // not taken by a goroutine yet
	running int                   // goroutines
}

const (
	maxRebinders  = 16
	firstRebind   = 20 * time.Millisecond // between two tries, which grows
	longestRebind = 2 * time.Second
)

// unknownLocked has the sessions that are bound to a user's object, which is lost, be made known again. o.mu is held.
func (g *Gate) unknownLocked(o *boundObject) {
	d := g.cfg.Directory
	if d == nil || g.draining.Load() {
		return
	}
	r := &g.rebinds
	for _, s := range o.sessions {
		if d.KeyOf(s.user) == o.key {
			r.add(g, s)
		}
	}
}

// add has the session made known again, soon.
func (r *rebinds) add(g *Gate, s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[*Session]struct{})
	}
	r.waiting[s] = struct{}{}
	if r.running < maxRebinders && g.enlist() {
		r.running++
		// Owned by the gate; ends when no session waits, or when the gate shuts down; Shutdown waits for it.
		go g.rebind()
	}
}

// forget has a session not be made known again.
func (r *rebinds) forget(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, s)
}

// enlist counts a goroutine that Shutdown is to wait for; false: the gate is shutting down.
func (g *Gate) enlist() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.draining.Load() && g.beginLocked()
}

// rebind makes sessions known to the Directory again, one after the other.
func (g *Gate) rebind() {
	defer g.wg.Done()
	r := &g.rebinds
	pause := firstRebind
	for {
		r.mu.Lock()
		var s *Session
		for s = range r.waiting {
			break
		}
		if s == nil || g.draining.Load() {
			clear(r.waiting)
			r.running--
			r.mu.Unlock()
			return
		}
		delete(r.waiting, s)
		r.mu.Unlock()
		if s.over() || g.again(s) {
			pause = firstRebind
			continue
		}
		r.mu.Lock()
		r.waiting[s] = struct{}{}
		r.mu.Unlock()
		t := time.NewTimer(pause + rand.N(pause))
		select {
		case <-t.C:
		case <-g.staying.Done():
			t.Stop()
		}
		pause = min(2*pause, longestRebind)
	}
}

// over reports whether the session has ended.
func (s *Session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// again makes a session known to the Directory again. It reports false where that has to be tried once more.
func (g *Gate) again(s *Session) bool {
	if _, gone := s.goneTo(); gone {
		return true
	}
	number, a, err := g.askDirectory(g.staying, s, nil)
	if _, gone := s.goneTo(); gone {
		return true // the gate where it is tells it
	}
	switch {
	case err != nil:
		return false
	case a != zmsg.Admitted:
		// Of a session that is about to go the directory may know the new name already: by the one that was asked with there is none.
		v := turnedAway(a)
		s.closeUnlessMoved(v.code, v.text, true)
	default:
		s.login.Store(number)
	}
	return true
}
