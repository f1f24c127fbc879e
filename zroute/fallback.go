package zroute

import (
	"sync"
	"time"

	"zgame/zmsg"
)

// fallback stands between a remote candidate and the one who asked: it keeps the request until its outcome is there, and
// when the outcome is that it did not run because the candidate could not, it sends it to the next.
//
// Fallbacks are pooled. A token is good for one try: gen rises with each and never falls, so a late or doubled outcome
// meets neither a later try nor a later request. Between arm and the outcome nobody touches the fields below mu: the
// one who turns armed off owns them, until it arms again.
type fallback struct {
	d *Dispatcher

	mu    sync.Mutex
	gen   uint64 // the token of the last try
	armed bool   // the last try has no outcome yet

	m     *zmsg.Message // the request; its reply slot is here
	to    zmsg.Replier
	token uint64
	o     order
	tried int
}

// hold takes m's reply slot.
func (f *fallback) hold(m *zmsg.Message, o *order, tried int) {
	f.m, f.o, f.tried = m, *o, tried
	f.to, f.token = m.TakeReplier()
}

// giveBack undoes hold after a try that was refused at once. It may be called only while no try is under way.
func (f *fallback) giveBack() {
	f.mu.Lock()
	f.armed = false
	f.mu.Unlock()
	f.m.SetReplier(f.to, f.token)
	f.free()
}

func (f *fallback) free() {
	f.m, f.to, f.token, f.o, f.tried = nil, nil, 0, order{}, 0
	f.d.fallbacks.Put(f)
}

// arm opens the next try and returns its token.
func (f *fallback) arm() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen++
	f.armed = true
	return f.gen
}

// Reply takes the outcome of a try.
func (f *fallback) Reply(token uint64, r *zmsg.Reply) {
	f.mu.Lock()
	ours := f.armed && token == f.gen
	if ours {
		f.armed = false
	}
	f.mu.Unlock()
	if !ours {
		f.d.cfg.Metrics.LateReplies.Inc()
		return
	}
	if !another(r) || f.expired() {
		f.end(r)
		return
	}
	if last, sent := f.next(r.Err()); !sent {
		e := zmsg.ErrorReply(last)
		f.end(&e)
	}
}

// OnGiveUp is of zmsg.Waiter: the one who asked knows.
func (f *fallback) OnGiveUp(token uint64, w zmsg.GiveUp, arg uint64) bool {
	to, t := f.asker(token)
	return to != nil && to.OnGiveUp(t, w, arg)
}

// Forget is of zmsg.Waiter.
func (f *fallback) Forget(token uint64, w zmsg.GiveUp) {
	if to, t := f.asker(token); to != nil {
		to.Forget(t, w)
	}
}

// asker returns who asked, while the try of the token has no outcome; nil where he cannot tell when he gives up.
func (f *fallback) asker(token uint64) (w zmsg.Waiter, t uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed || token != f.gen {
		return nil, 0
	}
	w, _ = f.to.(zmsg.Waiter)
	return w, f.token
}

// another reports whether r says that the request did not run because of the candidate, not because of the request.
func another(r *zmsg.Reply) bool {
	if r.Outcome != zmsg.NotExecuted {
		return false
	}
	switch r.Code {
	case zmsg.CodeUnavailable, zmsg.CodeUnknownActor, zmsg.CodeDraining, zmsg.CodeNoRoute, zmsg.CodeStopped, zmsg.CodeNodeLost:
		return true
	default:
		return false
	}
}

func (f *fallback) expired() bool { return !f.m.Deadline.IsZero() && !time.Now().Before(f.m.Deadline) }

// next sends the request to the next candidate that takes it. When there is none it returns the error with which the
// caller has to end the request.
func (f *fallback) next(last error) (end error, sent bool) {
	d := f.d
	for {
		lc, rc := f.o.next(f.m)
		if lc == nil && rc == nil {
			d.cfg.Metrics.Exhausted.Inc()
			return noRoute(f.tried, last), false
		}
		d.fallbackLate.Inc()
		f.tried++
		if lc != nil {
			m, to, token := f.m, f.to, f.token
			m.SetReplier(to, token)
			err := lc.Target.Deliver(m)
			if err == nil {
				f.free()
				return nil, true
			}
			m.TakeReplier()
			if !gone(err) {
				return err, false
			}
			last = err
			continue
		}
		// After a nil error f belongs to the outcome, which may be there before Send returns.
		if last = d.cfg.Sender.Send(rc.Address(), f.m, f, f.arm()); last == nil {
			return nil, true
		}
		f.mu.Lock()
		f.armed = false
		f.mu.Unlock()
	}
}

// end gives r to the one who asked.
func (f *fallback) end(r *zmsg.Reply) {
	m, to, token := f.m, f.to, f.token
	f.free()
	to.Reply(token, r)
	m.Release()
}
