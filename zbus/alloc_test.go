//go:build !race

package zbus_test

import (
	"testing"

	"zgame/zbus"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// TestSendDoesNotAllocate holds the way into the outbox to its budget: nothing, once the buffers have grown. (Under
// -race the runtime allocates by itself.)
func TestSendDoesNotAllocate(t *testing.T) {
	a := startOn(t, nullBus{newMem().bus(t)}, "a", zbus.Handlers{})
	to := zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}
	m := message("some body")
	session, group := &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH, Body: []byte("x")}, &zmsg.Envelope{Group: "room", Body: []byte("x")}
	for name, send := range map[string]func() error{
		"Send":         func() error { return a.Send(to, m, nil, 0) },
		"SendSession":  func() error { return a.SendSession(to.Node, session) },
		"PublishGroup": func() error { return a.PublishGroup(group) },
	} {
		n := testing.AllocsPerRun(3000, func() {
			if err := send(); err != nil {
				t.Fatal(err)
			}
		})
		// The outbox runs beside it and allocates one subject for each batch that goes alone: below one in all.
		if n > 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
