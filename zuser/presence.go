package zuser

import (
	"context"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zuser/internal/userpb"
	"zgame/zuser/presencepb"
)

// presence tells objects whether their users are there: of kinds with these numbers. A user is there as long as one of his logins may be gone on with: until it
// ends by his goodbye, or a kick, at once, and as long as its client may come back where the connection was lost, or the gate.
type presence struct{ told []uint32 }

// tellAgain is the wait before who has not confirmed a presence is told again.
const tellAgain = 2 * time.Second

// presenceOf is what the state says.
func presenceOf(user string, u *userpb.User) *presencepb.Presence {
	return &presencepb.Presence{User: user, Online: u.GetOnline(), SinceMs: u.GetSinceMs(), Number: u.GetPresence(), Node: u.GetNode()}
}

// update takes note of whether the user is there, and where. It reports whether that is news.
func update(u *userpb.User, version zmsg.RouteVersion, nowMs int64) bool {
	online, node := false, ""
	for _, l := range u.GetLogins() {
		if l.GetEnd() == nil {
			online, node = true, l.GetSession().GetGate()
		}
	}
	if online == u.GetOnline() && node == u.GetNode() {
		return false
	}
	if online != u.GetOnline() {
		u.SinceMs = nowMs
	}
	u.Online, u.Node, u.Presence = online, node, nextNumber(u.GetPresence(), version)
	return true
}

// look is called when the logins may have changed.
func (p presence) look(c *userContext) {
	if update(c.State(), c.Version(), c.Now().UnixMilli()) {
		c.Dirty()
		p.tell(c)
	}
}

// resume goes on where an owner before, or the memory of this one, has ended. Of one who is there, and has been while nobody could be asked, it tells anew.
func (p presence) resume(c *userContext) {
	u := c.State()
	news := update(u, c.Version(), c.Now().UnixMilli())
	if !news && u.GetOnline() && c.Moved() == 0 {
		u.Presence, news = nextNumber(u.GetPresence(), c.Version()), true
	}
	if news {
		c.Dirty()
	}
	if u.GetTold() < u.GetPresence() {
		p.tell(c)
	}
}

// tell tells what is so now, as soon as it is saved: whoever was told that a user is there will be told that he is gone, also where his object and his gate die together.
func (p presence) tell(c *userContext) {
	if len(p.told) == 0 {
		return
	}
	now := presenceOf(c.Key().ID, c.State())
	c.AfterSave(func(c *userContext) { p.send(c, now) })
}

// send tells all, who confirm it; of those who have not, it is tried again with what is so then.
func (p presence) send(c *userContext, now *presencepb.Presence) {
	left := len(p.told)
	for _, typ := range p.told {
		zrouter.Then(c, c.Object(zmsg.Key{Type: typ, ID: now.GetUser()}), now, func(c *userContext, _ *presencepb.Presence, err error) {
			switch code := zmsg.CodeOf(err); {
			case err == nil, code == zmsg.CodeNotInServer, code == zmsg.CodeNotFound: // who is not in memory, and whose kind does not care then
				if left--; left == 0 && c.State().GetPresence() == now.GetNumber() {
					c.State().Told = now.GetNumber()
					c.Dirty()
				}
			default:
				c.AfterKey("presence", tellAgain, p.tell)
			}
		})
	}
}

// see answers whether the user is there.
func see(c *userContext, _ *userpb.See) (*presencepb.Presence, error) {
	return presenceOf(c.Key().ID, c.State()), nil
}

// Presence says whether the user is there, since when, and where. Errors: ErrNotInServer where his object is not in memory, so that he is not there, and has not been for
// two minutes; those of zrouter.Call.
func (u *Users) Presence(ctx context.Context, user string) (*presencepb.Presence, error) {
	p, err := zrouter.Call[presencepb.Presence](ctx, u.set, Key(user), &userpb.See{})
	return p, absent(err)
}

// PresenceThen is Users.Presence in a turn of an object: fn runs in a later one, once, unless the object leaves memory before.
func PresenceThen[S any](c *zrouter.Context[S], user string, fn func(c *zrouter.Context[S], p *presencepb.Presence, err error)) {
	zrouter.Then(c, c.Object(Key(user)), &userpb.See{}, func(c *zrouter.Context[S], p *presencepb.Presence, err error) { fn(c, p, absent(err)) })
}
