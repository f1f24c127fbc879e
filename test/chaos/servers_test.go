//go:build linux

package chaos

import "testing"

// No node reaches etcd for longer than the lease, and etcd lives: all lose their leases at once, and nobody is there to take over. They come back
// under new epochs.
func TestAllLoseTheirLease(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		l := w.begin(8, 6, 4, pace)
		l.served()
		for _, n := range w.nodes {
			n.host.drop(both, etcdPort)
		}
		wait(w.between(lease*2, lease*3))
		for _, n := range w.nodes {
			n.host.heal()
		}
		l.served()
		if l.check(w.t) == 0 {
			w.t.Error("no list has a new owner")
		}
	})
}

// The servers are killed, one after the other, and come back with their data: the bus, the store, and etcd for less and for more than the
// lease, at the end of which no node serves.
func TestServersAway(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		w.bus.away(w.between(0, lease/2))
		l.served()
		w.store.away(w.between(0, lease))
		l.served()
		w.etcd.away(w.between(0, lease/3))
		l.served()
		w.etcd.away(w.between(lease*3/2, lease*5/2))
		l.served()
		l.check(t)
	})
}
