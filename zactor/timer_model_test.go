package zactor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
)

var errEnd = errors.New("the test says so")

// doer is an actor that does in its turns what a test likes.
type doer struct {
	m   *zactor.Manual
	ref zactor.Ref
	f   func(c *zactor.Context)
}

func newDoer(tb rapid.TB, g *zactor.Group, m *zactor.Manual) *doer {
	tb.Helper()
	d := &doer{m: m}
	ref, err := g.Spawn("", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { d.f(c); return nil })))
	if err != nil {
		tb.Fatal(err)
	}
	d.ref = ref
	return d
}

func (d *doer) do(f func(c *zactor.Context)) {
	d.f = f
	_ = d.ref.Tell(&testpb.Note{})
	d.m.Run(1 << 20)
}

// Timers of all ways to make and stop them against a list that is sorted by time.
func TestTimersAgainstAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := zactortest.NewClock(noon)
		g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Shutdown(t.Context()) }()
		a := newDoer(t, g, m)
		type entry struct {
			id     int
			due    time.Duration
			asked  int
			period time.Duration
			key    string
		}
		var (
			list      []entry
			handles   []zactor.Timer
			got, want []string
			asked     int
			now       time.Duration
		)
		drop := func(which func(e entry) bool) bool {
			n := len(list)
			list = slices.DeleteFunc(list, which)
			return len(list) < n
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			d := time.Duration(rapid.IntRange(1, 20).Draw(t, "d")) * time.Second
			key := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "key")
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 5:
				id := len(handles)
				fn := func(*zactor.Context) { got = append(got, fmt.Sprint(id, clock.Now().Sub(noon))) }
				e := entry{id: id, due: now + d, asked: asked, key: fmt.Sprint("no key ", id)}
				asked++
				if op%2 == 1 {
					e.period = d
				}
				keyed := op >= 3
				if keyed {
					e.key = key
					drop(func(o entry) bool { return o.key == key })
				}
				list = append(list, e)
				a.do(func(c *zactor.Context) {
					var timer zactor.Timer
					switch {
					case keyed && e.period > 0:
						timer = c.EveryKey(key, d, fn)
					case keyed:
						timer = c.AfterKey(key, d, fn)
					case e.period > 0:
						timer = c.Every(d, fn)
					default:
						timer = c.After(d, fn)
					}
					handles = append(handles, timer)
				})
			case op == 5:
				is := drop(func(e entry) bool { return e.key == key })
				a.do(func(c *zactor.Context) {
					if c.StopKey(key) != is {
						t.Fatalf("StopKey(%q) says %v", key, !is)
					}
				})
			case op < 8 && len(handles) > 0:
				id := rapid.IntRange(0, len(handles)-1).Draw(t, "which")
				is := drop(func(e entry) bool { return e.id == id })
				a.do(func(*zactor.Context) {
					if handles[id].Stop() != is {
						t.Fatalf("Stop of %d says %v", id, !is)
					}
				})
			case op >= 8:
				now += d
				clock.Steps(d, func() { m.Run(1 << 20) })
				for len(list) > 0 {
					slices.SortFunc(list, func(a, b entry) int {
						if a.due != b.due {
							return int(a.due - b.due)
						}
						return a.asked - b.asked
					})
					e := list[0]
					if e.due > now {
						break
					}
					want = append(want, fmt.Sprint(e.id, e.due))
					if list = list[1:]; e.period > 0 {
						e.due += e.period
						e.asked = asked
						asked++
						list = append(list, e)
					}
				}
			}
			if clock.Pending() != len(list) {
				t.Fatalf("%d calls of the clock pending for %d timers", clock.Pending(), len(list))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("fired %q\nwant %q", got, want)
		}
	})
}

// slowClock lets a test say when a call begins, after which Stop is too late, and when it runs.
type slowClock struct {
	mu      sync.Mutex
	pending []*slowTimer // guarded by mu
	begun   []func()     // guarded by mu
}

type slowTimer struct {
	k *slowClock
	f func()
}

func (*slowClock) Now() time.Time { return noon }

func (k *slowClock) AfterFunc(_ time.Duration, f func()) zactor.ClockTimer {
	t := &slowTimer{k, f}
	t.Reset(0)
	return t
}

func (t *slowTimer) Stop() bool {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	i := slices.Index(t.k.pending, t)
	if i >= 0 {
		t.k.pending = slices.Delete(t.k.pending, i, i+1)
	}
	return i >= 0
}

func (t *slowTimer) Reset(time.Duration) bool {
	was := t.Stop()
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	t.k.pending = append(t.k.pending, t)
	return was
}

// Timers are used again, by other actors too, while calls of the clock that came too late to be stopped, ticks in mailboxes
// and handles of former timers are about: each one's function runs once, or was stopped.
func TestTimersAreUsedAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := new(slowClock)
		g, m, err := zactor.NewManual(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Shutdown(t.Context()) }()
		actors := []*doer{newDoer(t, g, m), newDoer(t, g, m)}
		type one struct {
			by             *doer
			timer          zactor.Timer
			fired, stopped int
		}
		var all []*one
		begin := func(i int) {
			clock.begun = append(clock.begun, clock.pending[i].f)
			clock.pending = slices.Delete(clock.pending, i, i+1)
		}
		run := func(i int) {
			f := clock.begun[i]
			clock.begun = slices.Delete(clock.begun, i, i+1)
			f()
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 11).Draw(t, "op"); {
			case op < 4:
				o := &one{by: actors[rapid.IntRange(0, 1).Draw(t, "actor")]}
				all = append(all, o)
				o.by.do(func(c *zactor.Context) {
					o.timer = c.After(time.Second, func(c *zactor.Context) {
						o.fired++
						if c.Self() != o.by.ref {
							t.Fatal("it runs in another actor")
						}
					})
				})
			case op < 7 && len(all) > 0:
				o := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				fires := op == 6 && len(clock.begun) > 0
				i := 0
				if fires {
					i = rapid.IntRange(0, len(clock.begun)-1).Draw(t, "run")
				}
				o.by.do(func(*zactor.Context) {
					if fires {
						run(i) // the tick, maybe of this timer, is in the mailbox when Stop comes
					}
					want := o.fired == 0 && o.stopped == 0
					if o.timer.Stop() != want {
						t.Fatalf("Stop says %v", !want)
					}
					if want {
						o.stopped++
					}
				})
			case op < 9 && len(clock.pending) > 0:
				begin(rapid.IntRange(0, len(clock.pending)-1).Draw(t, "begin"))
			case op < 11 && len(clock.begun) > 0:
				run(rapid.IntRange(0, len(clock.begun)-1).Draw(t, "run")) // the tick waits in the mailbox until the next op
			}
		}
		m.Run(1 << 20)
		for len(clock.pending)+len(clock.begun) > 0 {
			for len(clock.pending) > 0 {
				begin(0)
			}
			for len(clock.begun) > 0 {
				run(0)
			}
			m.Run(1 << 20)
		}
		for i, o := range all {
			if o.fired+o.stopped != 1 {
				t.Fatalf("timer %d fired %d times and was stopped %d times", i, o.fired, o.stopped)
			}
		}
	})
}
