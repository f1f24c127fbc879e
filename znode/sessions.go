package znode

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zgate"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// sessions carries what actors say to sessions to the gates that have them: the gate of this node directly, on the
// caller's goroutine, so that an actor's replies and pushes keep their order; others over the bus, in the one ordered
// stream from this node to theirs. It satisfies zactor.Sessions.
type sessions struct {
	// Set while the node is wired.
	self  *zmsg.Self
	gate  *zgate.Gate // nil on a node without a gate
	link  sessionLink
	tell  func(to zmsg.Address, m *zmsg.Message) error
	alive func(zmsg.NodeRef) nodeState

	moves *moves

	published atomic.Uint64 // number of the last publish to a group

	again sync.Mutex // held while a bind is repeated; before mu

	mu      sync.Mutex
	watches map[zmsg.NodeRef]map[zmsg.SessionRef][]watcher // of sessions at other nodes' gates; guarded by mu
	joins   map[uint64]pendingJoin                         // that wait for another gate's word; guarded by mu
	binds   map[uint64]*pendingBind                        // likewise
	last    uint64                                         // number of the newest join or bind; guarded by mu
	stopped bool                                           // guarded by mu
}

func newSessions(self *zmsg.Self, link sessionLink, alive func(zmsg.NodeRef) nodeState) *sessions {
	s := &sessions{
		self: self, link: link, alive: alive,
		watches: map[zmsg.NodeRef]map[zmsg.SessionRef][]watcher{}, joins: map[uint64]pendingJoin{},
		binds: map[uint64]*pendingBind{},
	}
	s.moves = newMoves(s)
	return s
}

// sessionLink is the part of zbus.Link that sessions needs.
type sessionLink interface {
	SendSession(to zmsg.NodeRef, e *zmsg.Envelope) error
	SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error
	PublishGroup(e *zmsg.Envelope) error
}

// watch is one actor that wants to know when one session ends.
type watch struct {
	session zmsg.SessionRef
	actor   uint64
}

// watcher is who watches a session, of one gate.
type watcher struct {
	actor uint64
	bound bool // it is an object's, which the session is bound to
}

// noteLocked notes a watch, and reports whether it was there.
func (s *sessions) noteLocked(w watch, bound bool) (twice bool) {
	at := s.watches[w.session.Gate]
	if at == nil {
		at = map[zmsg.SessionRef][]watcher{}
		s.watches[w.session.Gate] = at
	}
	list := at[w.session]
	for i := range list {
		if list[i].actor == w.actor {
			list[i].bound = list[i].bound || bound
			return true
		}
	}
	at[w.session] = append(list, watcher{w.actor, bound})
	return false
}

// forgetLocked removes a watch and reports whether it was there.
func (s *sessions) forgetLocked(w watch) bool {
	at := s.watches[w.session.Gate]
	list := at[w.session]
	i := slices.IndexFunc(list, func(x watcher) bool { return x.actor == w.actor })
	if i < 0 {
		return false
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		at[w.session] = list
		return true
	}
	delete(at, w.session)
	if len(at) == 0 {
		delete(s.watches, w.session.Gate)
	}
	return true
}

// nodeState says what discovery knows about a node.
type nodeState int

const (
	nodeAlive nodeState = iota
	nodeUnseen
	nodeGone
)

// errNoGate is what a push to a session of this node gets where this node has no gate: the session is of a former life.
var errNoGate = errors.New("znode: this node has no gate")

func (s *sessions) local(gate zmsg.NodeRef) (bool, error) {
	if !s.self.Is(gate) {
		return false, nil
	}
	if s.gate == nil {
		return true, errNoGate
	}
	return true, nil
}

// Push sends p to one session.
func (s *sessions) Push(to zmsg.SessionRef, p *zmsg.Push) error {
	if p.Version != 0 { // its number counts at that gate, wherever the session is
		local, err := s.local(to.Gate)
		if err != nil {
			return err
		}
		if local {
			if err = s.gate.Push(to, p); err == nil {
				return nil
			}
			now := s.moves.where(to)
			if now == to {
				return err
			}
			to = now
		}
	}
	// By the newest name also where the old one is of this gate: what goes by way of the gates that the session was at would not be in order with what goes
	// where it is.
	now, release := s.moves.hold(to)
	defer release()
	if local, err := s.local(now.Gate); err != nil {
		return err
	} else if local && p.Version == 0 {
		return s.gate.Push(now, p)
	}
	e := zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH, Session: to}
	if err := pushInto(&e, p); err != nil {
		return err
	}
	switch {
	case now == to:
		return s.send(to.Gate, &e)
	case p.Version != 0:
		return s.pushMoved([]zmsg.SessionRef{to}, p, &e)
	default:
		return s.pushTo(now, p, &e)
	}
}

// pushTo sends a push, which is no numbered one of an object, to where the session is; e holds it.
func (s *sessions) pushTo(to zmsg.SessionRef, p *zmsg.Push, e *zmsg.Envelope) error {
	if local, err := s.local(to.Gate); local {
		if err != nil {
			return err
		}
		return s.gate.Push(to, &zmsg.Push{ID: p.ID, Body: e.Body, Class: p.Class, Of: p.Of, Trace: p.Trace})
	}
	x := *e
	x.Session, x.Sessions, x.Key, x.Version, x.PushNo = to, nil, zmsg.Key{}, 0, 0
	return s.send(to.Gate, &x)
}

func pushInto(e *zmsg.Envelope, p *zmsg.Push) error {
	body, err := p.EncodedBody()
	if err != nil {
		return err
	}
	e.Kind, e.ID, e.Body, e.Class = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, p.ID, body, p.Class
	e.Key, e.Version, e.PushNo, e.Of, e.Trace = p.Key, p.Version, p.No, p.Of, p.Trace
	return nil
}

// PushMany sends p to many sessions: one envelope for each gate. The error joins what failed.
func (s *sessions) PushMany(to []zmsg.SessionRef, p *zmsg.Push) error {
	if p.Version != 0 && len(to) > 0 {
		return s.pushGate(to, p)
	}
	body, err := p.EncodedBody()
	if err != nil {
		return err
	}
	encoded := zmsg.Push{ID: p.ID, Body: body, Class: p.Class, Of: p.Of, Trace: p.Trace}
	var errs []error
	remote := map[zmsg.NodeRef][]zmsg.SessionRef{}
	for _, ref := range to {
		if !s.self.Is(ref.Gate) {
			if now := s.moves.where(ref); now != ref {
				errs = append(errs, s.Push(now, &encoded))
				continue
			}
			remote[ref.Gate] = append(remote[ref.Gate], ref)
			continue
		}
		errs = append(errs, s.Push(ref, &encoded))
	}
	for _, refs := range remote {
		e := zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH}
		if err := pushInto(&e, &encoded); err != nil {
			return err
		}
		errs = append(errs, s.pushSome(refs, &encoded, &e))
	}
	return errors.Join(errs...)
}

// pushSome sends a push, which e holds, to sessions of one other gate, and to those of them that are at another one by now. One that is an object's has
// its number at that gate, where it counts as well.
func (s *sessions) pushSome(refs []zmsg.SessionRef, p *zmsg.Push, e *zmsg.Envelope) error {
	_, release := s.moves.hold(refs[0])
	defer release()
	return s.pushMoved(refs, p, e)
}

// pushMoved is pushSome for who holds moves.
func (s *sessions) pushMoved(refs []zmsg.SessionRef, p *zmsg.Push, e *zmsg.Envelope) error {
	var errs []error
	ids := make([]uint64, 0, len(refs))
	for _, ref := range refs {
		if now := s.moves.whereLocked(ref); now != ref {
			errs = append(errs, s.pushTo(now, p, e))
			continue
		}
		ids = append(ids, ref.ID)
	}
	if len(ids) == 0 && p.Version == 0 {
		return errors.Join(errs...)
	}
	if len(ids) == 0 {
		ids = append(ids, 0) // no session's: the number counts
	}
	e.Session, e.Sessions = zmsg.SessionRef{Gate: refs[0].Gate}, ids
	return errors.Join(append(errs, s.send(refs[0].Gate, e))...)
}

// Publish sends p to every member of the group, at all gates: this node's first, then over the bus.
func (s *sessions) Publish(group string, p *zmsg.Push) error {
	body, err := p.EncodedBody()
	if err != nil {
		return err
	}
	encoded := zmsg.Push{ID: p.ID, Body: body, Class: p.Class, Of: p.Of, Trace: p.Trace, No: s.published.Add(1)}
	// A session that comes here in between is not to be missed by both gates: see moves.Taken.
	_, release := s.moves.hold(zmsg.SessionRef{ID: zmsg.HashBytes(group)})
	defer release()
	if s.gate != nil {
		s.gate.PublishLocal(group, &encoded)
	}
	e := zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH, Group: group}
	if err := pushInto(&e, &encoded); err != nil {
		return err
	}
	return s.link.PublishGroup(&e)
}

// controlJoined is the id of the control envelope that a gate answers a join with; below 16 are the link's own.
const controlJoined = 16

// joinTimeout is how long Join waits for another gate: longer than a gate waits for its subscription.
const joinTimeout = 5 * time.Second

// pendingJoin waits for the word of the gate that has the session.
type pendingJoin struct {
	gate zmsg.NodeRef
	done chan error // takes one
}

// Join makes the session a member of the group, and waits until it is: what is published afterwards, on any node,
// reaches it. For another node's session that is one round trip over the bus.
func (s *sessions) Join(ref zmsg.SessionRef, group string) error {
	ref = s.moves.where(ref)
	local, err := s.local(ref.Gate)
	if err != nil {
		return err
	}
	if local {
		return s.gate.Join(ref, group)
	}
	done := make(chan error, 1)
	s.mu.Lock()
	s.last++
	number := s.last
	s.joins[number] = pendingJoin{ref.Gate, done}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.joins, number)
		s.mu.Unlock()
	}()
	now, release := s.moves.hold(ref)
	if now != ref {
		release()
		return s.Join(now, group) // it went in this moment
	}
	err = s.op(ref, wirepb.SessionOp_SESSION_OP_JOIN, zmsg.Envelope{Group: group, Request: number})
	release()
	if err != nil {
		return err
	}
	if s.alive(ref.Gate) == nodeGone { // lost before the join was noted
		return errGateLost
	}
	timeout := time.NewTimer(joinTimeout)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		// It may still become one: taken back, in the order of this node's operations.
		_ = s.op(ref, wirepb.SessionOp_SESSION_OP_LEAVE, zmsg.Envelope{Group: group})
		return &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown, Text: "the gate did not confirm the join"}
	}
}

var errGateLost error = &zmsg.Error{Code: zmsg.CodeNodeLost, Outcome: zmsg.NotExecuted, Text: "the gate's node is gone"}

// joined takes the word of another gate about a join that this node asked for.
func (s *sessions) joined(from zmsg.NodeRef, e *zmsg.Envelope) {
	s.mu.Lock()
	if p := s.answeredLocked(from, e); p != nil {
		s.mu.Unlock()
		s.bound(p, e)
		return
	}
	p, ok := s.joins[e.Request]
	delete(s.joins, e.Request)
	s.mu.Unlock()
	if !ok || p.gate != from {
		return // given up meanwhile
	}
	if e.Code == zmsg.CodeOK {
		p.done <- nil
		return
	}
	p.done <- &zmsg.Error{Code: e.Code, Outcome: e.Outcome, Text: strings.Clone(e.Text)}
}

// ack tells another node how the operation that it asked about ended: the gate's side of joined.
func (s *sessions) ack(to zmsg.NodeRef, request uint64, err error) {
	r := zmsg.ErrorReply(err)
	e := zmsg.Envelope{ID: controlJoined, Request: request, Code: r.Code, Outcome: r.Outcome, Text: r.Text}
	// A node that cannot be told waits until its time is up.
	_ = s.link.SendControl(to, &e)
}

// Leave ends the session's membership of the group.
func (s *sessions) Leave(ref zmsg.SessionRef, group string) error {
	ref, release := s.moves.hold(ref)
	defer release()
	local, err := s.local(ref.Gate)
	if err != nil {
		return err
	}
	if local {
		return s.gate.Leave(ref, group)
	}
	return s.op(ref, wirepb.SessionOp_SESSION_OP_LEAVE, zmsg.Envelope{Group: group})
}

// Kick closes the session with a close code and a text that the client reads.
func (s *sessions) Kick(ref zmsg.SessionRef, code uint32, text string) error {
	now, release := s.moves.hold(ref)
	defer release()
	if code != uint32(zgate.CloseMoved) { // that is about the session at the gate before
		ref = now
	}
	local, err := s.local(ref.Gate)
	if err != nil {
		return err
	}
	if local {
		return s.gate.Kick(ref, code, text)
	}
	return s.op(ref, wirepb.SessionOp_SESSION_OP_KICK, zmsg.Envelope{Code: zmsg.Code(code), Text: text})
}

// Route says where messages of the session go.
func (s *sessions) Route(ref zmsg.SessionRef, r *zmsg.SessionRoute) error {
	ref, release := s.moves.hold(ref)
	defer release()
	local, err := s.local(ref.Gate)
	if err != nil {
		return err
	}
	if local {
		return s.gate.SetRoute(ref, r)
	}
	body, err := r.Encode()
	if err != nil {
		return err
	}
	return s.op(ref, wirepb.SessionOp_SESSION_OP_ROUTE, zmsg.Envelope{Body: body})
}

func (s *sessions) op(ref zmsg.SessionRef, op wirepb.SessionOp, e zmsg.Envelope) error {
	e.Kind, e.Op, e.Session = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, op, ref
	return s.send(ref.Gate, &e)
}

// send sends an operation to another gate: one that is known to be gone is an error, not a message to nobody.
func (s *sessions) send(gate zmsg.NodeRef, e *zmsg.Envelope) error {
	if s.alive(gate) == nodeGone {
		return errGateLost
	}
	return s.link.SendSession(gate, e)
}

// Watch has SessionClosed sent to the actor of this node, once, when the session ends: by its gate, or by this node
// when discovery says that the gate's node is gone. A session that is gone already is told at once.
func (s *sessions) Watch(ref zmsg.SessionRef, actor uint64) error {
	now, release := s.moves.hold(ref)
	defer release()
	if now != ref { // the actor knows it by an old name
		s.tellMoved(actor, ref, now)
		ref = now
	}
	w := watch{ref, actor}
	if local, err := s.local(ref.Gate); local {
		if err == nil {
			err = s.gate.Watch(ref, zmsg.Address{Node: s.self.Ref(), Actor: actor})
		}
		if err != nil {
			return s.tellClosed(w, "the session is gone")
		}
		return nil
	}
	s.mu.Lock()
	twice := s.noteLocked(w, false)
	s.mu.Unlock()
	// Asked after the watch is noted: a gate that is lost in between finds it there.
	if s.alive(ref.Gate) == nodeGone {
		s.lost(ref.Gate)
		return nil
	}
	if twice {
		return nil
	}
	return s.watchOp(w, wirepb.SessionOp_SESSION_OP_WATCH)
}

// Unwatch takes Watch back. A SessionClosed that is on its way may still arrive.
func (s *sessions) Unwatch(ref zmsg.SessionRef, actor uint64) error {
	ref, release := s.moves.hold(ref)
	defer release()
	w := watch{ref, actor}
	if local, err := s.local(ref.Gate); local {
		if err == nil {
			return s.gate.Unwatch(ref, zmsg.Address{Node: s.self.Ref(), Actor: actor})
		}
		return err
	}
	if !s.forget(w) {
		return nil
	}
	return s.watchOp(w, wirepb.SessionOp_SESSION_OP_UNWATCH)
}

func (s *sessions) watchOp(w watch, op wirepb.SessionOp) error {
	return s.link.SendSession(w.session.Gate, &zmsg.Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: op, Session: w.session, FromActor: w.actor,
	})
}

// watching reports whether there is such a watch.
func (s *sessions) watching(w watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.watches[w.session.Gate][w.session], func(x watcher) bool { return x.actor == w.actor })
}

// forget removes a watch and reports whether it was there.
func (s *sessions) forget(w watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgetLocked(w)
}

// arrived looks at a message from another node before its actor gets it: a SessionClosed ends its watch. It reports
// false for one that was told before.
func (s *sessions) arrived(actor uint64, m *zmsg.Message) bool {
	if m.ID == zmsg.SessionMovedID && !m.Client { // of a gate that this node has asked late, by an old name
		var w wirepb.SessionMoved
		if err := proto.Unmarshal(m.Body(), &w); err == nil {
			from, to := zmsg.MovedSession(&w)
			s.moves.moved(from, to, nil, nil)
		}
		return false // it tells the actor
	}
	if m.ID == zmsg.SessionSuspendedID || m.ID == zmsg.SessionResumedID {
		return m.Client || s.watching(watch{m.Session, actor}) // else it is told of its end already, or by another name
	}
	if m.ID != zmsg.SessionClosedID {
		return true
	}
	var c wirepb.SessionClosed
	if err := proto.Unmarshal(m.Body(), &c); err != nil {
		return true // the actor's handler answers for bad bodies
	}
	return s.forget(watch{zmsg.ClosedSession(&c), actor})
}

// lost tells the watchers of every session at the gate that it is gone.
func (s *sessions) lost(gate zmsg.NodeRef) {
	s.mu.Lock()
	at := s.watches[gate]
	delete(s.watches, gate)
	for number, p := range s.joins {
		if p.gate == gate {
			delete(s.joins, number)
			p.done <- errGateLost
		}
	}
	s.mu.Unlock()
	for ref, list := range at {
		for _, w := range list {
			// A watcher that is gone as well, or is full, has nobody else to hear it; the mailbox counted it.
			_ = s.tellClosed(watch{ref, w.actor}, "the gate's node is gone")
		}
	}
}

// rejoined asks the other gates again for what they were asked under the node's epoch before, which they have forgotten, and
// ends the joins that wait for their word.
func (s *sessions) rejoined() {
	s.mu.Lock()
	var again []watch
	for _, at := range s.watches {
		for ref, list := range at {
			for _, w := range list {
				again = append(again, watch{ref, w.actor})
			}
		}
	}
	for number, p := range s.joins {
		delete(s.joins, number)
		p.done <- errRejoined
	}
	s.mu.Unlock()
	for _, w := range again {
		_ = s.watchOp(w, wirepb.SessionOp_SESSION_OP_WATCH) // the bus is away: as for any watch, the gate's loss ends it
	}
}

var errRejoined error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown, Text: "this node lost its place in the cluster and joined again"}

// tellClosed sends SessionClosed to a watcher on this node.
func (s *sessions) tellClosed(w watch, reason string) error {
	m := zmsg.NewMessage(zmsg.SessionClosedID)
	m.Value = &wirepb.SessionClosed{
		Session: w.session.ID, Generation: w.session.Gen, Gate: w.session.Gate.ID, GateEpoch: w.session.Gate.Epoch, Reason: reason,
	}
	if err := s.tell(zmsg.Address{Node: s.self.Ref(), Actor: w.actor}, m); err != nil {
		m.Release()
		return err
	}
	return nil
}
