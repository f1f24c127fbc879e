//go:build linux

package chaos

import "testing"

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
