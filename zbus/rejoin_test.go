package zbus_test

import (
	"context"
	"testing"

	"zgame/zbus"
	"zgame/zmsg"
)

// A node that lost its place and joined again is reached under its new name only, and speaks under it; requests on the way end.
func TestRejoin(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		held, from := make(chan *zmsg.Message, 1), make(chan zmsg.NodeRef, 10)
		b := c.start(t, "b", zbus.Handlers{
			Actor: func(to uint64, m *zmsg.Message) {
				if to == 2 {
					held <- m
					return
				}
				from <- m.From.Node
				echo(to, m)
			},
			Session: func(_ *zmsg.Envelope, ref zmsg.NodeRef) { from <- ref },
		})
		a := c.start(t, "a", zbus.Handlers{Actor: echo, Session: func(*zmsg.Envelope, zmsg.NodeRef) { t.Error("got what it published") }})
		old, now := a.ref, zmsg.NodeRef{ID: "a", Epoch: 99}
		for _, n := range []*node{a, b} {
			if err := n.JoinGroup(ctx, "g"); err != nil {
				t.Fatal(err)
			}
		}
		if x := b.request(t, zmsg.Address{Node: old, Actor: 1}, "x", within); x.body != "x" {
			t.Fatalf("before: %+v", x)
		}
		o := newOutcomes(1)
		if err := a.Send(zmsg.Address{Node: b.ref, Actor: 2}, message("on its way"), o, 1); err != nil {
			t.Fatal(err)
		}
		late := receiveWithin(t, held)

		if err := a.Rejoin(ctx, now); err != nil {
			t.Fatal(err)
		}
		if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.Unknown {
			t.Errorf("a request on its way ended with %+v, want unavailable, unknown", x)
		}
		late.Reply(&zmsg.Reply{}) // meets nobody

		// b has not read the list of nodes yet: the old name is nobody's, and b says so at once.
		if x := b.request(t, zmsg.Address{Node: old, Actor: 1}, "x", within); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
			t.Errorf("a request to the old name ended with %+v, want unavailable, not executed", x)
		}
		// The new lane's numbers are lower than the old one's: it is a new beginning.
		if x := b.request(t, zmsg.Address{Node: now, Actor: 1}, "y", within); x.body != "y" {
			t.Errorf("a request to the new name ended with %+v", x)
		}
		b.Lost(old)
		m := message("z")
		m.From = zmsg.Address{Node: old, Actor: 5} // the sender has kept its address
		o = newOutcomes(1)
		if err := a.Send(zmsg.Address{Node: b.ref, Actor: 1}, m, o, 2); err != nil {
			t.Fatal(err)
		}
		if x := o.next(t); x.body != "z" {
			t.Errorf("a request from the new name ended with %+v", x)
		}
		if ref := receiveWithin(t, from); ref != now {
			t.Errorf("a message came from %v, want %v", ref, now)
		}
		if err := a.PublishGroup(&zmsg.Envelope{Group: "g", Body: []byte("hi")}); err != nil {
			t.Fatal(err)
		}
		if ref := receiveWithin(t, from); ref != now {
			t.Errorf("what was published came from %v, want %v", ref, now)
		}
		if x := a.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "last", within); x.body != "last" {
			t.Errorf("%+v", x)
		}
		for _, n := range []*node{a, b} {
			if gaps := n.count(t, "batch_gaps_total"); gaps != 0 {
				t.Errorf("%s counted %d gaps", n.ref, gaps)
			}
		}
	})
}
