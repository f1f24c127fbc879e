package zmsg

import "zgame/zmsg/wirepb"

// SessionMovedID is the message id of wirepb.SessionMoved, by which who watches a session learns that it goes on at another gate.
const SessionMovedID = 13

// MovedSession returns by which name m's session was known, and by which it goes on.
func MovedSession(m *wirepb.SessionMoved) (from, to SessionRef) {
	return sessionOf(m), SessionRef{Gate: NodeRef{ID: m.GetNewGate(), Epoch: m.GetNewGateEpoch()}, ID: m.GetSession(), Gen: m.GetNewGeneration()}
}

// NewSessionMoved returns the message that says so.
func NewSessionMoved(from, to SessionRef) *Message {
	m := NewMessage(SessionMovedID)
	m.Session = to
	m.Value = &wirepb.SessionMoved{
		Session: from.ID, Generation: from.Gen, Gate: from.Gate.ID, GateEpoch: from.Gate.Epoch,
		NewGeneration: to.Gen, NewGate: to.Gate.ID, NewGateEpoch: to.Gate.Epoch,
	}
	return m
}
