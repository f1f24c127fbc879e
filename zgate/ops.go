package zgate

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// session returns the session that ref names.
func (g *Gate) session(ref zmsg.SessionRef) (*Session, error) {
	if !g.self.Is(ref.Gate) {
		g.count.dropWrongGate.Inc()
		return nil, ErrWrongGate
	}
	s := g.sessions.get(ref.ID)
	if s == nil {
		g.count.dropNoSession.Inc()
		return nil, ErrNoSession
	}
	if s.ref.Gen != ref.Gen && (ref.Gen > s.ref.Gen || !s.roams()) { // else it is a name that it had before it came here
		g.count.dropStale.Inc()
		return nil, ErrStaleSession
	}
	if s.ref.Gen != ref.Gen {
		// While it is just coming back, what is for an older name goes where the session is still: in order with what has gone there before.
		if old := s.resume.instead.Load(); old != nil {
			return old, nil
		}
	}
	return s, nil
}

// Session returns the session that ref names. Errors: ErrWrongGate, ErrNoSession, ErrStaleSession.
func (g *Gate) Session(ref zmsg.SessionRef) (*Session, error) { return g.session(ref) }

// Push sends p to a session; p may be used again when it returns. It does not block. Errors: those of Session and
// Session.Push.
func (g *Gate) Push(ref zmsg.SessionRef, p *zmsg.Push) (err error) {
	var s *Session
	if g.records(p) {
		defer func(began time.Time) { g.pushed(p, s, 1, began, err) }(time.Now())
	}
	if p.Version != 0 {
		return g.pushOf(ref, nil, p)
	}
	if s, err = g.session(ref); err != nil {
		return err
	}
	return s.Push(p)
}

// PushIDs sends p to sessions of this gate, encoded once. failed counts those that do not get it: gone, slow, or
// behind (volatile). Of an object's push, which may wait, it counts nothing.
func (g *Gate) PushIDs(ids []uint64, p *zmsg.Push) (delivered, failed int) {
	if g.records(p) {
		defer func(began time.Time) { g.pushed(p, nil, len(ids)-failed, began, nil) }(time.Now())
	}
	if p.Version != 0 {
		if g.pushOf(zmsg.SessionRef{}, ids, p) != nil {
			failed = len(ids)
		}
		return 0, failed
	}
	e, err := g.encode(p, false)
	if err != nil {
		return 0, len(ids)
	}
	return g.pushIDs(ids, &e)
}

func (g *Gate) pushIDs(ids []uint64, e *encoded) (delivered, failed int) {
	if len(ids) > 1 && len(e.body) >= shareFrom {
		e.keep()
	}
	for _, id := range ids {
		s := g.sessions.get(id)
		switch {
		case s == nil:
			g.count.dropNoSession.Inc()
			failed++
		case s.push(e, len(ids) > directWrites) != nil:
			failed++
		default:
			delivered++
		}
	}
	return delivered, failed
}

// pushOnce pushes to a session what was published to one of its groups, unless it has had it.
func (g *Gate) pushOnce(ref zmsg.SessionRef, p *zmsg.Push, from zmsg.NodeRef) error {
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	if f := s.called(ref.Gen); f != nil {
		s = f
	}
	e, err := g.encode(p, false)
	if err != nil {
		return err
	}
	from.ID = strings.Clone(from.ID)
	e.pub, e.sentOn = publish{from, p.No}, true
	return s.push(&e, false)
}

// directWrites is up to how many sessions a sender writes to by itself; for more, the flusher does.
const directWrites = 8

// PublishLocal sends p to the members of the group at this gate, encoded once for each codec. A session whose Join has
// returned gets it, the one on whose behalf it is published included. failed counts the members that do not get it.
//
// With p.No, the number of the publish at this node, sessions that come from another gate do not get twice what comes by that one, too.
func (g *Gate) PublishLocal(name string, p *zmsg.Push) (delivered, failed int) {
	return g.publish(name, p, g.self.Ref())
}

// publish is PublishLocal for what has come from a node.
func (g *Gate) publish(name string, p *zmsg.Push, from zmsg.NodeRef) (delivered, failed int) {
	grp := g.groups.get(name)
	if grp == nil {
		return 0, 0
	}
	if g.records(p) {
		defer func(began time.Time) { g.pushed(p, nil, delivered, began, nil) }(time.Now())
	}
	e, err := g.encode(p, false)
	if g.cfg.Peers != nil {
		e.pub = g.published.add(grp, from, p.No, g.now())
	}
	grp.mu.RLock()
	defer grp.mu.RUnlock()
	if err != nil {
		return 0, len(grp.members)
	}
	if len(grp.members) > 1 && len(e.body) >= shareFrom {
		e.keep()
	}
	later := len(grp.members) > directWrites
	for _, s := range grp.members {
		if s.push(&e, later) != nil {
			failed++
		} else {
			delivered++
		}
	}
	return delivered, failed
}

// Join makes a session a member of a group. When it returns nil, the session gets everything that is published
// afterwards, on any node; for the first member of a group here that means waiting for the bus, at most JoinTimeout.
// Joining twice is joining once. Errors: those of Session; ErrClosed, ErrTooMany, ErrBadGroup; CodeUnavailable when the
// bus does not subscribe: then the session is no member.
func (g *Gate) Join(ref zmsg.SessionRef, name string) error {
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	join := func() error { return g.groups.join(s, name, func(err error) { done <- err }) }
	later := s.later(func() {
		if err := join(); err != nil {
			done <- err
		}
	})
	if !later {
		if ok, err := s.elsewhere(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_JOIN, Group: name}); ok {
			return err
		}
		if err := join(); err != nil {
			return err
		}
	}
	select { // the usual case, without a timer
	case err = <-done:
	default:
		t := time.NewTimer(g.cfg.JoinTimeout)
		defer t.Stop()
		select {
		case err = <-done:
		case <-t.C:
			err = fmt.Errorf("no answer within %v", g.cfg.JoinTimeout)
		}
	}
	if err != nil {
		return s.notJoined(name, err)
	}
	return nil
}

// notJoined takes the session out of a group whose subscription failed, and returns the error that says so.
func (s *Session) notJoined(name string, err error) error {
	s.leave(name)
	return &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "group subscription: " + err.Error()}
}

// Leave ends a session's membership; what is published afterwards does not reach it by this group. Errors: those of
// Session. Leaving what one is no member of is fine.
func (g *Gate) Leave(ref zmsg.SessionRef, name string) error {
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	if s.later(func() { s.leave(name) }) {
		return nil
	}
	s.leave(name) // of one that was handed over, too: what is published is not sent on then
	if ok, err := s.elsewhere(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_LEAVE, Group: name}); ok {
		return err
	}
	return nil
}

func (s *Session) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if grp := s.groups[name]; grp != nil {
		delete(s.groups, name)
		s.g.groups.leave(grp, s)
	}
}

// Kick ends a session: the client reads code and text as the last thing, behind everything that was sent to it
// before. Codes below 3000 and above 4999 become CloseKicked. It does not block. Errors: those of Session.
func (g *Gate) Kick(ref zmsg.SessionRef, code uint32, text string) error {
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	if CloseCode(code) == CloseMoved && s.ref.Gen != ref.Gen {
		return nil // that is so
	}
	s.Close(CloseCode(min(code, 1<<16-1)), text)
	return nil
}

// Watch makes the gate tell an actor, exactly once, when the session ends. A session that is gone already is told of
// at once, as lost. Errors: ErrWrongGate, ErrTooMany, ErrNotWired.
func (g *Gate) Watch(ref zmsg.SessionRef, actor zmsg.Address) error {
	if g.cfg.Tell == nil {
		return ErrNotWired
	}
	s, err := g.session(ref)
	if err == ErrWrongGate { //nolint:errorlint // session returns its sentinels bare
		return err
	}
	if s != nil && s.later(func() { _ = g.watch(s, ref, actor) }) {
		return nil
	}
	return g.watch(s, ref, actor)
}

// watch is Watch for a session that is there, or not any more: nil.
func (g *Gate) watch(s *Session, ref zmsg.SessionRef, actor zmsg.Address) (err error) {
	ended := s == nil
	if s != nil {
		if to, gone := s.goneTo(); gone {
			g.tellMoved(actor, ref, to) // whose node watches it there
			return nil
		}
		if ended, err = s.watchAndTell(actor); err != nil {
			return err
		}
	}
	if ended {
		g.tellClosed(actor, ref, "", ending{closedLost, "the session has ended before"})
	}
	return nil
}

// Unwatch ends a Watch.
func (g *Gate) Unwatch(ref zmsg.SessionRef, actor zmsg.Address) error {
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	if !s.later(func() { s.unwatch(actor) }) {
		s.unwatch(actor)
	}
	return nil
}

// OnSession runs a session operation that another node sends: the Session handler of a zbus.Link. e is used during the
// call only. It does not block: a Join is in force for this gate when it returns, and for the bus soon after, which Ack
// tells a sender that asks (Envelope.Request). Operations of one sender are run in the order of their calls.
func (g *Gate) OnSession(e *zmsg.Envelope, from zmsg.NodeRef) {
	err := g.onSession(e, from)
	if err != nil {
		g.log.Debug("session operation failed", "op", e.Op.String(), "session", e.Session.ID, "node", from.String(), "err", err)
	}
	if acked := err == nil && e.Op == wirepb.SessionOp_SESSION_OP_JOIN; e.Request != 0 && g.cfg.Ack != nil && !acked {
		g.cfg.Ack(from, e.Request, err)
	}
}

func (g *Gate) onSession(e *zmsg.Envelope, from zmsg.NodeRef) error {
	switch e.Op {
	case wirepb.SessionOp_SESSION_OP_PUSH:
		p := zmsg.Push{ID: e.ID, Body: e.Body, Class: e.Class, Of: e.Of, Key: e.Key, Version: e.Version, No: e.PushNo, Trace: e.Trace}
		if p.Body == nil {
			p.Body = []byte{} // an empty message, not one to be encoded
		}
		switch {
		case e.Group != "":
			g.publish(e.Group, &p, from)
		case len(e.Sessions) > 0:
			g.PushIDs(e.Sessions, &p)
		case e.PushNo != 0 && e.Version == 0:
			return g.pushOnce(e.Session, &p, e.Owner)
		default:
			return g.Push(e.Session, &p)
		}
		return nil
	case wirepb.SessionOp_SESSION_OP_JOIN:
		s, err := g.session(e.Session)
		if err != nil {
			return err
		}
		var done func(error)
		group := strings.Clone(e.Group) // e is not ours to keep
		if _, gone := s.goneTo(); gone {
			err := g.Join(e.Session, group)
			if err == nil && e.Request != 0 && g.cfg.Ack != nil {
				g.cfg.Ack(zmsg.NodeRef{ID: strings.Clone(from.ID), Epoch: from.Epoch}, e.Request, nil)
			}
			return err
		}
		if request := e.Request; request != 0 && g.cfg.Ack != nil {
			from.ID = strings.Clone(from.ID)
			done = func(err error) {
				if err != nil {
					err = s.notJoined(group, err) // as Join does: who is told that it is no member is none
				}
				g.cfg.Ack(from, request, err)
			}
		}
		join := func() error { return g.groups.join(s, group, done) }
		later := s.later(func() {
			if err := join(); err != nil && done != nil {
				done(err)
			}
		})
		if later {
			return nil
		}
		return join()
	case wirepb.SessionOp_SESSION_OP_LEAVE:
		return g.Leave(e.Session, strings.Clone(e.Group))
	case wirepb.SessionOp_SESSION_OP_KICK:
		return g.Kick(e.Session, uint32(e.Code), strings.Clone(e.Text))
	case wirepb.SessionOp_SESSION_OP_WATCH:
		ref := e.Session
		ref.Gate = g.orOwn(ref.Gate)
		from.ID = strings.Clone(from.ID)
		return g.Watch(ref, zmsg.Address{Node: from, Actor: e.FromActor})
	case wirepb.SessionOp_SESSION_OP_UNWATCH:
		from.ID = strings.Clone(from.ID)
		return g.Unwatch(e.Session, zmsg.Address{Node: from, Actor: e.FromActor})
	case wirepb.SessionOp_SESSION_OP_ROUTE:
		r, err := zmsg.DecodeSessionRoute(e.Body)
		if err != nil {
			return fmt.Errorf("zgate: %w", err)
		}
		return g.SetRoute(e.Session, &r)
	case wirepb.SessionOp_SESSION_OP_RESPONSE:
		s, err := g.session(e.Session)
		if err != nil {
			return err
		}
		seq, frame := e.Seq, bytes.Clone(e.Body)
		if to, gone := s.goneTo(); gone {
			return g.forward(to, &zmsg.Envelope{Op: e.Op, Seq: seq, Body: frame})
		}
		if !s.later(func() { s.answer(seq, frame) }) {
			s.answer(seq, frame)
		}
		return nil
	case wirepb.SessionOp_SESSION_OP_GROUPS:
		s, err := g.session(e.Session)
		if err != nil {
			return err
		}
		if s = s.called(e.Session.Gen); s != nil && !s.later(s.endOverlap) { // else it has gone from here, and come back, and passes nothing on
			s.endOverlap()
		}
		return nil
	case wirepb.SessionOp_SESSION_OP_GAP:
		s, err := g.session(e.Session)
		if err != nil {
			return err
		}
		var m wirepb.Gap
		if err := proto.Unmarshal(e.Body, &m); err != nil {
			return fmt.Errorf("zgate: a gap that does not decode: %w", err)
		}
		if f := s.called(e.Session.Gen); f != nil {
			s = f
		}
		s.gap(&m)
		return nil
	case wirepb.SessionOp_SESSION_OP_BIND, wirepb.SessionOp_SESSION_OP_UNBIND, wirepb.SessionOp_SESSION_OP_LOST:
		return g.onBinding(e, from)
	default:
		return fmt.Errorf("zgate: unknown session operation %d", e.Op)
	}
}

// orOwn makes the gate's node of a ref that aliases an envelope, so that nothing of the envelope is kept.
func (g *Gate) orOwn(n zmsg.NodeRef) zmsg.NodeRef {
	if own := g.self.Ref(); n == own {
		return own
	}
	n.ID = strings.Clone(n.ID)
	return n
}
