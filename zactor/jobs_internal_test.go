package zactor

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// poolJob tells when it begins, and ends when it is told how.
type poolJob struct {
	id    int
	began chan int
	end   chan bool // true: by Goexit
	drops *[]int
}

func (j *poolJob) run() {
	j.began <- j.id
	if <-j.end {
		runtime.Goexit()
	}
}

func (j *poolJob) drop(error) { *j.drops = append(*j.drops, j.id) }

// The pool against two slices.
func TestJobsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := AsyncPool{
			Workers: rapid.IntRange(1, 4).Draw(t, "workers"), Queue: rapid.IntRange(1, 100).Draw(t, "queue"),
			Full: AsyncPolicy(rapid.IntRange(0, 1).Draw(t, "full")),
		}
		var wg sync.WaitGroup
		pool := newJobs(p, zmetrics.NewActor(nil), &wg)
		began := make(chan int, 1000)
		var drops []int
		var running, waiting []*poolJob
		next := 0
		begins := func(want int) {
			select {
			case got := <-began:
				if got != want {
					t.Fatalf("job %d began, want %d", got, want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("job %d did not begin", want)
			}
		}
		add := func() {
			j := &poolJob{next, began, make(chan bool), &drops}
			next++
			dropped := len(drops)
			err := pool.add(j)
			switch {
			case len(running) < p.Workers:
				begins(j.id)
				running = append(running, j)
			case len(waiting) < p.Queue:
				waiting = append(waiting, j)
			case p.Full == AsyncDropOldest:
				if len(drops) != dropped+1 || drops[dropped] != waiting[0].id {
					t.Fatalf("dropped %v, want %d", drops[dropped:], waiting[0].id)
				}
				dropped++
				waiting = append(waiting[1:], j)
			default:
				if !errors.Is(err, zmsg.ErrBusy) {
					t.Fatalf("got %v, want busy", err)
				}
				err = nil
			}
			if err != nil || len(drops) != dropped {
				t.Fatalf("got %v, dropped %v", err, drops[dropped:])
			}
		}
		end := func(i int, goexit bool) {
			running[i].end <- goexit
			running = slices.Delete(running, i, i+1)
			if len(waiting) > 0 {
				begins(waiting[0].id)
				running, waiting = append(running, waiting[0]), waiting[1:]
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			for range rapid.IntRange(0, 20).Draw(t, "adds") {
				add()
			}
			for range rapid.IntRange(0, 20).Draw(t, "ends") {
				if len(running) > 0 {
					end(rapid.IntRange(0, len(running)-1).Draw(t, "which"), rapid.Bool().Draw(t, "goexit"))
				}
			}
		}
		for len(running) > 0 {
			end(0, false)
		}
		wg.Wait()
		if pool.running != 0 || pool.queue.n != 0 || len(pool.queue.ring) > 2*keptQueue || len(began) != 0 {
			t.Fatalf("%d running, %d waiting in a ring of %d, %d began", pool.running, pool.queue.n, len(pool.queue.ring), len(began))
		}
		for _, j := range pool.queue.ring {
			if j != nil {
				t.Fatal("the ring keeps a job that has gone")
			}
		}
		pool.end()
		if err := pool.add(&poolJob{}); !errors.Is(err, zmsg.ErrStopped) {
			t.Fatalf("got %v, want stopped", err)
		}
	})
}

// A queue that moves on and never empties does not grow.
func TestJobQueueMemory(t *testing.T) {
	t.Parallel()
	var q jobQueue
	for range 3 {
		q.push(&poolJob{})
	}
	for range 100_000 {
		q.push(&poolJob{})
		q.pop()
	}
	if len(q.ring) > 16 {
		t.Errorf("a ring of %d for 4 jobs", len(q.ring))
	}
}
