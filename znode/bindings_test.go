package znode

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func boundTo(gate zmsg.NodeRef, ids ...uint64) *zmsg.Binding {
	b := &zmsg.Binding{
		Key: zmsg.Key{Type: 2, ID: "go"}, Version: 4, Owner: zmsg.Address{Node: zmsg.NodeRef{ID: "n1", Epoch: 1}, Actor: 9}, Gate: gate,
	}
	for _, id := range ids {
		b.Sessions = append(b.Sessions, zmsg.SessionRef{Gate: gate, ID: id, Gen: 1})
	}
	return b
}

// envelopeLink keeps what is sent.
type envelopeLink struct {
	silentLink
	mu  sync.Mutex
	all []zmsg.Envelope
	err error
}

func (l *envelopeLink) SendSession(_ zmsg.NodeRef, e *zmsg.Envelope) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, *e)
	return l.err
}

func (l *envelopeLink) sent() []zmsg.Envelope {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// A bind is sent until the gate has answered it, or nobody wants it any more.
func TestBindIsRepeated(t *testing.T) {
	gate := zmsg.NodeRef{ID: "g", Epoch: 1}
	sessionsOf := func(e *zmsg.Envelope) (ids []uint64) {
		b := zmsg.Binding{Gate: gate}
		if err := b.DecodeSessions(e.Body); err != nil {
			t.Error(err)
		}
		for _, s := range b.Sessions {
			ids = append(ids, s.ID)
		}
		return ids
	}
	synctest.Test(t, func(t *testing.T) {
		link := &envelopeLink{err: zmsg.ErrUnavailable}
		s := newSessions(selfOf("n1"), link, func(zmsg.NodeRef) nodeState { return nodeAlive })
		s.Bind(boundTo(gate, 1, 2))
		number := link.sent()[0].Request
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if len(link.sent()) != 4 { // after 1, 3 and 7 s
			t.Fatalf("sent %d times", len(link.sent()))
		}
		for _, e := range link.sent() {
			if e.Op != wirepb.SessionOp_SESSION_OP_BIND || e.Request != number || e.Version != 4 || e.FromActor != 9 ||
				!slices.Equal(sessionsOf(&e), []uint64{1, 2}) {
				t.Errorf("sent %+v", e)
			}
		}
		if s.answeredLocked(zmsg.NodeRef{ID: "other", Epoch: 1}, &zmsg.Envelope{Request: number}) != nil {
			t.Error("another node's word was taken")
		}
		// One session has ended, and is not asked for any more.
		if m := zmsg.NewMessage(zmsg.SessionClosedID); true {
			m.Value = &wirepb.SessionClosed{Session: 1, Generation: 1, Gate: "g", GateEpoch: 1}
			if _, err := m.EncodedBody(); err != nil || !s.arrived(9, m) || s.arrived(9, m) {
				t.Errorf("the end is to be told once: %v", err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(link.sent()) != 5 || !slices.Equal(sessionsOf(&link.sent()[4]), []uint64{2}) {
			t.Errorf("sent %d times", len(link.sent()))
		}
		s.joined(gate, &zmsg.Envelope{Request: number})
		s.Bind(boundTo(gate, 3))
		s.Unbind(boundTo(gate, 3))
		s.Bind(boundTo(gate, 4))
		s.Lost(boundTo(gate, 2, 4))
		time.Sleep(time.Minute)
		synctest.Wait()
		var ops []wirepb.SessionOp
		for _, e := range link.sent()[5:] {
			ops = append(ops, e.Op)
		}
		if want := []wirepb.SessionOp{
			wirepb.SessionOp_SESSION_OP_BIND, wirepb.SessionOp_SESSION_OP_UNBIND, wirepb.SessionOp_SESSION_OP_BIND, wirepb.SessionOp_SESSION_OP_LOST,
		}; !slices.Equal(ops, want) {
			t.Errorf("then sent %v", ops)
		}
		if len(s.binds) != 0 || len(s.watches) != 0 {
			t.Errorf("left: %d binds, %d watches", len(s.binds), len(s.watches))
		}
		s.Bind(boundTo(gate, 5))
		s.stop()
		s.Bind(boundTo(gate, 6))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(link.sent()) != 11 || len(s.binds) != 0 {
			t.Errorf("sent %d times, %d binds are left behind the end", len(link.sent()), len(s.binds))
		}
	})
}

// What is bound at a gate that is gone is told to be closed at once, and later at one that is lost then; without a gate, a session of this node's former
// life too.
func TestBindAtALostGate(t *testing.T) {
	link := &envelopeLink{}
	gone, other := zmsg.NodeRef{ID: "gone", Epoch: 1}, zmsg.NodeRef{ID: "other", Epoch: 1}
	s := newSessions(selfOf("n1"), link, func(n zmsg.NodeRef) nodeState {
		if n == gone {
			return nodeGone
		}
		return nodeAlive
	})
	var told []uint64
	s.tell = func(to zmsg.Address, m *zmsg.Message) error {
		if to.Actor != 9 {
			t.Errorf("actor %d is told", to.Actor)
		}
		told = append(told, m.Value.(*wirepb.SessionClosed).GetSession())
		m.Release()
		return nil
	}
	s.Bind(boundTo(gone, 1))
	s.Bind(boundTo(other, 2))
	s.Bind(boundTo(zmsg.NodeRef{ID: "n1", Epoch: 1}, 3))
	s.lost(other)
	s.lost(other)
	s.Bind(boundTo(other, 4))
	s.Forget(boundTo(other, 4))
	s.lost(other)
	// And a gate that says no; but not one that has a newer owner.
	for i, code := range []zmsg.Code{zmsg.CodeInternal, zmsg.CodeMoved, zmsg.CodeOK} {
		s.Bind(boundTo(other, uint64(5+i)))
		sent := link.sent()
		s.joined(other, &zmsg.Envelope{Request: sent[len(sent)-1].Request, Code: code, Outcome: zmsg.NotExecuted})
	}
	if want := []uint64{1, 3, 2, 5}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	s.stop()
}
