package zgate

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zgate/internal/keep"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Peers is the way to the other gates, for sessions that go from one to another: docs/decisions/0029 draws it. Its methods may be called from many goroutines at once.
type Peers interface {
	// There reports whether a gate may answer: false where the list of nodes has lost it.
	There(gate zmsg.NodeRef) bool
	// Others reports whether there is another gate, which might take sessions over.
	Others() bool
	// Ask has the gate of ref answer ask (Gate.HandOver), and repeats it until the answer is there, or ctx ends. What comes later goes to Gate.HandedLate.
	Ask(ctx context.Context, ref zmsg.SessionRef, ask []byte) (answer []byte, err error)
	// Taken tells the gate of ref that its answer has come, and that what is published to the session's groups arrives here.
	Taken(ref zmsg.SessionRef)
	// Moves tells all other nodes that a session of this gate goes to another one, and waits until each has noted it, behind which nothing is on its way
	// here, or ctx ends: late is how many have not by then. A node that nobody is at is not waited for.
	Moves(ctx context.Context, from, to zmsg.SessionRef) (late int)
	// MovedHere does the same at this node; watchers and owners are its actors that watch the session, and its objects' that it is bound to. It does not block.
	MovedHere(from, to zmsg.SessionRef, watchers, owners []uint64)
	// Forward sends an operation on a session to its gate. e stays the caller's. It does not block.
	Forward(e *zmsg.Envelope) error
}

const (
	askAgain = 20 * time.Millisecond
	maxAsks  = 4096 // of other gates that are being answered
	maxTrail = 8    // gates that a session is looked for at, one after the other
)

// movement is a session on its way to another gate. Guarded by the lock of the session's connection.
type movement struct {
	to      zmsg.SessionRef
	kick    ending // what is to end it there
	state   []byte // the answer, until it has come; then nil
	settled bool   // the other gate has the answer
	out     bool   // it is out of its groups
	since   int64
}

// goneTo returns where the session is, which this gate has handed over.
func (s *Session) goneTo() (to zmsg.SessionRef, gone bool) {
	if s.resume == nil {
		return to, false
	}
	p := s.resume.gone.Load()
	if p == nil {
		return to, false
	}
	return *p, true
}

// tellMoved tells an actor that a session goes on at another gate.
func (g *Gate) tellMoved(to zmsg.Address, from, now zmsg.SessionRef) {
	m := zmsg.NewSessionMoved(from, now)
	if err := g.cfg.Tell(to, m); err != nil {
		g.count.dropWatcher.Inc()
		m.Release()
	}
}

// forward sends an operation on a session that this gate has handed over on to where it is.
func (g *Gate) forward(to zmsg.SessionRef, e *zmsg.Envelope) error {
	e.Kind, e.Session = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, to
	if err := g.cfg.Peers.Forward(e); err != nil {
		g.count.dropForward.Inc()
		return err
	}
	g.count.handLate.Inc()
	return nil
}

// forwardLocked sends a push on. The session's last connection is locked.
func (s *Session) forwardLocked(e *encoded) error {
	m := s.resume.moving
	if e.pub.n != 0 && !e.sentOn && s.g.now()-m.since > int64(publishOverlap) {
		return nil // it comes there by itself
	}
	return s.g.forward(m.to, &zmsg.Envelope{
		Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: e.id, Body: e.body, Class: e.class, Of: e.of, Owner: e.pub.node, PushNo: e.pub.n,
	})
}

// elsewhere sends an operation on where the session was handed over; false: it was not.
func (s *Session) elsewhere(e zmsg.Envelope) (ok bool, err error) {
	to, gone := s.goneTo()
	if !gone {
		return false, nil
	}
	return true, s.g.forward(to, &e)
}

// ---- the gate that has the session ----

// HandOver answers another gate that asks for a session, for the client whose secret is in ask: with the session's state, which is the other gate's
// then, or with why not. number is the question's: one that comes twice has one answer, so who has got that asks for nothing any more. answer is called once, from
// any goroutine, or not at all where the same is being answered already; an error with CodeTooLarge has it called once more with what is smaller. HandOver
// does not block. ref and ask are the gate's.
func (g *Gate) HandOver(from zmsg.NodeRef, number uint64, ref zmsg.SessionRef, ask []byte, answer func([]byte) error) {
	if g.cfg.Peers == nil || !g.self.Is(ref.Gate) {
		g.answerAsk(answer, &wirepb.HandoverAnswer{Result: wirepb.HandoverResult_HANDOVER_RESULT_INVALID})
		return
	}
	q := question{from, number}
	g.mu.Lock()
	before, twice := g.asked.answers[q]
	switch {
	case twice:
		g.mu.Unlock()
		if before != nil { // else it is being answered
			g.answerAsk(answer, before)
		}
		return
	case g.asks >= maxAsks || !g.beginLocked():
		busy := &wirepb.HandoverAnswer{Result: wirepb.HandoverResult_HANDOVER_RESULT_BUSY}
		g.asked.doneLocked(q, busy)
		g.mu.Unlock()
		g.answerAsk(answer, busy)
		return
	}
	g.asks++
	g.asked.beginLocked(q)
	g.mu.Unlock()
	// Owned by the gate; ends within twice HandoverTime; Shutdown waits for it.
	go func() {
		defer g.wg.Done()
		defer g.hasGone()
		a := g.handOver(from, ref, ask, answer)
		g.mu.Lock()
		g.asks--
		g.asked.doneLocked(q, a)
		g.mu.Unlock()
		if a != nil {
			g.answerAsk(answer, a)
		}
	}()
}

// question names what another gate asks, and asks again until it is answered.
type question struct {
	from   zmsg.NodeRef
	number uint64
}

// asked is what was answered of late with no session, or is being answered: the next copy of a question has the same answer, though it might be another one by
// now. A session that has been given is given again by handOver. Guarded by Gate.mu; the zero value is empty.
type asked struct {
	answers map[question]*wirepb.HandoverAnswer // nil: not yet
	order   []question                          // answered, round and round
	next    int
}

func (a *asked) beginLocked(q question) {
	if a.answers == nil {
		a.answers = make(map[question]*wirepb.HandoverAnswer)
	}
	a.answers[q] = nil
}

// doneLocked notes the answer; nil: it was a session, or there is none.
func (a *asked) doneLocked(q question, answer *wirepb.HandoverAnswer) {
	if answer == nil {
		delete(a.answers, q)
		return
	}
	a.beginLocked(q)
	a.answers[q] = answer
	if len(a.order) < maxAsks {
		a.order = append(a.order, q)
		return
	}
	delete(a.answers, a.order[a.next])
	a.order[a.next] = q
	a.next = (a.next + 1) % maxAsks
}

func (g *Gate) answerAsk(answer func([]byte) error, a *wirepb.HandoverAnswer) {
	if b, err := proto.Marshal(a); err == nil {
		_ = answer(b) // lost: it is asked for again
	}
}

// handOver returns the answer; nil: there is none, or it has been given.
func (g *Gate) handOver(from zmsg.NodeRef, ref zmsg.SessionRef, ask []byte, answer func([]byte) error) *wirepb.HandoverAnswer {
	var w wirepb.HandoverAsk
	result := func(r wirepb.HandoverResult) *wirepb.HandoverAnswer { return &wirepb.HandoverAnswer{Result: r} }
	if err := proto.Unmarshal(ask, &w); err != nil || len(w.GetSecret()) != len(secret{}) || len(w.GetKey()) != len(secret{}) {
		return result(wirepb.HandoverResult_HANDOVER_RESULT_INVALID)
	}
	cl := claim{user: w.GetUser(), gen: ref.Gen, secret: secret(w.GetSecret()), key: secret(w.GetKey()), last: w.GetLastPush(), seq: w.GetLastSeq(), text: w.GetText()}
	to := zmsg.SessionRef{Gate: from, ID: ref.ID, Gen: ref.Gen + 1}
	patience := time.NewTimer(g.cfg.HandoverTime)
	defer patience.Stop()
	for {
		s := g.sessions.get(ref.ID)
		if s == nil {
			a := result(wirepb.HandoverResult_HANDOVER_RESULT_ENDED)
			if how, ok := g.past.take(ref.ID, cl.user, &cl.secret, g.now()); ok {
				a.Code, a.Text = uint32(how.code), how.text
			}
			return a
		}
		c := s.lock()
		held := s.holderLocked(c)
		why, r := judge(&held, &cl), s.resume
		switch {
		case why == refusedUser:
			c.q.mu.Unlock()
			return result(wirepb.HandoverResult_HANDOVER_RESULT_USER)
		case s.state == stateComing, r != nil && r.arrival != nil, r != nil && r.asking: // what came ahead of its state is to be done first
			c.q.mu.Unlock()
			return result(wirepb.HandoverResult_HANDOVER_RESULT_BUSY)
		case s.state == stateGone && r.moving.to == to && r.moving.state != nil && held.knows(&cl):
			b := r.moving.state // the answer was lost
			c.q.mu.Unlock()
			_ = answer(b)
			return nil
		case s.state == stateGone:
			at := r.moving.to
			c.q.mu.Unlock()
			return elsewhereAnswer(at)
		case r != nil && r.moving != nil:
			same := r.moving.to == to
			c.q.mu.Unlock()
			if same {
				return nil // its answer is on its way
			}
			return result(wirepb.HandoverResult_HANDOVER_RESULT_BUSY)
		case why == refusedExpired:
			how := c.q.closed
			c.q.mu.Unlock()
			a := result(wirepb.HandoverResult_HANDOVER_RESULT_ENDED)
			a.Code, a.Text = uint32(how.code), how.text
			return a
		case why != granted:
			c.q.mu.Unlock()
			return result(wirepb.HandoverResult_HANDOVER_RESULT_INVALID)
		case s.ref.Gen != ref.Gen:
			c.q.mu.Unlock()
			return elsewhereAnswer(s.ref)
		case s.state == stateSuspended:
			s.rebaseLocked(c, &cl)
			r.moving = &movement{to: to}
			c.q.mu.Unlock()
			g.letGo(s, to, &cl.secret, answer)
			return nil
		}
		gone := make(chan struct{})
		r.wait = append(r.wait, gone)
		r.shown = true // by bringing it
		c.breakLocked(closedTaken, "the client is back at another gate")
		c.q.mu.Unlock()
		select {
		case <-gone:
		case <-patience.C:
			return result(wirepb.HandoverResult_HANDOVER_RESULT_BUSY)
		case <-g.ctx.Done():
			return nil
		}
	}
}

func elsewhereAnswer(at zmsg.SessionRef) *wirepb.HandoverAnswer {
	return &wirepb.HandoverAnswer{
		Result: wirepb.HandoverResult_HANDOVER_RESULT_ELSEWHERE, Gate: at.Gate.ID, Epoch: at.Gate.Epoch, Generation: at.Gen,
	}
}

// fenceTime is for all nodes to note that a session goes: half of what the other gate waits for the answer.
func (g *Gate) fenceTime() time.Duration { return g.cfg.HandoverTime / 2 }

// letGo hands over a session that is suspended, and marked as moving: nobody else ends it, or gives it to a client.
func (g *Gate) letGo(s *Session, to zmsg.SessionRef, client *secret, answer func([]byte) error) {
	s.tellState() // ahead of the word that it goes
	ctx, cancel := context.WithTimeout(g.ctx, g.fenceTime())
	late := g.cfg.Peers.Moves(ctx, s.ref, to)
	cancel()
	if late > 0 {
		if suppressed, ok := g.fenceLog.Allow(time.Now()); ok {
			g.log.Warn("nodes did not answer in time that a session goes: what they have sent to it may come out of order", "session", s.ref.ID, "nodes", late, "suppressed", suppressed)
		}
	}

	// An object's owner is asked for by its own lock, which comes before the session's.
	var bound []*wirepb.BoundTo
	var objects []*boundObject
	for {
		objects, bound = s.boundTo()
		s.mu.Lock()
		if slices.Equal(objects, s.objects) {
			break
		}
		s.mu.Unlock() // bound meanwhile
	}
	c := s.lock()
	s.resume.secrets = s.resume.secrets.shown(client)
	state := s.exportLocked(c)
	state.Objects = bound
	b, err := proto.Marshal(&wirepb.HandoverAnswer{Result: wirepb.HandoverResult_HANDOVER_RESULT_STATE, State: state})
	if err != nil { // a string that is not UTF-8, which nothing lets in
		g.log.Error("a session cannot be handed over", "session", s.ref.ID, "err", err)
	}
	r := s.resume
	r.moving.state, r.moving.since = b, g.now()
	g.kept.Add(int64(len(b) - r.log.Bytes() - r.latest))
	r.log.Clear()
	c.q.latest, r.latest = nil, 0
	s.state = stateGone
	r.gone.Store(&to)
	r.until = g.now() + int64(g.cfg.ResumeWindow)
	kick := r.moving.kick
	s.wakeLocked()
	c.q.mu.Unlock()
	watchers := s.watchers
	s.watchers, s.objects = nil, nil
	s.routes.Store(nil)
	s.mu.Unlock()
	g.rebinds.forget(s)

	var here, owners []uint64
	for _, w := range watchers {
		if g.self.Is(w.Node) {
			here = append(here, w.Actor)
		}
	}
	for _, o := range objects {
		if owner, there := g.objects.leave(o, s); there && g.self.Is(owner.Node) {
			owners = append(owners, owner.Actor)
		}
	}
	g.cfg.Peers.MovedHere(s.ref, to, here, owners)
	g.suspended.Add(-1)
	g.count.Suspended.Dec()
	g.count.Sessions.Dec()
	g.count.handGiven.Inc()
	g.owed.Add(1)
	if g.gone.Add(1) > int64(g.cfg.MaxSuspended) {
		defer s.leftBehind(c) // what comes late is dropped, and counted
	}
	g.log.Debug("session handed over", "session", s.ref.ID, "user", s.user, "to", to.Gate.String(), "bytes", len(b))
	if err := answer(b); zmsg.CodeOf(err) == zmsg.CodeTooLarge {
		g.answerSmaller(s, c, state, answer)
	}
	if kick.code != 0 {
		_ = g.forward(to, &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_KICK, Code: zmsg.Code(kick.code), Text: kick.text})
	}
}

// answerSmaller answers without what was kept, which is more than the bus takes; the client is told that it is missing.
func (g *Gate) answerSmaller(s *Session, c *conn, state *wirepb.SessionState, answer func([]byte) error) {
	g.count.dropKept.Add(float64(len(state.GetKept())))
	for _, k := range state.GetKept() {
		state.Blind = state.GetBlind() || keep.Kind(k.GetKind()) == keep.Notice
	}
	state.Blind = state.GetBlind() || len(state.GetLatest()) > 0 // has no numbers yet
	state.Kept, state.Latest, state.Gone = nil, nil, state.GetPushes()
	b, err := proto.Marshal(&wirepb.HandoverAnswer{Result: wirepb.HandoverResult_HANDOVER_RESULT_STATE, State: state})
	if err != nil {
		return
	}
	c.q.mu.Lock()
	if m := s.resume.moving; m.state != nil {
		g.kept.Add(int64(len(b) - len(m.state)))
		m.state = b
	}
	c.q.mu.Unlock()
	_ = answer(b)
}

// boundTo returns what the session is bound to, and who owns it.
func (s *Session) boundTo() (objects []*boundObject, all []*wirepb.BoundTo) {
	s.mu.Lock()
	objects = slices.Clone(s.objects)
	s.mu.Unlock()
	for _, o := range objects {
		o.mu.Lock()
		owner, version := o.owner, o.order.version
		o.mu.Unlock()
		all = append(all, &wirepb.BoundTo{
			Key:     &wirepb.ObjectKey{Type: o.key.Type, Zone: o.key.Zone, Id: o.key.ID},
			Version: uint64(version), Node: owner.Node.ID, Epoch: owner.Node.Epoch, Actor: owner.Actor,
		})
	}
	return objects, all
}

// Taken takes the word of another gate that it has the state of a session of this one: what is published to its groups arrives there.
func (g *Gate) Taken(from zmsg.NodeRef, ref zmsg.SessionRef) {
	s := g.sessions.get(ref.ID)
	if s == nil || !g.self.Is(ref.Gate) {
		return
	}
	if s = s.called(ref.Gen); s != nil {
		s.taken(from)
	}
}

// cameBack is Taken for a session that is at this gate again, by another name.
func (s *Session) cameBack() { s.taken(s.resume.gone.Load().Gate) }

func (s *Session) taken(from zmsg.NodeRef) {
	g := s.g
	if !g.begin() {
		return
	}
	defer g.wg.Done()
	c := s.lock()
	if s.state != stateGone || s.resume.moving.to.Gate != from {
		c.q.mu.Unlock()
		return
	}
	s.settleLocked()
	c.q.mu.Unlock()
	s.leaveGroups()
	c = s.lock()
	defer c.q.mu.Unlock()
	if s.state == stateGone {
		s.resume.moving.out = true
		s.sayGroupsLocked()
	}
}

// sayGroupsLocked tells the gate where the session is that nothing more comes of what is published to its groups: behind all of that, also of what the gate
// before sends on.
func (s *Session) sayGroupsLocked() {
	if m := s.resume.moving; s.state == stateGone && m.out && !s.resume.passing.Load() {
		_ = s.g.cfg.Peers.Forward(&zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_GROUPS, Session: m.to})
	}
}

// settleLocked lets go of the answer.
func (s *Session) settleLocked() {
	m := s.resume.moving
	s.g.kept.Add(-int64(len(m.state)))
	if m.state = nil; !m.settled {
		m.settled = true
		s.g.owed.Add(-1)
		s.g.hasGone()
	}
}

func (s *Session) leaveGroups() {
	s.mu.Lock()
	groups := s.groups
	s.groups = nil
	for _, grp := range groups {
		s.g.groups.leave(grp, s)
	}
	s.mu.Unlock()
}

// isLeftBehind reports that leftBehind has been here.
func (s *Session) isLeftBehind() bool { return s.resume.behind.Load() }

// leftBehind forgets a session that was handed over.
func (s *Session) leftBehind(c *conn) {
	g := s.g
	c.q.mu.Lock()
	if s.state != stateGone {
		c.q.mu.Unlock()
		return
	}
	s.state = stateEnded
	s.resume.behind.Store(true)
	s.settleLocked()
	s.dropOverlapLocked()
	c.q.mu.Unlock()
	g.wheel.remove(&c.timer)
	g.sessions.drop(s)
	for range s.requests.close() {
		g.requestDone()
	}
	s.endAskings()
	s.leaveGroups()
	g.gone.Add(-1)
}
