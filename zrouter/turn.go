package zrouter

import (
	"errors"
	"slices"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// turn is one hold of a shard's lock: events are told to entries, and what these decide is carried out. What must not be done
// under the lock, telling outcomes, follows behind it.
type turn struct {
	sh      *shard
	now     time.Time // zero until asked for
	cur     *call     // whose event is being told
	effects []entry.Effect
	next    []follow // events that carrying out has led to
	ended   []*call
	ends    []func()  // what is told of transfers
	touched []*object // may be at rest

	asking *zmsg.Envelope // the answer to the question whether this node takes an object over, while the entry is told of it
	given  *zstore.Record // what came with the hint that the entry is told of
	frozen int64          // likewise: since when the object takes no requests, Unix milliseconds

	// Of the event that is told; here because it would be allocated each time.
	facts entry.Facts
}

type follow struct {
	o   *object
	ev  entry.Event
	cur *call
}

func (sh *shard) lock() *turn {
	t := sh.set.turns.Get().(*turn)
	sh.mu.Lock()
	t.sh = sh
	return t
}

// end carries out what is left, releases the lock, and tells outcomes.
func (t *turn) end() {
	for i := 0; i < len(t.next); i++ {
		f := t.next[i]
		if f.ev.Kind == entry.Transfer {
			t.beginMove(f.o)
		} else {
			t.tellOf(f.cur, f.o, &f.ev)
		}
		t.settle(f.o)
	}
	for i, o := range t.touched {
		t.putAway(o)
		t.touched[i] = nil
	}
	sh := t.sh
	sh.mu.Unlock()
	for i, c := range t.ended {
		c.end()
		t.ended[i] = nil
	}
	for i, f := range t.ends {
		f()
		t.ends[i] = nil
	}
	clear(t.next)
	t.sh, t.now, t.cur = nil, time.Time{}, nil
	t.effects, t.next, t.ended, t.ends, t.touched = t.effects[:0], t.next[:0], t.ended[:0], t.ends[:0], t.touched[:0]
	sh.set.turns.Put(t)
}

func (t *turn) time() time.Time {
	if t.now.IsZero() {
		t.now = t.sh.set.clock.Now()
	}
	return t.now
}

// object finds or makes the object of a key.
func (t *turn) object(k zmsg.Key) *object {
	sh := t.sh
	if o := sh.objects[k]; o != nil {
		return o
	}
	o := objects.Get().(*object)
	o.sh, o.key, o.kind = sh, cloneKey(k), sh.set.kinds[k.Type]
	o.entry.Suspended = sh.set.suspended.Load()
	last := sh.routes.lane(k, sh.set.seconds(t.time()))
	if r, at, ok := sh.routes.get(k, sh.set.seconds(t.time())); ok {
		o.at = at
		o.entry.Route = r
		if o.last = last; last != 0 {
			o.entry.Lane = r
		}
		if sh.set.seconds(t.time())-at < sh.set.settingsOf(k).cacheSeconds() && !sh.set.dead(r.Owner) {
			o.entry.Phase = entry.Cached
		}
	}
	sh.objects[o.key] = o
	return o
}

// settle has the object put away at the end, if it is at rest then.
func (t *turn) settle(o *object) {
	if !o.touched { // else it would be put away, and then be another's, before the second time
		o.touched = true
		t.touched = append(t.touched, o)
	}
}

func (t *turn) putAway(o *object) {
	o.touched = false
	if o.sh == nil || !o.resting() {
		return
	}
	sh := t.sh
	if sh.objects[o.key] != o {
		return
	}
	delete(sh.objects, o.key)
	switch lane := o.entry.Lane; {
	case o.entry.Phase == entry.Cached:
		sh.remember(o.key, o.entry.Route, o.at)
		if o.entry.Lane != o.entry.Route {
			o.last = 0
		}
		sh.routes.sent(o.key, o.last, sh.set.seconds(t.time()))
	case !lane.Owner.IsZero() && o.last != 0: // what was sent by it may be on its way
		sh.remember(o.key, lane, 0)
		sh.routes.sent(o.key, o.last, sh.set.seconds(t.time()))
		sh.expire(o.key)
	default:
		sh.routes.drop(o.key)
	}
	if o.orphans != nil {
		o.orphan()
	}
	calls := o.calls
	*o = object{calls: calls}
	objects.Put(o)
}

// tell has the entry step, and carries out what it decides.
func (t *turn) tell(o *object, ev *entry.Event) {
	if o.inert {
		if c := t.cur; c != nil {
			t.cur = nil
			c.fail(errLapsed)
			t.ended = append(t.ended, c)
		}
		return
	}
	switch ev.Kind { //nolint:exhaustive // what arrives and what ran look by themselves, the others tell no success
	case entry.HasRead, entry.ReadFailed, entry.Wrote, entry.Failed, entry.Loaded:
		t.serving(o)
	}
	was := o.entry.Phase
	t.look(o, ev.Kind)
	start := len(t.effects)
	t.effects = o.entry.Step(&t.facts, ev, t.effects)
	for i := start; i < len(t.effects); i++ {
		t.do(o, &t.effects[i])
	}
	t.effects = t.effects[:start]
	if o.entry.Phase == entry.Cached && (was != entry.Cached || ev.Kind == entry.Told) {
		o.at = t.sh.set.seconds(t.time())
	}
	if o.expects != nil && o.entry.Expect == 0 {
		t.sh.set.unexpect(o)
	}
	if o.moves != nil {
		t.moveOn(o)
	}
	o.watch(t, ev.Kind)
}

// tellOf is tell of an event of c, which waits in the object where that does not end it. c is nil where it is nobody's.
func (t *turn) tellOf(c *call, o *object, ev *entry.Event) {
	t.cur = c
	t.tell(o, ev)
	if t.cur != nil {
		o.keep(c)
		t.cur = nil
	}
}

// serving tells the entry if the lease is not valid: the timer that does so may come later than what it is about to tell, after a pause.
func (t *turn) serving(o *object) {
	if s := t.sh.set; o.res != nil && !o.entry.Suspended && !s.serving(t.time()) {
		s.lapse()
		t.tell(o, &entry.Event{Kind: entry.Suspend})
	}
}

// later has an event told when what is carried out now is done.
func (t *turn) later(o *object, ev entry.Event, cur *call) {
	t.next = append(t.next, follow{o, ev, cur})
}

// look sets the facts for an event.
func (t *turn) look(o *object, ev entry.Kind) {
	s, f := t.sh.set, &t.facts
	*f = entry.Facts{
		Self: s.self.Ref(), MaxHops: s.maxHops, MaxTTL: uint8(s.settings.TransferMaxTTL), MaxQueue: s.settings.MaxQueue,
		OnDemand: o.kind == nil || o.kind.onDemand,
		CanOwn:   o.kind != nil && !s.closing.Load() && !s.suspended.Load() && !s.full(),
	}
	if o.kind != nil {
		f.MaxQueue = o.kind.set.MaxQueue
	}
	if ev == entry.PrepareAsked {
		f.CanOwn = f.CanOwn && s.serving(t.time())
	}
	if ev == entry.HasRead {
		schema := uint32(0)
		if o.rec != nil {
			schema = o.rec.Schema
		}
		f.Home = s.home(o.key, schema)
		f.CanOwn = f.CanOwn && s.serving(t.time())
		f.Newer = o.kind != nil && schema > o.kind.version
	}
}

// full reports that the node has as many objects in memory as it may.
func (s *ManagerSet) full() bool {
	return s.settings.MaxObjects > 0 && s.residents.Load()+s.expected.Load() >= int64(s.settings.MaxObjects)
}

// do carries out one effect.
func (t *turn) do(o *object, x *entry.Effect) {
	switch x.Op {
	case entry.Read:
		t.read(o)
	case entry.Create, entry.Claim, entry.Save, entry.Release, entry.Move:
		t.write(o, x)
	case entry.Resolve:
		t.resolve(o.write)
	case entry.Load:
		o.loads = true
		t.load(o)
	case entry.Run:
		t.run(o, x)
	case entry.Forward:
		t.forward(o, x)
	case entry.Fence:
		t.fence(o, x.Route)
	case entry.Answer:
		t.answer(o, x)
	case entry.Ack:
		if c := t.take(o, x.Req.ID); c != nil {
			c.route = o.entry.Route
			if c.hint != o.entry.Route.Version { // else who asked knows
				c.reply.Owner, c.reply.Version = o.entry.Route.Owner, o.entry.Route.Version
			}
			t.ended = append(t.ended, c)
		}
	case entry.Drop:
		t.drop(o, x.Saved, x.Route)
	case entry.Prepare:
		t.prepare(o, x)
	case entry.Hint:
		t.hint(o, x)
	case entry.TellPrepared, entry.TellUnprepared:
		t.answerPrepare(o, x)
	case entry.LoadGiven:
		o.rec, o.loads, o.hinted, o.frozen = t.given, true, t.time(), t.frozen
		t.load(o)
	case entry.TransferDone:
		t.moved(o, x.Route)
	case entry.TransferNot:
		t.notMoved(o, x)
	default:
		t.sh.set.log.Error("zrouter: an effect that nothing asks for", "effect", x.Op.String())
	}
}

// run puts a request into the mailbox of the object's actor.
func (t *turn) run(o *object, x *entry.Effect) {
	c := t.take(o, x.Req.ID)
	c.req = x.Req
	o.used = t.time()
	res := o.res
	var err error
	switch {
	case c.req.Look:
		t.later(o, entry.Event{Kind: entry.Ran, Req: c.req}, c)
		return
	case c.work != nil:
		err = res.ref.Turn(c.turn(res))
	case c.to != nil && len(c.m.Chain) > 0 && slices.Contains(c.m.Chain, res.ref.Address().UID()):
		err = zmsg.ErrCycle // it waits for itself
	default:
		m := c.m
		c.res, c.m = res, nil
		m.SetReplier(c.replier(runs))
		if err = res.ref.Deliver(m); err != nil {
			m.TakeReplier()
			c.m = m
		}
	}
	if err != nil {
		c.fail(err)
		c.reply.Outcome = zmsg.NotExecuted
		c.req.Durable, c.req.Then = false, false
		t.later(o, entry.Event{Kind: entry.Ran, Req: c.req}, c)
	}
}

// forward sends a request to another node.
func (t *turn) forward(o *object, x *entry.Effect) {
	c := t.take(o, x.Req.ID)
	c.req, c.route, c.placed = x.Req, x.Route, x.Route != o.entry.Route
	switch {
	case c.req.Look:
		if x.Route.Version > 0 && x.Route.Version == o.entry.Route.Version && !o.entry.Route.Owner.IsZero() {
			c.reply = zmsg.Reply{Owner: x.Route.Owner, Version: x.Route.Version}
		} else {
			c.fail(ErrNotInServer)
		}
		t.ended = append(t.ended, c)
		return
	case c.m == nil: // work is for here alone
		c.fail(ErrMoved)
		t.ended = append(t.ended, c)
		return
	}
	o.last = t.sh.number()
	c.sent = o.last
	t.send(c)
}

// send sends a call to the owner that its route names.
func (t *turn) send(c *call) {
	switch away, err := c.transmit(); {
	case away:
	case err == nil:
		t.ended = append(t.ended, c)
	case unreachable(err):
		o := t.object(c.key)
		t.later(o, entry.Event{Kind: entry.Undelivered, Req: c.req, Route: c.route}, c)
		t.settle(o)
	default:
		c.fail(err)
		t.ended = append(t.ended, c)
	}
}

// unreachable reports that a message has certainly not reached the node that it was for.
func unreachable(err error) bool {
	return errors.Is(err, zmsg.ErrUnavailable) || errors.Is(err, zmsg.ErrUnknownActor) || errors.Is(err, zmsg.ErrNodeLost)
}

// errGrown is what requests end with for an object whose state has been too large to be saved for longer than may be.
var errGrown error = &zmsg.Error{
	Code: zmsg.CodeTooLarge, Outcome: zmsg.NotExecuted, Text: "the object's state is above the store's limit, so it takes no requests: make it smaller, with Manager.Do",
}

// answer refuses a request.
func (t *turn) answer(o *object, x *entry.Effect) {
	c := t.take(o, x.Req.ID)
	if c == nil {
		return
	}
	if x.Cause == entry.NotInServer && o.kind != nil && o.kind.online != nil && !c.asked {
		t.online(o, c)
		return
	}
	switch {
	case x.Cause == entry.Broken && c.reply.Code != zmsg.CodeOK: // the outcome of the handler says it
	case x.Cause == entry.Unavailable && o.entry.TooOld && errors.Is(o.why, zstore.ErrTooLarge):
		c.fail(errGrown)
		t.sh.set.refused(o, x.Cause)
	case (x.Cause == entry.Unusable || x.Cause == entry.Unsavable) && o.why != nil:
		c.fail(refusal(x.Cause, o.why))
		t.sh.set.refused(o, x.Cause)
	default:
		c.fail(causeError(x.Cause))
		var e *createError
		if x.Cause == entry.Unavailable && errors.As(o.why, &e) {
			c.fail(e.told())
		}
		t.sh.set.refused(o, x.Cause)
	}
	c.route = o.entry.Route
	c.reply.Owner, c.reply.Version = o.entry.Route.Owner, o.entry.Route.Version
	t.ended = append(t.ended, c)
}

// refusal is what a caller is told where why says more than the cause does.
func refusal(c entry.Cause, why error) error {
	told := *causeError(c)
	switch {
	case errors.Is(why, ErrSchema):
		return why
	case c == entry.Unsavable && !errors.Is(why, zstore.ErrTooLarge):
		told.Code, told.Text = zmsg.CodeInternal, "it ran, and left a state that does not encode"
	}
	return &told
}

// load makes the state of the record in memory, as soon as the actor of the last residence has ended.
func (t *turn) load(o *object) {
	if !o.loads || o.old != nil {
		return
	}
	o.loads = false
	s := t.sh.set
	res := &residence{o: o, sh: o.sh, version: o.entry.Route.Version, rec: o.rec, frozen: o.frozen}
	o.frozen = 0
	res.bound, o.orphans = o.orphans, nil
	t.recall(res, o.rec.Done)
	o.ios++
	s.loader.do(func() func() {
		ref, err := s.spawn(o, res)
		return func() {
			t := o.sh.lock()
			defer t.end()
			o.ios--
			defer t.settle(o)
			if o.inert {
				res.dropped = true
				_ = s.group.Stop(ref) // the zero Ref where it did not start
				return
			}
			if err == nil && res.gone {
				err = zmsg.ErrStopped
			}
			if err != nil {
				if n, ok := s.counts.seldom(rareLoad); ok {
					o.log().Error("the object cannot be loaded", "kind", o.name(), "err", err, "suppressed", n)
				}
				o.kind.counts.unloaded.Inc()
				o.why = err
				t.tell(o, &entry.Event{Kind: entry.LoadFailed})
				return
			}
			o.kind.counts.loaded.Inc()
			o.kind.counts.residents.Inc()
			res.ref = ref
			s.residents.Add(1)
			o.res, o.used, o.rec = res, t.time(), nil
			t.came(o, res)
			if !o.hinted.IsZero() {
				s.counts.HandoffSeconds.With("adopt").Observe(t.time().Sub(o.hinted).Seconds())
				o.hinted = time.Time{}
			}
			t.tell(o, &entry.Event{Kind: entry.Loaded})
			t.changed(res) // what OnActivate said
		}
	})
}

// drop ends the residence; now is the object's route.
func (t *turn) drop(o *object, saved bool, now entry.Route) {
	res := o.res
	o.res = nil
	if res == nil {
		return
	}
	res.dropped = true
	t.sh.set.residents.Add(-1)
	if res.timer != nil {
		res.timer.Stop()
	}
	switch {
	case res.crashed:
		res.why = Panicked
	case saved && !now.Owner.IsZero() && !t.sh.set.self.Is(now.Owner):
		res.why = Moved
	case saved, res.resting:
		res.why = Released
	default:
		res.why = Fenced
		o.log().Warn("the object is not this node's any more: dropped", "version", res.version)
	}
	o.kind.counts.residents.Dec()
	o.kind.counts.drops[res.why].Inc()
	t.went(o, res, now)
	o.saveAt, o.unsaved, o.fails = time.Time{}, time.Time{}, 0
	o.old = res
	if t.sh.set.group.Stop(res.ref) != nil && res.gone {
		o.old = nil
	}
}
