package zrouter

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// The network of the simulation. What a process sends to another arrives in order, or not at all; a request ends as a zbus.Link ends it.

type simLaneKey struct{ from, to zmsg.NodeRef }

// simLane is the ordered stream from one identity to another.
type simLane struct{ last time.Duration }

// simRequest is a request that a process waits for, at another one.
type simRequest struct {
	id      uint64
	from    *simProc
	to      zmsg.NodeRef
	key     zmsg.Key
	seq     uint64
	r       zmsg.Replier
	token   uint64
	arrived bool
	ended   bool
}

// end tells the outcome, once. It is called in an event of the process that asked.
func (q *simRequest) end(r *zmsg.Reply) {
	if q.ended {
		return
	}
	q.ended = true
	p := q.from
	if q.seq == 0 && r.Code != zmsg.CodeOK { // a fence that was lost, or did not come back in time
		p.w.oracle.trouble = p.w.now
	}
	p.w.open--
	for i, o := range p.waits {
		if o == q {
			p.waits = append(p.waits[:i], p.waits[i+1:]...)
			break
		}
	}
	p.w.log("%s: request %d at %s ends: %s %s %s owner %s since %d", p.ref, q.id, q.to, r.Code, r.Outcome, r.Text, r.Owner, r.Version)
	q.r.Reply(q.token, r)
}

func (q *simRequest) undelivered(code zmsg.Code) {
	q.from.w.oracle.trouble = q.from.w.now
	if q.arrived {
		q.from.w.fail("the simulation is wrong: request %d counts as undelivered, and has arrived", q.id)
	}
	q.end(&zmsg.Reply{Code: code, Outcome: zmsg.NotExecuted, Undelivered: true, Text: "undelivered"})
}

// GaveUp implements zmsg.GiveUp: nobody waits any more, and the outcome still comes.
func (p *simProc) GaveUp(arg uint64) { p.w.log("%s: request %d was given up", p.ref, arg) }

var (
	errSimDown    error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the bus is down"}
	errSimOutbox  error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too much waits to be sent"}
	errSimExpired error = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.NotExecuted, Text: "the deadline passed before the request was sent"}
)

// linkTimeout is the deadline of a request whose message has none.
const linkTimeout = 5 * time.Second

// through reports whether something sent now gets from one process to another.
func (w *simWorld) through(from *simProc, to string) bool {
	return w.now >= w.blocked[[2]string{from.id, to}] && w.now >= from.cutBus
}

// delay is how long something takes on a lane.
func (w *simWorld) delay(from *simProc, to zmsg.NodeRef) time.Duration {
	k := simLaneKey{from.ref, to}
	l := w.lanes[k]
	if l == nil {
		l = new(simLane)
		w.lanes[k] = l
	}
	d := w.between(100*time.Microsecond, 3*time.Millisecond)
	if w.chance(w.cfg.netSlow) {
		d += w.between(0, 800*time.Millisecond)
	}
	l.last = max(w.now+d, l.last)
	return l.last - w.now
}

// SendObject implements Link. A lock of the set is held.
func (p *simProc) SendObject(to zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	w := p.w
	if m.ID != fenceID {
		w.oracle.sends(p, to, e, m)
	}
	now := p.local()
	timeout := linkTimeout
	if !m.Deadline.IsZero() {
		timeout = m.Deadline.Sub(now)
	}
	switch {
	case r != nil && timeout <= 0:
		return errSimExpired
	case p.busDown:
		return errSimDown
	case w.chance(w.cfg.netLoss / 5):
		return errSimOutbox
	}
	if mu := w.mutant; mu != nil && mu.publishes && !w.oracle.knows(e.Key, Route{Owner: to, Version: e.Version}) {
		k := e.Key
		w.after(0, p, func() { p.set.learn(k, Route{Owner: to, Version: max(1, e.Version)}, 0) })
	}
	if mu := w.mutant; mu != nil && mu.noFence && m.ID == fenceID && m.Hops == 1 {
		w.after(0, p, func() { r.Reply(token, &zmsg.Reply{}) })
		return nil
	}
	body, err := m.EncodedBody()
	if err != nil {
		return err
	}
	body = bytes.Clone(body)
	env := *e
	head := new(zmsg.Message)
	head.CopyHead(m)
	id := m.ID
	var q *simRequest
	if r != nil {
		w.requests++
		q = &simRequest{id: w.requests, from: p, to: to, key: e.Key, seq: numberOf(m), r: r, token: token}
		w.open++
		p.waits = append(p.waits, q)
		w.after(p.world(timeout), p, func() {
			q.end(&zmsg.Reply{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown, Text: "no answer in time"})
		})
		if wt, ok := r.(zmsg.Waiter); ok {
			wt.OnGiveUp(token, p, q.id)
		}
	}
	w.log("%s: sends %d of %s to %s, hop %d, version %d, request %d", p.ref, numberOf(m), e.Key.ID, to, m.Hops, e.Version, w.requests)
	if mu := w.mutant; mu != nil && mu.refusesParked && q != nil && p.handed[e.Key] == w.now && w.now > 0 {
		w.after(0, p, func() {
			if !q.ended {
				r.Reply(token, &zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "a mutant refuses it"})
			}
		})
	}
	d := w.delay(p, to)
	if !w.through(p, to.ID) || w.chance(w.cfg.netLoss) {
		w.lostOnTheWay(q)
		return nil
	}
	target := w.byRef[to]
	w.after(d, target, func() {
		switch {
		case q != nil && q.ended && !q.arrived && w.chance(0.5):
			return // taken out of the outbox when it ended
		case target == nil || target.ref != to && !w.cfg.oldRefs:
			if q != nil { // nobody listens
				w.after(w.between(0, 5*time.Millisecond), p, func() {
					if !q.ended {
						q.undelivered(zmsg.CodeUnavailable)
					}
				})
			}
			return
		case !w.through(p, to.ID) || w.now < target.cutBus:
			w.lostOnTheWay(q)
			return
		}
		c := zmsg.NewMessage(id)
		c.CopyHead(head)
		c.SetBody(body)
		if q != nil {
			q.arrived = true
			c.SetReplier(&simReturn{q: q, at: target, ref: target.ref}, 0)
			c.Deadline = target.local().Add(timeout)
		}
		w.log("%s: receives %d of %s, hop %d, version %d", target.ref, numberOf(c), env.Key.ID, c.Hops, env.Version)
		received := env
		if mu := w.mutant; mu != nil && mu.noHint {
			received.Version = 0
		}
		if mu := w.mutant; mu != nil && mu.sendsParked {
			target.sendParked(&env, c)
		}
		if c.ID != fenceID {
			w.oracle.receives(target, &env, c)
		}
		target.set.Receive(&received, c)
	})
	if target != nil && target.dead && q != nil {
		w.after(w.between(0, 5*time.Millisecond), p, func() {
			if !q.ended {
				q.undelivered(zmsg.CodeUnavailable)
			}
		})
	}
	return nil
}

// lostOnTheWay ends a request whose message was lost: sometimes the receiver notices the hole, and says so.
func (w *simWorld) lostOnTheWay(q *simRequest) {
	w.oracle.trouble = w.now
	if q == nil {
		return
	}
	w.log("request %d is lost on the way", q.id)
	if w.chance(0.3) {
		w.after(w.between(0, 2*time.Second), q.from, func() {
			if !q.ended {
				q.undelivered(zmsg.CodeUnavailable)
			}
		})
	}
}

// lost is told when a node is off the process' list: what waits for it ends.
func (p *simProc) lost(ref zmsg.NodeRef) {
	p.w.oracle.trouble = p.w.now
	for _, q := range append([]*simRequest(nil), p.waits...) {
		if q.to == ref && !q.ended {
			q.end(&zmsg.Reply{Code: zmsg.CodeNodeLost, Outcome: zmsg.Unknown, Text: "the node is lost"})
		}
	}
}

// busLost is told when the process has noticed that it is cut off from the bus.
func (p *simProc) busLost() {
	p.w.oracle.trouble = p.w.now
	p.busDown = true
	p.w.log("%s: the bus is down", p.ref)
	for _, q := range append([]*simRequest(nil), p.waits...) {
		if !q.ended {
			q.end(&zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown, Text: "the connection to the bus was lost"})
		}
	}
}

// simReturn is the way back of a request that arrived.
type simReturn struct {
	q        *simRequest
	at       *simProc
	ref      zmsg.NodeRef // of at, when it arrived
	answered bool
}

// Reply implements zmsg.Replier.
func (b *simReturn) Reply(_ uint64, r *zmsg.Reply) {
	p, w := b.at, b.at.w
	if p.dead {
		return
	}
	if b.answered {
		w.fail("I6: %s answers a request twice", p.ref)
		return
	}
	b.answered = true
	c := *r
	c.Undelivered = false // does not travel
	c.Body = bytes.Clone(r.Body)
	if c.Body == nil && r.Value != nil {
		c.Body, _ = proto.Marshal(r.Value)
	}
	c.Value = nil
	w.oracle.route(p, "an answer", b.q.key, Route{Owner: c.Owner, Version: c.Version})
	q := b.q
	if c.Code == zmsg.CodeOK {
		w.oracle.answers(p, w.oracle.attempt(q.seq))
	}
	d := w.delay(p, q.from.ref)
	if !w.through(p, q.from.id) || w.chance(w.cfg.netLoss) || p.busDown {
		w.log("%s: the answer to request %d is lost on the way", p.ref, q.id)
		w.oracle.trouble = w.now
		return
	}
	w.after(d, q.from, func() {
		if w.through(p, q.from.id) && w.now >= q.from.cutBus {
			q.end(&c)
		}
	})
}

// SendControl implements Link.
func (p *simProc) SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error {
	w := p.w
	switch {
	case e.ID == prepareID: // the sender's own version
	case e.ID == preparedID && e.Code == zmsg.CodeOK:
		if p.closing() {
			w.fail("I11: %s closes, and agrees to take %s over", p.ref, e.Key.ID)
		}
	default:
		w.oracle.route(p, "a control", e.Key, Route{Owner: e.Owner, Version: e.Version})
	}
	if e.ID == hintID {
		if p.handed == nil {
			p.handed = make(map[zmsg.Key]time.Duration)
		}
		p.handed[e.Key] = w.now
	}
	if p.busDown {
		return errSimDown
	}
	env, target := *e, w.byRef[to]
	d := w.delay(p, to)
	if target == nil || !w.through(p, to.ID) || w.chance(w.cfg.netLoss) {
		return nil
	}
	w.after(d, target, func() {
		if target.ref == to && w.through(p, to.ID) {
			c := env
			target.set.Control(&c, p.ref)
		}
	})
	return nil
}
