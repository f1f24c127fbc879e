package zactor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
)

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g, err := zactor.NewGroup(zactor.Config{Metrics: zmetrics.NewActor(reg)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var seen []string
		note := func(what string) func(*zactor.Context) {
			return func(*zactor.Context) { seen = append(seen, fmt.Sprint(what, time.Since(began))) }
		}
		ref := spawn(t, g, "", func() zactor.Actor {
			return &actor{
				start: func(c *zactor.Context) error {
					c.After(3*time.Second, note("once "))
					tick := c.Every(2*time.Second, note("tick "))
					c.After(time.Second, note("never ")).Stop()
					c.After(7*time.Second, func(*zactor.Context) { tick.Stop() })
					return nil
				},
			}
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := []string{"tick 2s", "once 3s", "tick 4s", "tick 6s"}
		if !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
		_ = g.StopWait(t.Context(), ref)

		// A slow handler: at most one tick waits, the others are counted; nothing fires after the end.
		ticks := 0
		ref = spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				c.Every(100*time.Millisecond, func(*zactor.Context) {
					ticks++
					time.Sleep(500 * time.Millisecond)
				})
				return nil
			}}
		})
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait() // the handler sleeps: it is not idle, but nobody runs
		if ticks < 19 || ticks > 21 {
			t.Errorf("%d ticks of 500 ms in 10 s", ticks)
		}
		if skipped := count(t, reg, "zgame_actor_timer_skips_total", ""); skipped < 75 {
			t.Errorf("%v skips counted", skipped)
		}
		_ = g.StopWait(t.Context(), ref)
		after := ticks
		time.Sleep(10 * time.Second)
		if ticks != after {
			t.Error("a timer fired after the actor's end")
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Exactly the timers that were not stopped fire, in order of their times.
func TestTimersModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(1, 50), 1, 100).Draw(rt, "delays")
		stops := rapid.SliceOfN(rapid.IntRange(0, 50), len(delays), len(delays)).Draw(rt, "stops") // 0: never
		var got []int
		synctest.Test(t, func(t *testing.T) {
			g, err := zactor.NewGroup(zactor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			spawn(t, g, "", func() zactor.Actor {
				return &actor{start: func(c *zactor.Context) error {
					for i, d := range delays {
						timer := c.After(time.Duration(d)*time.Second, func(*zactor.Context) { got = append(got, i) })
						if stops[i] > 0 {
							c.After(time.Duration(stops[i])*time.Second-time.Millisecond, func(*zactor.Context) { timer.Stop() })
						}
					}
					return nil
				}}
			})
			time.Sleep(time.Minute)
			_ = g.Shutdown(t.Context())
		})
		var want []int
		for i, d := range delays {
			if stops[i] == 0 || stops[i] > d {
				want = append(want, i)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			rt.Fatalf("fired %v, want %v", got, want)
		}
	})
}

// Timers and continuations of an instance that failed do not meet the next.
func TestTimersEndWithInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		instances := 0
		var fired []int
		ref := spawn(t, g, "", func() zactor.Actor {
			instances++
			me := instances
			return &actor{
				start: func(c *zactor.Context) error {
					c.Every(time.Second, func(*zactor.Context) { fired = append(fired, me) })
					return nil
				},
				handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
					_ = zactor.Async(c, func(context.Context) (int, error) { return 1, nil }, func(*zactor.Context, int, error) { fired = append(fired, -me) })
					panic("boom")
				})},
			}
		})
		time.Sleep(1500 * time.Millisecond)
		_ = ref.Tell(&testpb.Note{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Equal(fired, []int{1, 2, 2}) && !slices.Equal(fired, []int{1, 2}) {
			t.Errorf("fired %v", fired)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
