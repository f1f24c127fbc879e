package zgate

import (
	"sync"
	"testing"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// A gate that joined the cluster again closes the sessions that the others have forgotten, and goes on for new ones.
func TestRejoin(t *testing.T) {
	r := newRig(t)
	a, b := r.login("ann"), r.login("bob")
	if err := r.Push(a.ref(), &zmsg.Push{ID: 1, Body: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	now := zmsg.NodeRef{ID: testNode.ID, Epoch: testNode.Epoch + 1}
	r.Rejoin(now)
	if _, before := a.closedWith(CloseRejoined); len(before) != 1 || string(before[0].Body) != "before" {
		t.Errorf("ann got %v before the end", before)
	}
	b.closedWith(CloseRejoined)
	eventually(t, "the sessions are gone", func() bool { return r.Sessions() == 0 })
	c := r.login("cem")
	if got := (zmsg.NodeRef{ID: c.welcome.GetNode(), Epoch: c.welcome.GetEpoch()}); got != now {
		t.Errorf("a new client is told the node %v, want %v", got, now)
	}
	c.echo("hello")
	ref := zmsg.SessionRef{Gate: now, ID: c.welcome.GetSession(), Gen: c.welcome.GetGeneration()}
	if err := r.Push(ref, &zmsg.Push{ID: 1, Body: []byte("x")}); err != nil {
		t.Errorf("push to a new session: %v", err)
	}
	if err := r.Push(zmsg.SessionRef{Gate: zmsg.NodeRef{ID: testNode.ID, Epoch: 1}, ID: ref.ID, Gen: 1}, &zmsg.Push{ID: 1}); err == nil {
		t.Error("a push in the name of an earlier process was taken")
	}
	if CloseRejoined.String() != "rejoined" || !CloseRejoined.Reconnect() {
		t.Error("the code does not say what it is")
	}
}

// Logins while the gate joins again: no session of the old name stays.
func TestRejoinRacesLogin(t *testing.T) {
	for i := range 20 {
		r := newRig(t)
		now := zmsg.NodeRef{ID: testNode.ID, Epoch: testNode.Epoch + 1 + uint64(i)}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				c, err := r.tryDial(dialing{})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.ws.end()
				c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann"}}})
				switch m := c.nextControl(); {
				case m.GetClosing() != nil: // before it was told of a session
					if code := m.GetClosing().GetCode(); code != uint32(CloseRejoined) {
						t.Errorf("closed with %d", code)
					}
				case m.GetWelcome().GetEpoch() != now.Epoch:
					c.closedWith(CloseRejoined)
				}
			})
		}
		wg.Go(func() { r.Rejoin(now) })
		wg.Wait()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
