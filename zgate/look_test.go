package zgate

import (
	"fmt"
	"strconv"
	"testing"
)

// Operators find sessions by what they know of them, and see no more than they asked for.
func TestLook(t *testing.T) {
	r := newRig(t)
	bob, ann, other := r.login("bob"), r.login("ann"), r.login("anne")
	if err := r.Join(ann.ref(), "room"); err != nil {
		t.Fatal(err)
	}
	users := func(match string, n int) string {
		list, all := r.Look(match, n)
		names := make([]string, 0, len(list))
		for _, s := range list {
			names = append(names, s.User)
		}
		return fmt.Sprint(all, names)
	}
	for _, c := range []struct {
		match string
		n     int
		want  string
	}{
		{"", 10, "3 [ann anne bob]"},
		{"", 2, "3 [ann anne]"},
		{"", 0, "3 []"},
		{"", -1, "3 []"},
		{"ann", 10, "2 [ann anne]"},
		{"nobody", 10, "0 []"},
		{strconv.FormatUint(bob.ref().ID, 10), 10, "1 [bob]"},
	} {
		if got := users(c.match, c.n); got != c.want {
			t.Errorf("%q, at most %d: %s, want %s", c.match, c.n, got, c.want)
		}
	}
	list, _ := r.Look("ann", 1)
	if s := list[0]; s.ID != ann.ref().ID || s.Generation != ann.ref().Gen || s.Away || s.Groups != 1 || s.Objects != 0 {
		t.Errorf("ann: %+v", s)
	}
	other.ws.end()
	eventually(t, "who has gone is not seen", func() bool { return users("", 10) == "2 [ann bob]" })
}
