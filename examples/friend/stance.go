package friend

import (
	"unicode/utf8"

	"zgame/examples/friend/friendpb"
	"zgame/zmsg"
)

// Two people are friends when both want it. Each list holds what its own user wants of somebody, and a copy of what was heard of the other list. It tells
// the other one what it says, and does so again until that was confirmed: after a crash as well, since what is not confirmed is in its
// record. What is told has a number, only the newest counts, and hearing it twice changes nothing. So nothing is locked, and no change needs
// two records at once.
//
// Here are pure functions on one record; the object (lists.go) saves, sends, and hears.

const (
	maxPeers = 500
	maxNote  = 200 // letters
	maxName  = 128 // bytes, as zmsg.Key has it
)

var (
	errBadUser   = zmsg.Errorf(zmsg.Code(friendpb.Code_CODE_BAD_USER), "expected the id of another user")
	errFull      = zmsg.Errorf(zmsg.Code(friendpb.Code_CODE_FULL), "a list holds %d people at most: remove some first", maxPeers)
	errNoRequest = zmsg.Errorf(zmsg.Code(friendpb.Code_CODE_NO_REQUEST), "they have not asked, or have taken it back")
	errBlocked   = zmsg.Errorf(zmsg.Code(friendpb.Code_CODE_BLOCKED), "you have blocked them: unblock them first")
	errBadNote   = zmsg.Errorf(zmsg.Code(friendpb.Code_CODE_BAD_NOTE), "a note has %d letters at most", maxNote)
)

// status is what p comes to.
func status(p *friendpb.Peer) friendpb.Status {
	switch {
	case p.GetBlocked():
		return friendpb.Status_STATUS_BLOCKED
	case p.GetWant() && wanted(p):
		return friendpb.Status_STATUS_FRIEND
	case wanted(p):
		return friendpb.Status_STATUS_INCOMING
	case p.GetWant():
		return friendpb.Status_STATUS_OUTGOING
	default:
		return friendpb.Status_STATUS_NONE
	}
}

// wanted reports that the other one wants to be friends, and was not turned down since.
func wanted(p *friendpb.Peer) bool { return p.GetTheirWant() && p.GetTheirVersion() > p.GetDeclined() }

// pending reports that the other list has not confirmed what p says.
func pending(p *friendpb.Peer) bool { return p.GetTold() < p.GetVersion() }

// idle reports that p says nothing that a fresh one would not: it may be forgotten. hear makes up for the numbers that are forgotten with it.
func idle(p *friendpb.Peer) bool {
	return status(p) == friendpb.Status_STATUS_NONE && !pending(p) && p.GetNote() == ""
}

// peer returns what the list has of user, made where there is nothing. Errors: errFull.
func peer(s *friendpb.FriendState, user string) (*friendpb.Peer, error) {
	if p := s.GetPeers()[user]; p != nil {
		return p, nil
	}
	if len(s.GetPeers()) >= maxPeers {
		for name, p := range s.GetPeers() {
			if idle(p) {
				delete(s.Peers, name)
			}
		}
		if len(s.GetPeers()) >= maxPeers {
			return nil, errFull
		}
	}
	if s.Peers == nil {
		s.Peers = make(map[string]*friendpb.Peer)
	}
	p := &friendpb.Peer{}
	s.Peers[user] = p
	return p, nil
}

// say gives what p says a number.
func say(s *friendpb.FriendState, p *friendpb.Peer) {
	s.Last++
	p.Version = s.GetLast()
}

// want changes what the list's user wants.
func want(s *friendpb.FriendState, p *friendpb.Peer, yes bool) {
	if p.GetWant() != yes {
		p.Want = yes
		say(s, p)
	}
	if yes {
		p.Declined = 0
	}
}

// settle notes since when two are friends; nowMs is Unix milliseconds.
func settle(p *friendpb.Peer, nowMs int64) {
	switch friends := status(p) == friendpb.Status_STATUS_FRIEND; {
	case !friends:
		p.SinceMs = 0
	case p.GetSinceMs() == 0:
		p.SinceMs = nowMs
	}
}

// change is one request of the list's user about somebody. do changes p, or says why not.
func change(s *friendpb.FriendState, self, user string, nowMs int64, do func(s *friendpb.FriendState, p *friendpb.Peer) error) (*friendpb.Entry, error) {
	if user == "" || user == self || len(user) > maxName || !utf8.ValidString(user) {
		return nil, errBadUser
	}
	p, err := peer(s, user)
	if err != nil {
		return nil, err
	}
	if err := do(s, p); err != nil {
		return nil, err
	}
	settle(p, nowMs)
	return entry(user, p), nil
}

func add(s *friendpb.FriendState, p *friendpb.Peer) error {
	if p.GetBlocked() {
		return errBlocked
	}
	want(s, p, true)
	return nil
}

func accept(s *friendpb.FriendState, p *friendpb.Peer) error {
	switch status(p) {
	case friendpb.Status_STATUS_INCOMING, friendpb.Status_STATUS_FRIEND:
		want(s, p, true)
		return nil
	case friendpb.Status_STATUS_BLOCKED:
		return errBlocked
	default:
		return errNoRequest
	}
}

// remove ends a friendship, takes a request back, or turns one down: what the other one wants is over when his list hears of it.
func remove(s *friendpb.FriendState, p *friendpb.Peer) error {
	if wanted(p) && !p.GetWant() {
		say(s, p) // again, knowing what the other one wants
	}
	want(s, p, false)
	p.Declined = p.GetTheirVersion()
	return nil
}

func block(s *friendpb.FriendState, p *friendpb.Peer) error {
	_ = remove(s, p)
	p.Blocked = true
	return nil
}

func unblock(_ *friendpb.FriendState, p *friendpb.Peer) error {
	p.Blocked = false
	return nil
}

func note(text string) func(*friendpb.FriendState, *friendpb.Peer) error {
	return func(_ *friendpb.FriendState, p *friendpb.Peer) error {
		if utf8.RuneCountInString(text) > maxNote || !utf8.ValidString(text) {
			return errBadNote
		}
		p.Note = text
		return nil
	}
}

// stance is what the list of self says to that of user.
func stance(self, user string, p *friendpb.Peer) *friendpb.Stance {
	return &friendpb.Stance{To: user, From: self, Want: p.GetWant(), Version: p.GetVersion(), Seen: p.GetTheirVersion(), Declined: p.GetDeclined()}
}

// hear takes what the list of m.From says, also as an answer. It reports whether anything has changed that is to be saved.
func hear(s *friendpb.FriendState, p *friendpb.Peer, m *friendpb.Stance, nowMs int64) (changed bool) {
	switch {
	case m.GetSeen() > p.GetVersion(): // this list has forgotten what it had said: it says it anew, as it is now
		say(s, p)
		changed = true
	case m.GetSeen() != p.GetTold(): // or they have forgotten it; or this was under way for long, and it is said once more in vain
		p.Told = m.GetSeen()
		changed = true
	}
	if m.GetVersion() > p.GetTheirVersion() {
		changed = true
		p.TheirWant, p.TheirVersion = m.GetWant(), m.GetVersion()
		if !m.GetWant() && m.GetDeclined() >= p.GetVersion() { // they knew that it was wanted
			want(s, p, false)
		}
	}
	settle(p, nowMs)
	return changed
}

func entry(user string, p *friendpb.Peer) *friendpb.Entry {
	e := &friendpb.Entry{User: user, Status: status(p), Note: p.GetNote(), SinceMs: p.GetSinceMs()}
	if e.GetStatus() == friendpb.Status_STATUS_FRIEND {
		e.Online, e.SeenMs, e.Node = p.GetHere().GetOnline(), p.GetHere().GetSinceMs(), p.GetHere().GetNode()
	}
	return e
}
