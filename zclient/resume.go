package zclient

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Refused is why a client did not get its session back: a word of a fixed list, fit for a metric label.
type Refused string

// The words.
const (
	RefusedExpired Refused = "expired" // RESUME_EXPIRED: the session has ended; most likely the client was away for too long
	RefusedInvalid Refused = "invalid" // the gate does not know the token
	RefusedUser    Refused = "user"    // the session is of another user than the token of now
	RefusedOff     Refused = "off"     // the gate does not resume
	RefusedEnded   Refused = "ended"   // the gate said that the session ends, by the code of its close frame
)

// Lost says that a session is over, and that the next one is a new one: pushes behind LastPush are lost, and so are groups and bindings that the server made for it. Requests in
// flight have ended, with an Outcome each.
type Lost struct {
	Why      Refused
	Session  Session // the one that is over
	LastPush uint64  // number of its last push that came
}

// OnLost calls h for each session that is over while the client goes on, in order with pushes, gaps and states. The function that it returns ends that.
func (c *Client) OnLost(h func(Lost)) (cancel func()) { return c.handlers.onLost(h) }

// session is what outlives a connection.
type session struct {
	token    atomic.Pointer[string] // of the next resume; nil: none
	push     atomic.Uint64          // number of the last push that has come
	response atomic.Uint64          // seq of the last response that has come

	// Owned by the goroutine of Client.loop.
	lostAt time.Time     // when its connection was lost; zero: it has one
	window time.Duration // for how long the gate waits then

	mu      sync.Mutex       // behind conn.mu
	pending map[uint64]*call // requests in flight, by seq
}

func (s *session) resume() string {
	if t := s.token.Load(); t != nil {
		return *t
	}
	return ""
}

func (s *session) add(seq uint64, l *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[seq] = l
}

func (s *session) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// take takes a request off; left is how many remain.
func (s *session) take(seq uint64) (l *call, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = s.pending[seq]
	delete(s.pending, seq)
	return l, len(s.pending)
}

// fail ends all that is in flight.
func (s *session) fail(r *Reason) {
	code := zmsg.CodeUnavailable
	if r.Kind == KindClient {
		code = zmsg.CodeCancelled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, l := range s.pending {
		delete(s.pending, seq)
		l.done <- zmsg.Frame{Code: code, Outcome: l.abandon(), Text: "the connection ended: " + r.Error()}
	}
}

// again returns what is in flight, in the order of its seqs, to be written once more.
func (s *session) again() []outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]outgoing, 0, len(s.pending))
	for _, l := range s.pending {
		all = append(all, outgoing{l.frame, l})
	}
	slices.SortFunc(all, func(a, b outgoing) int { return cmp.Compare(a.frame.Seq, b.frame.Seq) })
	return all
}

// outlives reports whether a session is there still when its connection ended for r.
func (r *Reason) outlives() bool {
	switch r.Kind {
	case KindClient, KindGoaway:
		return false
	case KindClosed:
		switch r.Code {
		case 3003, 3004, 3008: // silent, internal, slow
			return true
		case 3001, 3006: // the gate goes, or went: the session may go on at another one
			return true
		default: // the websocket's own, of whoever is between, say that it broke
			return r.Code > 1001 && r.Code < 3000 && r.Code != 1002 && r.Code != 1007 && r.Code != 1009
		}
	default:
		return !r.final()
	}
}

// ended decides, at the end of a connection or of a try, whether the session is waited for; again says that the next try is with another credential.
func (c *Client) ended(r *Reason, again bool) {
	s := &c.session
	switch {
	case s.resume() == "":
		s.fail(r)
	case !again && !r.outlives():
		c.lose(RefusedEnded, r)
	case s.lostAt.IsZero():
		s.lostAt = time.Now()
	case time.Since(s.lostAt) > s.window+c.cfg.HandshakeTimeout:
		c.lose(RefusedExpired, r)
	}
}

// lose gives the session up.
func (c *Client) lose(why Refused, r *Reason) {
	s := &c.session
	lost := Lost{Why: why, Session: c.Session(), LastPush: s.push.Load()}
	s.fail(r)
	s.token.Store(nil)
	s.push.Store(0)
	s.response.Store(0)
	s.lostAt = time.Time{}
	c.stats.lost.Add(1)
	if r.final() || c.ctx.Err() != nil {
		return // the end is told as a state
	}
	c.cfg.Logger.Info("session lost", "why", string(why), "session", lost.Session.Ref.ID, "last_push", lost.LastPush)
	c.handlers.lost(lost)
}

// welcomed takes over what the gate says of the session, before anything else comes.
func (c *Client) welcomed(cn *conn, w *wirepb.Welcome) {
	s := &c.session
	if s.resume() != "" {
		if w.GetResumed() {
			c.stats.resumes.Add(1)
			cn.first = s.again()
		} else {
			why := refusedOf(w.GetRefused())
			c.lose(why, &Reason{Kind: KindLost, Text: "the session is not there any more: " + string(why)})
		}
	}
	s.lostAt, s.window = time.Time{}, time.Duration(w.GetResumeWindowMs())*time.Millisecond
	if t := w.GetResume(); t != "" && c.cfg.ResumeWindow > 0 {
		s.token.Store(&t)
	} else {
		s.token.Store(nil)
	}
}

func refusedOf(r wirepb.ResumeRefusal) Refused {
	switch r {
	case wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED:
		return RefusedExpired
	case wirepb.ResumeRefusal_RESUME_REFUSAL_USER:
		return RefusedUser
	case wirepb.ResumeRefusal_RESUME_REFUSAL_OFF:
		return RefusedOff
	default:
		return RefusedInvalid
	}
}

// ackDelay is how long what has come waits for its Ack: far below what a gate keeps, and no more than ten a second, which gates allow.
const ackDelay = 250 * time.Millisecond

// came asks the writer to acknowledge what has come.
func (cn *conn) came() {
	if cn.client.session.resume() == "" || cn.unacked.Swap(true) {
		return
	}
	select {
	case cn.acks <- struct{}{}:
	default: // it is about to look
	}
}

// ack appends an Ack of all that has come.
func (cn *conn) ack(buf []byte) []byte {
	s := &cn.client.session
	if s.resume() == "" {
		return buf
	}
	cn.unacked.Store(false) // before the look: what comes behind it asks again
	f, err := control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: s.push.Load(), Response: s.response.Load()}}})
	if err != nil {
		return buf
	}
	return zmsg.AppendPacketFrame(buf, &f)
}
