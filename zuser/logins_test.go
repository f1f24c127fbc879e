package zuser

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zuser/internal/userpb"
)

func numbers(logins []*userpb.Login) (all []uint64) {
	for _, l := range logins {
		all = append(all, l.GetNumber())
	}
	return all
}

// What is left after each login is what a dumb model says: of all the newest, or the oldest, as many as there may be.
func TestAdmit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 4).Draw(t, "most")
		refuse := rapid.Bool().Draw(t, "refuse")
		var have []*userpb.Login
		last := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "logins") {
			fresh := rapid.Bool().Draw(t, "fresh")
			l := &userpb.Login{Number: last + 1}
			if !fresh {
				l.Number = rapid.Uint64Range(1, 30).Draw(t, "number")
			}
			if slices.Contains(numbers(have), l.GetNumber()) {
				continue // the directory knows it
			}
			last = max(last, l.GetNumber())
			before := numbers(have)
			a, end := admit(have, l, fresh, most, refuse)
			if !slices.Equal(numbers(have), before) {
				t.Fatalf("admit has changed what it was given: %v, was %v", numbers(have), before)
			}
			want := slices.Sorted(slices.Values(append(slices.Clone(before), l.GetNumber())))
			switch over := len(want) - most; {
			case most == 0 || over <= 0:
			case refuse && fresh:
				want = before
			case refuse:
				want = want[:most]
			default:
				want = want[over:]
			}
			for _, e := range end {
				if e == l {
					t.Fatalf("%d ends itself", l.GetNumber())
				}
			}
			have = slices.DeleteFunc(have, func(o *userpb.Login) bool { return slices.Contains(end, o) })
			if a == zmsg.Admitted {
				have = insert(have, l)
			} else if (a == zmsg.Refused) != refuse {
				t.Fatalf("turned away: %v", a)
			}
			if !slices.Equal(numbers(have), want) {
				t.Fatalf("%d, fresh %t, to %v: %v are left, expected %v", l.GetNumber(), fresh, before, numbers(have), want)
			}
		}
	})
}

// Whatever the order in which gates bind again, the same logins are left.
func TestBindAgainInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 3).Draw(t, "most")
		refuse := rapid.Bool().Draw(t, "refuse")
		var have []*userpb.Login
		order := rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6}).Draw(t, "order")
		for _, n := range order {
			l := &userpb.Login{Number: n}
			a, end := admit(have, l, false, most, refuse)
			have = slices.DeleteFunc(have, func(o *userpb.Login) bool { return slices.Contains(end, o) })
			if a == zmsg.Admitted {
				have = insert(have, l)
			}
		}
		want := []uint64{1, 2, 3, 4, 5, 6}[6-most:]
		if refuse {
			want = []uint64{1, 2, 3, 4, 5, 6}[:most]
		}
		if !slices.Equal(numbers(have), want) {
			t.Fatalf("%v are left, expected %v", numbers(have), want)
		}
	})
}

// Numbers rise, also where an owner does not know how far the one before had come.
func TestNumbersRise(t *testing.T) {
	t.Parallel()
	last := uint64(0)
	for version := zmsg.RouteVersion(1); version < 4; version++ {
		forgot := uint64(0)
		for i := range 3 {
			n := nextNumber(max(forgot, 0), version)
			if n <= last {
				t.Errorf("version %d, login %d: %d after %d", version, i, n, last)
			}
			forgot, last = n, n
		}
	}
}

// A session is found by all that names it.
func TestFind(t *testing.T) {
	t.Parallel()
	ref := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "g", Epoch: 7}, ID: 1 << 62, Gen: 2}
	logins := []*userpb.Login{{Session: wireOf(zmsg.SessionRef{ID: 1})}, {Session: wireOf(ref)}}
	for i, c := range []struct {
		ref  zmsg.SessionRef
		want int
	}{
		{ref, 1},
		{zmsg.SessionRef{Gate: ref.Gate, ID: ref.ID, Gen: 1}, -1},
		{zmsg.SessionRef{Gate: ref.Gate, ID: 2, Gen: 2}, -1},
		{zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "g", Epoch: 8}, ID: ref.ID, Gen: 2}, -1},
		{zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "h", Epoch: 7}, ID: ref.ID, Gen: 2}, -1},
	} {
		if got := find(logins, c.ref); got != c.want {
			t.Errorf("%d: %s is at %d, expected %d", i, fmt.Sprint(c.ref), got, c.want)
		}
	}
}
