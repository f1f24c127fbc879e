package entry

import (
	"testing"

	"zgame/zmsg"
)

// A state that this node cannot load is not claimed: it would be given up at once, with two writes for each request. Its home, which is a
// node that can where there is one, gets what came here, though it was taken for the home; only what is for this very node is refused.
func TestNewerIsNotClaimed(t *testing.T) {
	t.Parallel()
	self, other := zmsg.NodeRef{ID: "a", Epoch: 1}, zmsg.NodeRef{ID: "b", Epoch: 2}
	for _, c := range []struct {
		name         string
		home         zmsg.NodeRef
		canOwn, newr bool
		found        bool
		req          Req
		op           Op
		cause        Cause
	}{
		{"newer", self, true, true, true, Req{}, Answer, Unusable},
		{"as it should be", self, true, false, true, Req{}, Claim, 0},
		{"not there", self, true, true, false, Req{}, Create, 0},
		{"of another home", other, true, true, true, Req{}, Forward, 0},
		{"of another home, sent here by one who does not know", other, true, true, true, Req{Hops: 1}, Forward, 0},
		{"the same, as it should be", other, true, false, true, Req{Hops: 1}, Claim, 0},
		{"of another home, to be had here", other, true, true, true, Req{Own: true}, Answer, Unusable},
		{"no home at all", zmsg.NodeRef{}, true, true, true, Req{Hops: 1}, Answer, Unusable},
		{"while it may own nothing", self, false, true, true, Req{}, Answer, Unavailable},
		{"the same, to be had here", other, false, true, true, Req{Own: true}, Answer, Unavailable},
	} {
		var e Entry
		c.req.ID = 1
		f := &Facts{Self: self, Home: c.home, CanOwn: c.canOwn, OnDemand: true, Newer: c.newr, MaxHops: 3, MaxTTL: 16, MaxQueue: 4}
		e.Step(f, &Event{Kind: Asked, Req: c.req}, nil)
		out := e.Step(f, &Event{Kind: HasRead, Found: c.found, Route: Route{Version: 2}, Rev: 5}, nil)
		if len(out) != 1 || out[0].Op != c.op || out[0].Op == Answer && out[0].Cause != c.cause {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}
