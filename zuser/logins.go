package zuser

import (
	"cmp"
	"crypto/subtle"
	"slices"

	"zgame/zmsg"
	"zgame/zuser/internal/userpb"
)

// numbersPerOwner is how many logins are numbered under one route version. Numbers rise with the version: an owner that has taken over does not
// know how far a crashed one had come.
const numbersPerOwner = 1 << 20

// nextNumber is that of a new login.
func nextNumber(last uint64, version zmsg.RouteVersion) uint64 {
	return max(last, uint64(version)*numbersPerOwner) + 1
}

// find returns the login of a session, -1 where there is none.
func find(logins []*userpb.Login, s zmsg.SessionRef) int {
	return slices.IndexFunc(logins, func(l *userpb.Login) bool { return refOf(l.GetSession()) == s })
}

// findID returns the newest login of a session by whatever name, -1 where there is none.
func findID(logins []*userpb.Login, s zmsg.SessionRef) int {
	at := -1
	for i, l := range logins {
		if l.GetSession().GetId() == s.ID && (at < 0 || l.GetSession().GetGeneration() > logins[at].GetSession().GetGeneration()) {
			at = i
		}
	}
	return at
}

// live are the logins whose clients can be reached: they are not being closed, and their gates are there.
func live(logins []*userpb.Login) (out []*userpb.Login) {
	for _, l := range logins {
		if l.GetEnd() == nil && !l.GetLost() {
			out = append(out, l)
		}
	}
	return out
}

// insert puts l in its place: the list is in the order of the numbers.
func insert(logins []*userpb.Login, l *userpb.Login) []*userpb.Login {
	i, _ := slices.BinarySearchFunc(logins, l, func(a, b *userpb.Login) int { return cmp.Compare(a.GetNumber(), b.GetNumber()) })
	return slices.Insert(logins, i, l)
}

// admit decides about a login: what becomes of it, and which others end. have are the user's live logins, in the order of their numbers; fresh says
// that it is a new one, and none that a gate has had before.
//
// What counts are the numbers, not who comes first: whatever the order in which gates bind again, the same are left.
func admit(have []*userpb.Login, l *userpb.Login, fresh bool, most int, refuse bool) (a zmsg.Admission, end []*userpb.Login) {
	over := len(have) + 1 - most
	switch {
	case most <= 0 || over <= 0:
		return zmsg.Admitted, nil
	case refuse && fresh:
		return zmsg.Refused, nil
	}
	all := insert(slices.Clone(have), l)
	a = zmsg.Replaced
	if end = all[:over]; refuse {
		a, end = zmsg.Refused, all[len(all)-over:]
	}
	if i := slices.Index(end, l); i >= 0 {
		return a, slices.Delete(slices.Clone(end), i, i+1)
	}
	return zmsg.Admitted, end
}

// proves reports whether the claim is that of the login's client.
func proves(l *userpb.Login, claim []byte) bool {
	return len(l.GetProof()) > 0 && subtle.ConstantTimeCompare(l.GetProof(), claim) == 1
}

func refOf(s *userpb.Session) zmsg.SessionRef {
	return zmsg.SessionRef{Gate: zmsg.NodeRef{ID: s.GetGate(), Epoch: s.GetEpoch()}, ID: s.GetId(), Gen: s.GetGeneration()}
}

func wireOf(s zmsg.SessionRef) *userpb.Session {
	return &userpb.Session{Id: s.ID, Generation: s.Gen, Gate: s.Gate.ID, Epoch: s.Gate.Epoch}
}
