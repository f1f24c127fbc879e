package zbus_test

import (
	"testing"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zmsg"
)

// Discovery says that a node is gone while a request to it stands between the outbox and the bus: what the bus says of it counts, not
// executed, so that it may go elsewhere.
func TestLostWhileARequestIsBeingPublished(t *testing.T) {
	t.Parallel()
	g := newGateBus(membus.New().Bus())
	a := startOn(t, g, "a", zbus.Handlers{})
	dead := zmsg.NodeRef{ID: "dead", Epoch: 1}
	o := newOutcomes(1)
	if err := a.Send(zmsg.Address{Node: dead, Actor: 1}, message("x"), o, 1); err != nil {
		t.Fatal(err)
	}
	receiveWithin(t, g.entered)
	behind := newOutcomes(1)
	if err := a.Send(zmsg.Address{Node: dead, Actor: 1}, message("x"), behind, 1); err != nil {
		t.Fatal(err)
	}
	a.Lost(dead)
	if x := behind.next(t); x.code != zmsg.CodeNodeLost || x.out != zmsg.NotExecuted || !x.undelivered {
		t.Errorf("a request that was not sent yet ended with %+v, want node lost, not executed, undelivered", x)
	}
	close(g.released)
	if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted || !x.undelivered {
		t.Errorf("the request ended with %+v, want unavailable, not executed, undelivered", x)
	}
}
