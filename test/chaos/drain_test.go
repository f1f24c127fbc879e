//go:build linux

package chaos

import (
	"syscall"
	"testing"
	"time"

	"zgame/test/chaos/seam"
)

// A node drains, and is killed in the middle of it; or one of those that take its lists is; or it is stopped past its lease.
func TestFaultsDuringDrain(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(30, 6, 4, pace)
		l.served()
		for _, fault := range []string{"it is killed", "a target is killed", "it is stopped"} {
			n := l.owning()
			at := []seam.Step{seam.Handoff, seam.Move, seam.Moved}[w.rng.IntN(3)]
			hold := w.seam.Hold(seam.At{Node: n.id, Step: at})
			n.send(syscall.SIGTERM)
			select {
			case <-hold.Reached():
			case <-time.After(patience):
				t.Fatalf("%s does not come to %s of a list as it drains", n.id, at)
			}
			wait(w.between(0, 50*time.Millisecond)) // the others go on
			switch fault {
			case "it is killed":
				n.die()
				hold.Release()
			case "a target is killed":
				o := w.another(n)
				o.die()
				hold.Release()
				n.exit()
				o.start()
			default:
				hold.Release()
				n.pause(2 * lease)
				n.exit()
			}
			t.Logf("%s drains, at %s: %s", n.id, at, fault)
			l.served()
			n.start()
			l.served()
		}
		l.check(t)
	})
}
