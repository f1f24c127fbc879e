package zroute

import (
	"sync/atomic"
	"time"

	"zgame/zmsg"
)

// fence waits for the answer of an actor that it has handled what a lane sent to it.
type fence struct {
	k     *moves
	lane  *lane
	at    place
	again bool // it is the second one
	timer *time.Timer
	ended atomic.Bool // whoever sets it goes on with the lane
}

// How a wait ends.
const (
	movePassed      = "passed"
	moveGone        = "gone"
	moveUnavailable = "unavailable"
	moveExpired     = "expired"
)

// ask sends a fence to where the lane was.
func (k *moves) ask(ln *lane, at place, again bool) {
	f := &fence{k: k, lane: ln, at: at, again: again}
	f.timer = time.AfterFunc(k.wait, func() { // owned by the fence, which stops it when it ends
		if f.ended.CompareAndSwap(false, true) {
			k.fail(ln, moveExpired, errSlowMove)
		}
	})
	m := zmsg.NewMessage(zmsg.FenceID)
	m.Deadline = time.Now().Add(2 * k.wait) // the timer is the one that counts
	var err error
	if at.target != nil {
		m.SetReplier(f, 0)
		if err = at.target.Deliver(m); err == nil {
			return // the actor has it
		}
		m.TakeReplier()
	} else if k.there(at) {
		err = k.d.cfg.Sender.Send(at.addr, m, f, 0)
		if err == nil && !k.there(at) {
			err = zmsg.ErrStopped // it went in between: perhaps before the link could note that this waits for it
		}
	} else {
		err = zmsg.ErrStopped
	}
	m.Release()
	if err == nil || !f.end() {
		return
	}
	if gone(err) {
		k.moved(ln, moveGone)
		return
	}
	k.fail(ln, moveUnavailable, err)
}

// there reports whether the node of a remote actor is on the list. One that is not has left, with empty mailboxes, or is lost.
func (k *moves) there(at place) bool { return k.remote.load().has(at.addr.Node) }

// end takes the right to go on with the lane.
func (f *fence) end() bool {
	if !f.ended.CompareAndSwap(false, true) {
		return false
	}
	f.timer.Stop()
	return true
}

// Reply implements zmsg.Replier.
func (f *fence) Reply(_ uint64, r *zmsg.Reply) {
	if !f.end() {
		f.k.d.cfg.Metrics.LateReplies.Inc()
		return
	}
	switch {
	case r.Code == zmsg.CodeOK:
		f.k.moved(f.lane, movePassed)
	case r.Code == zmsg.CodeNodeLost || gone(r.Err()):
		f.k.moved(f.lane, moveGone)
	case r.Code == zmsg.CodeUnavailable && r.Outcome == zmsg.NotExecuted && f.again:
		f.k.moved(f.lane, moveGone) // nobody was there, twice: only once might be a batch that was lost on the way
	case r.Code == zmsg.CodeUnavailable && r.Outcome == zmsg.NotExecuted:
		f.k.ask(f.lane, f.at, true)
	default:
		f.k.fail(f.lane, moveUnavailable, &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the actor that had this key cannot be asked: " + r.Text})
	}
}

var errSlowMove error = &zmsg.Error{
	Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the actor that had this key until the members changed is still at work on it",
}

// moved sends what is parked where it belongs now, and opens the lane. It runs on the goroutine that brought the answer.
func (k *moves) moved(ln *lane, how string) {
	k.d.cfg.Metrics.Moves.With(how).Inc()
	ln.at = place{} // the lane is this goroutine's while it waits; k.mu is for those who look at waits and parked
	for round := 0; ; round++ {
		list := k.take(ln, round)
		if list == nil {
			return
		}
		for i := range list {
			e := k.era()
			var p plan
			k.d.plan(list[i].m, &e.lookup, &p)
			to := firstOf(&p)
			if !ln.at.none() && !to.none() && !ln.at.is(&to) { // there was another change meanwhile
				k.putBack(ln, list[i:])
				k.ask(ln, ln.at, false)
				return
			}
			if !to.none() {
				ln.at = to
			}
			k.goOn(list[i].m, e, &p)
		}
	}
}

// take returns what is parked, or nil after it has opened the lane.
func (k *moves) take(ln *lane, round int) []parked {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := ln.parked
	ln.parked = nil
	for i := range list {
		k.bytes -= list[i].size
	}
	k.d.cfg.Metrics.Parked.Add(-float64(len(list)))
	ln.full = round >= parkRounds
	if list == nil {
		ln.waits, ln.full, ln.last = false, false, time.Now()
		k.waiting--
	}
	return list
}

// putBack parks what was taken, before what came since.
func (k *moves) putBack(ln *lane, list []parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range list {
		k.bytes += list[i].size
	}
	k.d.cfg.Metrics.Parked.Add(float64(len(list)))
	ln.parked = append(list, ln.parked...)
	ln.full = false
}

// goOn sends a message that was parked; it ends it where nobody takes it.
func (k *moves) goOn(m *zmsg.Message, e *era, p *plan) {
	if m.Wants() && !m.Deadline.IsZero() && !time.Now().Before(m.Deadline) {
		k.drop(m, moveExpired, errLateMove)
		return
	}
	res, _, err := k.d.carry(m, &e.lookup, p)
	k.d.counts[res].Inc()
	if res != OnLocal && res != OnRemote {
		k.drop(m, res.String(), err)
	}
}

var errLateMove error = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.NotExecuted, Text: "the deadline was over before the actor that had its key was done"}

// fail ends what is parked, and lets the lane go on: it waited long enough.
func (k *moves) fail(ln *lane, how string, err error) {
	k.d.cfg.Metrics.Moves.With(how).Inc()
	ln.at = place{}
	for list := k.take(ln, parkRounds); list != nil; list = k.take(ln, parkRounds) {
		for i := range list {
			k.drop(list[i].m, how, err)
		}
	}
}

func (k *moves) drop(m *zmsg.Message, cause string, err error) {
	k.d.cfg.Metrics.MoveDrops.With(cause).Inc()
	m.ReplyError(err)
	m.Release()
}
