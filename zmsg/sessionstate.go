package zmsg

import (
	"time"

	"zgame/zmsg/wirepb"
)

// SessionSuspendedID and SessionResumedID are the message ids of wirepb.SessionSuspended and wirepb.SessionResumed, by which who watches a session learns that its client is
// away for a moment, and that it is back.
const (
	SessionSuspendedID = 14
	SessionResumedID   = 15
)

// SessionEvent reports whether id is one of the messages by which gates tell of sessions. They come by the actor's id, never by routing, are not refused by
// full mailboxes, and dropped in silence where an actor has no handler for them, but for the end of a session.
func SessionEvent(id uint32) bool {
	return id == SessionClosedID || id == SessionMovedID || id == SessionSuspendedID || id == SessionResumedID
}

// NewSessionSuspended returns the message that says that a session has no client until it comes back, within window; code and reason say how its connection ended.
func NewSessionSuspended(s SessionRef, user string, code uint32, reason string, window time.Duration) *Message {
	m := NewMessage(SessionSuspendedID)
	m.Session, m.User = s, user
	m.Value = &wirepb.SessionSuspended{
		Session: s.ID, Generation: s.Gen, Gate: s.Gate.ID, GateEpoch: s.Gate.Epoch, User: user, Code: code, Reason: reason, WindowMs: uint32(window.Milliseconds()),
	}
	return m
}

// NewSessionResumed returns the message that says that the client is back.
func NewSessionResumed(s SessionRef, user string) *Message {
	m := NewMessage(SessionResumedID)
	m.Session, m.User = s, user
	m.Value = &wirepb.SessionResumed{Session: s.ID, Generation: s.Gen, Gate: s.Gate.ID, GateEpoch: s.Gate.Epoch, User: user}
	return m
}

// SuspendedSession returns which session m is about.
func SuspendedSession(m *wirepb.SessionSuspended) SessionRef { return sessionOf(m) }

// ResumedSession returns which session m is about.
func ResumedSession(m *wirepb.SessionResumed) SessionRef { return sessionOf(m) }

// sessionOf returns which session a message of SessionEvent is about.
func sessionOf(m interface {
	GetGate() string
	GetGateEpoch() uint64
	GetSession() uint64
	GetGeneration() uint32
},
) SessionRef {
	return SessionRef{Gate: NodeRef{ID: m.GetGate(), Epoch: m.GetGateEpoch()}, ID: m.GetSession(), Gen: m.GetGeneration()}
}
