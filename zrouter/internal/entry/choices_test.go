package entry

import (
	"fmt"
	"slices"

	"zgame/zmsg"
)

// step is one thing that can happen.
type choice struct {
	name string
	do   func(s *search)
}

// choices returns what can happen in s.w.
func (s *search) choices() (normal, faults []choice) {
	w := s.w
	add := func(list *[]choice, name string, do func(s *search)) { *list = append(*list, choice{name, do}) }
	fault := func(name string, n *uint8, do func(s *search)) {
		if *n > 0 && w.budget.faults > 0 {
			add(&faults, name, do)
		}
	}
	for r := range s.reqs {
		if !w.asked[r] && (r == 0 || w.asked[r-1]) {
			for n := range s.nodes {
				if w.nodes[n].up {
					add(&normal, fmt.Sprintf("request %d at n%d", r, n), func(s *search) {
						if s.w.asked[r] = true; s.order {
							s.w.askedAt[r] = uint8(n) + uint8(maxNodes*s.w.nodes[n].epoch)
						}
						s.tell(n, Event{Kind: Asked, Req: Req{ID: uint64(r), Durable: r == 1, Own: s.own && r == 0, Shy: s.shy && r == 0}})
					})
				}
			}
		}
	}
	for i, m := range w.flight {
		if i > 0 && slices.ContainsFunc(w.flight[:i], func(o message) bool { return o.from == m.from && o.to == m.to }) {
			continue // one ordered stream
		}
		what := fmt.Sprintf("%s of %s to %s", m.op, refNames[m.from], refNames[m.to])
		if m.op == Forward && !m.req.Fence {
			what = fmt.Sprintf("request %d, %s", m.req.ID, what)
		}
		add(&normal, what+" arrives", func(s *search) {
			s.w.flight = slices.Delete(s.w.flight, i, i+1)
			s.deliver(m)
		})
		if m.op != Forward {
			fault(what+" is lost", &w.budget.loss, func(s *search) {
				s.spend(&s.w.budget.loss)
				s.w.flight = slices.Delete(s.w.flight, i, i+1)
				s.unheard(m)
			})
		}
	}
	for i := range w.orphans {
		add(&normal, fmt.Sprintf("orphan write %d lands or not", w.orphans[i].wid), func(s *search) {
			x := s.w.orphans[i]
			s.w.orphans = slices.Delete(s.w.orphans, i, i+1)
			s.apply(&x)
		})
		add(&normal, "orphan write vanishes", func(s *search) { s.w.orphans = slices.Delete(s.w.orphans, i, i+1) })
	}
	for n := range s.nodes {
		s.nodeChoices(n, add, &normal, fault)
	}
	return normal, faults
}

// alive reports whether a node is still the one of that epoch.
func (w *world) alive(n int, epoch uint64) bool { return w.nodes[n].up && w.nodes[n].epoch == epoch }

// deliver hands a message over, or tells its sender that nobody is there.
func (s *search) deliver(m message) {
	w := s.w
	if !w.alive(m.to, m.toEpoch) {
		switch sender := w.alive(m.from, m.fromEpoch); {
		case m.op == Forward && m.req.Fence:
			// Who sent it, or sent it on, learns that it is over.
		case m.op == Forward && sender:
			s.tell(m.from, Event{Kind: Undelivered, Req: m.req, Route: m.route})
		case m.op == Forward:
			s.end(m.req, withNode)
		case m.op == Prepare && sender:
			s.tell(m.from, Event{Kind: Unprepared})
		}
		return
	}
	from := zmsg.NodeRef{ID: refNames[m.from], Epoch: m.fromEpoch}
	switch m.op { //nolint:exhaustive // what is sent
	case Forward:
		if m.req.Fence && m.req.ID == fenceIDs+uint64(m.to) {
			s.tell(m.to, Event{Kind: FenceOver}) // whoever drives the entry knows its own
			return
		}
		s.tell(m.to, Event{Kind: Asked, Req: m.req})
	case Fence: // it comes back
		s.tell(m.to, Event{Kind: FenceOver, Route: m.route})
	case Prepare:
		s.tell(m.to, Event{Kind: PrepareAsked, From: from, Route: Route{from, m.route.Version}})
	case TellPrepared:
		s.tell(m.to, Event{Kind: Prepared})
	case TellUnprepared:
		s.tell(m.to, Event{Kind: Unprepared, Route: m.knows})
	case Hint:
		node := &w.nodes[m.to]
		before := node.loaded
		if !node.loading {
			node.loaded = record{found: true, route: m.route, rev: m.rev, state: m.state}
		}
		s.tell(m.to, Event{Kind: Hinted, From: from, Route: m.route, Rev: m.rev, Found: true})
		if !node.loading {
			node.loaded = before
		}
	}
}

// unheard tells of the loss of a word in time.
func (s *search) unheard(m message) {
	w := s.w
	switch m.op { //nolint:exhaustive // words of a transfer
	case Prepare:
		if w.alive(m.from, m.fromEpoch) {
			s.tell(m.from, Event{Kind: Unprepared})
		}
	case TellPrepared, TellUnprepared:
		if w.alive(m.to, m.toEpoch) {
			s.tell(m.to, Event{Kind: Unprepared})
		}
	}
}

func (s *search) nodeChoices(n int, add func(*[]choice, string, func(*search)), normal *[]choice, fault func(string, *uint8, func(*search))) {
	w := s.w
	node := &w.nodes[n]
	name := refNames[n]
	b := &w.budget
	if !node.up {
		add(normal, name+" starts again", func(s *search) {
			x := &s.w.nodes[n]
			*x = wnode{up: true, epoch: x.epoch + 1}
		})
		if node.lease != dead {
			add(normal, name+" is proven dead", func(s *search) { s.w.nodes[n].lease = dead })
		}
		return
	}
	if node.reading && !node.captured {
		add(normal, name+" read", func(s *search) {
			x := &s.w.nodes[n]
			x.captured, x.read = true, s.w.rec
		})
		fault(name+" cannot read", &b.readFail, func(s *search) {
			s.spend(&s.w.budget.readFail)
			s.w.nodes[n].reading = false
			s.tell(n, Event{Kind: ReadFailed})
		})
	}
	if node.reading && node.captured {
		add(normal, name+" has read", func(s *search) {
			x := &s.w.nodes[n]
			r := x.read
			x.reading, x.captured, x.read = false, false, record{}
			o := r.route.Owner
			s.tell(n, Event{Kind: HasRead, Found: r.found, Route: r.route, Rev: r.rev, OwnerDead: !o.IsZero() && s.w.gone(o)})
		})
	}
	if node.loading {
		add(normal, name+" has loaded", func(s *search) {
			x := &s.w.nodes[n]
			x.loading, x.memory = false, x.loaded.state
			s.tell(n, Event{Kind: Loaded})
		})
		fault(name+" cannot load", &b.fail, func(s *search) {
			s.spend(&s.w.budget.fail)
			s.w.nodes[n].loading = false
			s.tell(n, Event{Kind: LoadFailed})
		})
	}
	if x := node.writing; x != nil && !x.limbo {
		what := fmt.Sprintf("%s %s(%d)", name, x.op, x.wid)
		add(normal, what+" ends", func(s *search) { s.finish(n) })
		fault(what+" fails", &b.fail, func(s *search) {
			s.spend(&s.w.budget.fail)
			s.w.nodes[n].writing = nil
			s.tell(n, Event{Kind: Failed})
		})
		fault(what+" lands, unknown", &b.unknown, func(s *search) {
			s.spend(&s.w.budget.unknown)
			x := s.w.nodes[n].writing
			x.limbo, x.done = true, s.apply(x)
			s.tell(n, Event{Kind: Unclear})
		})
		fault(what+" does not land, unknown", &b.unknown, func(s *search) {
			s.spend(&s.w.budget.unknown)
			s.w.nodes[n].writing.limbo = true
			s.tell(n, Event{Kind: Unclear})
		})
	}
	if x := node.writing; x != nil && x.limbo && !x.done {
		add(normal, fmt.Sprintf("%s %s(%d) lands late", name, x.op, x.wid), func(s *search) {
			x := s.w.nodes[n].writing
			x.done = s.apply(x)
		})
	}
	if node.resolve {
		add(normal, name+" resolves", func(s *search) {
			s.w.nodes[n].resolve = false
			s.finish(n)
		})
	}
	if node.started == nil && len(node.mailbox) > 0 {
		add(normal, fmt.Sprintf("%s starts request %d", name, node.mailbox[0].ID), func(s *search) { s.start(n) })
	}
	if node.started != nil && node.started.ID == 0 && !node.zombie && s.then && !w.asked[readOnly] {
		add(normal, name+" is to run something behind the save", func(s *search) {
			s.w.asked[readOnly] = true
			s.tell(n, Event{Kind: Asked, Req: Req{ID: readOnly, Own: true, Work: true, Durable: true, Then: true}})
		})
	}
	if node.started != nil {
		r := *node.started
		add(normal, fmt.Sprintf("%s ran request %d", name, r.ID), func(s *search) {
			x := &s.w.nodes[n]
			x.started, x.zombie = nil, false
			if !r.Then {
				s.w.ran[r.ID]++
			}
			if s.w.ran[r.ID] > 1 {
				s.fail("I7: request %d ran twice", r.ID)
			}
			if r.ID != readOnly {
				x.memory |= 1 << r.ID
			}
			s.tell(n, Event{Kind: Ran, Req: r, Dirty: r.ID != readOnly})
		})
		fault(fmt.Sprintf("panic in request %d on %s", r.ID, name), &b.panics, func(s *search) {
			s.spend(&s.w.budget.panics)
			x := &s.w.nodes[n]
			x.started, x.zombie = nil, false
			s.w.ran[r.ID]++
			s.tell(n, Event{Kind: Panicked, Req: r})
		})
	}
	if node.e.Dirty && !node.e.Writing && (node.e.Phase == Active || node.e.Phase == Checking) {
		add(normal, name+" is to save", func(s *search) { s.tell(n, Event{Kind: SaveDue}) })
	}
	if !node.draining {
		fault(name+" drains", &b.drain, func(s *search) {
			s.spend(&s.w.budget.drain)
			s.w.nodes[n].draining = true
		})
	}
	for v, o := range w.owners {
		if o.IsZero() {
			continue
		}
		fault(fmt.Sprintf("%s is told of version %d", name, v+1), &b.told, func(s *search) {
			s.spend(&s.w.budget.told)
			before := s.w.nodes[n].e.Route
			s.tell(n, Event{Kind: Told, Route: Route{o, zmsg.RouteVersion(v + 1)}})
			if now := s.w.nodes[n].e.Route; now.Version < before.Version {
				s.fail("I3: %s goes back from %v to %v", refNames[n], before, now)
			}
		})
	}
	if node.e.Phase == Active && !node.e.Moves {
		fault(name+" is to hand over to nobody", &b.move, func(s *search) {
			s.spend(&s.w.budget.move)
			s.w.nodes[n].transfers++
			s.tell(n, Event{Kind: Transfer})
		})
		for k := range s.nodes {
			if k == n {
				continue
			}
			for _, notify := range []bool{true, false} {
				fault(fmt.Sprintf("%s is to hand over to %s, notify %v", name, refNames[k], notify), &b.move, func(s *search) {
					s.spend(&s.w.budget.move)
					s.w.nodes[n].transfers++
					s.tell(n, Event{Kind: Transfer, Target: s.w.ref(k), Notify: notify})
				})
			}
		}
	}
	if node.e.Fencing && !w.fenceOf(n) {
		add(normal, name+" learns that its fence is lost", func(s *search) { s.tell(n, Event{Kind: FenceOver}) })
	}
	if node.e.Phase == Freezing && node.e.Running > 0 {
		fault(name+" is not quiet in time", &b.unquiet, func(s *search) {
			s.spend(&s.w.budget.unquiet)
			s.tell(n, Event{Kind: Unquiet})
		})
	}
	if node.e.Expect != 0 {
		fault(name+" does not expect the object any more", &b.unexpect, func(s *search) {
			s.spend(&s.w.budget.unexpect)
			s.tell(n, Event{Kind: Unexpect})
		})
	}
	if node.e.Phase == Cached {
		fault(name+"'s route expires", &b.expire, func(s *search) {
			s.spend(&s.w.budget.expire)
			s.tell(n, Event{Kind: Expired})
		})
	}
	if node.e.Phase.Resident() && !node.e.Leaving {
		fault(name+" is to leave", &b.leave, func(s *search) {
			s.spend(&s.w.budget.leave)
			s.tell(n, Event{Kind: Leave})
		})
	}
	if node.e.Admits() && node.e.Running == 0 && !node.e.Dirty && !node.e.Writing {
		fault(name+" leaves memory, and stays the owner", &b.leave, func(s *search) {
			s.spend(&s.w.budget.leave)
			s.tell(n, Event{Kind: Rest})
		})
	}
	fault(name+" crashes", &b.crash, func(s *search) {
		s.spend(&s.w.budget.crash)
		s.lose(n)
		x := &s.w.nodes[n]
		*x = wnode{epoch: x.epoch, lease: max(x.lease, lapsed)}
	})
	if node.lease == valid && node.e.Suspended && !node.reading {
		add(normal, name+" is told again that its lease is valid", func(s *search) { s.tell(n, Event{Kind: Resume}) })
	}
	switch node.lease {
	case valid:
		fault(name+"'s lease lapses", &b.lapse, func(s *search) {
			s.spend(&s.w.budget.lapse)
			x := &s.w.nodes[n]
			x.lease, x.zombie = lapsed, x.started != nil
			s.tell(n, Event{Kind: Suspend})
		})
	case lapsed:
		add(normal, name+"'s lease is back", func(s *search) {
			x := &s.w.nodes[n]
			x.lease, x.zombie = valid, false
			s.tell(n, Event{Kind: Resume})
		})
		add(normal, name+"'s lease ends", func(s *search) { s.w.nodes[n].lease = dead })
	case dead:
		add(normal, name+" joins again", func(s *search) {
			s.drop(n)
			s.lose(n)
			x := &s.w.nodes[n]
			*x = wnode{up: true, epoch: x.epoch + 1}
		})
	}
}

func (s *search) spend(n *uint8) {
	*n--
	s.w.budget.faults--
}

// lose ends what the entry and the mailbox of a node have, whose asker learns that the node is gone.
func (s *search) lose(n int) {
	node := &s.w.nodes[n]
	for _, r := range node.e.Queue {
		if !r.Fence {
			s.w.fates[r.ID] = withNode
		}
	}
	for _, h := range node.e.held {
		s.w.fates[h.req.ID] = withNode
	}
	for _, r := range node.mailbox {
		s.w.fates[r.ID] = withNode
	}
	if node.started != nil {
		s.w.fates[node.started.ID] = withNode
	}
	if node.writing != nil {
		s.w.orphans = append(s.w.orphans, *node.writing)
	}
}

func (s *search) start(n int) {
	w := s.w
	node := &w.nodes[n]
	r := node.mailbox[0]
	node.mailbox = slices.Delete(node.mailbox, 0, 1)
	if node.lease != valid {
		// Whoever carries out Run looks at the lease again before it starts.
		s.end(r, notExecuted)
		s.skipped(n)
		return
	}
	if w.rec.route.Owner != w.ref(n) || w.rec.route.Version != node.e.Route.Version {
		s.fail("I4: %s starts request %d on version %d; the record has %v", refNames[n], r.ID, node.e.Route.Version, w.rec.route)
	}
	if s.then && r.ID == readOnly && !r.Then && w.rec.state&1 == 0 && s.calm() { // else it may be for a memory that is gone: who drives the entry knows
		s.fail("%s runs what is to run behind a save, and the save is not there", refNames[n])
	}
	for k := range s.nodes {
		if o := &w.nodes[k]; k != n && o.started != nil && !o.zombie {
			s.fail("I5: requests %d and %d run at once", r.ID, o.started.ID)
		}
	}
	if s.order {
		w.began[r.ID] = true
		for later := r.ID + 1; later < maxReqs; later++ {
			if w.asked[later] && w.askedAt[later] == w.askedAt[r.ID] && w.began[later] && s.orderly() {
				s.fail("I12: request %d starts on %s behind %d, which was asked for later at the same node", r.ID, refNames[n], later)
			}
		}
	}
	node.started = &r
}

// orderly reports that nothing has happened to the object but transfers to other nodes.
func (s *search) orderly() bool {
	b := &s.w.budget
	return !s.w.given && b.crash == 1 && b.lapse == 1 && b.fail == 1 && b.readFail == 1 && b.leave == 1 && b.panics == 1 && b.told == 1 && b.drain == 1
}

// fenceOf reports whether the fence of a node is on its way.
func (w *world) fenceOf(n int) bool {
	id := fenceIDs + uint64(n)
	for _, m := range w.flight {
		if m.req.ID == id {
			return true
		}
	}
	for k := range w.nodes {
		if slices.ContainsFunc(w.nodes[k].e.Queue, func(r Req) bool { return r.ID == id }) {
			return true
		}
	}
	return false
}

// fenceIDs are those of the fences, by node.
const fenceIDs = 100

// skipped tells the entry of a request that ended before it was started.
func (s *search) skipped(n int) {
	s.w.nodes[n].e.Running--
	s.w.nodes[n].e.Step(s.facts(n), &Event{Kind: Told}, nil)
}

// finish lands the write of node n, or finds that it cannot, and tells.
func (s *search) finish(n int) {
	node := &s.w.nodes[n]
	x := node.writing
	landed := s.apply(x)
	node.writing = nil
	if !landed {
		s.tell(n, Event{Kind: Conflicted})
		return
	}
	s.tell(n, Event{Kind: Wrote, Route: s.w.rec.route, Rev: s.w.rec.rev})
}
