package zactor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// Nothing is lost at a shutdown: what waits is handled, also what it leads to.
func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	g, err := zactor.NewGroup(zactor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	var sunk atomic.Int32
	var order []string
	stop := func(name string) func(*zactor.Context, zactor.Reason) {
		return func(_ *zactor.Context, why zactor.Reason) { order = append(order, name+" "+why.String()) }
	}
	sink := spawn(t, g, "sink", func() zactor.Actor {
		return &actor{stop: stop("sink"), handlers: []zactor.Handler{
			zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { sunk.Add(1); return nil }),
			zactor.Handle(echo),
		}}
	}, zactor.WithMailbox(2*n))
	hold := make(chan struct{})
	source := spawn(t, g, "source", func() zactor.Actor {
		return &actor{stop: stop("source"), handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			switch m.GetN() {
			case 0:
				<-hold
			case 1: // an outcome that has to come back first
				return zactor.Async(c, func(context.Context) (int, error) { <-hold; return 0, nil }, func(c *zactor.Context, _ int, _ error) {
					zactor.Then(c, sink, &testpb.Ping{}, func(c *zactor.Context, _ *testpb.Pong, err error) {
						if err == nil {
							_ = c.Tell(sink, m)
						}
					})
				})
			}
			return c.Tell(sink, m)
		})}}
	}, zactor.WithMailbox(2*n))
	for i := range int64(n) {
		if err := source.Tell(&testpb.Note{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Shutdown(testContext(t)) }()
	eventually(t, func() bool { return errors.Is(source.Tell(&testpb.Note{}), zmsg.ErrDraining) })
	if _, err := g.Spawn("late", factory()); !errors.Is(err, zactor.ErrClosed) {
		t.Errorf("spawn: got %v, want closed", err)
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), sink, &testpb.Ping{}); !errors.Is(err, zmsg.ErrDraining) {
		t.Errorf("ask from outside: got %v, want draining", err)
	}
	close(hold)
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	if sunk.Load() < n {
		t.Errorf("%d of %d handled", sunk.Load(), n)
	}
	if !slices.Equal(order, []string{"source shutdown", "sink shutdown"}) {
		t.Errorf("stopped %q, want the last spawned first", order)
	}
	if err := g.Shutdown(testContext(t)); !errors.Is(err, zactor.ErrClosed) {
		t.Errorf("a second shutdown: got %v", err)
	}
	if err := source.Tell(&testpb.Note{}); err == nil {
		t.Error("a message went to an actor that is gone")
	}
}

// At the deadline the rest is cut and reported: by actor and count, and who is stuck.
func TestShutdownCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{StopTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		wait := func(ctx func(c *zactor.Context) <-chan struct{}) func() zactor.Actor {
			return factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { <-ctx(c); return nil }))
		}
		hang := spawn(t, g, "hang", wait(func(*zactor.Context) <-chan struct{} { return release }))
		polite := spawn(t, g, "polite", wait(func(c *zactor.Context) <-chan struct{} { return c.Context().Done() }))
		asking := spawn(t, g, "asking", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
			_, err := zactor.Call[testpb.Pong](c, hang, &testpb.Ping{})
			if !errors.Is(err, zmsg.ErrCancelled) {
				t.Errorf("a call that was cut off: got %v", err)
			}
			return nil
		})))
		for range 3 {
			for _, r := range []zactor.Ref{hang, polite, asking} {
				if err := r.Tell(&testpb.Note{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err = g.Shutdown(ctx)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v, want the deadline and StopTimeout", took)
		}
		var cut *zactor.CutError
		if !errors.As(err, &cut) {
			t.Fatalf("got %v, want a CutError", err)
		}
		want := []zactor.Cut{
			{Actor: 1, Name: "hang", Messages: 3, Stuck: true}, // two notes and the ping
			{Actor: 2, Name: "polite", Messages: 2},
			{Actor: 3, Name: "asking", Messages: 2},
		}
		if !slices.Equal(cut.Actors, want) || cut.Async {
			t.Errorf("cut %+v, want %+v", cut.Actors, want)
		}
		if !strings.Contains(err.Error(), `7 messages of 3 actors, 1 of them stuck: "hang" 3 (stuck), "polite" 2, "asking" 2`) {
			t.Errorf("text %q", err)
		}
		close(release) // goleak: the goroutine that was stuck ends now
	})
}

func TestShutdownOfNothing(t *testing.T) {
	t.Parallel()
	g, err := zactor.NewGroup(zactor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := zactor.NewGroup(zactor.Config{Mailbox: -1, AskTimeout: -1, StopTimeout: -1, AsyncWorkers: -1, AsyncQueue: -1, Policy: zactor.Policy{MaxRestarts: -2}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Mailbox", "AskTimeout", "StopTimeout", "AsyncWorkers", "AsyncQueue", "MaxRestarts"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// An actor that ends by itself while the others work off what waits does not hold up the shutdown.
func TestShutdownWhileAnActorEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		ends, works := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
		ends.later(func(c *zactor.Context) { time.Sleep(time.Millisecond); c.Stop() })
		works.later(func(*zactor.Context) { time.Sleep(time.Second) })
		began := time.Now()
		if err := g.Shutdown(testContext(t)); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
