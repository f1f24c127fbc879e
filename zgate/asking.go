package zgate

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"zgame/zmsg"
)

// asking is a request that a client has sent before, whose outcome this gate does not know: mostly since it was sent to a gate that is gone. It goes once
// more to who can tell whether it has run (Config.Resent), and runs at most once in all. That something has not come about this time says nothing of
// the time before, so such a thing is tried again until the deadline, and then told as unknown: most likely the node that had the object died with the
// gate, and its lease is not over yet.
type asking struct {
	s        *Session
	token    uint64 // of the request that waits here
	id       uint32
	seq      uint64
	body     []byte
	deadline time.Time
	trace    zmsg.TraceID
	tries    int // owned by who has it: who sends it, then who replies, then askings
}

// askings are a session's that are to be tried again. They go together, in the order of their seqs.
type askings struct {
	mu      sync.Mutex
	waiting []*asking // by seq; as many as may be in flight at most
	timer   *time.Timer
}

// Between two tries.
const (
	firstAsk = 50 * time.Millisecond
	lastAsk  = 800 * time.Millisecond
)

// ask sends a request to who can tell whether it has run, and reports whether there may be one. f is the client's frame, which came at now.
func (s *Session) ask(c *conn, f *zmsg.Frame, now time.Time) bool {
	g := s.g
	switch {
	case g.cfg.Resent == nil, f.ID == 0, g.cfg.Handlers[f.ID] != nil, s.ownRoute(f.ID) != nil, g.draining.Load() && !g.handing.Load():
		return false
	}
	timeout := g.timeout(f)
	deadline := g.at(now) + int64(timeout)
	token, ok := s.requests.add(f.Seq, deadline, s.rate.inFlight)
	if !ok {
		return false
	}
	if s.askings.Load() == nil {
		s.askings.Store(new(askings))
	}
	g.requests.Add(1)
	g.wheel.schedule(&c.timer, deadline)
	a := &asking{s: s, token: token, id: f.ID, seq: f.Seq, body: bytes.Clone(f.Body), deadline: now.Add(timeout), trace: c.newTrace()}
	a.send()
	return true
}

// send sends it, once more.
func (a *asking) send() {
	s := a.s
	m := zmsg.NewMessage(a.id)
	m.Seq, m.User, m.Session, m.Client = a.seq, s.user, s.ref, true
	m.Deadline, m.Trace.ID = a.deadline, a.trace
	m.BorrowBody(a.body)
	m.SetReplier(a, 0)
	if err := s.g.cfg.Resent(m); err != nil {
		m.ReplyError(err)
		m.Release()
	}
}

// Reply implements zmsg.Replier.
func (a *asking) Reply(_ uint64, r *zmsg.Reply) {
	g := a.s.g
	switch {
	case r.Code == zmsg.CodeUnknownOutcome:
		g.count.againForgotten.Inc()
	case r.Code == zmsg.CodeOK || r.Outcome != zmsg.NotExecuted:
		g.count.againAsked.Inc()
	case r.Code.Retry() && a.again():
		return
	default:
		g.count.againForgotten.Inc()
		told := *r
		told.Outcome = zmsg.Unknown
		r = &told
	}
	a.s.Reply(a.token, r)
}

// again has it tried again. It reports false where its time would be over by then.
func (a *asking) again() bool {
	wait := min(firstAsk<<a.tries, lastAsk)
	if time.Until(a.deadline) <= wait {
		return false
	}
	a.tries = min(a.tries+1, 5)
	w := a.s.askings.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	i, _ := slices.BinarySearchFunc(w.waiting, a, func(x, y *asking) int { return cmp.Compare(x.seq, y.seq) })
	w.waiting = slices.Insert(w.waiting, i, a)
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, a.s.askAgain) // ends with what it runs, which does not wait; endAskings stops it
	}
	return true
}

// askAgain tries again what is to be.
func (s *Session) askAgain() {
	w := s.askings.Load()
	w.mu.Lock()
	all := w.waiting
	w.waiting, w.timer = nil, nil
	w.mu.Unlock()
	for _, a := range all {
		if s.requests.waits(a.token) { // else its time is over, or the session's
			a.send()
		}
	}
}

// endAskings ends what is to be tried again: the session has ended, and its requests with it.
func (s *Session) endAskings() {
	w := s.askings.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.waiting, w.timer = nil, nil
}
