package zgate

import (
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zgate/internal/keep"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// The states of a session. It begins active; suspended it has no connection, and waits for its client to come back; ended is the end.
//
//	            its connection breaks          its client resumes
//	active ───────────────────────► suspended ───────────────────► active
//	   │                                │
//	   │ the client says goodbye,       │ ResumeWindow is over,
//	   │ Kick, a fault, Shutdown        │ Kick, Shutdown
//	   ▼                                ▼
//	 ended ◄──────────────────────────ended
const (
	stateActive uint8 = iota
	stateSuspended
	stateEnded
	stateComing // another gate is asked for it: see arrival
	stateGone   // another gate has it: what comes late goes on there
)

// resumption is what makes a session outlive its connection; sessions whose clients do not resume have none. Guarded by the lock of the session's
// connection (Session.lock), which is the last one it had while it is suspended.
type resumption struct {
	window time.Duration
	log    keep.Log
	latest int // suspended: what the newest of each id count, which wait in the queue of the connection

	key     secret  // of all its tokens; set before its state can be seen
	any     bool    // a gate that is gone may have sent tokens that are not among secrets: the key is enough, until the client is heard to have one that is
	secrets secrets // of the tokens that the client may have; that of the last Welcome is the last
	shown   bool    // the client has shown that it has a token at all: nobody else could come back

	asking    bool            // the Directory has not said yet whether it may go on with the session of a gate that is gone: whoever comes for it waits
	elsewhere zmsg.SessionRef // Lapsed: where the session is that it was to go on with; owned by who logs it in

	came *zmsg.SessionRef // what it was called at the gate before; nil: it began here. Set at construction

	// On the way between gates.
	instead  atomic.Pointer[Session]         // whose place in the table it has taken, which it was when it was here before, until its state is there; nil: nobody's
	former   *Session                        // that it was when it was here before, which has gone and passes on still; nil: none. Set when it is put into the table
	arrival  *arrival                        // what comes ahead of its state; nil: it has one
	arriving atomic.Bool                     // likewise, for a look without the lock
	moving   *movement                       // it goes to another gate, or has gone there
	gone     atomic.Pointer[zmsg.SessionRef] // where it is, once it is out of this gate
	behind   atomic.Bool                     // its place is not known any more
	failed   bool                            // it did not come, or is not to be gone on with
	overlap  *overlap                        // what is published to its groups may come twice
	passing  atomic.Bool                     // likewise, for as long as the gate before sends it on: for a look without the lock

	until int64 // suspended: how long the session waits; how its connection ended says c.q.closed
	wait  []chan struct{}
}

// lock locks the session's connection, which is no other one while it is locked.
func (s *Session) lock() *conn {
	for {
		c := s.c.Load()
		c.q.mu.Lock()
		if s.c.Load() == c {
			return c
		}
		c.q.mu.Unlock() // its client has come back by another one
	}
}

// suspends reports whether a session outlives a connection that ended so: it does where nobody wanted it to end.
func (c CloseCode) suspends() bool {
	switch c {
	case closedLost, closedTaken, CloseSilent, CloseInternal, CloseSlow:
		return true
	default:
		return false
	}
}

// clientSuspends is suspends for the code of a client's close frame: goodbye is 1000, 1001, and no code at all.
func clientSuspends(code int) bool { return code > 1001 && code < 4000 && code != 1005 }

// outlivesLocked reports whether the session, whose connection c has ended or is about to, is going to be resumed. c is locked.
func (s *Session) outlivesLocked(c *conn) bool {
	g := s.g
	code := c.q.closed.code
	wanted := code.suspends() && !g.draining.Load() || g.handing.Load() && (code.suspends() || code == CloseShutdown)
	return wanted && s.resume != nil && s.resume.shown && s.state != stateEnded && s.ref.Gate == g.self.Ref()
}

// share is what a session may keep, with more, of all kinds together: while half of MaxKeepBytes is free, as much as it likes; from then
// on a fair share of the other half. So those who are far behind lose what is theirs before those who are not lose anything, and the
// whole stays below the limit all the same.
func (g *Gate) share(more int) int {
	half := int64(g.cfg.MaxKeepBytes) / 2
	if g.kept.Load()+int64(more) <= half {
		return math.MaxInt
	}
	return int(half / max(1, int64(g.Sessions())))
}

// keepLocked makes what has just been added to the log count, and lets go what is too much.
func (s *Session) keepLocked(before int, now int64) {
	g, log := s.g, &s.resume.log
	g.kept.Add(int64(log.Bytes() - before))
	lim := g.keep
	lim.Bytes = min(lim.Bytes, max(0, g.share(0)-s.resume.latest))
	at := log.Bytes()
	dropped := log.Trim(&lim, now)
	if at != log.Bytes() {
		g.kept.Add(int64(log.Bytes() - at))
	}
	if dropped > 0 && s.state == stateSuspended {
		g.count.dropKept.Add(float64(dropped))
	}
}

// age lets go what the session keeps for too long already. It returns when to look again, never where it keeps nothing.
func (s *Session) age(now int64) (next int64) {
	if s.resume == nil {
		return never
	}
	c := s.lock()
	defer c.q.mu.Unlock()
	if s.resume.log.Len() == 0 || s.state == stateComing || s.state == stateGone {
		return never
	}
	s.keepLocked(s.resume.log.Bytes(), now)
	return now + s.g.keep.Age
}

// ack takes note of what has arrived. It is the word of c's client; a late one of a connection before says nothing new.
func (s *Session) ack(c *conn, push, response uint64) {
	if s.resume == nil {
		return
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if s.c.Load() != c || s.state != stateActive {
		return
	}
	r := s.resume
	r.shown, r.any = true, false
	if n := len(r.secrets); n > 1 {
		r.secrets = r.secrets[n-1:]
	}
	before := r.log.Bytes()
	r.log.Ack(min(push, s.pushes), response)
	s.g.kept.Add(int64(r.log.Bytes() - before))
}

// awayLocked is push where c, which is locked, takes nothing any more.
func (s *Session) awayLocked(c *conn, e *encoded) error {
	g := s.g
	switch {
	case s.state == stateGone:
		return s.forwardLocked(e)
	case s.state == stateComing:
		s.pushLaterLocked(e)
		return nil
	case !s.outlivesLocked(c):
		g.count.dropClosed.Inc()
		return ErrClosed
	case e.class == zmsg.Volatile:
		g.count.dropVolatile.Inc()
		return ErrDropped
	case e.class == zmsg.Latest && s.latestLocked(c, e):
		return nil
	}
	s.keepPushLocked(e)
	g.count.Pushes.Inc()
	return nil
}

// keepPushLocked gives e its number and, where the session is resumed, keeps it.
func (s *Session) keepPushLocked(e *encoded) {
	s.pushes++
	if s.resume == nil {
		return
	}
	before, now := s.resume.log.Bytes(), s.g.now()
	s.resume.log.Push(s.pushes, e.id, e.body, e.owned, now)
	s.keepLocked(before, now)
}

// gap tells the client, in the order of its pushes, that some are missing: what g says, or, where that is empty, whatever kind. A session that is
// suspended keeps it; for one that is just coming it stands behind what waits, and one that has gone has it where it is.
func (s *Session) gap(g *wirepb.Gap) {
	tell := func() {
		c := s.lock()
		defer c.q.mu.Unlock()
		s.gapLocked(c, g)
	}
	if !s.later(tell) {
		tell()
	}
}

// gapLocked is gap for who has the session's connection c locked, and keeps it.
func (s *Session) gapLocked(c *conn, g *wirepb.Gap) {
	if s.state == stateGone {
		body, err := proto.Marshal(g)
		if err == nil {
			_ = s.g.forward(s.resume.moving.to, &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_GAP, Body: body})
		}
		return
	}
	s.g.count.Gaps.Inc()
	if g.GetKeyType() == 0 && g.GetKeyId() == "" {
		g = &wirepb.Gap{First: s.pushes + 1}
	}
	m := &wirepb.Control{Control: &wirepb.Control_Gap{Gap: g}}
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(m)}
	b, err := c.encode(nil, &f)
	if err != nil {
		return
	}
	if s.resume != nil && (!c.endedLocked() || s.outlivesLocked(c)) {
		before, now := s.resume.log.Bytes(), s.g.now()
		s.resume.log.Notice(b, now)
		s.keepLocked(before, now)
	}
	if !c.endedLocked() { // a few bytes: if the queue is full, the next push finds it so
		c.frameLocked(c.op(), b)
		c.sentSoonLocked()
	}
}

// parkLocked decides what becomes of a session whose last connection c is closed and locked: it is suspended, or has ended.
func (s *Session) parkLocked(c *conn) (suspended bool) {
	g := s.g
	defer s.wakeLocked()
	if r := s.resume; r != nil && r.asking {
		r.asking, r.failed = false, true
	}
	if !s.outlivesLocked(c) {
		s.state = stateEnded
		return false
	}
	most := g.cfg.MaxSuspended
	if g.handing.Load() {
		most = max(most, g.cfg.MaxSessions) // they do not stay
	}
	if n := g.suspended.Add(1); n > int64(most) {
		g.suspended.Add(-1)
		g.count.suspendFull.Inc()
		s.state = stateEnded
		return false
	}
	g.active.Add(-1)
	s.state = stateSuspended
	s.resume.until = g.now() + int64(s.resume.window)
	n := weightOf(c.q.latest)
	if n > g.cfg.KeepBytes || s.resume.log.Bytes()+n > g.share(n) {
		for i := range c.q.latest { // then the client is told of those that are too much
			s.keepPushLocked(&c.q.latest[i].e)
		}
		c.q.latest, n = nil, 0
	}
	s.resume.latest = n
	g.kept.Add(int64(n))
	g.count.Suspended.Inc()
	g.count.Suspends.With(c.q.closed.code.String()).Inc()
	return true
}

// wakeLocked tells those who wait for the session to be without a connection.
func (s *Session) wakeLocked() {
	if s.resume == nil {
		return
	}
	for _, w := range s.resume.wait {
		close(w)
	}
	s.resume.wait = nil
}

// lapse ends a suspended session whose time is up; else it returns when to look again, 0 where c is not its connection any more.
func (s *Session) lapse(c *conn, now int64) (next int64) {
	c.q.mu.Lock()
	if s.c.Load() == c && s.state == stateGone {
		until := s.resume.until
		c.q.mu.Unlock()
		if now < until {
			return until
		}
		s.leftBehind(c)
		return 0
	}
	if s.c.Load() != c || s.state != stateSuspended {
		c.q.mu.Unlock()
		return 0
	}
	if s.resume.moving != nil {
		c.q.mu.Unlock()
		return now + int64(s.g.fenceTime())
	}
	if until := s.resume.until; now < until {
		c.q.mu.Unlock()
		return until
	}
	s.state = stateEnded
	how := c.q.closed
	how.text = "did not come back within " + s.resume.window.String() + ": " + how.text
	c.q.mu.Unlock()
	s.endAway(c, how)
	return 0
}

// endAway ends a session that was suspended, whose last connection c was; the caller has set its state to ended.
func (s *Session) endAway(c *conn, how ending) {
	g := s.g
	g.wheel.remove(&c.timer)
	g.count.Closes.With(how.code.String()).Inc()
	s.logEnd(how)
	s.end(how)
	g.suspended.Add(-1)
	g.count.Suspended.Dec()
	g.hasGone()
}

// refusal is why a client does not get its session back, 0: it does.
type refusal = wirepb.ResumeRefusal

const (
	granted        = wirepb.ResumeRefusal_RESUME_REFUSAL_UNSPECIFIED
	refusedExpired = wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED
	refusedInvalid = wirepb.ResumeRefusal_RESUME_REFUSAL_INVALID
	refusedUser    = wirepb.ResumeRefusal_RESUME_REFUSAL_USER
	refusedOff     = wirepb.ResumeRefusal_RESUME_REFUSAL_OFF
)

// claim is what a client says that wants its session back.
type claim struct {
	user   string // as the Authenticator has it
	gen    uint32
	secret secret
	key    secret
	last   uint64 // push that it has
	seq    uint64 // the greatest of its requests
	text   bool   // codec
}

// holder is what the gate has of the session that is claimed.
type holder struct {
	user    string
	gen     uint32
	resumes bool // at all
	state   uint8
	secrets secrets
	key     secret
	any     bool // the key is enough
	pushes  uint64
	text    bool
}

// knows compares in a time that tells nothing.
func (h *holder) knows(cl *claim) bool {
	return h.secrets.has(&cl.secret) || h.any && h.key.is(&cl.key)
}

// judge decides whether the client of cl is that of h.
func judge(h *holder, cl *claim) refusal {
	switch {
	case !h.resumes:
		return refusedInvalid
	case !h.knows(cl):
		return refusedInvalid // who has not even got a secret is not told more
	case h.user != cl.user:
		return refusedUser
	case h.state == stateEnded:
		return refusedExpired
	case cl.gen > h.gen && !h.any, cl.last > h.pushes && h.secrets.has(&cl.secret), h.text != cl.text: // the token of a gate before is good, as long as its secret is
		return refusedInvalid
	}
	return granted
}

func (s *Session) holderLocked(c *conn) holder {
	h := holder{user: s.user, gen: s.ref.Gen, state: s.state, pushes: s.pushes, text: c.text.Load()}
	if r := s.resume; r != nil {
		h.resumes, h.secrets, h.key, h.any = true, r.secrets, r.key, r.any
	}
	return h
}

// resumed gives the client at c the session back that its Hello asks for. With neither session nor violation, the client gets a new session, and is told
// why.
func (g *Gate) resumed(c *conn, user string, h *wirepb.Hello) (*Session, refusal, *violation) {
	if h.GetResume() == "" {
		return nil, granted, nil
	}
	if g.cfg.ResumeWindow < 0 {
		return nil, refusedOff, nil
	}
	t, err := parseToken(h.GetResume())
	if err != nil {
		return nil, refusedInvalid, nil //nolint:nilerr // the client is told
	}
	cl := claim{user: user, gen: t.ref.Gen, secret: t.secret, key: t.key, last: h.GetLastPush(), seq: h.GetLastSeq(), text: c.text.Load()}
	at := t.ref
	for range maxTrail {
		s := g.sessions.get(at.ID)
		if s != nil {
			to, gone := s.goneTo()
			if !gone {
				if !g.self.Is(at.Gate) && !s.roams() {
					return nil, refusedExpired, nil // it has never been there
				}
				back, why, v, again := g.resumedHere(c, s, &cl)
				if again {
					continue
				}
				return back, why, v
			}
			if to.Gen > at.Gen { // else it has been here, and has gone on
				at = to
			}
		}
		switch {
		case g.self.Is(at.Gate):
			if how, ok := g.past.take(at.ID, user, &t.secret, g.now()); ok && !how.code.Reconnect() {
				return nil, refusedExpired, &violation{how.code, how.text} // as it would have been told, had it been there
			}
			return nil, refusedExpired, nil
		case g.cfg.Peers == nil || h.GetResumeWindowMs() == 0 || !g.cfg.Peers.There(at.Gate):
			s, next, why, v := g.adopted(c, user, h, &token{at, t.secret, t.key})
			if next.IsZero() {
				return s, why, v
			}
			at = next
			continue
		}
		window := min(g.cfg.ResumeWindow, time.Duration(h.GetResumeWindowMs())*time.Millisecond)
		fetched, next, why, v := g.fetch(c, at, &cl, window)
		switch {
		case v != nil || why != granted:
			return nil, why, v
		case fetched != nil:
			at = fetched.ref // it may have ended in this moment
		case next.IsZero(): // it does not answer
			s, next, why, v := g.adopted(c, user, h, &token{at, t.secret, t.key})
			if next.IsZero() {
				return s, why, v
			}
			at = next
		default:
			at = next
		}
	}
	return nil, refusedExpired, nil
}

// roams reports whether the session has been at other gates, or comes from one.
func (s *Session) roams() bool { return s.resume != nil && s.resume.came != nil }

// resumedHere is resumed for a session that is at this gate, or is just coming. With again it is not here any more, and perhaps elsewhere.
func (g *Gate) resumedHere(c *conn, s *Session, cl *claim) (_ *Session, why refusal, v *violation, again bool) {
	var patience *time.Timer
	for {
		old := s.lock()
		held := s.holderLocked(old)
		why, how := judge(&held, cl), old.q.closed
		r := s.resume
		travels := r != nil && (r.arrival != nil || r.moving != nil || r.asking)
		switch {
		case s.state == stateGone:
			old.q.mu.Unlock()
			return nil, granted, nil, true
		case r != nil && r.failed:
			old.q.mu.Unlock()
			gives := time.NewTimer(askAgain) // its place
			select {
			case <-gives.C:
			case <-g.ctx.Done():
				gives.Stop()
			}
			return nil, granted, nil, true
		case travels: // judged when it is there, or gone
		case why == refusedExpired && !how.code.Reconnect(): // it has just ended
			old.q.mu.Unlock()
			return nil, why, &violation{how.code, how.text}, false
		case why != granted:
			old.q.mu.Unlock()
			return nil, why, nil, false
		case s.state == stateSuspended:
			s.rebaseLocked(old, cl)
			v := s.takeLocked(old, c, cl)
			old.q.mu.Unlock()
			if v != nil {
				return nil, granted, v, false
			}
			s.back(old, c)
			return s, granted, nil, false
		}
		// The gate does not know yet that the connection before is gone, or it is not: a session has one at a time.
		gone := make(chan struct{})
		r.wait = append(r.wait, gone)
		if !travels {
			r.shown = true // by bringing it
			old.breakLocked(closedTaken, "the client is back on another connection")
		}
		old.q.mu.Unlock()
		if patience == nil {
			patience = time.NewTimer(g.cfg.AuthTimeout)
			defer patience.Stop()
		}
		select {
		case <-gone:
		case <-patience.C:
			return nil, granted, &violation{CloseLoginTimeout, "the connection before does not end"}, false
		case <-g.ctx.Done():
			return nil, granted, &violation{CloseShutdown, "shutting down"}, false
		}
	}
}

// rebaseLocked is for a client whose token is not one that the gate knows, of a gate that is gone, and newer than the one by which the session was gone on with: the
// numbers of its pushes and requests are that gate's. What was kept here counts from others, so it goes, and the client is told. c is the session's connection, and locked.
func (s *Session) rebaseLocked(c *conn, cl *claim) {
	r := s.resume
	if r.secrets.has(&cl.secret) {
		return
	}
	r.secrets = secrets{cl.secret}
	s.pushes = max(s.pushes, cl.last)
	s.requests.resumed(max(s.requests.last, cl.seq))
	before := r.log.Bytes()
	s.g.count.dropKept.Add(float64(r.log.Len()))
	r.log.Restart(s.pushes)
	s.g.kept.Add(int64(r.log.Bytes() - before))
	s.gapLocked(c, &wirepb.Gap{})
}

// takeLocked makes c the session's connection: Welcome is the first thing it sends, then what its client has missed. Both are locked when it is done with
// c; old stays so.
func (s *Session) takeLocked(old, c *conn, cl *claim) *violation {
	g, r := s.g, s.resume
	fresh, err := newSecret()
	if err != nil {
		return &violation{CloseInternal, "internal error"}
	}
	if int(g.active.Add(1)) > g.cfg.MaxSessions {
		g.active.Add(-1)
		return &violation{CloseOverloaded, "the gate is full"}
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.endedLocked() {
		g.active.Add(-1)
		return &violation{CloseLoginTimeout, "login took too long"} // it has been told something already
	}
	r.secrets = r.secrets.shown(&cl.secret).with(fresh)
	s.state = stateActive
	g.suspended.Add(-1)
	g.count.Suspended.Dec()
	r.until = 0
	before := r.log.Bytes()
	gap := r.log.Resume(cl.last, g.now())
	g.kept.Add(int64(r.log.Bytes() - before))

	c.corked.Store(true) // the next read sends it all
	c.controlLocked(s.welcome(true, granted))
	if gap.First > 0 {
		g.count.Gaps.Inc()
		c.controlLocked(&wirepb.Control{Control: &wirepb.Control_Gap{Gap: &wirepb.Gap{First: gap.First, Last: gap.Last}}})
	}
	for it := range r.log.Missed() {
		if it.Kind == keep.Notice {
			c.frameLocked(c.op(), it.Body)
			continue
		}
		e := encoded{g: g, id: it.ID, body: it.Body, owned: it.Own}
		if c.deflates {
			if c.text.Load() {
				_, _ = e.text()
			}
			c.squeeze(&e)
		}
		c.pushLocked(it.N, &e)
		g.count.Replayed.Inc()
	}
	latest := old.q.latest
	old.q.latest = nil
	g.kept.Add(-int64(r.latest))
	r.latest = 0
	for i := range latest {
		s.appendPushLocked(c, &latest[i].e)
	}
	s.requests.repeated()
	s.c.Store(c)
	c.session.Store(s)
	c.phase.Store(phaseActive)
	return nil
}

// back follows takeLocked, without the locks.
func (s *Session) back(old, c *conn) {
	g := s.g
	g.wheel.remove(&old.timer)
	c.nowKnown()
	c.guard.limit = int64(g.cfg.MaxMessage)
	c.readAt = time.Now() // the one before may have taken its time to end
	g.wheel.schedule(&c.timer, min(s.requests.next(), g.now()+int64(c.pingAfter())))
	s.passedBy(c)
	s.tellState()
	g.log.Debug("session resumed", "session", s.ref.ID, "user", s.user)
}

// resumeResult is the label of a refusal.
func resumeResult(r refusal) string {
	switch r {
	case granted:
		return "ok"
	case refusedExpired:
		return "expired"
	case refusedUser:
		return "user"
	case refusedOff:
		return "off"
	default:
		return "invalid"
	}
}
