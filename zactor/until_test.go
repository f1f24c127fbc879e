package zactor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// An actor with a time to end handles messages, timers and continuations until then and not after, on whatever goroutine it finds out.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		var until atomic.Pointer[time.Time]
		set := func(at time.Time) { until.Store(&at) }
		set(time.Now().Add(time.Minute))
		var ticks, continued atomic.Int32
		stopped := make(chan zactor.Reason, 1)
		ref := spawn(t, g, "lessee", func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{
					zactor.Handle(echo),
					zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
						work := func(context.Context) (int, error) { time.Sleep(2 * time.Second); return 0, nil }
						err := zactor.Async(c, work, func(*zactor.Context, int, error) { continued.Add(1) })
						time.Sleep(time.Duration(n.GetN()))
						return err
					}),
				},
				start: func(c *zactor.Context) error {
					c.Every(time.Second, func(*zactor.Context) { ticks.Add(1) })
					return nil
				},
				stop: func(_ *zactor.Context, why zactor.Reason) { stopped <- why },
			}
		}, zactor.WithUntil(func() time.Time { return *until.Load() }))
		gone := g.Gone(ref)

		time.Sleep(59*time.Second + 500*time.Millisecond) // mostly idle: Sleep would not end if the loop ran for nothing
		if n := ticks.Load(); n != 59 {
			t.Errorf("%d ticks in 59.5 s", n)
		}
		set(time.Now().Add(time.Minute)) // prolonged
		if err := ref.Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if _, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{}); err != nil || ticks.Load() != 89 || continued.Load() != 1 {
			t.Errorf("prolonged: %v, %d ticks, %d continuations", err, ticks.Load(), continued.Load())
		}

		// The handler runs on past the end; a request, a tick and a continuation wait behind it.
		set(time.Now().Add(time.Second))
		if err := ref.Tell(&testpb.Note{N: int64(5 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
		if !errors.Is(err, zmsg.ErrStopped) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("behind the end: %v (%v)", err, zmsg.OutcomeOf(err))
		}
		if why := <-stopped; why != zactor.StopRequested {
			t.Errorf("stopped with %v", why)
		}
		<-gone
		if ticks.Load() != 89 || continued.Load() != 1 {
			t.Errorf("%d ticks, %d continuations: some came too late", ticks.Load(), continued.Load())
		}
		<-g.Gone(ref)
		<-g.Gone(zactor.Ref{})
	})
}

// One that is idle ends when something comes; one that waits for its restart is not restarted.
func TestUntilOfIdleAndFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		over := time.Now().Add(time.Minute)
		var instances atomic.Int32
		f := func() zactor.Actor {
			instances.Add(1)
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(echo),
				zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("failed") }),
			}}
		}
		opts := []zactor.SpawnOption{
			zactor.WithUntil(func() time.Time { return over }), zactor.WithPolicy(zactor.Policy{MaxRestarts: 5, MinBackoff: time.Hour, MaxBackoff: time.Hour}),
		}
		idle, failed := spawn(t, g, "idle", f, opts...), spawn(t, g, "failed", f, opts...)
		for range 2 { // the second restart waits
			if err := failed.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := instances.Load(); n != 3 {
			t.Fatalf("%d instances, want 3", n)
		}
		if _, err := zactor.Ask[testpb.Pong](t.Context(), idle, &testpb.Ping{}); !errors.Is(err, zmsg.ErrStopped) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("idle: %v", err)
		}
		<-g.Gone(idle)
		time.Sleep(time.Hour)
		<-g.Gone(failed)
		if _, err := g.Spawn("late", f, opts...); !errors.Is(err, zmsg.ErrStopped) {
			t.Errorf("spawned after the end: %v, want ErrStopped", err)
		}
		if _, there := g.Lookup("late"); there {
			t.Error("one that did not start is there")
		}
		if n := instances.Load(); n != 3 {
			t.Errorf("%d instances, want 3: restarted or started after the end", n)
		}
	})
}

// Stepped by hand it is the same.
func TestUntilByHand(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g, m, err := zactor.NewManual(zactor.Config{Node: zmsg.NodeRef{ID: "n1", Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	handled := 0
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { handled++; return nil })),
		zactor.WithUntil(func() time.Time { return now.Add(time.Hour * time.Duration(1-handled)) }))
	for range 3 {
		if err := ref.Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
	}
	if steps := m.Run(10); handled != 1 {
		t.Errorf("%d handled in %d steps, want 1", handled, steps)
	}
	select {
	case <-g.Gone(ref):
	default:
		t.Error("it is not gone")
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}
