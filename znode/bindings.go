package znode

import (
	"slices"
	"time"

	"zgame/zgate"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// This file is the way of objects to the sessions that are bound to them. It satisfies zrouter.Gates. A binding is a watch of each session by
// the object's actor, which its gate keeps: here it is noted as any other watch, so that a gate that is lost ends it.

// Waits between two tries to bind at another gate, until it answers or is gone.
const (
	bindRetry     = time.Second
	longBindRetry = 30 * time.Second
	maxBinds      = 1 << 16 // that wait for a gate's word; one more is sent once
)

// pendingBind waits for the word of the gate.
type pendingBind struct {
	b     zmsg.Binding
	wait  time.Duration
	timer *time.Timer
}

// pushGate sends an object's push to sessions of one gate.
func (s *sessions) pushGate(to []zmsg.SessionRef, p *zmsg.Push) error {
	local, err := s.local(to[0].Gate)
	if err != nil {
		return err
	}
	if local {
		ids := make([]uint64, len(to))
		for i := range to {
			ids[i] = to[i].ID
		}
		s.gate.PushIDs(ids, p)
		return nil
	}
	e := zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH}
	if err := pushInto(&e, p); err != nil {
		return err
	}
	return s.pushSome(to, p, &e)
}

// Bind binds sessions to an object of this node, or tells their gate of its new owner.
func (s *sessions) Bind(b *zmsg.Binding) {
	_, release := s.moves.hold(zmsg.SessionRef{})
	defer release()
	if b = s.notMoved(b); b == nil {
		return
	}
	if local, err := s.local(b.Gate); local {
		if err == nil {
			err = s.gate.Bind(b)
		}
		if err != nil && zmsg.CodeOf(err) != zmsg.CodeMoved {
			for _, ref := range b.Sessions {
				_ = s.tellClosed(watch{ref, b.Owner.Actor}, "the session is gone")
			}
		}
		return
	}
	s.mu.Lock()
	for _, ref := range b.Sessions {
		s.noteLocked(watch{ref, b.Owner.Actor}, true)
	}
	s.mu.Unlock()
	// Asked after the watches are noted: a gate that is lost in between finds them there.
	if s.alive(b.Gate) == nodeGone {
		s.lost(b.Gate)
		return
	}
	p := &pendingBind{b: *b, wait: bindRetry}
	p.b.Sessions = slices.Clone(b.Sessions)
	s.mu.Lock()
	s.last++
	number := s.last
	if len(s.binds) < maxBinds && !s.stopped {
		s.binds[number] = p
		p.timer = time.AfterFunc(p.wait, func() { s.bindAgain(number) })
	}
	s.mu.Unlock()
	_ = s.bindingOp(b, wirepb.SessionOp_SESSION_OP_BIND, number) // one that is not sent is tried again as one that is not answered
}

// notMoved takes out of a binding what is at another gate by now: its object is told so, and binds it there. nil: nothing is left. moves is held.
func (s *sessions) notMoved(b *zmsg.Binding) *zmsg.Binding {
	if !slices.ContainsFunc(b.Sessions, func(ref zmsg.SessionRef) bool { return s.moves.whereLocked(ref) != ref }) {
		return b
	}
	x := *b
	x.Sessions = nil
	for _, ref := range b.Sessions {
		if now := s.moves.whereLocked(ref); now != ref {
			s.tellMoved(b.Owner.Actor, ref, now)
		} else {
			x.Sessions = append(x.Sessions, ref)
		}
	}
	if len(x.Sessions) == 0 {
		return nil
	}
	return &x
}

func (s *sessions) bindingOp(b *zmsg.Binding, op wirepb.SessionOp, number uint64) error {
	body, err := b.EncodeSessions()
	if err != nil {
		return err
	}
	return s.link.SendSession(b.Gate, &zmsg.Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: op, Session: zmsg.SessionRef{Gate: b.Gate}, FromActor: b.Owner.Actor,
		Request: number, Key: b.Key, Version: b.Version, PushNo: b.Last, Body: body,
	})
}

// bindAgain sends a bind once more, for those of its sessions that are bound still.
func (s *sessions) bindAgain(number uint64) {
	s.again.Lock() // what is let go meanwhile is let go behind it
	defer s.again.Unlock()
	s.mu.Lock()
	p := s.binds[number]
	if p == nil {
		s.mu.Unlock()
		return
	}
	at := s.watches[p.b.Gate]
	p.b.Sessions = slices.DeleteFunc(p.b.Sessions, func(ref zmsg.SessionRef) bool {
		return !slices.Contains(at[ref], watcher{p.b.Owner.Actor, true})
	})
	if len(p.b.Sessions) == 0 || s.stopped {
		delete(s.binds, number)
		s.mu.Unlock()
		return
	}
	p.wait = min(2*p.wait, longBindRetry)
	p.timer.Reset(p.wait)
	b := p.b
	b.Sessions, b.Again = slices.Clone(b.Sessions), true
	s.mu.Unlock()
	_ = s.bindingOp(&b, wirepb.SessionOp_SESSION_OP_BIND, number)
}

// answeredLocked finds the bind that a gate's word is about, and forgets it; nil where it is about something else.
func (s *sessions) answeredLocked(from zmsg.NodeRef, e *zmsg.Envelope) *pendingBind {
	p := s.binds[e.Request]
	if p == nil || p.b.Gate != from {
		return nil
	}
	p.timer.Stop()
	delete(s.binds, e.Request)
	return p
}

// bound takes a gate's word about a bind. One that it has refused has ended the sessions for the object; an owner that is none any more hears so from the
// store.
func (s *sessions) bound(p *pendingBind, e *zmsg.Envelope) {
	if e.Code == zmsg.CodeOK || e.Code == zmsg.CodeMoved {
		return
	}
	for _, ref := range p.b.Sessions {
		if w := (watch{ref, p.b.Owner.Actor}); s.forget(w) {
			_ = s.tellClosed(w, "the gate does not bind it: "+e.Text) // a watcher that is gone has nobody else to hear it
		}
	}
}

// Unbind lets sessions go.
func (s *sessions) Unbind(b *zmsg.Binding) {
	s.leave(b, (*zgate.Gate).Unbind, wirepb.SessionOp_SESSION_OP_UNBIND)
}

// Lost says that the object has left this node's memory.
func (s *sessions) Lost(b *zmsg.Binding) {
	s.leave(b, (*zgate.Gate).Lost, wirepb.SessionOp_SESSION_OP_LOST)
}

func (s *sessions) leave(b *zmsg.Binding, do func(*zgate.Gate, *zmsg.Binding) error, op wirepb.SessionOp) {
	if local, err := s.local(b.Gate); local {
		if err == nil {
			_ = do(s.gate, b) // one that has a newer owner has let go of this one
		}
		return
	}
	s.again.Lock()
	defer s.again.Unlock()
	s.Forget(b)
	if s.alive(b.Gate) != nodeGone {
		_ = s.bindingOp(b, op, 0) // what the bus loses here the next owner, or the end of this node, makes good
	}
}

// Forget ends the watches of the object's actor.
func (s *sessions) Forget(b *zmsg.Binding) {
	if s.self.Is(b.Gate) {
		return // the gate has them
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range b.Sessions {
		s.forgetLocked(watch{ref, b.Owner.Actor})
	}
}

// BoundKey returns what a session of this node's gate is bound to.
func (s *sessions) BoundKey(ref zmsg.SessionRef, typ uint32) (zmsg.Key, bool) {
	if s.gate == nil {
		return zmsg.Key{}, false
	}
	return s.gate.BoundKey(ref, typ)
}

// ownerLost tells the gate that a node is gone.
func (s *sessions) ownerLost(n zmsg.NodeRef) {
	if s.gate != nil {
		s.gate.OwnerLost(n)
	}
}

// stop ends the repeating of binds.
func (s *sessions) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for number, p := range s.binds {
		p.timer.Stop()
		delete(s.binds, number)
	}
}
