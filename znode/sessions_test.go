package znode

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// silentLink takes everything and brings no answer.
type silentLink struct{ ops []wirepb.SessionOp }

func (l *silentLink) SendSession(_ zmsg.NodeRef, e *zmsg.Envelope) error {
	l.ops = append(l.ops, e.Op)
	return nil
}
func (l *silentLink) SendControl(zmsg.NodeRef, *zmsg.Envelope) error { return nil }
func (l *silentLink) PublishGroup(*zmsg.Envelope) error              { return nil }

// A join whose gate does not answer is taken back: who is told that it has not joined must not become a member later.
func TestJoinWithoutAnswerIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &silentLink{}
		s := newSessions(selfOf("n1"), link, func(zmsg.NodeRef) nodeState { return nodeAlive })
		err := s.Join(zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n2", Epoch: 1}, ID: 1, Gen: 1}, "g")
		if zmsg.CodeOf(err) != zmsg.CodeTimeout {
			t.Errorf("got %v, want a timeout", err)
		}
		if want := []wirepb.SessionOp{wirepb.SessionOp_SESSION_OP_JOIN, wirepb.SessionOp_SESSION_OP_LEAVE}; !slices.Equal(link.ops, want) {
			t.Errorf("operations %v, want %v", link.ops, want)
		}
	})
}

// What is said to a session whose gate is known to be gone is an error, and not a message to nobody.
func TestSessionsOfALostGate(t *testing.T) {
	link := &silentLink{}
	s := newSessions(selfOf("n1"), link, func(zmsg.NodeRef) nodeState { return nodeGone })
	ref := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n2", Epoch: 1}, ID: 1, Gen: 1}
	for name, err := range map[string]error{
		"push": s.Push(ref, &zmsg.Push{ID: 1, Body: []byte("x")}), "push to many": s.PushMany([]zmsg.SessionRef{ref}, &zmsg.Push{ID: 1, Body: []byte("x")}),
		"kick": s.Kick(ref, 4000, "bye"), "join": s.Join(ref, "g"), "leave": s.Leave(ref, "g"),
	} {
		if !errors.Is(err, zmsg.ErrNodeLost) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%s: %v, want node lost, not executed", name, err)
		}
	}
	if len(link.ops) > 0 {
		t.Errorf("%v were sent", link.ops)
	}
}

func selfOf(id string) *zmsg.Self {
	var s zmsg.Self
	s.Set(zmsg.NodeRef{ID: id, Epoch: 1})
	return &s
}

// outcomes counts the replies to requests.
type outcomes struct{ n int }

func (o *outcomes) Reply(uint64, *zmsg.Reply) { o.n++ }

// Every request ends in one outcome, also one that makes no sense: a SessionClosed that somebody wants answered.
func TestSessionClosedAsRequestIsAnswered(t *testing.T) {
	n := &Node{sessions: newSessions(selfOf("n1"), &silentLink{}, nil)}
	m, asked := zmsg.NewMessage(zmsg.SessionClosedID), &outcomes{}
	m.SetReplier(asked, 1)
	n.onActor(1, m)
	if asked.n != 1 {
		t.Errorf("%d outcomes, want 1", asked.n)
	}
}
