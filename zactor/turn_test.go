package zactor_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// Turns come in order with messages, and pass a mailbox that is full, whatever its policy.
func TestTurn(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]zactor.SpawnOption{
		{zactor.WithMailbox(2)},
		{zactor.WithMailbox(2), zactor.WithOverflow(zactor.DropNewest)},
		{zactor.WithMailbox(2), zactor.WithMailboxBytes(1 << 20)},
	} {
		g, m, err := zactor.NewManual(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		ref := spawn(t, g, "", runner(func(_ *zactor.Context, n int64) error { got = append(got, n); return nil }), opts...)
		turn := func(n int64) {
			err := ref.Turn(func(c *zactor.Context) {
				if c.Self() != ref || c.MessageID() != 0 || c.Reply(&testpb.Pong{}) {
					t.Error("a turn is about no message of its actor")
				}
				got = append(got, n)
			}, func() { t.Error("dropped") })
			if err != nil {
				t.Error(err)
			}
		}
		for n := range int64(2) {
			if err := ref.Tell(&testpb.Note{N: n}); err != nil {
				t.Error(err)
			}
		}
		turn(2)
		turn(3)
		m.Run(100)
		if want := []int64{0, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("turns at a full mailbox: got %v, want %v", got, want)
		}
		got = nil
		_ = ref.Tell(&testpb.Note{N: 1})
		turn(2)
		m.Run(100)
		if want := []int64{1, 2}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := g.Shutdown(testContext(t)); err != nil {
			t.Error(err)
		}
		if err := ref.Turn(func(*zactor.Context) { t.Error("ran") }, func() { t.Error("dropped") }); !errors.Is(err, zmsg.ErrStopped) {
			t.Errorf("of an actor that has ended: %v, want ErrStopped", err)
		}
	}
	g := newGroup(t, nil)
	for _, ref := range []zactor.Ref{{}, g.ByID(), g.Object(zmsg.Key{Type: 1}), g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 1}, Actor: 1})} {
		if err := ref.Turn(func(*zactor.Context) { t.Error("ran") }, nil); !errors.Is(err, zmsg.ErrUnknownActor) {
			t.Errorf("of %v: %v, want ErrUnknownActor", ref, err)
		}
	}
}

// A restart and an end drop the turns that have not begun.
func TestTurnDropped(t *testing.T) {
	t.Parallel()
	g, m, err := zactor.NewManual(zactor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var starts, stops atomic.Int32
	ref := spawn(t, g, "", counter(&starts, &stops))
	var got []string
	turn := func(name string) {
		err := ref.Turn(func(*zactor.Context) { got = append(got, name) }, func() { got = append(got, name+" dropped"); panic("is logged") })
		if err != nil {
			t.Error(err)
		}
	}
	turn("a")
	if err := ref.Turn(func(*zactor.Context) { panic("boom") }, func() { t.Error("ran, and dropped") }); err != nil {
		t.Error(err)
	}
	turn("b")
	if err := ref.Turn(func(*zactor.Context) { t.Error("ran") }, nil); err != nil {
		t.Error(err)
	}
	m.Run(100)
	turn("c")
	m.Run(100)
	if err := ref.Turn(func(c *zactor.Context) { c.Stop(); turn("e") }, nil); err != nil {
		t.Error(err)
	}
	turn("d")
	m.Run(100)
	if want := []string{"a", "b dropped", "c", "d dropped", "e dropped"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if starts.Load() != 2 || stops.Load() != 1 {
		t.Errorf("%d starts, %d stops, want 2 and 1", starts.Load(), stops.Load())
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}

// Of turns from many goroutines, while the actor restarts and at last ends, each runs or is dropped or refused, once.
func TestTurnRaces(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	ref := spawn(t, g, "", runner(func(*zactor.Context, int64) error { panic("boom") }),
		zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}), zactor.WithOverflow(zactor.DropOldest))
	const senders, each = 8, 2000
	var ends [senders * each]atomic.Int32
	var ran, dropped, refused atomic.Int32
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				n := &ends[s*each+i]
				err := ref.Turn(func(*zactor.Context) { n.Add(1); ran.Add(1) }, func() { n.Add(1); dropped.Add(1) })
				if err != nil {
					n.Add(1)
					refused.Add(1)
				}
				switch {
				case i%50 == 49:
					eventually(t, func() bool { return n.Load() != 0 })
				case i%1000 == 500:
					_ = ref.Tell(&testpb.Note{})
				case s == 0 && i == each-100:
					_ = g.Stop(ref)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool { return ran.Load()+dropped.Load()+refused.Load() == senders*each })
	for i := range ends {
		if n := ends[i].Load(); n != 1 {
			t.Fatalf("turn %d ended %d times", i, n)
		}
	}
	t.Logf("%d ran, %d were dropped, %d refused", ran.Load(), dropped.Load(), refused.Load())
}

// Shutdown waits for turns, and for what comes of them.
func TestTurnShutdown(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	hold, done := make(chan struct{}), make(chan struct{})
	ref := spawn(t, g, "", factory())
	if err := ref.Turn(func(*zactor.Context) {
		<-hold
		if err := ref.Turn(func(*zactor.Context) { close(done) }, func() { t.Error("dropped") }); err != nil {
			t.Error(err)
		}
	}, func() { t.Error("dropped") }); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Shutdown(testContext(t)) }()
	eventually(t, func() bool { return errors.Is(ref.Tell(&testpb.Note{}), zmsg.ErrDraining) })
	close(hold)
	receive(t, done)
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

// A recorder keeps what happened around a turn, not what it did.
func TestTurnRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}})
	got := 0
	other := spawn(t, g, "other", runner(func(*zactor.Context, int64) error { got++; return nil }))
	ref := spawn(t, g, "", runner(func(*zactor.Context, int64) error { panic("boom") }))
	if err := ref.Turn(func(c *zactor.Context) {
		if err := c.Tell(other, &testpb.Note{}); err != nil {
			t.Error(err)
		}
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := ref.Tell(&testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	s.Run()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || got != 1 {
		t.Errorf("%d files of records, %d messages, %v; want one of each", len(files), got, err)
	}
}
