package zuser

import (
	"slices"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zrouter"
	"zgame/zuser/internal/userpb"
)

// Type is the number of the kind in keys: those from 1 << 31 on belong to the framework. Name is its name in settings, logs and metrics.
const (
	Type uint32 = 1<<31 + 1
	Name        = "zuser"
)

// Key names the object of a user.
func Key(user string) zmsg.Key { return zmsg.Key{Type: Type, ID: user} }

// Close codes of the gate that the directory asks for; docs/wire.md has them all.
const (
	closeReplaced = 3504
	closeRefused  = 3505
	closeMoved    = 3506
)

// And those with which a gate leaves its clients behind; 0 is what the own node says of a gate that is gone.
const (
	closeShutdown = 3001
	closeRejoined = 3006
)

// freeAfter is how long the object of a user without a session stays in memory: who comes back soon costs the store nothing.
const freeAfter = 2 * time.Minute

// endAgain is after how long a session that was to be closed, and is there still, is closed once more: the first word may be lost.
const endAgain = 2 * time.Second

type userContext = zrouter.Context[*userpb.User]

// Kind is the kind of the users' objects. Of the kinds whose numbers are told, the object of zone 0 whose id is the user's is told when he comes and when
// he goes: a handler of *presencepb.Presence (zrouter.HandleTell, with zrouter.ByKey) takes it.
func Kind(told ...uint32) zrouter.AnyKind {
	p := presence{told}
	k := zrouter.Kind[*userpb.User]{
		Type: Type, Name: Name, Version: 1,
		Create:     func(zmsg.Key) (*userpb.User, error) { return new(userpb.User), nil },
		OnActivate: p.activate,
		Handlers: []zrouter.Handler[*userpb.User]{
			zrouter.Handle(func(c *userContext, req *userpb.Bind) (*userpb.Bound, error) { defer p.look(c); return bind(c, req) }),
			zrouter.Handle(push, zrouter.InServer()),
			zrouter.Handle(func(c *userContext, req *userpb.Kick) (*userpb.Sessions, error) { defer p.look(c); return kick(c, req) }, zrouter.InServer()),
			zrouter.Handle(look, zrouter.InServer()),
			zrouter.Handle(see, zrouter.InServer()),
			zrouter.HandleTell(func(c *userContext, e *wirepb.SessionClosed) error { defer p.look(c); return p.closed(c, e) }),
			zrouter.HandleTell(func(c *userContext, m *wirepb.SessionMoved) error { defer p.look(c); return moved(c, m) }),
		},
		Settings: zrouter.Settings{ObjectFreeTimeout: freeAfter},
	}
	if len(told) > 0 {
		k.Settings.Remember = zrouter.On // that he is gone is told also where all that would ask for his object has died with its node
	}
	return k
}

// activate binds the sessions of the saved state; those that have ended meanwhile are told of.
func (p presence) activate(c *userContext) error {
	u := c.State()
	u.Logins = slices.DeleteFunc(u.GetLogins(), func(l *userpb.Login) bool {
		if l.GetLost() {
			p.dropLater(c, l)
			return false
		}
		return c.Bind(refOf(l.GetSession())) != nil
	})
	if slices.ContainsFunc(u.GetLogins(), func(l *userpb.Login) bool { return l.GetEnd() != nil }) {
		endLater(c)
	}
	p.resume(c)
	return nil
}

// bind takes a session of a gate for one of the user's, or says why not. Asked again it says the same again.
func bind(c *userContext, req *userpb.Bind) (*userpb.Bound, error) {
	u, s := c.State(), refOf(req.GetSession())
	if s.IsZero() {
		return nil, zmsg.Errorf(zmsg.CodeBadRequest, "a login without a session")
	}
	if i := find(u.GetLogins(), s); i >= 0 {
		l := u.GetLogins()[i]
		return &userpb.Bound{Number: l.GetNumber(), Admission: uint32(endedBy(l))}, c.Bind(s)
	}
	l := &userpb.Login{Session: req.GetSession(), Number: req.GetNumber(), WindowMs: req.GetWindowMs(), Proof: req.GetProof()}
	if req.GetResumes() == nil && l.GetNumber() != 0 || req.GetHanded() {
		if i := findID(u.GetLogins(), s); i >= 0 && refOf(u.GetLogins()[i].GetSession()).Gen > s.Gen { // the word of a gate that it has left since
			return &userpb.Bound{Number: u.GetLogins()[i].GetNumber(), Admission: uint32(endedBy(u.GetLogins()[i]))}, nil
		}
	}
	have := live(u.GetLogins())
	var before *userpb.Login // that it goes on with
	fresh := l.GetNumber() == 0
	switch {
	case req.GetHanded():
		if i := findID(u.GetLogins(), s); i >= 0 && refOf(u.GetLogins()[i].GetSession()).Gen < s.Gen { // before the word that it has moved
			return rename(c, u.GetLogins()[i], req)
		}
		fresh = false // what the directory knew is lost: the number decides
	case req.GetResumes() != nil:
		// By its newest name: its gate may have handed it over without a word of it, or another one has gone on with it, and the name of before is being closed still.
		i := findID(u.GetLogins(), refOf(req.GetResumes()))
		if i < 0 || u.GetLogins()[i].GetEnd() != nil || !proves(u.GetLogins()[i], req.GetClaim()) {
			return &userpb.Bound{Admission: uint32(zmsg.Lapsed)}, nil
		}
		if l := u.GetLogins()[i]; !l.GetLost() && l.GetSession().GetGeneration() > req.GetResumes().GetGeneration() {
			// Another gate has gone on with it. Who comes late with the token of before, perhaps of a connection that is dead, does not take it from there: that gate
			// knows what its client has.
			return &userpb.Bound{Admission: uint32(zmsg.Lapsed), Elsewhere: l.GetSession()}, nil
		}
		before, fresh = u.GetLogins()[i], false
		l.Number = before.GetNumber()
		have = slices.DeleteFunc(have, func(o *userpb.Login) bool { return o == before })
	case fresh:
		l.Number = nextNumber(u.GetLast(), c.Version())
	}
	a, end := admit(have, l, fresh, int(req.GetMost()), req.GetRefuse())
	if a == zmsg.Admitted {
		if err := c.Bind(s); err != nil {
			return nil, err
		}
		switch {
		case before == nil:
		case before.GetLost():
			u.Logins = slices.DeleteFunc(u.GetLogins(), func(o *userpb.Login) bool { return o == before })
		default: // its gate lives, and did not answer the one where the client is
			endLogin(c, before, closeMoved, "continued at another gate")
		}
		u.Logins = insert(u.GetLogins(), l)
		u.Last = max(u.GetLast(), l.GetNumber())
		c.Dirty()
	}
	code, text := uint32(closeReplaced), "logged in elsewhere"
	if req.GetRefuse() {
		code, text = closeRefused, "logged in elsewhere already"
	}
	for _, l := range end {
		endLogin(c, l, code, text)
	}
	return &userpb.Bound{Number: l.GetNumber(), Admission: uint32(a)}, nil
}

// rename has a login go on by the name that its session has at the gate to which it was handed over.
func rename(c *userContext, l *userpb.Login, req *userpb.Bind) (*userpb.Bound, error) {
	before := refOf(l.GetSession())
	l.Session, l.Lost = req.GetSession(), false
	c.Dirty()
	if err := c.Unbind(before); err != nil {
		return nil, err
	}
	return &userpb.Bound{Number: l.GetNumber(), Admission: uint32(endedBy(l))}, c.Bind(refOf(l.GetSession()))
}

// moved has a login go on by the name that its session has at another gate, to which zrouter has bound it.
func moved(c *userContext, m *wirepb.SessionMoved) error {
	u := c.State()
	from, to := zmsg.MovedSession(m)
	i := find(u.GetLogins(), from)
	switch {
	case i < 0:
		return nil
	case find(u.GetLogins(), to) >= 0: // it has said so itself
		u.Logins = slices.Delete(u.GetLogins(), i, i+1)
	default:
		u.Logins[i].Session, u.Logins[i].Lost = wireOf(to), false
	}
	c.Dirty()
	return nil
}

// endedBy is what a login is that is known.
func endedBy(l *userpb.Login) zmsg.Admission {
	switch {
	case l.GetEnd() == nil:
		return zmsg.Admitted
	case l.GetEnd().GetCode() == closeRefused:
		return zmsg.Refused
	default:
		return zmsg.Replaced
	}
}

// endLogin has a session closed. It is bound until its gate says that it has ended, but gets no more pushes.
func endLogin(c *userContext, l *userpb.Login, code uint32, text string) {
	if l.GetEnd() == nil {
		l.End = &userpb.End{Code: code, Text: text}
		endLater(c)
	}
	c.Dirty()
	_ = c.Kick(refOf(l.GetSession()), code, text) // a gate that is gone ends it too; one that is not reached is asked again
}

// endLater looks, a while from now, whether what was to be closed is.
func endLater(c *userContext) {
	c.After(endAgain, func(c *userContext) {
		there := false
		for _, l := range c.State().GetLogins() {
			if e := l.GetEnd(); e != nil {
				there = true
				_ = c.Kick(refOf(l.GetSession()), e.GetCode(), e.GetText())
			}
		}
		if there {
			endLater(c)
		}
	})
}

// errAbsent is the answer of the object of a user who has no session.
var errAbsent error = &zmsg.Error{Code: zmsg.CodeNotInServer, Outcome: zmsg.NotExecuted, Text: "the user has no session"}

// present returns the user's sessions, and as the answer of a handler; an error where he has none.
func present(c *userContext) (refs []zmsg.SessionRef, a *userpb.Sessions, err error) {
	a = new(userpb.Sessions)
	for _, l := range live(c.State().GetLogins()) {
		refs = append(refs, refOf(l.GetSession()))
		a.Sessions = append(a.Sessions, l.GetSession())
	}
	if len(refs) == 0 {
		return nil, nil, errAbsent
	}
	return refs, a, nil
}

func push(c *userContext, req *userpb.Push) (*userpb.Sessions, error) {
	refs, a, err := present(c)
	if err != nil {
		return nil, err
	}
	p := zmsg.Push{ID: req.GetId(), Body: req.GetBody(), Class: zmsg.Class(req.GetClass()), Of: req.GetOf()}
	if p.Body == nil {
		p.Body = []byte{} // an empty message, not one to be encoded
	}
	return a, c.PushEncoded(refs, p)
}

func kick(c *userContext, req *userpb.Kick) (*userpb.Sessions, error) {
	_, a, err := present(c)
	if err != nil {
		return nil, err
	}
	for _, l := range live(c.State().GetLogins()) {
		endLogin(c, l, req.GetEnd().GetCode(), req.GetEnd().GetText())
	}
	return a, nil
}

func look(c *userContext, _ *userpb.Look) (*userpb.Sessions, error) {
	_, a, err := present(c)
	return a, err
}

// closed takes out a session that has ended; what is newer stays. One whose gate has left it behind may be gone on with for a while.
func (p presence) closed(c *userContext, e *wirepb.SessionClosed) error {
	u := c.State()
	i := find(u.GetLogins(), zmsg.ClosedSession(e))
	if i < 0 {
		return nil
	}
	l := u.GetLogins()[i]
	switch leaves := e.GetCode() == 0 || e.GetCode() == closeShutdown || e.GetCode() == closeRejoined; {
	case l.GetLost(): // told twice
	case leaves && l.GetEnd() == nil && l.GetWindowMs() > 0:
		l.Lost = true
		p.dropLater(c, l)
	default:
		u.Logins = slices.Delete(u.GetLogins(), i, i+1)
	}
	c.Dirty()
	return nil
}

// dropLater forgets a login whose gate is gone when no other has gone on with it.
func (p presence) dropLater(c *userContext, l *userpb.Login) {
	c.After(time.Duration(l.GetWindowMs())*time.Millisecond, func(c *userContext) {
		u := c.State()
		before := len(u.GetLogins())
		if u.Logins = slices.DeleteFunc(u.GetLogins(), func(o *userpb.Login) bool { return o == l && o.GetLost() }); len(u.GetLogins()) < before {
			c.Dirty()
			p.look(c)
		}
	})
}
