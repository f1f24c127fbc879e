package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// A7: many callers at once, one actor, one OnStart.
func TestEnsure(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var starts atomic.Int32
	f := func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(echo)}, start: func(*zactor.Context) error { starts.Add(1); return nil }}
	}
	refs := make([]zactor.Ref, 100)
	var wg sync.WaitGroup
	for i := range refs {
		wg.Go(func() {
			ref, err := g.Ensure(testContext(t), "one", f)
			if err != nil {
				t.Error(err)
				return
			}
			refs[i] = ref
			if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range refs {
		if r != refs[0] {
			t.Fatal("two actors")
		}
	}
	if starts.Load() != 1 {
		t.Errorf("started %d times", starts.Load())
	}
	if _, err := g.Ensure(testContext(t), "", f); err == nil {
		t.Error("an actor without a name was ensured")
	}
	failing := errors.New("not today")
	if _, err := g.Ensure(testContext(t), "two", func() zactor.Actor {
		return &actor{start: func(*zactor.Context) error { return failing }}
	}); !errors.Is(err, failing) {
		t.Errorf("got %v", err)
	}
	if _, err := g.Ensure(testContext(t), "three", func() zactor.Actor {
		return &actor{start: func(*zactor.Context) error { return zactor.ErrExists }}
	}); !errors.Is(err, zactor.ErrExists) {
		t.Errorf("got %v", err)
	}
}

// An actor that is ending is waited for, within the context.
func TestEnsureWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	release := make(chan struct{})
	old := spawn(t, g, "x", func() zactor.Actor {
		return &actor{stop: func(*zactor.Context, zactor.Reason) { <-release }}
	})
	_ = g.Stop(old)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := g.Ensure(short, "x", factory()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(release)
	ref, err := g.Ensure(testContext(t), "x", factory())
	if err != nil || ref == old {
		t.Errorf("got %v, %v", ref, err)
	}
}

// All or none, and back in reverse.
func TestSpawnAll(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var log []string
	spec := func(name string, err error) zactor.Spec {
		return zactor.Spec{Name: name, New: func() zactor.Actor {
			return &actor{
				start: func(*zactor.Context) error { log = append(log, "+"+name); return err },
				stop:  func(_ *zactor.Context, why zactor.Reason) { log = append(log, "-"+name+" "+why.String()) },
			}
		}}
	}
	boom := errors.New("boom")
	_, err := g.SpawnAll(spec("a", nil), spec("b", nil), spec("c", boom), spec("d", nil))
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if want := []string{"+a", "+b", "+c", "-b requested", "-a requested"}; !slices.Equal(log, want) {
		t.Errorf("got %q, want %q", log, want)
	}
	if g.Len() != 0 {
		t.Errorf("%d are left", g.Len())
	}
	refs, err := g.SpawnAll(spec("a", nil), spec("b", nil))
	if err != nil || len(refs) != 2 || refs[1].String() != "b" {
		t.Errorf("got %v, %v", refs, err)
	}
}

// Passivation counts from the last message, keeps actors that owe something, and loses nothing.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{Node: zmsg.NodeRef{ID: "n", Epoch: 1}})
		if err != nil {
			t.Fatal(err)
		}
		var why zactor.Reason
		var owed zactor.Deferred
		ref := spawn(t, g, "x", func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{
					zactor.Handle(echo),
					zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { owed = c.Defer(); return zactor.ErrDeferred }),
				},
				start: func(c *zactor.Context) error { c.Every(time.Second, func(*zactor.Context) {}); return nil },
				stop:  func(_ *zactor.Context, r zactor.Reason) { why = r },
			}
		}, zactor.WithIdle(time.Minute))
		for range 5 {
			time.Sleep(50 * time.Second)
			if _, err := zactor.Ask[testpb.Pong](context.Background(), ref, &testpb.Ping{}); err != nil {
				t.Fatal(err)
			}
		}
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Note{})
			answered <- err
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if why != 0 {
			t.Fatalf("ended (%v) while it owes a reply", why)
		}
		owed.Reply(&testpb.Pong{})
		if err := <-answered; err != nil {
			t.Error(err)
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if why != zactor.StopIdle {
			t.Errorf("ended with %v, want idle", why)
		}
		if err := ref.Tell(&testpb.Ping{}); !errors.Is(err, zmsg.ErrStopped) {
			t.Errorf("got %v", err)
		}
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Senders that meet the moment of passivation are told, or handled: never neither.
func TestIdleLosesNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var handled atomic.Int64
	f := factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { handled.Add(1); return nil }))
	sent := int64(0)
	for i := range 2000 {
		ref, err := g.Ensure(testContext(t), "x", f, zactor.WithIdle(50*time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		for range i % 3 {
			if ref.Tell(&testpb.Note{}) == nil {
				sent++
			}
		}
		if i%64 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	eventually(t, func() bool { return handled.Load() == sent })
}

// Who reaches for an actor meets the moment of its passivation unharmed.
func TestReach(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var handled atomic.Int64
	f := factory(zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { handled.Add(1); return nil, nil }))
	for i := range 2000 {
		if err := g.Reach(t.Context(), "x", f, func(ref zactor.Ref) error {
			_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
			return err
		}, zactor.WithIdle(20*time.Microsecond)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Duration(i%40) * time.Microsecond); time.Now().Before(end); {
		}
	}
	if handled.Load() != 2000 {
		t.Errorf("%d handled of 2000", handled.Load())
	}
	boom, tries := errors.New("boom"), 0
	for _, want := range []error{boom, zmsg.ErrStopped} { // its own errors are not tried again
		if err := g.Reach(t.Context(), "x", f, func(zactor.Ref) error { tries++; return want }); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if tries != 2 {
		t.Errorf("%d tries, want 2", tries)
	}
	if err := g.Reach(t.Context(), "", f, nil); err == nil {
		t.Error("an actor without a name was reached")
	}
}

func TestStopDrainedWait(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	release := make(chan struct{}, 100)
	var handled atomic.Int32
	f := factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
		select {
		case <-release:
		case <-c.Context().Done():
		}
		handled.Add(1)
		return nil
	}))
	ref := spawn(t, g, "x", f)
	for range 10 {
		_ = ref.Tell(&testpb.Note{})
		release <- struct{}{}
	}
	if err := g.StopDrainedWait(testContext(t), ref); err != nil || handled.Load() != 10 {
		t.Errorf("got %v, %d handled", err, handled.Load())
	}
	ref = spawn(t, g, "y", f)
	for range 10 {
		_ = ref.Tell(&testpb.Note{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var cut *zactor.CutError
	if err := g.StopDrainedWait(ctx, ref); !errors.As(err, &cut) || len(cut.Actors) != 1 || cut.Actors[0].Messages != 9 || cut.Actors[0].Stuck {
		t.Errorf("got %v, want 9 messages of one actor cut", err)
	}
	if err := g.StopDrainedWait(testContext(t), ref); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("got %v", err)
	}
}

// Actors stepped by hand: the caller picks the order, time stands still, a handler that waits lets the others go on.
func TestManual(t *testing.T) {
	t.Parallel()
	g, m, err := zactor.NewManual(zactor.Config{Node: zmsg.NodeRef{ID: "n", Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	back := spawn(t, g, "back", factory(zactor.Handle(echo)))
	note := func(name string) zactor.Handler {
		return zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			log = append(log, fmt.Sprint(name, n.GetN()))
			if n.GetN() == 7 {
				r, err := zactor.Call[testpb.Pong](c, back, &testpb.Ping{N: 70})
				log = append(log, fmt.Sprint(name, r.GetN(), err))
			}
			return nil
		})
	}
	a, b := spawn(t, g, "a", factory(note("a"))), spawn(t, g, "b", factory(note("b")))
	for i := range int64(2) {
		_ = a.Tell(&testpb.Note{N: i})
		_ = b.Tell(&testpb.Note{N: i})
	}
	if m.Step(back) {
		t.Error("an idle actor was stepped")
	}
	m.Step(b)
	m.Step(b)
	if m.Step(b) {
		t.Error("b has nothing left")
	}
	_ = a.Tell(&testpb.Note{N: 7})
	m.Run(100)
	if want := []string{"b0", "b1", "a0", "a1", "a7", "a70 <nil>"}; !slices.Equal(log, want) {
		t.Errorf("got %q, want %q", log, want)
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A shutdown whose time is over before it begins stops the actors of a Manual all the same: they are not stuck.
func TestManualShutdownWithoutTime(t *testing.T) {
	t.Parallel()
	g, _, err := zactor.NewManual(zactor.Config{StopTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for range 3 {
		spawn(t, g, "", func() zactor.Actor { return &actor{stop: func(*zactor.Context, zactor.Reason) { stopped++ }} })
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Shutdown(ended); err != nil || stopped != 3 {
		t.Errorf("got %v, %d stopped of 3", err, stopped)
	}
}
