package zactor_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
)

// jumpClock is package time with a wall clock that is set forward and back: like that of a machine whose clock is corrected,
// its readings have a monotonic part that goes on. (In a synctest bubble those of package time have none.)
type jumpClock struct {
	start time.Time
	off   atomic.Int64
}

func newJumpClock() *jumpClock { return &jumpClock{start: time.Now()} }

func (k *jumpClock) jump(d time.Duration) { k.off.Add(int64(d)) }

var year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)

func (k *jumpClock) Now() time.Time {
	mono := time.Since(k.start)
	wall := k.start.Round(0).Add(mono + time.Duration(k.off.Load()))
	// The layout of a time.Time with a monotonic reading: a flag, 33 bits of seconds since 1885, 30 of nanoseconds.
	parts := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&wall))
	parts.wall = 1<<63 | uint64(wall.Unix()-year1885.Unix())<<30 | uint64(wall.Nanosecond())
	parts.ext = int64(mono) + 1
	return wall
}

func (*jumpClock) AfterFunc(d time.Duration, f func()) zactor.ClockTimer { return time.AfterFunc(d, f) }

func TestJumpClock(t *testing.T) {
	t.Parallel()
	k := newJumpClock()
	before := k.Now()
	for _, d := range []time.Duration{time.Hour, -48 * time.Hour} {
		wall := k.Now().Round(0)
		k.jump(d)
		now := k.Now()
		if since := now.Sub(before); since < 0 || since > bound {
			t.Fatalf("the monotonic part went on by %v", since)
		}
		if jumped := now.Round(0).Sub(wall); jumped < d || jumped > d+bound {
			t.Fatalf("the wall went on by %v, want %v", jumped, d)
		}
	}
}

// A wall clock that jumps moves no timer, no time-out, no loop and no restart.
func TestWallJumpsDoNothing(t *testing.T) {
	run := func(jumps ...time.Duration) (seen []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			clock := newJumpClock()
			g, err := zactor.NewGroup(zactor.Config{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			note := func(*zactor.Context) { seen = append(seen, time.Since(began)) }
			never := spawn(t, g, "never", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
				c.Defer()
				return nil, zactor.ErrDeferred
			})))
			asker := spawn(t, g, "", func() zactor.Actor {
				return &actor{
					start: func(c *zactor.Context) error {
						c.After(7*time.Second, note)
						c.Every(3*time.Second, note)
						c.Loop(1, func(c *zactor.Context, tick zactor.Tick) {
							if note(c); tick.Skipped != 0 || tick.Late != 0 {
								t.Errorf("%+v", tick)
							}
						})
						_, err := c.Cron("@every 4s", note)
						return err
					},
					handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
						if n.GetN() == 1 {
							panic("boom")
						}
						zactor.Then[testpb.Pong](c, never, &testpb.Ping{}, func(c *zactor.Context, _ *testpb.Pong, _ error) { note(c) })
						return nil
					})},
				}
			}, zactor.WithPolicy(zactor.Policy{MinBackoff: 2 * time.Second, MaxBackoff: 2 * time.Second, MaxRestarts: 5, Window: time.Hour}))
			for i, d := range jumps {
				_ = asker.Tell(&testpb.Note{N: int64(i % 2)})
				time.Sleep(1700 * time.Millisecond) // no tick is due when a message comes
				clock.jump(d)
				time.Sleep(10 * time.Second)
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		return seen
	}
	want := run(0, 0, 0, 0)
	got := run(time.Hour, -2*time.Hour, -400*24*time.Hour, 800*24*time.Hour)
	if len(want) < 40 || !slices.Equal(got, want) {
		t.Errorf("with jumps  %v\nwithout     %v", got, want)
	}
}

// cronTimes returns when a cron timer ran that was made at start, within d.
func cronTimes(t *testing.T, start time.Time, spec string, d time.Duration) (times []string) {
	t.Helper()
	clock := zactortest.NewClock(start)
	g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	a := newDoer(t, g, m)
	a.do(func(c *zactor.Context) {
		_, err = c.Cron(spec, func(*zactor.Context) { times = append(times, clock.Now().UTC().Format("01-02 15:04:05")) })
	})
	if err != nil {
		t.Fatal(err)
	}
	clock.Steps(d, func() { m.Run(1 << 20) })
	if err := g.Shutdown(t.Context()); err != nil || clock.Pending() != 0 {
		t.Errorf("%v, %d calls pending", err, clock.Pending())
	}
	return times
}

func TestCronTimes(t *testing.T) {
	t.Parallel()
	day := func(month time.Month, d int) time.Time { return time.Date(2026, month, d, 0, 0, 0, 5e8, time.UTC) }
	for _, c := range []struct {
		spec  string
		start time.Time
		d     time.Duration
		want  []string
	}{
		{"*/20 * * * *", day(3, 1), time.Hour, []string{"03-01 00:20:00", "03-01 00:40:00", "03-01 01:00:00"}},
		{" 30 4 * * mon-wed ", day(3, 1), 4 * 24 * time.Hour, []string{"03-02 04:30:00", "03-03 04:30:00", "03-04 04:30:00"}},
		{"0 0 1,15 * *", day(3, 1), 31 * 24 * time.Hour, []string{"03-15 00:00:00", "04-01 00:00:00"}},
		{"@daily", day(3, 1), 49 * time.Hour, []string{"03-02 00:00:00", "03-03 00:00:00"}},
		{"@hourly", day(3, 1), 2 * time.Hour, []string{"03-01 01:00:00", "03-01 02:00:00"}},
		{"@every 25m", day(3, 1), time.Hour, []string{"03-01 00:25:00", "03-01 00:50:00"}},
		{"CRON_TZ=Asia/Tokyo 30 9 * * *", day(3, 1), 25 * time.Hour, []string{"03-01 00:30:00", "03-02 00:30:00"}},
		{"CRON_TZ=Asia/Tokyo @daily", day(3, 1), 25 * time.Hour, []string{"03-01 15:00:00"}},
		// Summer time begins: 02:30 does not exist on the 29th. It ends: 02:30 comes twice on the 25th.
		{"CRON_TZ=Europe/Berlin 30 2 * * *", day(3, 28), 3 * 24 * time.Hour, []string{"03-28 01:30:00", "03-30 00:30:00"}},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", day(10, 24), 3 * 24 * time.Hour, []string{"10-24 00:30:00", "10-25 00:30:00", "10-25 01:30:00", "10-26 01:30:00"}},
	} {
		got := cronTimes(t, c.start, c.spec, c.d)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q\nwant %q", c.spec, got, c.want)
		}
	}
}

func TestCronSpecs(t *testing.T) {
	t.Parallel()
	clock := zactortest.NewClock(noon)
	g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	a := newDoer(t, g, m)
	try := func(spec string) (err error) {
		a.do(func(c *zactor.Context) {
			var timer zactor.Timer
			if timer, err = c.Cron(spec, func(*zactor.Context) {}); err == nil && !timer.Stop() {
				t.Errorf("%q: no timer", spec)
			}
		})
		return err
	}
	for spec, want := range map[string]string{
		"":                           "empty",
		"* * * *":                    "5 fields",
		"* * * * * *":                "5 fields",
		"61 * * * *":                 "61",
		"* * * * funday":             "funday",
		"*/0 * * * *":                "positive",
		", * * * *":                  `","`,
		"0 0 30 2 *":                 "no such time",
		"@never":                     "@never",
		"@every":                     "@every",
		"@every soon":                "soon",
		"@every 10ms":                "1s or more",
		"@every -1h":                 "1s or more",
		"CRON_TZ=":                   "nothing after",
		"CRON_TZ=UTC":                "nothing after",
		"CRON_TZ= * * * * *":         "no name",
		"CRON_TZ=Mars/Base * * * *":  "Mars/Base",
		"CRON_TZ=UTC @every 1h":      "no time zone",
		"TZ=../../etc/passwd @daily": "passwd",
	} {
		err := try(spec)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "zactor: cron spec ") {
			t.Errorf("%q: got %v, want one that tells of %q", spec, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"*", "/", "-", ",", " ", "@", "every ", "daily", "CRON_TZ=", "TZ=", "UTC", "1", "59", "9999999999", "?", "mon", "\t", "1h"})
		_ = try(strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")) // must not panic: the actor would restart
	})
	if g.Len() != 1 || clock.Pending() != 0 {
		t.Errorf("%d actors, %d calls pending", g.Len(), clock.Pending())
	}
}

// A wall clock that is set back has no time served twice; one that is set forward makes one late run, not many.
func TestCronWallJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newJumpClock()
		g, err := zactor.NewGroup(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var runs []string
		var timer zactor.Timer
		skipped := uint64(0)
		spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) (err error) {
				timer, err = c.Cron("CRON_TZ=UTC */10 * * * *", func(c *zactor.Context) {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, clock.Now().UTC().Format("15:04"))
					skipped = timer.Skipped()
				})
				return err
			}}
		})
		skips := func(want uint64) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if skipped != want {
				t.Errorf("%d skipped, want %d", skipped, want)
			}
		}
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(runs, want) {
				t.Errorf("%s: ran at %q, want %q", what, runs, want)
			}
			runs = nil
		}
		time.Sleep(15 * time.Minute) // the bubble begins at midnight UTC
		expect("before the jumps", "00:10")
		clock.jump(-10 * time.Minute) // 00:15 -> 00:05
		time.Sleep(10*time.Minute + 30*time.Second)
		expect("set back: 00:10 was served")
		time.Sleep(5 * time.Minute) // 00:20:30
		expect("the time after", "00:20")
		clock.jump(3 * time.Hour)
		time.Sleep(time.Minute)
		expect("set forward: once, within a minute", "03:21")
		skips(17) // 00:30 was served late; 00:40 to 03:20 were left out
		time.Sleep(10 * time.Minute)
		expect("and on as before", "03:30")
		clock.jump(5 * 365 * 24 * time.Hour)
		time.Sleep(time.Minute)
		expect("five years later, less a leap day: once", "03:32")
		skips(17 + 1000)
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
