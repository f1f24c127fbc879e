package zactor_test

import (
	"context"
	"errors"
	"fmt"
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
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// Group A of the known faults; A14 and A17 are with the watchdog and the mailbox's policies, A1 across nodes in ztest.

func TestA1OneAtATimeAndInOrder(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	const n = 10_000
	var inside atomic.Int32
	last, done := int64(0), make(chan struct{})
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, m *testpb.Note) error {
		if inside.Add(1) != 1 {
			t.Error("two handlers at once")
		}
		if m.GetN()%512 == 0 {
			time.Sleep(time.Duration(m.GetN()/512%3) * time.Millisecond)
		}
		if m.GetN() != last+1 {
			t.Errorf("%d came after %d", m.GetN(), last)
		}
		if last = m.GetN(); last == n {
			close(done)
		}
		inside.Add(-1)
		return nil
	})), zactor.WithOverflow(zactor.Wait(bound)))
	for i := range int64(n) {
		if err := ref.Tell(&testpb.Note{N: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, done)
}

func TestA4LateRepliesHurtNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := zactortest.NewGroup(t, zactor.Config{})
		handled := 0
		ref := spawn(t, g, "", factory(zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			time.Sleep(50 * time.Millisecond)
			handled++
			return &testpb.Pong{N: p.GetN()}, nil
		})))
		for i := range int64(1000) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{N: i}); !errors.Is(err, zmsg.ErrTimeout) {
				t.Fatalf("got %v", err)
			}
			cancel()
			if i%10 == 9 { // let it catch up, and see that answers still are one's own
				pong, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: -i})
				if err != nil || pong.GetN() != -i {
					t.Fatalf("got %v, %v, want %d", pong, err, -i)
				}
			}
		}
		if handled < 100 {
			t.Errorf("only %d handled", handled)
		}
	})
}

func TestA5MessagesRightAfterSpawn(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	for range 200 {
		var handled atomic.Int32
		f := func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { handled.Add(1); return nil })},
				start:    func(*zactor.Context) error { runtime.Gosched(); return nil },
			}
		}
		spawned := make(chan struct{})
		var sent atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for {
					ref, there := g.Lookup("x")
					if !there {
						runtime.Gosched()
						continue
					}
					if ref.Tell(&testpb.Note{}) == nil {
						sent.Add(1)
					}
					return
				}
			})
		}
		ref := spawn(t, g, "x", f)
		close(spawned)
		wg.Wait()
		if err := g.StopDrainedWait(testContext(t), ref); err != nil {
			t.Fatal(err)
		}
		if sent.Load() != 100 || handled.Load() != 100 {
			t.Fatalf("%d sent, %d handled of 100", sent.Load(), handled.Load())
		}
	}
}

func TestA6StopOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	g, other := newGroup(t, nil), newGroup(t, nil)
	foreign := spawn(t, other, "x", factory())
	gone := spawn(t, g, "x", factory())
	if err := g.StopWait(testContext(t), gone); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]zactor.Ref{
		"nobody": {}, "another group's": foreign, "gone": gone, "far": g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "z", Epoch: 1}, Actor: 1}), "by id": g.ByID(), "object": g.Object(zmsg.Key{Type: 1}),
	} {
		for how, err := range map[string]error{
			"Stop": g.Stop(ref), "StopWait": g.StopWait(testContext(t), ref),
			"StopDrained": g.StopDrained(ref), "StopDrainedWait": g.StopDrainedWait(testContext(t), ref),
		} {
			if !errors.Is(err, zmsg.ErrUnknownActor) {
				t.Errorf("%s of %s: got %v", how, name, err)
			}
		}
	}
	// During its start: it ends right after it, once.
	stops := 0
	self := make(chan zactor.Ref, 1)
	ref := spawn(t, g, "starting", func() zactor.Actor {
		return &actor{
			start: func(c *zactor.Context) error {
				self <- c.Self()
				return c.Group().Stop(c.Self())
			},
			stop: func(*zactor.Context, zactor.Reason) { stops++ },
		}
	})
	if ref != <-self {
		t.Error("the ref has changed")
	}
	if err := g.StopWait(testContext(t), ref); err != nil && !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Error(err)
	}
	eventually(t, func() bool { _, there := g.Lookup("starting"); return !there })
	if stops != 1 {
		t.Errorf("OnStop ran %d times", stops)
	}
}

func TestA8OnStopRunsOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	for range 300 {
		var stops atomic.Int32
		child := func() zactor.Actor {
			return &actor{
				handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { c.Stop(); return nil })},
				stop:     func(*zactor.Context, zactor.Reason) { stops.Add(1) },
			}
		}
		made := make(chan zactor.Ref, 1)
		parent := spawn(t, g, "", func() zactor.Actor {
			return &actor{start: func(c *zactor.Context) error {
				ref, err := c.Spawn("", child)
				made <- ref
				return err
			}}
		})
		ref := <-made
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Stop(ref) })
		wg.Go(func() { _ = ref.Tell(&testpb.Note{}) })
		wg.Go(func() { _ = g.StopDrained(ref) })
		wg.Go(func() { _ = g.StopWait(testContext(t), parent) })
		wg.Wait()
		eventually(t, func() bool { return g.Len() == 0 })
		if stops.Load() != 1 {
			t.Fatalf("OnStop ran %d times", stops.Load())
		}
	}
}

func TestA8NothingIsKeptOfWhatHasStopped(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("the heap is compared: slow under the race detector")
	}
	g, ctx := newGroup(t, nil), testContext(t)
	turn := func(n int) {
		for i := range n {
			ref := spawn(t, g, fmt.Sprint(i), func() zactor.Actor {
				return &actor{handlers: []zactor.Handler{zactor.Handle(echo)}, start: func(c *zactor.Context) error {
					c.Every(time.Hour, func(*zactor.Context) {})
					return nil
				}}
			})
			if err := g.StopWait(ctx, ref); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	turn(1000)
	before := heap()
	turn(100_000)
	if after := heap(); after > before+4<<20 {
		t.Errorf("100,000 actors that have gone keep %d KiB", (after-before)>>10)
	}
}

func TestA10ThePanicLogIsUseful(t *testing.T) {
	t.Parallel()
	log := new(syncBuffer)
	g := newGroup(t, func(c *zactor.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	ref := spawn(t, g, "shop", factory(zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		switch p.GetN() {
		case 0:
			panic(fmt.Errorf("out of %s", "stock"))
		default:
			nilMap["x"]++
			return nil, nil
		}
	})))
	for i, value := range []string{"out of stock", "assignment to entry in nil map"} {
		m := zmsg.NewMessage(pingID)
		m.Value, m.Trace.ID = &testpb.Ping{N: int64(i)}, zmsg.TraceID{0xab, byte(i)}
		replies := make(chan *zmsg.Error, 1)
		m.SetReplier(replierFunc(func(_ uint64, r *zmsg.Reply) {
			coded, _ := errors.AsType[*zmsg.Error](r.Err())
			replies <- coded
		}), 1)
		if err := ref.Deliver(m); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, replies); err == nil || err.Code != zmsg.CodePanicked || err.Outcome != zmsg.Unknown {
			t.Errorf("the asker got %v", err)
		}
		for _, want := range []string{value, "TestA10ThePanicLogIsUseful", "fault_test.go", "actor=1", "name=shop", fmt.Sprint("msg_id=", pingID), fmt.Sprintf("trace=ab%02x", i)} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, log.String())
			}
		}
	}
}

// One room panics on each message and is closed; the other never notices.
func TestA11OneActorsPanicsMoveNoOther(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	bad := spawn(t, g, "bad", factory(zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { panic("boom") })),
		zactor.WithPolicy(zactor.Policy{MaxRestarts: 3, MinBackoff: -1}))
	good := spawn(t, g, "good", factory(zactor.Handle(echo)))
	for i := range int64(100) {
		_, err := zactor.Ask[testpb.Pong](testContext(t), bad, &testpb.Ping{})
		if want := zmsg.ErrPanicked; i < 4 && !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", i, err, want)
		} else if want := zmsg.ErrStopped; i > 4 && !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", i, err, want)
		}
		if pong, err := zactor.Ask[testpb.Pong](testContext(t), good, &testpb.Ping{N: i}); err != nil || pong.GetN() != i {
			t.Fatalf("the good one: got %v, %v", pong, err)
		}
	}
	if _, there := g.Lookup("bad"); there {
		t.Error("it is still there")
	}
}

func TestA12AnActorThatWaitsForItsRestartStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := zactortest.NewGroup(t, zactor.Config{})
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("boom") })),
			zactor.WithPolicy(zactor.Policy{MinBackoff: time.Hour, MaxBackoff: time.Hour}))
		for range 3 { // the second panic leads to the wait; the third message waits
			_ = ref.Tell(&testpb.Note{})
		}
		synctest.Wait()
		began := time.Now()
		if err := g.StopWait(t.Context(), ref); err != nil || time.Since(began) != 0 {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// Handlers that block stop nobody else, however many they are.
func TestBlockedHandlersStopNobody(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	release := make(chan struct{})
	var blocked atomic.Int32
	n := 8 * runtime.GOMAXPROCS(0)
	for range n {
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
			blocked.Add(1)
			<-release
			return nil
		})))
		_ = ref.Tell(&testpb.Note{})
	}
	eventually(t, func() bool { return blocked.Load() == int32(n) })
	ref := spawn(t, g, "", factory(zactor.Handle(echo)))
	for i := range int64(1000) {
		if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
}

// A busy actor, whose mailbox is never empty, starves nobody.
func TestBusyActorsStarveNobody(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	stop := make(chan struct{})
	var busy atomic.Int64
	for range 4 * runtime.GOMAXPROCS(0) {
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			busy.Add(1)
			select {
			case <-stop:
				return nil
			default:
				return c.Tell(c.Self(), m)
			}
		})))
		_ = ref.Tell(&testpb.Note{})
	}
	ref := spawn(t, g, "", factory(zactor.Handle(echo)))
	for i := range int64(200) {
		if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if busy.Load() == 0 {
		t.Error("nobody was busy")
	}
}

// 10,000 idle actors: no goroutine, and nothing that the clock would wake; see bench for the CPU that 100,000 use.
func TestA16IdleActorsCostNoTime(t *testing.T) {
	t.Parallel()
	clock := zactortest.NewClock(time.Unix(1e9, 0))
	g := newGroup(t, func(c *zactor.Config) { c.Clock = clock })
	h := []zactor.Handler{zactor.Handle(echo)}
	f := func() zactor.Actor { return &plain{h} }
	for range 10_000 {
		ref := spawn(t, g, "", f)
		if _, err := zactor.Ask[testpb.Pong](context.Background(), ref, &testpb.Ping{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { // what times requests and watches handlers finds nothing to do, and ends
		clock.Advance(time.Second)
		return clock.Pending() == 0
	})
}

// 100,000 failures and restarts in a row: the message after each is handled by the new instance.
func TestRestartsInARow(t *testing.T) {
	t.Parallel()
	n := int64(100_000)
	if raceEnabled || testing.Short() {
		n /= 10
	}
	g := newGroup(t, nil)
	made := int64(0)
	f := func() zactor.Actor {
		made++
		instance := made
		return &plain{[]zactor.Handler{zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			if p.GetText() == "panic" {
				panic("boom")
			}
			return &testpb.Pong{N: instance}, nil
		})}}
	}
	ref := spawn(t, g, "", f, zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
	for i := range n {
		if err := ref.Tell(&testpb.Ping{Text: "panic"}); err != nil {
			t.Fatal(err)
		}
		pong, err := zactor.Ask[testpb.Pong](context.Background(), ref, &testpb.Ping{})
		if err != nil || pong.GetN() != i+2 {
			t.Fatalf("restart %d: got %v, %v", i+1, pong, err)
		}
	}
}

const pingID = 990001

type replierFunc func(token uint64, r *zmsg.Reply)

func (f replierFunc) Reply(token uint64, r *zmsg.Reply) { f(token, r) }
