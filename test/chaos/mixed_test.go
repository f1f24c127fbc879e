//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lists are moved all the time, while one fault after the other is done to the nodes and servers, without waiting for what the one before
// has left to be over.
func TestEverythingAtOnce(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		stop := w.keepMoving(l)
		var done []string
		for range 6 {
			done = append(done, w.anything())
			wait(w.between(0, time.Second))
		}
		stop()
		t.Log(strings.Join(done, ", "))
		l.served()
		l.check(t)
	})
}

// anything does a fault that is drawn, and says which.
func (w *world) anything() string {
	w.t.Helper()
	n := w.any()
	d := w.between(0, 2*lease)
	switch w.rng.IntN(8) {
	case 0, 1:
		n.die()
		wait(w.between(0, lease*3/2))
		n.start()
		return n.id + " was killed"
	case 2, 3:
		n.pause(d)
		return fmt.Sprintf("%s was stopped for %v", n.id, d)
	case 4, 5, 6:
		c := cuts[w.rng.IntN(len(cuts))]
		n.cut(c.way, c.port, d)
		return fmt.Sprintf("%s was cut off %s for %v", n.id, c.name, d)
	default:
		s := []*server{w.bus, w.store, w.etcd}[w.rng.IntN(3)]
		s.away(d / 2)
		return fmt.Sprintf("%s was away for %v", s.name, d/2)
	}
}

// keepMoving moves lists, three at a time, until the function that it returns is called. That a move fails is no fault here.
func (w *world) keepMoving(l *load) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() { // ends when stop is called
			for n := i; ; n++ {
				select {
				case <-end:
					return
				case <-time.After(20 * time.Millisecond):
				}
				key := l.keys[n*5%len(l.keys)]
				for _, from := range w.nodes { // the one that owns it does it
					_ = w.move(key, from, w.nodes[(n+i)%len(w.nodes)])
				}
			}
		})
	}
	return func() {
		close(end)
		wg.Wait()
	}
}
