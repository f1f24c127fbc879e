package zactor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmetrics"
)

// Group T of the known faults: what went wrong with timers elsewhere.

// T1: loops lived on after dispose. An actor with a hundred timers of each kind stops, restarts, or fails at its start: none
// of that instance fires, and nothing is left in the clock.
func TestT1TimersEndWithTheirActor(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "panic", "failed start", "shutdown"} {
		clock := zactortest.NewClock(noon)
		g, m, err := zactor.NewManual(zactor.Config{Clock: clock, Policy: zactor.Policy{MaxRestarts: -1}})
		if err != nil {
			t.Fatal(err)
		}
		fired := 0
		fire := func(*zactor.Context) { fired++ }
		ref, err := g.Spawn("a", func() zactor.Actor {
			return &actor{
				start: func(c *zactor.Context) error {
					for i := range 100 {
						d := time.Duration(i+1) * time.Second
						c.After(d, fire)
						c.Every(d, fire)
						c.AfterKey(fmt.Sprint("once", i), d, fire)
						c.EveryKey(fmt.Sprint(i%10), d, fire)
						if i < 5 {
							c.Loop(i+1, func(*zactor.Context, zactor.Tick) { fired++ })
						}
						if _, err := c.Cron("* * * * *", fire); err != nil {
							t.Error(err)
						}
					}
					if how == "failed start" {
						return errEnd
					}
					return nil
				},
				stop: func(c *zactor.Context, _ zactor.Reason) { c.Every(time.Second, fire) },
				handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
					panic("boom")
				})},
			}
		})
		if failed := how == "failed start"; failed != (err != nil) {
			t.Fatal(err)
		}
		run := func() { m.Run(1 << 20) }
		if err == nil {
			clock.Steps(3*time.Second, run)
			if fired == 0 || clock.Pending() < 200 {
				t.Errorf("%s: %d fired, %d calls pending", how, fired, clock.Pending())
			}
			clock.Advance(time.Second) // ticks in the mailbox
		}
		switch how {
		case "stop":
			err = g.Stop(ref)
		case "panic":
			err = ref.Tell(&testpb.Note{})
		case "shutdown":
			err = g.Shutdown(t.Context())
		case "failed start":
			err = nil
		}
		if err != nil {
			t.Fatal(how, err)
		}
		if how != "panic" { // its ticks came before the message
			fired = 0
		}
		run()
		before := fired
		clock.Steps(time.Hour, run)
		if how == "stop" && before != 0 || fired != before || clock.Pending() != 0 {
			t.Errorf("%s: %d and then %d fired after the end, %d calls pending", how, before, fired-before, clock.Pending())
		}
		if how != "shutdown" {
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// T2: a callback raced with the actor. Timers touch its state without a lock; the race detector looks on.
func TestT2TimersRunInsideTheActor(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	done := make(chan int, 1)
	const ticks = 200
	ref := spawn(t, g, "", func() zactor.Actor {
		state := map[int]int{}
		touch := func(*zactor.Context) {
			if state[0]++; state[0] == ticks {
				done <- len(state)
			}
		}
		return &actor{
			start: func(c *zactor.Context) error {
				for i := range 8 {
					c.Every(time.Duration(i+1)*100*time.Microsecond, touch)
					c.Loop(1000, func(c *zactor.Context, _ zactor.Tick) { touch(c) })
					c.After(time.Duration(i)*time.Microsecond, touch)
				}
				return nil
			},
			handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { state[0]--; return nil })},
		}
	})
	for range ticks / 2 {
		_ = ref.Tell(&testpb.Note{})
	}
	receive(t, done)
}

// T3: a slow handler delayed everybody's timers, and a timer overlapped itself.
func TestT3SlowHandlerDelaysItsOwnTimersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var inside atomic.Int32
		spawn(t, g, "slow", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				c.Every(100*time.Millisecond, func(*zactor.Context) {
					if inside.Add(1) != 1 {
						t.Error("the timer overlaps itself")
					}
					time.Sleep(2 * time.Second)
					inside.Add(-1)
				})
				return nil
			}}
		})
		var late []time.Duration
		began := time.Now()
		spawn(t, g, "quick", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				n := 0
				c.Every(100*time.Millisecond, func(*zactor.Context) {
					n++
					late = append(late, time.Since(began)-time.Duration(n)*100*time.Millisecond)
				})
				return nil
			}}
		})
		time.Sleep(10*time.Second + time.Millisecond)
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if len(late) != 100 || slices.Max(late) != 0 {
			t.Errorf("%d ticks, the latest by %v: want 100, on time", len(late), slices.Max(late))
		}
	})
}

// T4: cancelling one timer killed another. A thousand timers, of which random ones are stopped at random times, by handles
// of which most are stale by then: exactly the others fire.
func TestT4StopEndsOneTimerOnly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 4))
		clock := zactortest.NewClock(noon)
		g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		const n = 1000
		fired, stopped := make([]int, n), make([]bool, n)
		handles := make([]zactor.Timer, 0, n)
		var stop func(c *zactor.Context)
		stop = func(c *zactor.Context) {
			for range 50 {
				if len(handles) < n { // recycles what has ended
					i := len(handles)
					handles = append(handles, c.After(time.Duration(r.IntN(100))*time.Millisecond, func(*zactor.Context) { fired[i]++ }))
				}
				i := r.IntN(len(handles) * 3)
				if i < len(handles) {
					is := handles[i].Stop()
					if want := fired[i] == 0 && !stopped[i]; is != want {
						t.Errorf("seed %d: Stop of timer %d says %v, want %v", seed, i, is, want)
					}
					stopped[i] = stopped[i] || is
				}
			}
			c.After(7*time.Millisecond, stop)
		}
		if _, err := g.Spawn("", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error { stop(c); return nil }}
		}); err != nil {
			t.Fatal(err)
		}
		clock.Steps(time.Second, func() { m.Run(1 << 20) })
		some := 0
		for i := range n {
			if stopped[i] {
				some++
			}
			if want := map[bool]int{true: 0, false: 1}[stopped[i]]; fired[i] != want {
				t.Fatalf("seed %d: timer %d fired %d times, want %d", seed, i, fired[i], want)
			}
		}
		if some < n/10 || some > n*9/10 {
			t.Errorf("seed %d: %d of %d stopped: this shows little", seed, some, n)
		}
		if err := g.Shutdown(t.Context()); err != nil || clock.Pending() != 0 {
			t.Errorf("%v, %d calls pending", err, clock.Pending())
		}
	}
}

// T5: a tick longer than its period queued up. 100 ms, a handler of 500 ms, 10 s.
func TestT5SlowTicksDoNotQueueUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g, err := zactor.NewGroup(zactor.Config{Metrics: zmetrics.NewActor(reg)})
		if err != nil {
			t.Fatal(err)
		}
		ticks, told := 0, uint64(0)
		spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				var tick zactor.Timer
				tick = c.Every(100*time.Millisecond, func(c *zactor.Context) {
					ticks++
					told = tick.Skipped()
					time.Sleep(500 * time.Millisecond)
					if n := c.Self().Load(); n > 2 { // this one may still be in it
						t.Errorf("%d ticks in the mailbox", n)
					}
				})
				return nil
			}}
		})
		time.Sleep(10*time.Second + 50*time.Millisecond)
		synctest.Wait()
		// Due: 100. At 0.1 s one, then one each 0.5 s, which are late; each of them leaves out four.
		skipped := count(t, reg, "zgame_actor_timer_skips_total", "")
		if ticks != 20 || told != 76 || skipped != 76 {
			t.Errorf("%d ticks, %d skips told, %v counted: want 20, 76, 76", ticks, told, skipped)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
