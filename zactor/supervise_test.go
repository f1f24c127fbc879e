package zactor_test

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var nilMap map[string]int // writing to it panics

// counter answers a Ping with how many messages its instance has had; 0 panics, -1 ends the goroutine.
func counter(starts, stops *atomic.Int32) func() zactor.Actor {
	return func() zactor.Actor {
		n := int64(0)
		return &actor{
			handlers: []zactor.Handler{zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				switch p.GetN() {
				case 0:
					nilMap["x"] = 1
				case -1:
					runtime.Goexit()
				}
				n++
				return &testpb.Pong{N: n}, nil
			})},
			start: func(*zactor.Context) error { starts.Add(1); return nil },
			stop:  func(*zactor.Context, zactor.Reason) { stops.Add(1) },
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	var starts, stops atomic.Int32
	g := newGroup(t, func(c *zactor.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	ref := spawn(t, g, "shop", counter(&starts, &stops), zactor.WithPolicy(zactor.Policy{MaxRestarts: 3, MinBackoff: -1}))
	ask := func(n int64) (int64, error) {
		m := zmsg.NewMessage(990001)
		m.Value = &testpb.Ping{N: n}
		m.Trace.ID = zmsg.TraceID{0xab, 1}
		replies := make(replier, 1)
		m.SetReplier(replies, 1)
		if err := ref.Deliver(m); err != nil {
			m.Release()
			return 0, err
		}
		r := receive(t, replies)
		pong, _ := r.Value.(*testpb.Pong)
		return pong.GetN(), r.Err()
	}
	for i := range int64(3) {
		for n := range int64(3) {
			if got, err := ask(7); err != nil || got != n+1 {
				t.Fatalf("instance %d: got %d, %v, want %d: the state must be fresh", i, got, err, n+1)
			}
		}
		bad := int64(0)
		if i == 1 {
			bad = -1 // Goexit is a crash too
		}
		if _, err := ask(bad); !errors.Is(err, zmsg.ErrPanicked) || zmsg.OutcomeOf(err) != zmsg.Unknown {
			t.Fatalf("got %v, want panicked", err)
		}
	}
	if _, err := ask(0); !errors.Is(err, zmsg.ErrPanicked) {
		t.Fatalf("got %v, want panicked", err)
	}
	eventually(t, func() bool { return g.Len() == 0 })
	if _, err := ask(7); !errors.Is(err, zmsg.ErrStopped) {
		t.Errorf("past the limit: got %v, want stopped", err)
	}
	if starts.Load() != 4 || stops.Load() != 1 {
		t.Errorf("%d starts and %d stops, want 4 and 1", starts.Load(), stops.Load())
	}
	for _, want := range []string{"assignment to entry in nil map", "supervise_test.go", "name=shop", "msg_id=990001", "trace=ab01", "actor failed for good"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
}

// One that fails does not move another, and what waits is handled by the next instance.
func TestPanicKeepsTheQueue(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	const n = 2000
	handled, panicked := 0, 0
	done := make(chan struct{})
	hold := make(chan struct{})
	ref := spawn(t, g, "", func() zactor.Actor {
		return &plain{[]zactor.Handler{zactor.HandleTell(func(_ *zactor.Context, m *testpb.Note) error {
			if m.GetN() == 0 {
				<-hold
				return nil
			}
			if m.GetN() == n {
				close(done)
			}
			if m.GetN()%7 == 0 {
				panicked++
				panic("seven")
			}
			handled++
			return nil
		})}}
	}, zactor.WithMailbox(n+1), zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
	for i := range int64(n + 1) {
		if err := ref.Tell(&testpb.Note{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	close(hold)
	receive(t, done)
	if err := g.StopWait(testContext(t), ref); err != nil {
		t.Fatal(err)
	}
	if handled+panicked != n || panicked != n/7 {
		t.Errorf("%d handled and %d panicked of %d", handled, panicked, n)
	}
}

func TestRestartBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var starts, stops atomic.Int32
		ref := spawn(t, g, "", counter(&starts, &stops), zactor.WithPolicy(zactor.Policy{MaxRestarts: 4, Window: time.Minute, MinBackoff: time.Second, MaxBackoff: 3 * time.Second}))
		began := time.Now()
		for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second} {
			_, _ = zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
			if _, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: 1}); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got != want {
				t.Errorf("restart %d took %v, want %v", i, got, want)
			}
			began = time.Now()
		}
		time.Sleep(time.Minute + time.Second) // the failures are forgotten
		for range 2 {
			_, _ = zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
		}
		// It waits for its restart: a stop does not.
		began = time.Now()
		ended := make(chan error)
		go func() {
			_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: 1})
			ended <- err
		}()
		synctest.Wait()
		if err := g.StopWait(t.Context(), ref); err != nil || time.Since(began) != 0 {
			t.Errorf("stop of an actor that waits for its restart: %v after %v", err, time.Since(began))
		}
		if err := <-ended; !errors.Is(err, zmsg.ErrStopped) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("got %v, want stopped", err)
		}
		if stops.Load() != 1 {
			t.Errorf("%d stops", stops.Load())
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A restart that fails counts as a failure; the limit ends it.
func TestRestartFails(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	first := true
	var stops atomic.Int32
	ref := spawn(t, g, "", func() zactor.Actor {
		a := &actor{handlers: []zactor.Handler{zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { panic("boom") })}}
		a.stop = func(*zactor.Context, zactor.Reason) { stops.Add(1) }
		if !first {
			a.start = func(*zactor.Context) error { return errors.New("no database") }
		}
		first = false
		return a
	}, zactor.WithPolicy(zactor.Policy{MaxRestarts: 3, MinBackoff: -1}))
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); !errors.Is(err, zmsg.ErrPanicked) {
		t.Errorf("got %v", err)
	}
	eventually(t, func() bool { return g.Len() == 0 })
	if stops.Load() != 1 {
		t.Errorf("%d stops, want 1", stops.Load())
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	if err := g.Stop(zactor.Ref{}); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("stop of nobody: got %v", err)
	}
	// During the start.
	var stops atomic.Int32
	ref, err := g.Spawn("a", func() zactor.Actor {
		return &actor{
			start: func(c *zactor.Context) error { return c.Group().Stop(c.Self()) },
			stop:  func(*zactor.Context, zactor.Reason) { stops.Add(1) },
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return g.Len() == 0 })
	if err := g.Stop(ref); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("stop of one that is gone: got %v", err)
	}
	// From many sides at once, itself among them.
	for range 200 {
		var once atomic.Int32
		ref := spawn(t, g, "b", func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { c.Stop(); return nil })},
				stop:     func(*zactor.Context, zactor.Reason) { once.Add(1) },
			}
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _ = g.Stop(ref) })
			wg.Go(func() { _ = ref.Tell(&testpb.Note{}) })
			wg.Go(func() { _ = g.StopWait(testContext(t), ref) })
		}
		wg.Wait()
		eventually(t, func() bool { _, there := g.Lookup("b"); return !there })
		if once.Load() != 1 {
			t.Fatalf("OnStop ran %d times", once.Load())
		}
	}
	if stops.Load() != 1 {
		t.Errorf("%d stops", stops.Load())
	}
}

// A stop does not wait behind a backlog; StopDrained does. Each message is handled or answered.
func TestStopAndBacklog(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{false, true} {
		var dead atomic.Int32
		g := newGroup(t, func(c *zactor.Config) {
			c.OnDeadLetter = func(d zactor.DeadLetter) {
				if d.Reason != "stopped" || d.ID != 990003 || d.Name != "a" {
					t.Errorf("dead letter %+v", d)
				}
				dead.Add(1)
			}
		})
		const n = 500
		var handled atomic.Int32
		begun, block := make(chan struct{}, n), make(chan struct{})
		ref := spawn(t, g, "a", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
			begun <- struct{}{}
			<-block
			handled.Add(1)
			return nil
		})))
		for range n {
			if err := ref.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
		}
		receive(t, begun)
		stop := g.Stop
		if drained {
			stop = g.StopDrained
		}
		if err := stop(ref); err != nil {
			t.Fatal(err)
		}
		close(block)
		eventually(t, func() bool { return g.Len() == 0 })
		if drained && (handled.Load() != n || dead.Load() != 0) || !drained && (handled.Load() != 1 || dead.Load() != n-1) {
			t.Errorf("drained %v: %d handled, %d dead", drained, handled.Load(), dead.Load())
		}
	}
}

// Right after a spawn and right before an end, each send is handled or refused.
func TestSpawnAndStopRaces(t *testing.T) {
	t.Parallel()
	var dead atomic.Int64
	g := newGroup(t, func(c *zactor.Config) { c.OnDeadLetter = func(zactor.DeadLetter) { dead.Add(1) } })
	for range 200 {
		var sent, handled atomic.Int64
		dead.Store(0)
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { handled.Add(1); return nil })))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if ref.Tell(&testpb.Note{}) == nil {
						sent.Add(1)
					}
				}
			})
		}
		if err := g.StopWait(testContext(t), ref); err != nil && !errors.Is(err, zmsg.ErrUnknownActor) {
			t.Fatal(err)
		}
		wg.Wait()
		if sent.Load() != handled.Load()+dead.Load() {
			t.Fatalf("%d sent, %d handled, %d dead", sent.Load(), handled.Load(), dead.Load())
		}
	}
}
