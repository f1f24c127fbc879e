package zbus_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"zgame/zbus"
	"zgame/zmsg"
)

// Ids of nodes come over the network: in batches, in addresses, in records. One that is too long for a subject is refused where it comes
// from. NATS would end the connection of who publishes to such a subject, and with it all calls of that node.
func TestLongNodeIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		b := c.start(t, "b", zbus.Handlers{Actor: echo})
		a := c.start(t, "a", zbus.Handlers{})
		downs := make(chan error, 100)
		t.Cleanup(b.bus.Observe(zbus.Events{Down: func(err error) { downs <- err }}))
		long := zmsg.NodeRef{ID: strings.Repeat("x", 5000), Epoch: 1}

		// A gap in the numbers of a sender asks for an answer to him.
		if err := a.bus.Publish("zgame.n.b.7", "", zmsg.AppendBatchEnvelope(
			zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: long, Number: 5}), &zmsg.Envelope{Kind: 1, To: 1, Request: 9, ID: 1})); err != nil {
			t.Fatal(err)
		}
		if x := a.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "still there?", within); x.body != "still there?" {
			t.Errorf("the next request got %+v", x)
		}
		if b.count(t, "foreign_total", "head") == 0 {
			t.Error("not counted")
		}
		m := message("x")
		defer m.Release()
		for what, err := range map[string]error{
			"Send":        b.Send(zmsg.Address{Node: long, Actor: 1}, m, nil, 0),
			"request":     b.Send(zmsg.Address{Node: long, Actor: 1}, m, newOutcomes(1), 0),
			"SendSession": b.SendSession(long, &zmsg.Envelope{}),
			"SendControl": b.SendControl(long, &zmsg.Envelope{ID: 99}),
		} {
			if !errors.Is(err, zmsg.ErrUnknownActor) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("%s: %v, want that there is no such node", what, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if err := b.bus.Flush(ctx); err != nil {
			t.Error(err)
		}
		if x := a.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "and now?", within); x.body != "and now?" {
			t.Errorf("the next request got %+v", x)
		}
		if len(downs) > 0 {
			t.Errorf("the bus was down: %v", <-downs)
		}
	})
	if _, err := zbus.NewLink(zbus.LinkConfig{Self: zmsg.NodeRef{ID: strings.Repeat("x", 257), Epoch: 1}, Bus: newMem().bus(t)}); err == nil {
		t.Error("a link of a node with such an id was made")
	}
}
