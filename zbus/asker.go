package zbus

import (
	"time"

	"zgame/zmsg"
)

// A reply that is made while the bus is down is kept until the deadline of its request. So that no table of requests of
// other nodes is needed for that, the replier of a request knows the deadline: askStep rounds it up, and requests of
// one lane with the same rounded deadline share a replier.
const askStep = 250 * time.Millisecond

// askers are the repliers that were used last, by rounded deadline.
type askers [64]*asker

// asker is the zmsg.Waiter of requests that came from a lane's node; the token is the request's number there.
type asker struct {
	*lane
	deadline time.Duration // since Link.base; not before the request's
}

// asker returns the replier of requests with that deadline. Without a deadline, which a Link always sends, the default
// one counts. It runs on the receive goroutine.
func (ln *lane) asker(deadline time.Time) *asker {
	l := ln.link
	if deadline.IsZero() {
		deadline = time.Now().Add(l.cfg.DefaultTimeout)
	}
	step := deadline.Sub(l.base)/askStep + 1
	at := &ln.askers[uint64(step)%uint64(len(ln.askers))]
	if a := *at; a != nil && a.deadline == step*askStep {
		return a
	}
	*at = &asker{ln, step * askStep}
	return *at
}

// Reply implements zmsg.Replier.
func (a *asker) Reply(token uint64, r *zmsg.Reply) { a.reply(token, r, a.deadline) }
