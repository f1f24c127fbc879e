//go:build linux

package chaos

import (
	"testing"
	"time"
)

// A node is stopped for longer than its lease, others take its lists over, and it goes on as if nothing had been: with requests in its
// queues, answers and writes half done.
func TestPauseOwner(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		l.owning().pause(w.between(2*lease, 2*lease+lease/2))
		l.served()
		l.owning().pause(w.between(lease/3, lease)) // about when it stops serving, and others may not yet
		l.served()
		l.check(t)
	})
}

// Two of three nodes are stopped at once, for times that overlap.
func TestPauseTwo(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 2, pace)
		l.served()
		first := w.any()
		second := first
		for second == first {
			second = w.any()
		}
		done := make(chan struct{})
		d := w.between(lease, 2*lease)
		go func() { // ends with the pause, for which the test waits
			defer close(done)
			second.pause(d)
		}()
		wait(w.between(0, 200*time.Millisecond))
		first.pause(w.between(lease, 2*lease))
		<-done
		l.served()
		l.check(t)
	})
}
