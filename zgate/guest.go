package zgate

import (
	"slices"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// guestRequest runs a request of a client that has not logged in, if its id may be (Config.BeforeLogin); else it reports false.
//
// Such requests belong to a Session that is in no table: it has no user and no identity, and nobody can push to it. What is
// in flight when the client logs in is answered on the connection all the same.
func (c *conn) guestRequest(f *zmsg.Frame, fault *zmsg.Error) bool {
	g := c.g
	if f.Kind != wirepb.FrameKind_FRAME_KIND_REQUEST || !slices.Contains(g.cfg.BeforeLogin, f.ID) {
		return false
	}
	s := c.guest.Load()
	if s == nil {
		s = &Session{g: g, rate: newRates(g.guests, g.now())}
		s.c.Store(c)
		c.guest.Store(s)
	}
	if !c.closingNow.Load() {
		s.request(c, f, fault, c.readAt)
	}
	return true
}

// endGuest forgets the requests from before the login; the connection has ended.
func (c *conn) endGuest() {
	if s := c.guest.Load(); s != nil {
		for range s.requests.close() {
			c.g.requestDone()
		}
	}
}

// fire is what the wheel calls: onTimer, and the deadlines of requests from before the login.
func (g *Gate) fire(c *conn, now int64) (next int64) {
	next = g.onTimer(c, now)
	if s := c.guest.Load(); s != nil && next > 0 {
		next = min(next, s.expire(now))
	}
	return next
}
