package friend

import (
	"zgame/examples/friend/friendpb"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zuser"
	"zgame/zuser/presencepb"
)

// Who is there is known to the directory of users. It tells each user's list of him (present), which tells those of his friends that are in memory
// (near): somebody may be looking. Who opens his list has it ask the directory about each friend (ask). Of what is heard of one user the
// greater number is true, so it does not matter in which order it comes.

// present is what the directory says of the list's user.
func present(c *list, p *presencepb.Presence) error {
	s := c.State()
	if p.GetNumber() > s.GetSelf().GetNumber() {
		s.Self = hereOf(p)
		c.Dirty()
		tellFriends(c)
	}
	return nil
}

// tellFriends tells the friends what they have not been told.
func tellFriends(c *list) {
	s := c.State()
	self := s.GetSelf()
	if s.GetNear() >= self.GetNumber() {
		return
	}
	left := 1
	told := func(c *list) {
		if left--; left == 0 && self.GetNumber() > s.GetNear() {
			s.Near = self.GetNumber()
			c.Dirty()
		}
	}
	for user, p := range s.GetPeers() {
		if status(p) != friendpb.Status_STATUS_FRIEND {
			continue
		}
		left++
		zrouter.Then(c, c.Object(keyOf(user)), &friendpb.Near{To: user, From: c.Key().ID, Here: self}, func(c *list, _ *friendpb.Near, err error) {
			if err == nil || notThere(err) {
				told(c)
				return
			}
			c.AfterKey("near", again, tellFriends)
		})
	}
	told(c)
}

// notThere reports that what was asked is not in memory: so nobody is there who could look.
func notThere(err error) bool {
	code := zmsg.CodeOf(err)
	return code == zmsg.CodeNotInServer || code == zmsg.CodeNotFound
}

// near is what the list of a friend says of him.
func near(c *list, m *friendpb.Near) error {
	if p := c.State().GetPeers()[m.GetFrom()]; p != nil && status(p) == friendpb.Status_STATUS_FRIEND {
		set(c, m.GetFrom(), p, m.GetHere())
	}
	return nil
}

// askIfFriend asks the directory whether a friend is there.
func askIfFriend(c *list, user string, p *friendpb.Peer) {
	if status(p) != friendpb.Status_STATUS_FRIEND {
		return
	}
	before := p.GetHere().GetNumber()
	zuser.PresenceThen(c, user, func(c *list, answer *presencepb.Presence, err error) {
		p := c.State().GetPeers()[user]
		switch {
		case p == nil || status(p) != friendpb.Status_STATUS_FRIEND:
		case err == nil:
			set(c, user, p, hereOf(answer))
		case notThere(err):
			if p.GetHere().GetOnline() && p.GetHere().GetNumber() == before { // and nothing newer was heard
				set(c, user, p, &friendpb.Here{Number: before + 1})
			}
		default: // the directory cannot be asked now
			c.AfterKey("ask "+user, again, func(c *list) {
				if p := c.State().GetPeers()[user]; p != nil {
					askIfFriend(c, user, p)
				}
			})
		}
	})
}

// set takes what is newer than what was heard, and tells the clients. It is not worth a save: it is asked for anew.
func set(c *list, user string, p *friendpb.Peer, h *friendpb.Here) {
	if h.GetNumber() <= p.GetHere().GetNumber() {
		return
	}
	news := h.GetOnline() != p.GetHere().GetOnline() || h.GetNode() != p.GetHere().GetNode() || h.GetSinceMs() != p.GetHere().GetSinceMs()
	p.Here = h
	if news {
		push(c, entry(user, p))
	}
}

func hereOf(p *presencepb.Presence) *friendpb.Here {
	return &friendpb.Here{Online: p.GetOnline(), SinceMs: p.GetSinceMs(), Number: p.GetNumber(), Node: p.GetNode()}
}
