package zrouter

import (
	"flag"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	simSeed  = flag.Uint64("zrouter.seed", 0, "run this seed of the simulation alone; with -v it prints its history")
	simFirst = flag.Uint64("zrouter.first", 1, "the first seed of the simulation")
	simSeeds = flag.Int("zrouter.seeds", 0, "how many seeds of the simulation to run (default 2000)")
)

// TestSimulation runs whole clusters, many small ones, in which everything goes wrong that may. See sim_world_test.go.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		broken, w := simulate(*simSeed, nil, func(format string, args ...any) {
			if testing.Verbose() {
				fmt.Printf(format+"\n", args...)
			}
		})
		t.Logf("seed %d: %d events, %d requests, %v", *simSeed, w.steps, len(w.oracle.attempts)-1, w.now)
		if broken != "" {
			t.Fatal(broken)
		}
		return
	}
	n := *simSeeds
	if n == 0 {
		if n = 2000; testing.Short() || raceEnabled {
			n = 200
		}
	}
	var next atomic.Int64
	var mu sync.Mutex
	var events, requests, transfers, failures int
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				mu.Lock()
				stop := failures >= 5
				mu.Unlock()
				if i >= n || stop {
					return
				}
				seed := *simFirst + uint64(i)
				broken, w := simulate(seed, nil, nil)
				mu.Lock()
				events += w.steps
				requests += len(w.oracle.attempts) - 1
				transfers += w.oracle.transfers
				if broken != "" {
					failures++
					last := tail{most: 60}
					simulate(seed, nil, last.add)
					t.Errorf("seed %d: %s\nreplay it: go test ./zrouter -run TestSimulation -zrouter.seed=%d -v\nits end:\n%s", seed, broken, seed, &last)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds: %d requests, %d transfers, %d events", n, requests, transfers, events)
}

// The same seed gives the same history.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 20; seed++ {
		var first string
		for range 2 {
			h := fnv.New128a()
			_, w := simulate(seed, nil, func(format string, args ...any) { fmt.Fprintf(h, format+"\n", args...) })
			got := fmt.Sprintf("%d lines, %x", w.lines, h.Sum(nil))
			if first == "" {
				first = got
			} else if got != first {
				t.Errorf("seed %d: %s at first, then %s", seed, first, got)
			}
		}
	}
}
