package znode

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"zgame/zmsg"
)

// wire takes what a farewell says to another.
type wire struct {
	from zmsg.NodeRef
	to   *farewell
	said []uint64 // requests of the envelopes
	mute bool     // the bus loses them
}

func (w *wire) SendControl(_ zmsg.NodeRef, e *zmsg.Envelope) error {
	w.said = append(w.said, e.Request)
	if !w.mute {
		w.to.control(e, w.from)
	}
	return nil
}

// A node that has moved its objects hears from the others only when they have forgotten the routes to it; what they say of the drain's
// begin does not count for that.
func TestFarewellOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := zmsg.NodeRef{ID: "a", Epoch: 1}, zmsg.NodeRef{ID: "b", Epoch: 2}
		out, back := &wire{from: here}, &wire{from: there}
		var forgotten []zmsg.NodeRef
		draining := func(zmsg.NodeRef) bool { return true }
		a := newFarewell(out, draining, func(zmsg.NodeRef) {})
		b := newFarewell(back, draining, func(n zmsg.NodeRef) {
			if len(back.said) > 1 {
				t.Error("it has answered before it has forgotten")
			}
			forgotten = append(forgotten, n)
		})
		out.to, back.to = b, a
		if missing := a.wait(t.Context(), drainBegins, []zmsg.NodeRef{there}); missing != 0 || forgotten != nil {
			t.Errorf("%d are missing at the begin, %v forgotten", missing, forgotten)
		}
		out.mute = true
		ctx, cancel := context.WithTimeout(t.Context(), 3*farewellRepeat)
		defer cancel()
		go func() { // an answer to the first question that comes late
			synctest.Wait()
			a.control(&zmsg.Envelope{ID: controlKnown, Request: drainBegins}, there)
		}()
		if missing := a.wait(ctx, drainedOut, []zmsg.NodeRef{there}); missing != 1 {
			t.Error("an answer to another question counts")
		}
		out.mute = false
		if missing := a.wait(t.Context(), drainedOut, []zmsg.NodeRef{there}); missing != 0 || !slices.Equal(forgotten, []zmsg.NodeRef{here}) {
			t.Errorf("%d are missing, %v forgotten", missing, forgotten)
		}
	})
}
