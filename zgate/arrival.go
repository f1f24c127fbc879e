package zgate

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// doEarly does the first of what waits; false: there was nothing, and nothing waits any more.
func (s *Session) doEarly() bool {
	c := s.lock()
	a := s.resume.arrival
	if len(a.ops) == 0 {
		s.resume.arrival = nil
		s.resume.arriving.Store(false)
		s.wakeLocked()
		c.q.mu.Unlock()
		return false
	}
	do := a.ops[0]
	a.ops = a.ops[1:]
	c.q.mu.Unlock()
	do()
	return true
}

// arrival is a session that another gate is asked for. It has a name and its place in the table, but no state: what comes for it waits, and is
// done in its order when the state is there. Guarded by the lock of the session's connection, which is none that anybody is at.
type arrival struct {
	pushes []*encoded
	bytes  int      // of pushes
	lacks  bool     // some are missing that came ahead of them: the client is told of a gap
	lost   bool     // likewise, behind them
	ops    []func() // what else there is to do
}

// coming makes a place for the session that is to come from ref's gate. nil: there is one of the id, or no room.
func (g *Gate) coming(user string, before, ref zmsg.SessionRef, text bool, window time.Duration) (*Session, *violation) {
	if g.active.Load() >= int64(g.cfg.MaxSessions) || g.suspended.Load() >= int64(g.cfg.MaxSuspended) {
		return nil, &violation{CloseOverloaded, "the gate is full"}
	}
	c := &conn{g: g}
	c.timer.conn = c
	c.text.Store(text)
	c.closingNow.Store(true)
	c.phase.Store(phaseGone)
	c.q.dead, c.q.closing, c.q.closed = true, true, ending{closedLost, "it has come from another gate"}
	s := &Session{g: g, user: user, ref: ref, state: stateComing, resume: &resumption{window: window, came: &before, arrival: new(arrival)}}
	s.resume.arriving.Store(true)
	s.resume.arrival.lacks = g.wasGivenUp(ref.ID)
	s.rate = newRates(g.allowed, g.now())
	s.c.Store(c)
	c.session.Store(s)
	if !g.sessions.put(s) {
		return nil, nil
	}
	g.count.Sessions.Inc()
	return s, nil
}

// gaveUp remembers a session that this gate has asked for, and whose answer it has not waited for: what comes for it until there is a place for it again is dropped.
func (g *Gate) gaveUp(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unanswered == nil || len(g.unanswered) >= maxAsks {
		g.unanswered = make(map[uint64]int64)
	}
	g.unanswered[id] = g.now()
}

// wasGivenUp reports whether something that came for the session may have been dropped, and forgets it.
func (g *Gate) wasGivenUp(id uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.unanswered[id]
	delete(g.unanswered, id)
	return ok && g.now()-at < int64(g.cfg.ResumeWindow)
}

// pushLaterLocked keeps e until the session's state is there. It may be too much: then the client is told of a gap.
func (s *Session) pushLaterLocked(e *encoded) {
	a := s.resume.arrival
	if len(a.pushes) >= s.g.cfg.KeepCount || a.bytes+e.weight() > s.g.cfg.KeepBytes || a.lost {
		a.lost = true
		s.g.count.dropKept.Inc()
		return
	}
	x := *e
	x.keep()
	a.pushes = append(a.pushes, &x)
	a.bytes += x.weight()
}

// lacks has the client be told of a gap: what has come for the session ahead of its place here was dropped.
func (s *Session) lacks() {
	c := s.lock()
	defer c.q.mu.Unlock()
	if a := s.resume.arrival; a != nil {
		a.lacks = true
	}
}

// later has do done when the session's state is there; false: it is.
func (s *Session) later(do func()) bool {
	if s.resume == nil || !s.resume.arriving.Load() {
		return false
	}
	c := s.lock()
	defer c.q.mu.Unlock()
	a := s.resume.arrival
	switch {
	case a == nil:
		return false
	case len(a.ops) >= s.g.cfg.KeepCount:
		if s.g.count.dropKept.Inc(); s.state == stateComing {
			a.lost = true
		} else {
			s.gapLocked(c, &wirepb.Gap{})
		}
	default:
		a.ops = append(a.ops, do)
	}
	return true
}

// settle makes w the session's state, and does what has waited: it is suspended then, for its client to come back. false: it is no longer waited for.
func (s *Session) settle(w *wirepb.SessionState, before zmsg.SessionRef) bool {
	g, c := s.g, s.lock()
	if s.state != stateComing {
		c.q.mu.Unlock()
		return false
	}
	r := s.resume
	s.importLocked(c, w)
	r.until = g.now() + int64(r.window)
	s.state = stateSuspended
	g.suspended.Add(1)
	g.count.Suspended.Inc()
	if r.arrival.lacks {
		s.gapLocked(c, &wirepb.Gap{})
	}
	for _, p := range r.arrival.pushes {
		if !s.overlapsLocked(p) {
			_ = s.awayLocked(c, p)
		}
	}
	r.arrival.pushes = nil
	if r.arrival.lost {
		s.gapLocked(c, &wirepb.Gap{})
	}
	if r.arrival.lacks || r.arrival.lost {
		g.log.Debug("something is missing of what came for a session ahead of its state", "session", s.ref.ID, "generation", s.ref.Gen, "before", r.arrival.lacks, "behind", r.arrival.lost)
	}
	instead := r.instead.Swap(nil)
	c.q.mu.Unlock()
	for _, b := range w.GetObjects() {
		g.objects.arrive(s, b)
	}
	there, n := s.joinAgain(w.GetGroups())
	for s.doEarly() { // behind all that it was: one of them may be a Leave
	}
	if instead != nil {
		instead.cameBack()
	}
	g.wheel.schedule(&c.timer, min(s.requests.next(), g.now()+int64(r.window)))
	g.count.handTaken.Inc()
	s.sayTaken(before, there, n)
	if g.cfg.Directory != nil {
		g.rebinds.add(g, s)
	}
	return true
}

// joinAgain makes the session a member of its groups here; there gets a word for each of n whose subscription is there.
func (s *Session) joinAgain(groups []string) (there <-chan struct{}, n int) {
	c := make(chan struct{}, len(groups))
	for _, name := range groups {
		if s.g.groups.join(s, name, func(error) { c <- struct{}{} }) == nil { // one that fails is tried again, as for any group
			n++
		}
	}
	return c, n
}

// joining reports whether what is published to the session's groups comes by the gate before still, which is told when not.
func (s *Session) joining() bool {
	c := s.lock()
	defer c.q.mu.Unlock()
	return s.resume != nil && s.resume.passing.Load()
}

// sayTaken tells the gate before when all that is published to the session's groups arrives here.
func (s *Session) sayTaken(before zmsg.SessionRef, there <-chan struct{}, n int) {
	if n == 0 || !s.g.enlist() {
		s.g.cfg.Peers.Taken(before)
		return
	}
	// Owned by the gate; ends when the subscriptions are there, within publishOverlap; Shutdown waits for it.
	go func() {
		defer s.g.wg.Done()
		late := time.NewTimer(publishOverlap)
		defer late.Stop()
		for n > 0 {
			select {
			case <-there:
				n--
			case <-late.C:
				n = 0
			case <-s.g.staying.Done():
				n = 0
			}
		}
		s.g.cfg.Peers.Taken(before)
	}()
}

// notCome takes the place of a session away that does not come.
func (s *Session) notCome() {
	g, c := s.g, s.lock()
	if s.state != stateComing {
		c.q.mu.Unlock()
		return
	}
	s.state, s.resume.failed = stateEnded, true
	dropped := len(s.resume.arrival.pushes) + len(s.resume.arrival.ops)
	s.resume.arrival = nil
	s.resume.arriving.Store(false)
	s.wakeLocked()
	c.q.mu.Unlock()
	g.sessions.restore(s, s.resume.instead.Load())
	g.count.Sessions.Dec()
	g.count.dropNoSession.Add(float64(dropped))
}

// fetch asks the gate where a session is for it. It returns the session, which is suspended then; or where it is; or why the client does not get it back.
// With nothing of these the gate does not answer.
func (g *Gate) fetch(c *conn, at zmsg.SessionRef, cl *claim, window time.Duration) (s *Session, next zmsg.SessionRef, why refusal, v *violation) {
	ref := zmsg.SessionRef{Gate: g.self.Ref(), ID: at.ID, Gen: at.Gen + 1}
	s, v = g.coming(cl.user, at, ref, cl.text, window)
	if s == nil {
		return nil, ref, granted, v // the same client is at it by another connection
	}
	ask, err := proto.Marshal(&wirepb.HandoverAsk{User: cl.user, Secret: cl.secret[:], Key: cl.key[:], LastPush: cl.last, LastSeq: cl.seq, Text: cl.text})
	if err != nil {
		s.notCome()
		return nil, next, refusedInvalid, nil
	}
	c.enter(phaseAuth, g.cfg.HandoverTime+g.cfg.AuthTimeout)
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.HandoverTime)
	defer cancel()
	for {
		if hungUp(c.nc) {
			s.notCome()
			return nil, next, granted, &errGaveUp
		}
		b, err := g.cfg.Peers.Ask(ctx, at, ask)
		c.readAt = time.Now()
		var a wirepb.HandoverAnswer
		if err != nil || proto.Unmarshal(b, &a) != nil {
			g.gaveUp(at.ID)
			s.notCome()
			g.count.handSilent.Inc()
			return nil, next, granted, nil
		}
		switch a.GetResult() { //nolint:exhaustive // the others are below
		case wirepb.HandoverResult_HANDOVER_RESULT_STATE:
			if !validState(a.GetState()) || a.GetState().GetUser() != cl.user {
				s.notCome()
				return nil, next, refusedInvalid, nil
			}
			if !s.settle(a.GetState(), at) {
				return nil, ref, granted, nil // another answer was there first
			}
			return s, next, granted, nil
		case wirepb.HandoverResult_HANDOVER_RESULT_BUSY:
			pause := time.NewTimer(askAgain)
			select {
			case <-pause.C:
				continue
			case <-ctx.Done():
				pause.Stop()
			}
			s.notCome()
			g.count.handSilent.Inc()
			return nil, next, granted, nil
		}
		s.notCome()
		switch a.GetResult() {
		case wirepb.HandoverResult_HANDOVER_RESULT_ELSEWHERE:
			return nil, zmsg.SessionRef{Gate: zmsg.NodeRef{ID: a.GetGate(), Epoch: a.GetEpoch()}, ID: at.ID, Gen: a.GetGeneration()}, granted, nil
		case wirepb.HandoverResult_HANDOVER_RESULT_ENDED:
			if code := CloseCode(min(a.GetCode(), 1<<16-1)); code != 0 && !code.Reconnect() {
				return nil, next, refusedExpired, &violation{code, cut(a.GetText(), maxReason)}
			}
			return nil, next, refusedExpired, nil
		case wirepb.HandoverResult_HANDOVER_RESULT_USER:
			return nil, next, refusedUser, nil
		default:
			return nil, next, refusedInvalid, nil
		}
	}
}

// HandedLate takes an answer that nobody waits for any more. The session waits here for its client, unless it goes on already. ref is what was asked for.
func (g *Gate) HandedLate(ref zmsg.SessionRef, answer []byte) {
	var a wirepb.HandoverAnswer
	if proto.Unmarshal(answer, &a) != nil || a.GetResult() != wirepb.HandoverResult_HANDOVER_RESULT_STATE || !validState(a.GetState()) {
		return
	}
	w := a.GetState()
	own := zmsg.SessionRef{Gate: g.self.Ref(), ID: ref.ID, Gen: ref.Gen + 1}
	window := min(g.cfg.ResumeWindow, time.Duration(w.GetWindowMs())*time.Millisecond)
	var s *Session
	if !g.past.has(ref.ID) {
		s, _ = g.coming(w.GetUser(), ref, own, w.GetText(), window)
	}
	if s != nil {
		s.lacks()
		if s.settle(w, ref) {
			s.tellState() // nobody is about to take it
		}
		return
	}
	switch s = g.sessions.get(ref.ID); {
	case s == nil || s.ref != own: // it went on without
	case s.settle(w, ref): // it is asked for again
		return
	case s.joining(): // the same answer once more
		return
	}
	g.cfg.Peers.Taken(ref)
}
