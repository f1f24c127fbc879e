//go:build linux

package chaos

import (
	"strings"
	"testing"
	"time"

	"zgame/test/chaos/seam"
)

// A node is killed, and started again: at once, which takes its lists back, and when others have taken them over.
func TestKillOwner(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		for _, atOnce := range []bool{true, false} {
			n := l.owning()
			n.die()
			if !atOnce {
				l.served()
			}
			n.start()
			l.served()
		}
		if l.check(t) < 2 {
			t.Error("its lists have not been taken over")
		}
	})
}

// An owner is killed, and then the home of its lists, which is about to claim one of them, or has just done so.
func TestKillHomeAsItClaims(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		l := w.begin(8, 6, 4, pace)
		l.served()
		for _, step := range []seam.Step{seam.Claim, seam.Claimed} {
			key := l.any()
			owner := w.owner(key)
			hold := w.seam.Hold(seam.At{Step: step, Key: key})
			owner.die()
			select {
			case <-hold.Reached():
			case <-time.After(patience):
				w.t.Fatalf("nobody claims %s of %s, which is dead", key, owner.id)
			}
			home := w.named(hold.By())
			home.die()
			hold.Release()
			l.served() // by the third
			owner.start()
			home.start()
			l.served()
		}
		if l.check(w.t) < 2 {
			w.t.Error("its lists have not been taken over")
		}
	})
}

// What the oracles are worth: nodes that tell of a success before they have saved are found out by a crash.
func TestKillOwnerThatTellsTooEarly(t *testing.T) {
	inWorlds(t, options{memory: true}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 0, pace)
		l.served()
		for range 3 {
			wait(w.between(200*time.Millisecond, time.Second))
			n := l.owning()
			n.die()
			n.start()
			l.served()
		}
		said, _ := l.judge(t)
		faults := strings.Join(said, "\n")
		for _, oracle := range []string{"linear:", "final:"} {
			if !strings.Contains(faults, oracle) {
				t.Errorf("the oracle %s says nothing of nodes that lose what they have acknowledged; all there is: %s", oracle, faults)
			}
		}
	})
}
