package zactor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmetrics"
)

// Steps for ten seconds: each one is where it should be, to the nanosecond.
func TestLoopDoesNotDrift(t *testing.T) {
	t.Parallel()
	for _, hz := range []int{1, 7, 30, 60, 1000} {
		clock := zactortest.NewClock(noon)
		g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		const seconds = 10
		n := uint64(0)
		newDoer(t, g, m).do(func(c *zactor.Context) {
			c.Loop(hz, func(_ *zactor.Context, tick zactor.Tick) {
				n++
				due := time.Duration(n) * time.Second / time.Duration(hz)
				if tick != (zactor.Tick{N: n, Step: time.Second / time.Duration(hz)}) || clock.Now().Sub(noon) != due {
					t.Fatalf("step %d: %+v at %v, want %v", n, tick, clock.Now().Sub(noon), due)
				}
			})
		})
		clock.Steps(seconds*time.Second, func() { m.Run(1 << 20) })
		if n != uint64(seconds*hz) {
			t.Errorf("%d steps at %d Hz in %d s", n, hz, seconds)
		}
		if err := g.Shutdown(t.Context()); err != nil || clock.Pending() != 0 {
			t.Errorf("%v, %d calls pending", err, clock.Pending())
		}
	}
}

// A step that waits in a reentrant actor lets later ones overtake it, and does not count them again.
func TestLoopOfAReentrantActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := zactortest.NewGroup(t, zactor.Config{})
		slow := spawn(t, g, "", factory(zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			time.Sleep(550 * time.Millisecond)
			return &testpb.Pong{}, nil
		})))
		start := time.Now()
		var steps []uint64
		ref := spawn(t, g, "", func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
					time.Sleep(350 * time.Millisecond) // several steps are due then
					return nil
				})},
				start: func(c *zactor.Context) error {
					c.Loop(10, func(c *zactor.Context, tick zactor.Tick) {
						steps = append(steps, tick.N)
						if due := start.Add(time.Duration(tick.N) * tick.Step); time.Now().Before(due) || tick.Late < 0 {
							t.Errorf("step %d at %v, late by %v", tick.N, time.Since(start), tick.Late)
						}
						if tick.N == 1 {
							_, _ = zactor.Call[testpb.Pong](c, slow, &testpb.Ping{})
						}
					})
					return nil
				},
			}
		}, zactor.Reentrant())
		_ = ref.Tell(&testpb.Note{})
		time.Sleep(1550 * time.Millisecond)
		_ = g.StopWait(t.Context(), ref)
		if len(steps) != 15 || !slices.IsSorted(steps) {
			t.Errorf("steps %v", steps)
		}
	})
}

// One late step: what is due runs at once, up to the bound, and what is older is told.
func TestLoopCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g, err := zactor.NewGroup(zactor.Config{Metrics: zmetrics.NewActor(reg)})
		if err != nil {
			t.Fatal(err)
		}
		slow := map[uint64]time.Duration{3: 350 * time.Millisecond, 10: 1250 * time.Millisecond, 40: 100 * time.Millisecond}
		var got []string
		var loop zactor.Timer
		began := time.Now()
		spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				loop = c.Loop(10, func(c *zactor.Context, tick zactor.Tick) {
					if tick.Late != 0 || tick.Skipped != 0 {
						got = append(got, fmt.Sprint(tick.N, " +", tick.Skipped, " late ", tick.Late, " at ", time.Since(began)))
					}
					if tick.N == 30 && loop.Skipped() != 9 {
						t.Errorf("%d skipped in all, want 9", loop.Skipped())
					}
					if tick.N == 42 {
						loop.Stop()
					}
					time.Sleep(slow[tick.N])
				}, zactor.CatchUp(3))
				return nil
			}}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{
			"4 +0 late 250ms at 650ms", "5 +0 late 150ms at 650ms", "6 +0 late 50ms at 650ms",
			// 2.25 s: 11 to 22 are due.
			"20 +9 late 250ms at 2.25s", "21 +0 late 150ms at 2.25s", "22 +0 late 50ms at 2.25s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := count(t, reg, "zgame_actor_timer_skips_total", ""); n != 9 {
			t.Errorf("%v skips counted", n)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A loop that can never keep up lets other messages through, and a stop in the middle of a turn ends it.
func TestLoopThatCannotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		steps, others, after := 0, 0, 0
		last := zactor.Tick{}
		spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				c.Every(50*time.Millisecond, func(*zactor.Context) { others++ })
				c.Loop(100, func(c *zactor.Context, tick zactor.Tick) {
					if tick.N != last.N+tick.Skipped+1 {
						t.Errorf("%+v after %+v", tick, last)
					}
					last = tick
					if steps++; steps == 100 {
						c.Stop()
					} else if steps > 100 {
						after++
					}
					time.Sleep(20 * time.Millisecond)
				})
				return nil
			}}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if steps != 100 || after != 0 || others < 8 {
			t.Errorf("%d steps, %d after the stop, %d other turns", steps, after, others)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLoopMistakes(t *testing.T) {
	t.Parallel()
	g, m, err := zactor.NewManual(zactor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	newDoer(t, g, m).do(func(c *zactor.Context) {
		for want, f := range map[string]func(){
			"zactor: Loop(0): want 1 to 1000 steps a second":    func() { c.Loop(0, nil) },
			"zactor: Loop(1001): want 1 to 1000 steps a second": func() { c.Loop(1001, nil) },
			"zactor: CatchUp(0): want 1 or more steps":          func() { c.Loop(1, nil, zactor.CatchUp(0)) },
			"zactor: Every needs a positive duration":           func() { c.EveryKey("x", 0, nil) },
		} {
			func() {
				defer func() {
					if v := recover(); v != want {
						t.Errorf("got %v, want %q", v, want)
					}
				}()
				f()
			}()
		}
	})
	if err := g.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
