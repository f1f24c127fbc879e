package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// runner is an actor that runs do for each Note, and answers a Ping.
func runner(do func(c *zactor.Context, n int64) error) func() zactor.Actor {
	return factory(
		zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error { return do(c, n.GetN()) }),
		zactor.Handle(echo),
	)
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

func TestAsyncValidators(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	goexit := errors.New("zactor: runtime.Goexit was called")
	no, want := errors.New("no"), errors.New("the one")
	passWork, passThen := func(context.Context) error { return nil }, func(*zactor.Context) error { return nil }
	for _, c := range []struct {
		name   string
		work   func() (int, error)
		opts   []zactor.AsyncOption
		result int
		worked bool
		is     error // of the outcome
	}{
		{"none", func() (int, error) { return 7, nil }, nil, 7, true, nil},
		{"all pass", func() (int, error) { return 7, nil }, []zactor.AsyncOption{zactor.CheckWork(passWork), zactor.CheckThen(passThen)}, 7, true, nil},
		{"work fails", func() (int, error) { return 3, want }, []zactor.AsyncOption{
			zactor.CheckThen(func(*zactor.Context) error { t.Error("checked a result that is none"); return no }),
		}, 3, true, want},
		{"before the work", func() (int, error) { return 7, nil }, []zactor.AsyncOption{
			zactor.CheckWork(passWork), zactor.CheckWork(func(context.Context) error { return want }), zactor.CheckWork(func(context.Context) error { return no }),
		}, 0, false, want},
		{"before fn", func() (int, error) { return 7, nil }, []zactor.AsyncOption{
			zactor.CheckThen(passThen), zactor.CheckThen(func(*zactor.Context) error { return want }), zactor.CheckThen(func(*zactor.Context) error { return no }),
		}, 0, true, want},
		{"work panics", func() (int, error) { panic("boom") }, nil, 0, true, zmsg.ErrPanicked},
		{"work ends its goroutine", func() (int, error) { runtime.Goexit(); return 7, nil }, nil, 0, true, goexit},
		{"CheckWork panics", func() (int, error) { return 7, nil }, []zactor.AsyncOption{zactor.CheckWork(func(context.Context) error { panic("boom") })}, 0, false, zmsg.ErrPanicked},
		{"CheckWork ends its goroutine", func() (int, error) { return 7, nil }, []zactor.AsyncOption{zactor.CheckWork(func(context.Context) error { runtime.Goexit(); return nil })}, 0, false, goexit},
		{"CheckThen panics", func() (int, error) { return 7, nil }, []zactor.AsyncOption{zactor.CheckThen(func(*zactor.Context) error { panic("boom") })}, 0, true, zmsg.ErrPanicked},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			type outcome struct {
				v   int
				err error
			}
			outcomes := make(chan outcome, 2)
			var worked, starts atomic.Int32
			do := runner(func(x *zactor.Context, _ int64) error {
				return zactor.Async(x, func(context.Context) (int, error) { worked.Add(1); return c.work() },
					func(_ *zactor.Context, v int, err error) { outcomes <- outcome{v, err} }, c.opts...)
			})
			ref := spawn(t, g, "", func() zactor.Actor { starts.Add(1); return do() })
			for range 2 { // the worker goes on
				if err := ref.Tell(&testpb.Note{}); err != nil {
					t.Fatal(err)
				}
				got := receive(t, outcomes)
				if got.v != c.result || !errors.Is(got.err, c.is) && fmt.Sprint(got.err) != fmt.Sprint(c.is) || (got.err == nil) != (c.is == nil) {
					t.Errorf("got %d, %v, want %d, %v", got.v, got.err, c.result, c.is)
				}
			}
			if (worked.Load() == 2) != c.worked || starts.Load() != 1 {
				t.Errorf("worked %d times, %d instances", worked.Load(), starts.Load())
			}
		})
	}
}

// With the only worker gone by Goexit, what waits is worked off all the same: nothing is lost, and a shutdown does not hang.
func TestAsyncGoexitKeepsTheQueue(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.AsyncWorkers = 1 })
	hold := make(chan struct{})
	results := make(chan int64, 20)
	ref := spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
		return zactor.Async(c, func(context.Context) (int64, error) {
			<-hold
			if n%2 == 0 {
				runtime.Goexit()
			}
			return n, nil
		}, func(_ *zactor.Context, v int64, err error) {
			if err != nil {
				v = -1
			}
			results <- v
		})
	}))
	for n := range int64(10) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
		t.Fatal(err)
	}
	close(hold)
	for i := range int64(10) {
		want := i
		if i%2 == 0 {
			want = -1
		}
		if got := receive(t, results); got != want {
			t.Errorf("result %d is %d, want %d", i, got, want)
		}
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestAsyncDropOldest(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	g := newGroup(t, func(c *zactor.Config) {
		c.AsyncWorkers, c.AsyncQueue, c.AsyncFull, c.Metrics = 1, 3, zactor.AsyncDropOldest, zmetrics.NewActor(reg)
	})
	hold := make(chan struct{})
	ended := make(chan string, 20)
	ref := spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
		return zactor.Async(c, func(context.Context) (int64, error) { <-hold; return n, nil }, func(_ *zactor.Context, v int64, err error) {
			if err == nil && v != n {
				t.Errorf("job %d got the result of %d", n, v)
			}
			ended <- fmt.Sprintf("%d %v %v", n, zmsg.CodeOf(err), err == nil || zmsg.OutcomeOf(err) == zmsg.NotExecuted)
		})
	}))
	for n := range int64(10) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 { // 0 runs, 7 to 9 wait
		if got, want := receive(t, ended), fmt.Sprintf("%d busy true", n+1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	close(hold)
	for _, n := range []int{0, 7, 8, 9} {
		if got, want := receive(t, ended), fmt.Sprintf("%d ok true", n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	if got := count(t, reg, "zgame_actor_async_refused_total", "dropped"); got != 6 {
		t.Errorf("%v counted, want 6", got)
	}
	if got := count(t, reg, "zgame_actor_async_jobs", ""); got != 0 {
		t.Errorf("%v jobs at the end", got)
	}
}

// Work that hangs on one pool keeps nothing of another waiting.
func TestAsyncPools(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	g := newGroup(t, func(c *zactor.Config) {
		c.Metrics = zmetrics.NewActor(reg)
		c.AsyncPools = map[string]zactor.AsyncPool{"db": {Workers: 1, Queue: 1}, "mail": {}}
	})
	hold := make(chan struct{})
	started := make(chan error, 10)
	ended := make(chan int64, 10)
	ref := spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
		opts := []zactor.AsyncOption{zactor.OnPool([]string{"db", "mail", "paper"}[n%3])}
		if n == 4 {
			opts = nil
		}
		started <- zactor.Async(c, func(context.Context) (int64, error) {
			if n%3 == 0 {
				<-hold
			}
			return n, nil
		}, func(_ *zactor.Context, v int64, _ error) { ended <- v }, opts...)
		return nil
	}))
	start := func(n int64) error {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
		return receive(t, started)
	}
	for _, n := range []int64{0, 3, 1, 4} {
		if err := start(n); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	if err := start(6); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("got %v, want busy", err)
	}
	if err := start(2); err == nil || !strings.Contains(err.Error(), `no pool "paper"`) || !strings.Contains(err.Error(), "[db mail]") {
		t.Errorf("got %v, want the name that is wrong and those that are there", err)
	}
	got := []int64{receive(t, ended), receive(t, ended)}
	close(hold)
	slices.Sort(got)
	got = append(got, receive(t, ended), receive(t, ended))
	if !slices.Equal(got, []int64{1, 4, 0, 3}) {
		t.Errorf("ended %v", got)
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	if got := count(t, reg, "zgame_actor_async_refused_total", "busy"); got != 1 {
		t.Errorf("%v counted, want 1", got)
	}
}

// A job that waits longer than whoever asked does not run.
func TestAsyncDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, func(c *zactor.Config) { c.AsyncWorkers = 1 })
		outcomes := make(chan error, 2)
		ref := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			return nil, errors.Join(zactor.Async(c, func(ctx context.Context) (int64, error) {
				if p.GetN() == 2 {
					t.Error("ran after its deadline")
				}
				time.Sleep(time.Minute) // does not heed its context
				return 0, ctx.Err()
			}, func(_ *zactor.Context, _ int64, err error) { outcomes <- err }))
		})))
		for n := range int64(2) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{N: n + 1}); err != nil {
				t.Error(err)
			}
			cancel()
		}
		if err := <-outcomes; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		if err := <-outcomes; zmsg.CodeOf(err) != zmsg.CodeTimeout || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("got %v, want timeout, not executed", err)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The actor ends, or restarts, while work runs and more waits: the context ends, no continuation runs, nothing leaks, the
// group goes on.
func TestAsyncAfterTheActor(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "restart", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			g := newGroup(t, func(c *zactor.Config) { c.AsyncWorkers, c.Metrics = 2, zmetrics.NewActor(reg) })
			begun, ctxEnded := make(chan struct{}, 10), make(chan error, 10)
			hold := make(chan struct{})
			var ran, continued atomic.Int32
			ref := spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
				if n < 0 {
					panic("boom")
				}
				return zactor.Async(c, func(ctx context.Context) (int64, error) {
					ran.Add(1)
					begun <- struct{}{}
					if how == "restart" {
						<-hold
						return 0, nil
					}
					<-ctx.Done()
					ctxEnded <- context.Cause(ctx)
					return 0, ctx.Err()
				}, func(*zactor.Context, int64, error) { continued.Add(1) })
			}))
			for n := range int64(5) {
				if err := ref.Tell(&testpb.Note{N: n}); err != nil {
					t.Fatal(err)
				}
			}
			receive(t, begun)
			receive(t, begun)
			if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "stop":
				if err := g.StopWait(testContext(t), ref); err != nil {
					t.Fatal(err)
				}
			case "shutdown":
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				var cut *zactor.CutError
				if err := g.Shutdown(ctx); errors.As(err, &cut) && cut.Async {
					t.Errorf("got %v, but the work has returned", err)
				}
			case "restart":
				if err := ref.Tell(&testpb.Note{N: -1}); err != nil {
					t.Fatal(err)
				}
				if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
					t.Fatal(err)
				}
				close(hold)
				eventually(t, func() bool { return count(t, reg, "zgame_actor_dead_letters_total", "stale") == 5 })
			}
			eventually(t, func() bool { return count(t, reg, "zgame_actor_async_jobs", "") == 0 })
			want := int32(2) // what waited does not begin
			if how == "restart" {
				want = 5 // the actor is still there, and so is its context
			} else {
				for range 2 {
					if err := receive(t, ctxEnded); !errors.Is(err, zmsg.ErrStopped) {
						t.Errorf("the context ended with %v", err)
					}
				}
			}
			if ran.Load() != want || continued.Load() != 0 {
				t.Errorf("%d ran, %d continued, want %d and none", ran.Load(), continued.Load(), want)
			}
			if how == "shutdown" {
				return
			}
			other := spawn(t, g, "", factory(zactor.Handle(echo)))
			if _, err := zactor.Ask[testpb.Pong](testContext(t), other, &testpb.Ping{}); err != nil {
				t.Error(err)
			}
			if err := g.Shutdown(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Results that come late, from many pools of work, meet only what they belong to (as known-faults A4 for Ask).
func TestAsyncLate(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.AsyncWorkers, c.AsyncQueue, c.AsyncFull = 4, 8, zactor.AsyncDropOldest })
	const n = 500
	var ended atomic.Int64
	refs := make([]zactor.Ref, 8)
	for i := range refs {
		refs[i] = spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
			if n == 100 || n == 300 {
				panic("boom") // what is under way becomes stale
			}
			return zactor.Async(c, func(context.Context) (int64, error) { runtime.Gosched(); return n, nil }, func(_ *zactor.Context, v int64, err error) {
				if err == nil && v != n || err != nil && !errors.Is(err, zmsg.ErrBusy) {
					t.Errorf("job %d got %d, %v", n, v, err)
				}
				ended.Add(1)
			})
		}), zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}), zactor.WithMailbox(2*n))
		for k := range int64(n) {
			if err := refs[i].Tell(&testpb.Note{N: k + 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	if got := ended.Load(); got < 8*(n-300) || got > 8*(n-2) {
		t.Errorf("%d continuations, want %d to %d", got, 8*(n-300), 8*(n-2))
	}
}

func TestAsyncConfig(t *testing.T) {
	t.Parallel()
	_, err := zactor.NewGroup(zactor.Config{AsyncFull: 7, AsyncPools: map[string]zactor.AsyncPool{"": {}, "db": {Workers: -1, Queue: -1, Full: 9}}})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"AsyncFull is 7", "without a name", `AsyncPools["db"].Workers is -1`, `AsyncPools["db"].Queue is -1`, `AsyncPools["db"].Full is 9`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// Stepped by hand, work has the same bounds.
func TestAsyncManual(t *testing.T) {
	t.Parallel()
	for _, full := range []zactor.AsyncPolicy{zactor.AsyncReject, zactor.AsyncDropOldest} {
		g, m, err := zactor.NewManual(zactor.Config{AsyncQueue: 2, AsyncFull: full, AsyncPools: map[string]zactor.AsyncPool{"db": {}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		ref := spawn(t, g, "", runner(func(c *zactor.Context, n int64) error {
			var opts []zactor.AsyncOption
			if n == 0 {
				opts = append(opts, zactor.OnPool("db"))
			}
			err := zactor.Async(c, func(context.Context) (int64, error) { return n, nil }, func(_ *zactor.Context, v int64, err error) {
				got = append(got, fmt.Sprint(n, v, " ", zmsg.CodeOf(err)))
			}, opts...)
			if err != nil {
				got = append(got, fmt.Sprint(n, " refused ", zmsg.CodeOf(err)))
			}
			return nil
		}))
		for n := range int64(4) {
			if err := ref.Tell(&testpb.Note{N: n}); err != nil {
				t.Fatal(err)
			}
		}
		m.Run(100)
		want := []string{"3 refused busy", "0 0 ok", "1 1 ok", "2 2 ok"}
		if full == zactor.AsyncDropOldest {
			want = []string{"1 0 busy", "0 0 ok", "2 2 ok", "3 3 ok"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("policy %d: got %q, want %q", full, got, want)
		}
		if err := g.Shutdown(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}
