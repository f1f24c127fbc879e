package entry

import (
	"fmt"
	"strings"

	"zgame/zmsg"
)

func (s *search) fail(format string, args ...any) {
	if s.broken == "" {
		s.broken = fmt.Sprintf(format, args...) + "\n  " + strings.Join(s.path, "\n  ")
	}
}

func (s *search) facts(n int) *Facts {
	w := s.w
	f := &Facts{Self: w.ref(n), CanOwn: w.nodes[n].lease == valid && !w.nodes[n].draining, OnDemand: s.onDemand, MaxHops: 2 + s.faults, MaxTTL: 16, MaxQueue: 2}
	for k := range s.nodes {
		if w.nodes[k].up && w.nodes[k].lease == valid && !w.nodes[k].draining {
			f.Home = w.ref(k)
			break
		}
	}
	if s.skew && n == 2 && f.CanOwn {
		f.Home = f.Self
	}
	return f
}

// tell has node n step, and carries out what can be done at once.
func (s *search) tell(n int, ev Event) {
	w := s.w
	node := &w.nodes[n]
	out := s.mutant.step(&node.e, s.facts(n), &ev)
	for _, x := range out {
		s.effect(n, x)
	}
	if node.e.Phase == Cached || node.e.Phase.Resident() {
		r := node.e.Route
		if v := int(r.Version); v < 1 || v > len(w.owners) || w.owners[v-1] != r.Owner {
			s.fail("I3: %s remembers the route %v, which nobody has committed", refNames[n], r)
		}
	}
}

func (s *search) end(r Req, f fate) {
	w := s.w
	if w.fates[r.ID] == withNode {
		return // a late answer
	}
	if w.fates[r.ID] != open {
		s.fail("I6: request %d ends twice: %v and %v", r.ID, w.fates[r.ID], f)
	}
	w.fates[r.ID] = f
	if s.then && r.ID == readOnly && (f != acked || w.ran[readOnly] != 1) && s.calm() {
		s.fail("what was to run behind a save has not run, and nothing but transfers has happened: %v", f)
	}
	if f == notExecuted && w.ran[r.ID] > 0 {
		s.fail("request %d was told not executed, and has run", r.ID)
	}
}

func (s *search) effect(n int, x Effect) {
	w := s.w
	node := &w.nodes[n]
	send := func(m message) {
		m.from, m.fromEpoch = n, node.epoch
		w.flight = append(w.flight, m)
	}
	issue := func(state uint8) {
		if node.writing != nil {
			s.fail("%s issues %s while a write is under way", refNames[n], x.Op)
		}
		w.wids++
		node.writing = &write{op: x.Op, by: w.ref(n), to: node.e.Target, route: x.Route, rev: x.Rev, state: state, wid: w.wids}
	}
	switch x.Op {
	case Read:
		if node.reading {
			s.fail("%s reads twice at once", refNames[n])
		}
		node.reading, node.captured = true, false
	case Create, Claim:
		if !s.onDemand && !s.own {
			s.fail("I14: %s claims for a request that only looks", refNames[n])
		}
		if node.lease != valid || node.draining {
			s.fail("I11: %s claims without a lease, or while it drains", refNames[n])
		}
		issue(0)
	case Save:
		issue(node.memory)
	case Release:
		if node.e.bare {
			issue(node.loaded.state)
		} else {
			issue(node.memory)
		}
	case Resolve:
		node.resolve = true
	case Load:
		if w.rec.route.Owner == w.ref(n) && w.rec.route.Version == node.e.Route.Version && w.rec.rev != node.e.Rev {
			s.fail("%s loads revision %d of its record, which is at %d", refNames[n], node.e.Rev, w.rec.rev)
		}
		node.loading, node.loaded = true, w.rec
	case Run:
		node.mailbox = append(node.mailbox, x.Req)
	case Fence:
		send(message{op: Forward, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route, req: Req{ID: fenceIDs + uint64(n), Fence: true, Hops: 1, Hint: x.Route.Version}})
	case Forward:
		if v := int(x.Route.Version); s.order && (v < 1 || v > len(w.owners) || w.owners[v-1] != x.Route.Owner) {
			w.askedAt[x.Req.ID] = 200 + uint8(x.Req.ID) // by a placement: who asks before there is an owner has no order
		}
		send(message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route, req: x.Req})
	case Prepare, TellPrepared, TellUnprepared:
		m := message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route}
		if x.Op == TellPrepared && (node.draining || node.lease != valid) {
			s.fail("I11: %s agrees to take the object over without a lease, or while it drains", refNames[n])
		}
		if x.Op == TellUnprepared && node.e.Route.Version > x.Route.Version {
			m.knows = node.e.Route
		}
		send(m)
	case Move:
		node.moved = node.memory
		issue(node.memory)
	case Hint:
		send(message{op: x.Op, to: index(x.Route.Owner), toEpoch: x.Route.Owner.Epoch, route: x.Route, rev: x.Rev, state: node.moved})
	case LoadGiven: // deliver has put it there
		node.loading = true
		if r := w.rec; r.route == node.e.Route && (r.rev != node.e.Rev || r.state != node.loaded.state) {
			s.fail("I10: %s is given %03b of revision %d; the record has %03b of %d", refNames[n], node.loaded.state, node.e.Rev, r.state, r.rev)
		}
	case TransferDone, TransferNot:
		if node.transfers--; node.transfers < 0 {
			s.fail("%s ends a transfer twice", refNames[n])
		}
	case Answer:
		if x.Req.Fence {
			return // who sent it learns that it is lost
		}
		if x.Cause == Hops {
			s.fail("I8: request %d has made %d hops", x.Req.ID, x.Req.Hops)
		}
		if x.Cause.Executed() {
			s.end(x.Req, unknownFate)
		} else {
			s.end(x.Req, notExecuted)
		}
	case Ack:
		if x.Req.Fence {
			to := int(x.Req.ID - fenceIDs)
			send(message{op: Fence, to: to, toEpoch: w.nodes[to].epoch, route: node.e.Route, req: Req{ID: x.Req.ID}})
			return
		}
		s.end(x.Req, acked)
		landed := w.rec.state>>x.Req.ID&1 == 1
		if x.Req.Own {
			landed = w.rec.route.Owner == w.ref(n)
		}
		switch {
		case x.Req.Durable && x.Req.ID != readOnly && !landed:
			s.fail("I10: request %d is told durable, and is not in the record", x.Req.ID)
		case node.lease != valid && !landed && x.Req.ID != readOnly:
			s.fail("I4: %s tells a success of request %d without a lease, and no write proves it", refNames[n], x.Req.ID)
		case w.rec.route.Owner != w.ref(n) && !landed && !s.justReleased(n):
			s.fail("I4: %s tells a success of request %d, and does not own the record", refNames[n], x.Req.ID)
		}
	case Drop:
		if node.writing != nil && node.writing.limbo && !s.dropAllowed(n) {
			s.fail("I9: %s drops its memory while a write is unknown", refNames[n])
		}
		s.drop(n)
	}
}

// calm reports that nothing has happened that may end a memory without a transfer, or refuse what is asked for.
func (s *search) calm() bool {
	b := &s.w.budget
	return b.crash == 1 && b.lapse == 1 && b.fail == 1 && b.readFail == 1 && b.leave == 1 && b.panics == 1
}

// justReleased: the write that gave the ownership up, or away, proves that it was there until then.
func (s *search) justReleased(n int) bool {
	w := s.w
	return len(w.owners) > 1 && w.owners[len(w.owners)-2] == w.ref(n)
}

// dropAllowed: a panic has spoiled the memory, which must not be saved whatever is unknown.
func (s *search) dropAllowed(n int) bool {
	return s.w.nodes[n].e.Phase == Settling || strings.HasPrefix(s.path[len(s.path)-1], "panic")
}

func (s *search) drop(n int) {
	node := &s.w.nodes[n]
	for _, r := range node.mailbox {
		s.end(r, notExecuted)
	}
	if node.started != nil {
		s.end(*node.started, unknownFate)
	}
	node.mailbox, node.started, node.zombie, node.memory = nil, nil, false, 0
}

// readOnly is the request that changes nothing.
const readOnly = 2

// apply lands a write, or says why not.
func (s *search) apply(x *write) (landed bool) {
	w := s.w
	r := &w.rec
	if x.done || r.wid == x.wid && x.wid != 0 {
		return r.wid == x.wid
	}
	own := func(o zmsg.NodeRef, v zmsg.RouteVersion) {
		w.given = w.given || s.order && o.IsZero()
		if !o.IsZero() || x.op == Release || x.op == Move {
			w.owners = append(w.owners, o)
			if int(v) != len(w.owners) {
				s.fail("I2: version %d is committed as the change number %d", v, len(w.owners))
			}
		}
		r.route = Route{o, v}
	}
	if s.mutant.overwrites && x.op == Save {
		x.route, x.rev = r.route, r.rev
	}
	switch x.op {
	case Create:
		if r.found {
			return false
		}
		r.found = true
		own(x.by, r.route.Version+1)
		r.state = 0
	default:
		if !r.found || r.route != x.route || r.rev != x.rev {
			return false
		}
		if x.op == Claim {
			if o := r.route.Owner; !o.IsZero() && o != x.by && !w.gone(o) {
				s.fail("I1: %v takes the object from %v, which is not dead", x.by, o)
			}
			own(x.by, r.route.Version+1)
		} else {
			if r.state&^x.state != 0 {
				s.fail("a save of %v loses what the record had: %03b becomes %03b", x.by, r.state, x.state)
			}
			r.state = x.state
			switch x.op { //nolint:exhaustive // a save changes no owner
			case Release:
				own(zmsg.NodeRef{}, r.route.Version+1)
			case Move:
				own(x.to, r.route.Version+1)
			}
		}
	}
	r.rev++
	r.wid = x.wid
	return true
}
