package zroute

import "zgame/zmsg"

// KeyFunc takes from a message the key by which one of several candidates is picked. ok is false when the message
// has none.
type KeyFunc func(m *zmsg.Message) (key uint64, ok bool)

// DefaultKey is the id of the session, else the number of the request; a message without both has no key.
func DefaultKey(m *zmsg.Message) (key uint64, ok bool) {
	if m.Session.ID != 0 {
		return m.Session.ID, true
	}
	return m.Seq, m.Seq != 0
}

// UserKey is the user's id, so that all sessions of a user meet at one candidate; DefaultKey for a message without
// a user.
func UserKey(m *zmsg.Message) (key uint64, ok bool) {
	if m.User != "" {
		return zmsg.HashBytes(m.User), true
	}
	return DefaultKey(m)
}

// FieldKey is the value of a field of the body. A field that is not in the encoded body has its default value, which is
// a key too: all such messages meet at one candidate. A body that cannot be encoded has no key.
func FieldKey(field uint32) KeyFunc {
	return func(m *zmsg.Message) (uint64, bool) { return fieldKey(m, field) }
}

func fieldKey(m *zmsg.Message, field uint32) (key uint64, ok bool) {
	body, err := m.EncodedBody()
	if err != nil {
		return 0, false
	}
	key, _ = zmsg.KeyHash(body, field)
	return key, true
}

// score is how much a key likes a candidate: the highest wins. It mixes key, candidate and node, and is the same on
// every node.
func score(key, seed uint64) uint64 { return zmsg.Mix(key ^ seed) }

// scoreSeed is the candidate's part of its scores. The epoch is left out, so that a node that restarts gets its keys back.
func scoreSeed(node string, actor uint64) uint64 {
	return zmsg.Mix(zmsg.HashBytes(node) ^ zmsg.Mix(actor))
}
