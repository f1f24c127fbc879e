package entry

import (
	"testing"

	"zgame/zmsg"
)

// A state that this node cannot load is not claimed: it would be given up at once, with two writes for each request. Where the node is
// not the one to have the object, or may not, that comes first.
func TestNewerIsNotClaimed(t *testing.T) {
	t.Parallel()
	self, other := zmsg.NodeRef{ID: "a", Epoch: 1}, zmsg.NodeRef{ID: "b", Epoch: 2}
	for _, c := range []struct {
		name         string
		home         zmsg.NodeRef
		canOwn, newr bool
		found        bool
		op           Op
		cause        Cause
	}{
		{"newer", self, true, true, true, Answer, Unusable},
		{"as it should be", self, true, false, true, Claim, 0},
		{"not there", self, true, true, false, Create, 0},
		{"of another home", other, true, true, true, Forward, 0},
		{"while it may own nothing", self, false, true, true, Answer, Unavailable},
	} {
		var e Entry
		f := &Facts{Self: self, Home: c.home, CanOwn: c.canOwn, OnDemand: true, Newer: c.newr, MaxHops: 3, MaxTTL: 16, MaxQueue: 4}
		e.Step(f, &Event{Kind: Asked, Req: Req{ID: 1}}, nil)
		out := e.Step(f, &Event{Kind: HasRead, Found: c.found, Route: Route{Version: 2}, Rev: 5}, nil)
		if len(out) != 1 || out[0].Op != c.op || out[0].Op == Answer && out[0].Cause != c.cause {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}
