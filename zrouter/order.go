package zrouter

import (
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
)

// fenceID is the message id of a fence between nodes: a request for an object that asks for nothing, see internal/entry.
const fenceID = 12

// fence sends a fence behind all that was sent by a route.
func (t *turn) fence(o *object, by Route) {
	s, sh := t.sh.set, t.sh
	m := zmsg.NewMessage(fenceID)
	m.Deadline = t.time().Add(s.settings.PrepareTimeout + s.settingsOf(o.key).QuiesceTimeout)
	c := s.newCall(o.key, m)
	c.fence, c.route, c.origin = true, by, s.self.Ref()
	c.req.Fence, c.req.Hops, c.req.Hint = true, 1, by.Version
	o.fence = c.req.ID
	gone := s.dead(by.Owner) || s.self.Is(by.Owner)
	s.loader.do(func() func() {
		sh.sending.Lock()   // who took the route before there was an entry has sent then
		sh.sending.Unlock() //nolint:staticcheck // nothing is to be done meanwhile
		return func() {
			away := false
			if !gone {
				away, _ = c.transmit()
			}
			if !away { // there is no lane
				c.passed(Route{})
			}
		}
	})
}

// passed tells the entry that its fence is over.
func (c *call) passed(r Route) {
	sh := c.set.shard(c.key)
	t := sh.lock()
	if o := sh.objects[c.key]; o != nil && o.fence == c.req.ID && !o.inert {
		o.fence = 0
		if !r.Owner.IsZero() {
			r.Owner = c.set.nodeRef(r.Owner)
		}
		t.tell(o, &entry.Event{Kind: entry.FenceOver, Route: r})
		t.settle(o)
	}
	t.end()
	c.end()
}
