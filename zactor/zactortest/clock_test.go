package zactortest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/zactortest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// alarm is an actor that has a timer.
type alarm struct{}

func (alarm) Handlers() []zactor.Handler { return nil }

func (alarm) OnStart(c *zactor.Context) error {
	c.After(90*time.Minute, func(c *zactor.Context) { fmt.Println("tea at", c.Now().Format(time.TimeOnly)) })
	_, err := c.Cron("@daily", func(c *zactor.Context) { fmt.Println("a new day at", c.Now().Format(time.TimeOnly)) })
	return err
}

func ExampleClock() {
	clock := zactortest.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	g, actors, err := zactor.NewManual(zactor.Config{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := g.Spawn("alarm", func() zactor.Actor { return alarm{} }); err != nil {
		fmt.Println(err)
		return
	}
	clock.Steps(48*time.Hour, func() { actors.Run(1000) })
	_ = g.Shutdown(context.Background())
	fmt.Println(clock.Now().Format(time.DateTime), clock.Pending())
	// Output:
	// tea at 13:30:00
	// a new day at 00:00:00
	// a new day at 00:00:00
	// 2026-03-03 12:00:00 0
}

// What is asked of the clock against a list that is sorted by time, and by order of asking within a time.
func TestClockModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type call struct {
			id    int
			at    time.Duration
			asked int
		}
		k := zactortest.NewClock(noon)
		var timers []zactor.ClockTimer
		var got, want []string
		var model []call
		now, asked := time.Duration(0), 0
		ask := func(id int, d time.Duration) {
			model = append(model, call{id, now + max(0, d), asked})
			asked++
		}
		drop := func(id int) bool {
			n := len(model)
			model = slices.DeleteFunc(model, func(c call) bool { return c.id == id })
			return len(model) < n
		}
		draw := func() time.Duration { return time.Duration(rapid.IntRange(-1, 20).Draw(t, "d")) * time.Second }
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 4:
				id, d := len(timers), draw()
				timers = append(timers, k.AfterFunc(d, func() { got = append(got, fmt.Sprint(id, k.Now().Sub(noon))) }))
				ask(id, d)
			case op < 6 && len(timers) > 0:
				id := rapid.IntRange(0, len(timers)-1).Draw(t, "which")
				if is := timers[id].Stop(); is != drop(id) {
					t.Fatalf("Stop said %v", is)
				}
			case op < 8 && len(timers) > 0:
				id, d := rapid.IntRange(0, len(timers)-1).Draw(t, "which"), draw()
				if is := timers[id].Reset(d); is != drop(id) {
					t.Fatalf("Reset said %v", is)
				}
				ask(id, d)
			case op >= 8:
				now += max(0, draw())
				k.Advance(now - k.Now().Sub(noon))
				slices.SortStableFunc(model, func(a, b call) int { return int(a.at - b.at) })
				for len(model) > 0 && model[0].at <= now {
					want = append(want, fmt.Sprint(model[0].id, model[0].at))
					model = model[1:]
				}
			}
			if k.Pending() != len(model) || k.Now() != noon.Add(now) {
				t.Fatalf("%d pending at %v, want %d at %v", k.Pending(), k.Now(), len(model), noon.Add(now))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("ran %q\nwant %q", got, want)
		}
	})
}

func TestClockFromManySides(t *testing.T) {
	t.Parallel()
	k := zactortest.NewClock(noon)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				timer := k.AfterFunc(time.Second, func() { k.AfterFunc(time.Second, func() {}) })
				k.Advance(10 * time.Millisecond)
				timer.Stop()
				timer.Reset(time.Millisecond)
			}
		})
	}
	wg.Wait()
	k.Advance(time.Hour)
	if n := k.Pending(); n != 0 {
		t.Errorf("%d calls pending", n)
	}
}

func TestClockDoesNotGoBack(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a negative Advance did not panic")
		}
	}()
	zactortest.NewClock(noon).Advance(-1)
}
