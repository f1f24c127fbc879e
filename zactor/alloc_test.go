//go:build !race

package zactor_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
)

// The budgets of the hot paths; the race detector allocates by itself.
func TestAllocations(t *testing.T) {
	g := newGroup(t, nil)
	note, ping, pong := &testpb.Note{}, &testpb.Ping{}, &testpb.Pong{}
	done := make(chan struct{}, 1)
	ref := spawn(t, g, "", factory(
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { done <- struct{}{}; return nil }),
		zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { return pong, nil }),
	))
	front := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		return zactor.Call[testpb.Pong](c, ref, p)
	})))
	dice := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
		_ = c.Rand().Uint64()
		done <- struct{}{}
		return nil
	})))
	dropping := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { done <- struct{}{}; return nil })),
		zactor.WithOverflow(zactor.DropOldest), zactor.WithMailboxBytes(1<<20))
	end := func(*zactor.Context) { done <- struct{}{} }
	fires, stopped, keyed := &testpb.Note{N: 1}, &testpb.Note{N: 2}, &testpb.Note{N: 3}
	timers := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
		switch n {
		case fires:
			c.After(0, end)
		case stopped:
			c.After(time.Hour, end).Stop()
			end(c)
		case keyed:
			c.AfterKey("key", time.Hour, end)
			end(c)
		}
		return nil
	})))
	const subscribers = 100
	var heard atomic.Int32
	for range subscribers {
		spawn(t, g, "", func() zactor.Actor {
			return &actor{start: subscribeTo("topic"), handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				if heard.Add(1)%subscribers == 0 {
					done <- struct{}{}
				}
				return nil
			})}}
		})
	}
	deadline, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ask := func(ctx context.Context, to zactor.Ref) func() {
		return func() {
			if _, err := zactor.Ask[testpb.Pong](ctx, to, ping); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		max  float64
		f    func()
	}{
		{"tell", 0, func() { _ = ref.Tell(note); <-done }},
		{"tell, and a random number", 1, func() { _ = dice.Tell(note); <-done }},
		{"tell to a mailbox with a policy", 0, func() { _ = dropping.Tell(note); <-done }},
		{"ask", 0, ask(context.Background(), ref)},
		{"ask with a deadline", 0, ask(deadline, ref)},
		{"ask, and ask from the handler", 1, ask(context.Background(), front)},
		{"load", 0, func() { ref.Load() }},
		{"timer that fires", 1, func() { _ = timers.Tell(fires); <-done }},
		{"timer that is stopped", 1, func() { _ = timers.Tell(stopped); <-done }},
		{"timer under a key", 1, func() { _ = timers.Tell(keyed); <-done }},
		{"publish to a hundred subscribers", 0, func() { _ = g.PublishTopicLocal("topic", note); <-done }},
		{"turn", 0, func() { _ = timers.Turn(end, nil); <-done }},
		{"lookup by name", 0, func() { g.Lookup("x") }},
	} {
		if got := testing.AllocsPerRun(2000, c.f); got > c.max {
			t.Errorf("%s: %v allocations, want at most %v", c.name, got, c.max)
		}
	}
}

// Middleware allocates when an actor is made, not when it has a message.
func TestMiddlewareAllocations(t *testing.T) {
	through := func(_ zactor.HandlerInfo, next zactor.Func) zactor.Func {
		return func(c *zactor.Context) error { return next(c) }
	}
	note, ping, pong := &testpb.Note{}, &testpb.Ping{}, &testpb.Pong{}
	for _, c := range []struct {
		name string
		mw   []zactor.Middleware
	}{
		{"three", []zactor.Middleware{through, through, through}},
		{"recover", []zactor.Middleware{zactor.Recover()}},
		{"measure", []zactor.Middleware{zactor.Measure(zmetrics.NewHandlers(nil))}},
		{"trace", []zactor.Middleware{zactor.Trace(nil)}},
		{"spans", []zactor.Middleware{zactor.Spans(newTracer())}},
		{"limit", []zactor.Middleware{zactor.Limit(1e9, 1e9)}},
		{"limited", []zactor.Middleware{zactor.Limit(1e-9, 1)}},
		{"require user", []zactor.Middleware{zactor.RequireUser()}},
	} {
		g := newGroup(t, func(cfg *zactor.Config) { cfg.Middleware = c.mw })
		done := make(chan struct{}, 1)
		ref := spawn(t, g, "", factory(
			zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { done <- struct{}{}; return nil }),
			zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { return pong, nil }),
		))
		tell := func() { _ = ref.Tell(note); <-done }
		ask := func() { _, _ = zactor.Ask[testpb.Pong](context.Background(), ref, ping) }
		asks := 0.0
		if c.name == "limited" {
			tell, asks = func() {}, 1 // the error of whoever asked
		}
		if got := testing.AllocsPerRun(2000, tell); got > 0 {
			t.Errorf("%s: a tell costs %v allocations, want none", c.name, got)
		}
		if got := testing.AllocsPerRun(2000, ask); got > asks {
			t.Errorf("%s: an ask costs %v allocations, want %v", c.name, got, asks)
		}
	}
}

// 100,000 actors that have each had a message: bytes and goroutines when they are idle again.
func TestIdleActors(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 actors")
	}
	const n = 100_000
	g := newGroup(t, nil)
	refs := make([]zactor.Ref, n)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	handled := make(chan struct{}, n)
	h := []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { handled <- struct{}{}; return nil })}
	f := func() zactor.Actor { return &plain{h} }
	for i := range refs {
		refs[i] = spawn(t, g, fmt.Sprint(i), f)
	}
	fresh := heap()
	for wave := range slices.Chunk(refs, 100) { // the runtime keeps what each goroutine needed that there ever was at once
		for _, r := range wave {
			_ = r.Tell(&testpb.Note{})
		}
		for range wave {
			<-handled
		}
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	after := heap()
	t.Logf("%d B fresh, %d B after a message", (fresh-before)/n, (after-before)/n)
	if per := (after - before) / n; per > 512 {
		t.Errorf("%d bytes for an idle actor", per)
	}
	runtime.KeepAlive(refs)
}
