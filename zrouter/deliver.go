package zrouter

import (
	"context"
	"fmt"
	"strings"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// UpdateID is what the control envelope is that tells a node of a route: Key, Version and Owner.
const UpdateID = 32

// DeliverObject takes m for the object k: it is handled here, or goes to the owner's node, or waits until that is known. A nil
// error means that m was taken over: if it is a request its outcome follows, once, from any goroutine.
// Errors: ErrClosing, zmsg.ErrBadRequest for a key that is none, ErrNoNode for a type that no node hosts, ErrBusy.
func (s *ManagerSet) DeliverObject(k zmsg.Key, m *zmsg.Message) error {
	if err := s.check(k); err != nil {
		return err
	}
	if m.Once != "" {
		if err := checkOnce(m.Once); err != nil {
			return err
		}
	}
	c := s.newCall(k, m)
	c.origin = s.self.Ref()
	s.ask(c)
	return nil
}

// check says whether there may be such an object.
func (s *ManagerSet) check(k zmsg.Key) error {
	if s.closed.Load() {
		return ErrClosing
	}
	if err := zstore.CheckKey(k); err != nil {
		return &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: err.Error()}
	}
	if s.kinds[k.Type] == nil && !s.known(k.Type) {
		return &zmsg.Error{Code: zmsg.CodeNoNode, Outcome: zmsg.NotExecuted, Text: fmt.Sprintf("no node hosts objects of the type %d", k.Type)}
	}
	return nil
}

// Receive takes a message from another node; it is the handler of such envelopes of a Link.
func (s *ManagerSet) Receive(e *zmsg.Envelope, m *zmsg.Message) {
	if err := s.check(e.Key); err != nil {
		m.ReplyError(err)
		m.Release()
		return
	}
	if m.ID == fenceID && s.self.Is(e.Owner) { // all that this node has sent on before is back too
		m.Reply(&zmsg.Reply{})
		m.Release()
		return
	}
	c := s.newCall(e.Key, m) // ask gives it a key that lasts
	c.hint, c.req.Hint, c.req.Hops, c.req.Fence = e.Version, e.Version, uint8(min(max(m.Hops, 1), 255)), m.ID == fenceID
	if !e.Owner.IsZero() {
		c.origin = s.nodeRef(e.Owner)
	}
	s.ask(c)
}

// nodeRef is a NodeRef that does not alias an envelope.
func (s *ManagerSet) nodeRef(n zmsg.NodeRef) zmsg.NodeRef {
	for _, o := range s.members.Nodes().Nodes {
		if o.Ref == n {
			return o.Ref
		}
	}
	return zmsg.NodeRef{ID: strings.Clone(n.ID), Epoch: n.Epoch}
}

// ask tells the entry of a call.
func (s *ManagerSet) ask(c *call) {
	sh := s.shard(c.key)
	if c.m != nil && c.req.Hops == 0 && sh.fresh(c) {
		c.direct()
		return
	}
	t := sh.lock()
	if t.closed(c) {
		return
	}
	o := t.object(c.key)
	c.key = o.key
	t.serving(o)
	if o.entry.Phase == entry.Cached && s.dead(o.entry.Route.Owner) {
		t.tell(o, &entry.Event{Kind: entry.Expired}) // it may be there still, and say that it does not serve
	}
	if !o.entry.Admits() && !c.req.Fence && s.crowded(o, c) {
		c.fail(ErrBusy)
		t.ended = append(t.ended, c)
		t.settle(o)
		t.end()
		return
	}
	t.tellOf(c, o, &entry.Event{Kind: entry.Asked, Req: c.req})
	t.settle(o)
	t.end()
}

// closed refuses a call where the set is closed: with the lock held, so that nothing begins behind the end. It ends the turn then.
func (t *turn) closed(c *call) bool {
	if !t.sh.set.closed.Load() {
		return false
	}
	c.fail(ErrClosing)
	t.ended = append(t.ended, c)
	t.end()
	return true
}

// fresh sets c's route where all that is known of its object is a route that is not too old.
func (sh *shard) fresh(c *call) bool {
	now := sh.set.seconds(sh.set.clock.Now())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.objects[c.key] != nil {
		return false
	}
	slot := sh.routes.find(c.key)
	var r Route
	if slot != nil {
		r = Route{Owner: sh.routes.nodes.ref(slot.owner), Version: slot.version}
	}
	if slot == nil || now-slot.at >= sh.set.settingsOf(c.key).cacheSeconds() || sh.set.dead(r.Owner) {
		sh.set.counts.RouteMisses.Inc()
		return false
	}
	sh.set.counts.RouteHits.Inc()
	slot.used, slot.last = now, sh.number()
	c.route, c.sent = r, slot.last
	sh.sending.RLock() // direct gives it back
	return true
}

// direct forwards a call as its object's entry would: the common case, for which the lock need not be held. Nothing of the same
// caller waits in an entry, or there would be one.
func (c *call) direct() {
	c.req.Hops, c.req.Hint = 1, max(c.req.Hint, c.route.Version)
	sh := c.set.shard(c.key)
	away, err := c.transmit()
	sh.sending.RUnlock()
	switch {
	case away:
	case err == nil:
		c.end()
	case unreachable(err):
		c.undelivered()
	default:
		c.fail(err)
		c.end()
	}
}

// correct tells the node whose one-way message went a way of an older route.
func (s *ManagerSet) correct(origin zmsg.NodeRef, k zmsg.Key, r Route) {
	if origin.IsZero() {
		return
	}
	e := zmsg.Envelope{ID: UpdateID, Key: k, Version: r.Version, Owner: r.Owner}
	if s.link.SendControl(origin, &e) == nil {
		s.counts.Corrections.Inc()
	}
}

// crowded reports that a call cannot wait for an object, because too much does already.
func (s *ManagerSet) crowded(o *object, c *call) bool {
	if s.kept.Load() >= int64(s.settings.MaxWaiting) {
		return true
	}
	if c.m == nil || o.bytes == 0 && s.keptBytes.Load() < int64(s.settings.MaxWaitingBytes) {
		return false // one may be as large as it is
	}
	n := sizeOf(c.m)
	return o.bytes+n > s.settingsOf(o.key).MaxQueueBytes || s.keptBytes.Load()+int64(n) > int64(s.settings.MaxWaitingBytes)
}

// Control takes what another node tells about routes, and about objects that move; it reports false for what is no business of it.
func (s *ManagerSet) Control(e *zmsg.Envelope, from zmsg.NodeRef) bool {
	switch e.ID {
	case UpdateID:
	case prepareID:
		s.prepareAsked(e, from)
		return true
	case preparedID:
		t := s.shard(e.Key).lock()
		defer t.end()
		if o := t.sh.objects[e.Key]; o != nil {
			if !e.Owner.IsZero() {
				e.Owner = s.nodeRef(e.Owner)
			}
			t.prepared(o, e)
			t.settle(o)
		}
		return true
	case hintID:
		s.hinted(e)
		return true
	case goneID:
		s.toldGone(e.Owner)
		return true
	default:
		return false
	}
	if e.Key.ID == "" || e.Version == 0 || e.Owner.IsZero() || s.closed.Load() || s.self.Is(e.Owner) {
		return true
	}
	sh := s.shard(e.Key)
	r := Route{Owner: s.nodeRef(e.Owner), Version: e.Version}
	t := sh.lock()
	defer t.end()
	if !t.told(e.Key, r, 0) {
		sh.routes.update(e.Key, r)
	}
	return true
}

// online asks the kind's hook who owns an object that nobody owns by its record.
func (t *turn) online(o *object, c *call) {
	s := t.sh.set
	c.asked = true
	o.ios++
	hook, k, had := o.kind.online, o.key, o.entry.Route.Version
	s.pool.do(func() func() {
		r, err := askOnline(s, hook, k)
		return func() {
			t := o.sh.lock()
			defer t.end()
			o.ios--
			t.settle(o)
			switch {
			case err != nil:
				c.fail(fmt.Errorf("%w: asking who has %s: %w", ErrUnavailable, k, err))
			case r.Owner.IsZero() || r.Version <= had || s.self.Is(r.Owner):
				c.fail(ErrNotInServer)
			case o.entry.Learn(r):
				o.at = s.seconds(t.time())
				t.later(o, entry.Event{Kind: entry.Asked, Req: c.req}, c)
				return
			default:
				c.fail(ErrNotInServer)
			}
			t.ended = append(t.ended, c)
		}
	})
}

// askOnline asks a kind's hook; one that says ErrAgain is asked again.
func askOnline(s *ManagerSet, hook func(context.Context, zmsg.Key) (Route, error), k zmsg.Key) (r Route, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("zrouter: PullOnlineServer panicked: %v", v)
		}
	}()
	set := s.settingsOf(k)
	err = s.again(set.RetryMaxTTL, set.ObjectRetryInterval, func(ctx context.Context) (err error) {
		r, err = hook(ctx, k)
		return err
	})
	return r, err
}
