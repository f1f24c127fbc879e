package zgate

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"zgame/zmsg"
)

// What the newest owner has let go stays so, however late the bind of an owner before comes; a newer one binds anew.
func TestOldOwnerBindsWhatWasLetGo(t *testing.T) {
	r, _ := bindRig(t)
	c := r.login("ann")
	must(t, r.Bind(binding(owner2, 0, c.ref())))
	must(t, r.Unbind(binding(owner2, 0, c.ref())))
	if err := r.Bind(binding(owner1, 0, c.ref())); !errors.Is(err, ErrOldOwner) {
		t.Errorf("the old owner's bind, late: %v", err)
	}
	if _, ok := r.BoundKey(c.ref(), roomKey.Type); ok {
		t.Error("the old owner has taken the session back")
	}
	must(t, r.Bind(binding(owner2, 0, c.ref())))
	if _, ok := r.BoundKey(c.ref(), roomKey.Type); !ok {
		t.Error("the owner binds anew, and it is not bound")
	}
}

// What is remembered is bounded, by number and by time.
func TestPastOwners(t *testing.T) {
	t.Parallel()
	var p pastOwners
	now := time.Now()
	for i := range 3 * maxPast {
		p.add(zmsg.Key{Type: 1, ID: strconv.Itoa(i)}, 5, now)
	}
	last := zmsg.Key{Type: 1, ID: strconv.Itoa(3*maxPast - 1)}
	if len(p) != maxPast {
		t.Errorf("%d are remembered", len(p))
	}
	for version, want := range map[zmsg.RouteVersion]bool{4: true, 5: false, 6: false} {
		if p.older(last, version, now) != want {
			t.Errorf("version %d counts as old: %t", version, !want)
		}
	}
	if p.older(last, 4, now.Add(2*pastFor)) || p.older(zmsg.Key{Type: 2, ID: last.ID}, 4, now) {
		t.Error("what is not, or not any more, remembered counts as old")
	}
}
