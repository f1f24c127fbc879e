//go:build linux

package chaos

import "testing"

// cuts are what the network may do to a node: what is dropped, and where. Each lasts long enough for others to take over, where it keeps
// the node from its lease.
var cuts = []struct {
	name string
	way  way
	port int
}{
	{"from all", both, 0},
	{"it hears and is not heard", out, 0},
	{"it is heard and does not hear", in, 0},
	{"from the store", both, storePort},
	{"from the store, whose answers are lost", in, storePort},
	{"from etcd", both, etcdPort},
	{"from the bus", both, busPort},
}

// A node that hosts lists is cut off.
func TestPartitions(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		for _, i := range w.rng.Perm(len(cuts)) {
			c, n, d := cuts[i], l.owning(), w.between(lease*3/2, lease*5/2)
			t.Logf("%s is cut off %s for %v", n.id, c.name, d)
			n.cut(c.way, c.port, d)
			l.served()
		}
		l.check(t)
	})
}
