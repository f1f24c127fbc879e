package zrouter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// Everything at once, on real goroutines: appends, removes, lookups, panics, a store that fails and does not answer, links that are cut,
// leases that end. What was acknowledged as durable is there, once; what was not executed is not; each request ends.
func TestStress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	settings := zrouter.Settings{SaveDelay: 20 * time.Millisecond, StoreTimeout: time.Second}
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, settings, logs())
	}
	var faults atomic.Bool
	faults.Store(true)
	for _, n := range w.all() {
		n.counting(func(op zstore.Op) memstore.Fault {
			if !faults.Load() {
				return memstore.Fault{}
			}
			f := memstore.Fault{Delay: time.Duration(rand.IntN(int(2 * time.Millisecond)))}
			switch rand.IntN(20) {
			case 0:
				f.Kind = memstore.Unavailable
			case 1:
				if op.Writes() {
					f.Kind = memstore.UnknownLanded
				}
			case 2:
				if op.Writes() {
					f.Kind = memstore.UnknownNotLanded
				}
			}
			return f
		})
	}
	const keys, callers = 12, 24
	type told struct {
		sync.Mutex
		durable, refused, unknown, memory map[string]bool
	}
	tolds := make([]told, keys)
	for i := range tolds {
		tolds[i] = told{durable: map[string]bool{}, refused: map[string]bool{}, unknown: map[string]bool{}, memory: map[string]bool{}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var ok, notRun, unknown atomic.Int64
	for c := range callers {
		n := w.all()[c%3]
		m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				k := rand.IntN(keys)
				id, line := fmt.Sprint("k", k), fmt.Sprintf("%d-%d", c, i)
				x := &tolds[k]
				switch r := rand.IntN(20); {
				case r == 0:
					_ = m.Remove(ctx, key(id))
				case r == 1:
					_, _ = m.MutableObject(ctx, key(id))
				case r == 2:
					_, _ = m.MutableCache(ctx, key(id))
				case r == 3 && i%10 == 0:
					_, _ = zrouter.Call[testpb.Lines](ctx, n.set, key(id), &testpb.Boom{Log: id})
				default:
					durable := r > 8
					call := n.append
					if durable {
						call = n.keep
					}
					_, err := call(id, line)
					x.Lock()
					switch {
					case err == nil && durable:
						ok.Add(1)
						x.durable[line] = true
					case err == nil:
						ok.Add(1)
						x.memory[line] = true
					case zmsg.OutcomeOf(err) == zmsg.NotExecuted:
						notRun.Add(1)
						x.refused[line] = true
					default:
						unknown.Add(1)
						x.unknown[line] = true
					}
					x.Unlock()
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			n := w.all()[rand.IntN(3)]
			n.down.Store(true)
			time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
			n.down.Store(false)
			time.Sleep(time.Duration(rand.IntN(int(50 * time.Millisecond))))
		}
	})
	wg.Wait()
	faults.Store(false)
	for _, n := range w.all() {
		closing, end := context.WithTimeout(context.Background(), patience)
		rep, err := n.set.Close(closing)
		end()
		if err != nil {
			t.Errorf("closing %s: %+v, %v", n.ref, rep, err)
		}
	}
	for k := range keys {
		rec, err := w.record(fmt.Sprint("k", k))
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, l := range decode(t, rec.State).Lines {
			count[l]++
		}
		x := &tolds[k]
		for l := range x.durable {
			if count[l] != 1 {
				t.Errorf("k%d: %s was told durable, and is there %d times", k, l, count[l])
			}
		}
		for l := range x.refused {
			if count[l] != 0 {
				t.Errorf("k%d: %s was told not executed, and is there", k, l)
			}
		}
		for l, n := range count {
			if n != 1 {
				t.Errorf("k%d: %s is there %d times", k, l, n)
			}
		}
		if count["half done"] != 0 {
			t.Errorf("k%d: a state was saved that a panic left", k)
		}
	}
	t.Logf("%d told, %d not executed, %d unknown", ok.Load(), notRun.Load(), unknown.Load())
}
