package zrouter

import (
	"bytes"
	"sync"
	"sync/atomic"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// call is one request, or one-way message, on its way through this node. It stands in for who waits for the outcome, wherever the
// message goes: so the entry hears how each ends.
type call struct {
	set     *ManagerSet
	key     zmsg.Key
	req     entry.Req
	route   entry.Route                            // where it was forwarded to
	placed  bool                                   // which is a placement: nobody has committed it
	sent    uint32                                 // its number among what was sent to other nodes
	fence   bool                                   // a fence of this node
	res     *residence                             // whose mailbox has it
	m       *zmsg.Message                          // while it waits here, or is forwarded
	origin  zmsg.NodeRef                           // whose request it was at first
	hint    zmsg.RouteVersion                      // that it came with
	done    doneKey                                // by which it is known when it comes again
	then    func(r Route, err error)               // who waits, where that is a function
	work    func(c *zactor.Context)                // runs in place of a message
	make    func(k zmsg.Key) (zstore.Write, error) // the first state, where it is not there
	asked   bool                                   // PullOnlineServer was asked
	size    int                                    // while it is kept: what counts of its message
	durable atomic.Bool                            // the handler wants its answer told after the save

	envelope zmsg.Envelope

	reply zmsg.Reply // the outcome, as soon as it is known

	mu    sync.Mutex // guards what follows: handlers ask who waits while the outcome is given
	gen   uint64
	to    zmsg.Replier // who waits, nil where it is one-way
	token uint64
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (s *ManagerSet) newCall(k zmsg.Key, m *zmsg.Message) *call {
	c := calls.Get().(*call)
	c.set, c.key, c.m = s, k, m
	c.req.ID = s.lastID.Add(1)
	if m != nil {
		c.to, c.token = m.TakeReplier()
		c.done = keyOf(m)
		if kind := s.kinds[k.Type]; kind != nil { // also where it is forwarded: it may come back, and run here
			r := kind.rules[m.ID]
			c.req.Durable, c.req.Shy = r.durable, r.inServer
		}
	}
	return c
}

// Tokens of a call as a zmsg.Replier.
const (
	runs     = 0 // the outcome of its handler
	forwards = 1 // the outcome at another node
)

func (c *call) replier(kind uint64) (zmsg.Replier, uint64) { return c, c.gen<<1 | kind }

// Reply implements zmsg.Replier.
func (c *call) Reply(token uint64, r *zmsg.Reply) {
	c.mu.Lock()
	mine := token>>1 == c.gen
	c.mu.Unlock()
	switch {
	case !mine:
		c.set.counts.Late.Inc()
	case token&1 == forwards:
		c.forwarded(r)
	default:
		c.ran(r)
	}
}

// OnGiveUp implements zmsg.Waiter for who waits, if he is one.
func (c *call) OnGiveUp(token uint64, w zmsg.GiveUp, arg uint64) bool {
	to, inner := c.waiter(token)
	return to == nil || to.OnGiveUp(inner, w, arg)
}

// Forget implements zmsg.Waiter.
func (c *call) Forget(token uint64, w zmsg.GiveUp) {
	if to, inner := c.waiter(token); to != nil {
		to.Forget(inner, w)
	}
}

func (c *call) waiter(token uint64) (zmsg.Waiter, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token>>1 != c.gen {
		return nil, 0
	}
	w, _ := c.to.(zmsg.Waiter)
	return w, c.token
}

// turn makes what Ref.Turn runs of the call's work, and what is done where it does not come to that.
func (c *call) turn(res *residence) (run func(*zactor.Context), dropped func()) {
	c.res = res
	to, token := c.replier(runs)
	run = func(zc *zactor.Context) {
		if _, err := res.begin(nil, c); err != nil {
			r := zmsg.ErrorReply(err)
			r.Outcome = zmsg.NotExecuted
			to.Reply(token, &r)
			return
		}
		outcome := zmsg.ErrorReply(zmsg.ErrPanicked)
		defer func() { // also while it panics
			res.unwind()
			to.Reply(token, &outcome)
		}()
		c.work(zc)
		res.finish()
		outcome = zmsg.Reply{}
	}
	return run, func() {
		r := zmsg.ErrorReply(zmsg.ErrStopped)
		to.Reply(token, &r)
	}
}

// fail makes err the outcome.
func (c *call) fail(err error) { c.reply = zmsg.ErrorReply(err) }

// ran takes the outcome of the handler, or that it did not come to it.
func (c *call) ran(r *zmsg.Reply) {
	res := c.res
	o := res.o
	var kept keptReply
	remembers := res.remembers(&c.done)
	if remembers {
		kept = res.kept(&c.done, r)
	}
	t := res.sh.lock()
	c.reply = *r
	if remembers {
		if others := t.remember(res, c, &kept); others != nil {
			saves := c.durable.Load()
			defer func() { // behind the end of c: the lock is not held
				for i := range others {
					others[i].tell(r, saves)
				}
			}()
		}
	}
	if res.dropped {
		// Its memory is gone: what it says of itself is not true any more.
		if r.Code == zmsg.CodeOK || r.Outcome == zmsg.Executed {
			c.fail(errLost)
		}
		t.ended = append(t.ended, c)
		t.end()
		return
	}
	if r.Code != zmsg.CodeOK && r.Outcome == zmsg.NotExecuted {
		c.req.Then = false // it was to run behind a save, and was refused: who asked hears of it, and asks again
	}
	if res.inside.Load() {
		res.early.Store(true) // before Dirty is taken: what the handler says after it has to be told by itself
	}
	ev := entry.Event{Kind: entry.Ran, Req: c.req, Dirty: res.dirty.Swap(false)}
	switch {
	case res.broken.Load():
		ev.Kind, ev.Dirty = entry.Panicked, false
		res.crashed = true
	case c.durable.Load():
		c.req.Durable, ev.Req.Durable = true, true
	}
	t.serving(o)
	if res.leaving() {
		t.tell(o, &entry.Event{Kind: entry.Leave})
	}
	t.cur = c
	t.tell(o, &ev)
	if t.cur != nil { // not told yet
		c.reply.Body = bytes.Clone(c.reply.Body)
		o.keep(c)
		t.cur = nil
	}
	t.end()
}

// forwarded takes the outcome at another node.
func (c *call) forwarded(r *zmsg.Reply) {
	switch {
	case c.fence:
		c.passed(Route{Owner: r.Owner, Version: r.Version})
		return
	case r.Undelivered, r.Outcome == zmsg.NotExecuted && (r.Code == zmsg.CodeDraining || r.Code == zmsg.CodeStopped):
		// It did not arrive, or at a node that has given up what it had.
		c.undelivered()
		return
	case r.Version > c.req.Hint && !r.Owner.IsZero():
		if r.Code != zmsg.CodeOK && r.Outcome == zmsg.NotExecuted {
			c.sent = 0 // refused on its way, perhaps, where others wait that came before it
		}
		c.set.learn(c.key, Route{Owner: r.Owner, Version: r.Version}, c.sent)
	}
	c.reply = *r
	if r.Version == 0 && c.route.Version > c.hint && !c.placed { // the owner says nothing: we knew. Who asked us did not
		c.reply.Owner, c.reply.Version = c.route.Owner, c.route.Version
	}
	c.end()
}

// undelivered tells the entry that the call has not reached the node that it was forwarded to.
func (c *call) undelivered() {
	t := c.set.shard(c.key).lock()
	if t.closed(c) {
		return
	}
	o := t.object(c.key)
	t.tellOf(c, o, &entry.Event{Kind: entry.Undelivered, Req: c.req, Route: c.route})
	t.settle(o)
	t.end()
}

// transmit sends the call to the owner that its route names. With away the outcome follows, and c is not the caller's any more; a one-way
// message that was sent is over.
func (c *call) transmit() (away bool, err error) {
	s := c.set
	c.m.Hops = uint32(c.req.Hops)
	sent := s.counts.forwards[min(c.req.Hops, 4)]
	c.envelope = zmsg.Envelope{Key: c.key, Version: c.req.Hint, Owner: c.origin}
	if c.to != nil || c.fence {
		to, token := c.replier(forwards)
		if err := s.link.SendObject(c.route.Owner, &c.envelope, c.m, to, token); err != nil {
			return false, err
		}
		sent.Inc()
		return true, nil
	}
	if err := s.link.SendObject(c.route.Owner, &c.envelope, c.m, nil, 0); err != nil {
		return false, err
	}
	sent.Inc()
	if c.origin != s.self.Ref() && c.route.Version > c.hint && !c.placed {
		s.correct(c.origin, c.key, c.route)
	}
	return false, nil
}

// end tells the outcome to who waits, and gives the call back. No lock is held.
func (c *call) end() {
	c.mu.Lock()
	c.gen++
	to, token := c.to, c.token
	c.to = nil
	c.mu.Unlock()
	switch {
	case c.then != nil:
		var err error
		if c.reply.Code != zmsg.CodeOK {
			err = c.reply.Err()
		}
		c.then(c.route, err)
	case to != nil:
		to.Reply(token, &c.reply)
	case c.reply.Code != zmsg.CodeOK:
		c.set.lostOneWay(c)
	}
	if c.m != nil {
		c.m.Release()
	}
	c.set, c.key, c.req, c.route, c.res, c.m, c.origin = nil, zmsg.Key{}, entry.Req{}, entry.Route{}, nil, nil, zmsg.NodeRef{}
	c.make = nil
	c.done, c.then, c.work, c.asked, c.placed, c.hint, c.size, c.sent, c.fence = doneKey{}, nil, nil, false, false, 0, 0, 0, false
	c.durable.Store(false)
	c.reply, c.envelope = zmsg.Reply{}, zmsg.Envelope{}
	calls.Put(c)
}
