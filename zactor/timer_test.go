package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
	"zgame/zmsg"
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

func TestAsync(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.AsyncWorkers, c.AsyncQueue = 2, 3 })
	results := make(chan error, 10)
	begun, block := make(chan struct{}, 10), make(chan struct{})
	var inside atomic.Int32
	ref := spawn(t, g, "", factory(
		zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			err := zactor.Async(c, func(ctx context.Context) (int64, error) {
				begun <- struct{}{}
				<-block
				switch n.GetN() {
				case 1:
					panic("boom")
				case 2:
					return 0, errors.New("no disk")
				}
				return n.GetN(), ctx.Err()
			}, func(_ *zactor.Context, v int64, err error) {
				if inside.Add(1) != 1 {
					t.Error("two turns at once")
				}
				inside.Add(-1)
				if err == nil && v != n.GetN() {
					err = fmt.Errorf("got %d, want %d", v, n.GetN())
				}
				results <- err
			})
			if err != nil {
				results <- err
			}
			return nil
		}),
		zactor.Handle(echo),
	))
	for n := range int64(6) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, begun)
	receive(t, begun)
	if err := receive(t, results); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("the sixth of 2 + 3: got %v, want busy", err)
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
		t.Errorf("the actor waits for its work: %v", err)
	}
	close(block)
	var failed []string
	for range 5 {
		if err := receive(t, results); err != nil {
			failed = append(failed, zmsg.CodeOf(err).String())
		}
	}
	slices.Sort(failed)
	if !slices.Equal(failed, []string{"internal", "panicked"}) {
		t.Errorf("failed: %q", failed)
	}
}
