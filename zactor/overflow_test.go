package zactor_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// gated spawns an actor whose first Note holds it until open is closed; it records the numbers of all Notes.
type gated struct {
	ref  zactor.Ref
	open chan struct{}
	in   chan struct{} // the first Note is being handled
	mu   sync.Mutex
	got  []int64
}

func newGated(tb testing.TB, g *zactor.Group, opts ...zactor.SpawnOption) *gated {
	tb.Helper()
	a := &gated{open: make(chan struct{}), in: make(chan struct{})}
	first := true
	a.ref = spawn(tb, g, "gated", factory(
		zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
			a.mu.Lock()
			a.got = append(a.got, n.GetN())
			a.mu.Unlock()
			if first {
				first = false
				close(a.in)
				<-a.open
			}
			return nil
		}),
		zactor.Handle(echo),
	), opts...)
	if err := a.ref.Tell(&testpb.Note{N: -1}); err != nil {
		tb.Fatal(err)
	}
	receive(tb, a.in)
	return a
}

func (a *gated) numbers() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

func numbers(from, to int64) []int64 {
	out := []int64{-1}
	for n := from; n < to; n++ {
		out = append(out, n)
	}
	return out
}

// A17: a handler that posts to its own full mailbox is told, whatever the policy, and by whichever way it sends.
func TestHandlerPostsToItself(t *testing.T) {
	t.Parallel()
	const posts, room = 1000, 100
	for _, o := range []zactor.Overflow{zactor.Reject, zactor.DropOldest, zactor.DropNewest, zactor.Wait(time.Hour)} {
		for name, tell := range map[string]func(c *zactor.Context, m proto.Message) error{
			"context": func(c *zactor.Context, m proto.Message) error { return c.Tell(c.Self(), m) },
			"ref":     func(c *zactor.Context, m proto.Message) error { return c.Self().Tell(m) },
		} {
			t.Run(o.String()+" by "+name, func(t *testing.T) {
				t.Parallel()
				g := newGroup(t, nil)
				refused := make(chan int, 1)
				var got []int64
				ref := spawn(t, g, "", factory(
					zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error { got = append(got, n.GetN()); return nil }),
					zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
						n := 0
						for i := range int64(posts) {
							switch err := tell(c, &testpb.Note{N: i}); {
							case errors.Is(err, zmsg.ErrBusy):
								n++
							case err != nil:
								t.Errorf("got %v", err)
							}
						}
						refused <- n
						return &testpb.Pong{}, nil
					}),
				), zactor.WithMailbox(room), zactor.WithOverflow(o))
				if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() bool { return ref.Load() == 0 })
				if err := g.StopWait(testContext(t), ref); err != nil {
					t.Fatal(err)
				}
				wantRefused, first := posts-room, int64(0)
				if o == zactor.DropOldest || o == zactor.DropNewest {
					wantRefused = 0
				}
				if o == zactor.DropOldest {
					first = posts - room
				}
				if n := receive(t, refused); n != wantRefused {
					t.Errorf("%d refused, want %d", n, wantRefused)
				}
				if want := numbers(first, first+room)[1:]; !slices.Equal(got, want) {
					t.Errorf("handled %v, want %d to %d", got, first, first+room)
				}
			})
		}
	}
}

// What is dropped is a dead letter, and who asked for it learns Busy; control items stay.
func TestDropping(t *testing.T) {
	t.Parallel()
	for _, o := range []zactor.Overflow{zactor.DropOldest, zactor.DropNewest} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			var dead []zactor.DeadLetter
			var mu sync.Mutex
			g := newGroup(t, func(c *zactor.Config) {
				c.Overflow = o
				c.OnDeadLetter = func(d zactor.DeadLetter) { mu.Lock(); dead = append(dead, d); mu.Unlock() }
			})
			a := newGated(t, g, zactor.WithMailbox(3))
			asked := make(chan error, 1)
			ask := func() {
				go func() {
					_, err := zactor.Ask[testpb.Pong](testContext(t), a.ref, &testpb.Ping{})
					asked <- err
				}()
			}
			if o == zactor.DropOldest { // the request is the oldest
				ask()
				eventually(t, func() bool { return a.ref.Load() == 1 })
			}
			for n := range int64(3) {
				if err := a.ref.Tell(&testpb.Note{N: n}); err != nil {
					t.Fatal(err)
				}
			}
			if o == zactor.DropNewest { // it is the newest
				ask()
			}
			err := receive(t, asked)
			if !errors.Is(err, zmsg.ErrBusy) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("the asker got %v", err)
			}
			want := numbers(0, 3)
			for n := int64(3); n < 5; n++ {
				if err := a.ref.Tell(&testpb.Note{N: n}); err != nil {
					t.Errorf("tell: %v", err)
				}
			}
			if o == zactor.DropOldest {
				want = numbers(2, 5)
			}
			close(a.open)
			eventually(t, func() bool { return len(a.numbers()) == len(want) })
			if got := a.numbers(); !slices.Equal(got, want) {
				t.Errorf("handled %v, want %v", got, want)
			}
			mu.Lock()
			defer mu.Unlock()
			reason := map[zactor.Overflow]string{zactor.DropOldest: "dropped_oldest", zactor.DropNewest: "dropped_newest"}[o]
			if len(dead) != 3 || dead[0].Reason != reason || dead[0].ID != 990001 || dead[1].ID != 990003 {
				t.Errorf("dead letters %+v", dead)
			}
		})
	}
}

func TestMailboxBytes(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.MailboxBytes = 1 << 20 })
	a := newGated(t, g, zactor.WithMailboxBytes(10<<10))
	note := func(size int) error { return a.ref.Tell(&testpb.Ping{Text: string(make([]byte, size))}) }
	if err := note(20 << 10); err != nil {
		t.Errorf("larger than the bound, and nothing waits: %v", err)
	}
	if err := note(1); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("beside it: got %v, want busy", err)
	}
	b := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Ping) error { <-a.open; return nil })))
	taken := 0
	for b.Tell(&testpb.Ping{Text: string(make([]byte, 100<<10))}) == nil {
		taken++
	}
	if taken < 10 || taken > 11 { // one may be in the handler
		t.Errorf("1 MiB took %d of 100 KiB", taken)
	}
	close(a.open)
}

// 64 senders wait their turn: nothing is lost, each sender's order is kept.
func TestWaitLosesNothing(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]zactor.SpawnOption{
		{zactor.WithMailbox(1)},
		{zactor.WithMailbox(7), zactor.WithMailboxBytes(600)},
		{zactor.WithMailbox(100)},
	} {
		g := newGroup(t, nil)
		const senders, each = 64, 300
		var last [senders]int64
		done := make(chan struct{})
		handled := 0
		ref := spawn(t, g, "", factory(
			zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
				if n.GetN() != last[n.GetFrom()]+1 {
					t.Errorf("sender %d: %d follows %d", n.GetFrom(), n.GetN(), last[n.GetFrom()])
				}
				last[n.GetFrom()] = n.GetN()
				if handled++; handled == senders*each {
					close(done)
				}
				return nil
			}),
			zactor.Handle(echo),
		), append(opts, zactor.WithOverflow(zactor.Wait(time.Hour)))...)
		for s := range int64(senders) {
			go func() {
				for n := range int64(each) {
					if err := ref.Tell(&testpb.Note{N: n + 1, From: s}); err != nil {
						t.Errorf("tell: %v", err)
					}
					if n%50 == 0 {
						if p, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: n}); err != nil || p.GetN() != n {
							t.Errorf("ask: %v, %v", p, err)
						}
					}
				}
			}()
		}
		receive(t, done)
	}
}

// Waiters are let in in the order in which they came, and each wait has its end: d, the asker's deadline or cancellation.
func TestWaitIsInOrderAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		a := newGated(t, g, zactor.WithMailbox(1), zactor.WithOverflow(zactor.Wait(10*time.Second)))
		if err := a.ref.Tell(&testpb.Note{N: 0}); err != nil {
			t.Fatal(err)
		}
		type end struct {
			who   string
			after time.Duration
			err   error
		}
		begin, ends := time.Now(), make(chan end, 10)
		wait := func(who string, f func() error) {
			go func() { err := f(); ends <- end{who, time.Since(begin), err} }()
			synctest.Wait()
		}
		tell := func(n int64) func() error { return func() error { return a.ref.Tell(&testpb.Note{N: n}) } }
		ask := func(ctx context.Context) func() error {
			return func() error { _, err := zactor.Ask[testpb.Pong](ctx, a.ref, &testpb.Ping{}); return err }
		}
		short, cancel1 := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel1()
		cancelled, cancel2 := context.WithCancel(t.Context())
		wait("short", ask(short))
		wait("cancelled", ask(cancelled))
		wait("whole", tell(99))
		time.Sleep(time.Second)
		cancel2()
		check := func(who string, after time.Duration, code zmsg.Code) {
			t.Helper()
			e := <-ends
			if e.who != who || e.after != after || zmsg.CodeOf(e.err) != code || e.err != nil && zmsg.OutcomeOf(e.err) != zmsg.NotExecuted {
				t.Errorf("got %+v, want %s after %v with %v", e, who, after, code)
			}
		}
		check("cancelled", time.Second, zmsg.CodeCancelled)
		check("short", 2*time.Second, zmsg.CodeBusy)
		check("whole", 10*time.Second, zmsg.CodeBusy)

		m := zmsg.NewMessage(990003)
		if err := g.Deliver(a.ref.Address().Actor, m); !errors.Is(err, zmsg.ErrBusy) {
			t.Errorf("deliver: got %v, want busy at once", err)
		}
		m.Release()
		for n := range int64(20) {
			wait("told", tell(n+1))
		}
		close(a.open)
		for range 20 {
			check("told", 10*time.Second, zmsg.CodeOK)
		}
		synctest.Wait()
		if got := a.numbers(); !slices.Equal(got, numbers(0, 21)) {
			t.Errorf("handled %v", got)
		}
		if _, err := zactor.Ask[testpb.Pong](t.Context(), a.ref, &testpb.Ping{}); err != nil { // its future is a used one
			t.Error(err)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A handler that waits for room: at most until its message's deadline, and not after its actor has been cut off.
func TestHandlerWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		a := newGated(t, g, zactor.WithMailbox(1), zactor.WithOverflow(zactor.Wait(time.Hour)))
		if err := a.ref.Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		type end struct {
			after time.Duration
			err   error
		}
		ends := make(chan end, 1)
		front := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			var err error
			switch p.GetText() {
			case "call":
				_, err = zactor.Call[testpb.Pong](c, a.ref, &testpb.Ping{})
			case "forward":
				err = c.Forward(a.ref)
			default:
				err = c.Tell(a.ref, &testpb.Note{})
			}
			ends <- end{time.Since(begin), err}
			return &testpb.Pong{}, nil
		})))
		for _, how := range []string{"call", "forward", "tell"} {
			begin = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, _ = zactor.Ask[testpb.Pong](ctx, front, &testpb.Ping{Text: how})
			if e := <-ends; e.after < 3*time.Second || e.after > 4*time.Second || !errors.Is(e.err, zmsg.ErrBusy) {
				t.Errorf("%s: got %+v, want busy after 3 s", how, e)
			}
			cancel()
		}
		if err := front.Tell(&testpb.Ping{Text: "tell"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { synctest.Wait(); close(a.open) }()
		var cut *zactor.CutError
		if err := g.Shutdown(ended); !errors.As(err, &cut) {
			t.Errorf("shutdown: %v", err)
		}
		if e := <-ends; !errors.Is(e.err, zmsg.ErrCancelled) && !errors.Is(e.err, zmsg.ErrStopped) {
			t.Errorf("cut off: got %+v", e)
		}
	})
}

// A reentrant actor that waits for room until its request's deadline goes on, and what it owes is right: it passivates. After a
// Call it still knows itself.
func TestReentrantWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, func(c *zactor.Config) { c.AskTimeout = 3 * time.Second })
		a := newGated(t, g, zactor.WithMailbox(1), zactor.WithOverflow(zactor.Wait(time.Hour)))
		if err := a.ref.Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
		echoes := spawn(t, g, "", factory(zactor.Handle(echo)))
		begin, errs := time.Now(), make(chan error, 9)
		r := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			to := a.ref
			if n.GetN() == 1 {
				to = echoes
			}
			_, err := zactor.Call[testpb.Pong](c, to, &testpb.Ping{})
			for err == nil { // n is 1: its own mailbox gets full
				err = c.Self().Tell(&testpb.Note{N: 2})
			}
			errs <- err
			return nil
		})), zactor.Reentrant(), zactor.WithIdle(time.Minute), zactor.WithMailbox(2), zactor.WithOverflow(zactor.Wait(time.Hour)))
		if err := r.Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, zmsg.ErrBusy) || time.Since(begin) < 3*time.Second || time.Since(begin) > 4*time.Second {
			t.Errorf("got %v after %v, want busy after 3 s", err, time.Since(begin))
		}
		begin = time.Now()
		if err := r.Tell(&testpb.Note{N: 1}); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, zmsg.ErrBusy) || time.Since(begin) > time.Second {
			t.Errorf("to itself: got %v after %v, want busy at once", err, time.Since(begin))
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := g.Len(); n != 2 {
			t.Errorf("%d actors, want 2: it did not passivate", n)
		}
		close(a.open)
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The end of the actor ends all waits; so does a stop after drain.
func TestStopWhileSendersWait(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{false, true} {
		g := newGroup(t, nil)
		a := newGated(t, g, zactor.WithMailbox(2), zactor.WithOverflow(zactor.Wait(time.Hour)))
		for n := range int64(2) {
			if err := a.ref.Tell(&testpb.Note{N: n}); err != nil {
				t.Fatal(err)
			}
		}
		const senders = 64
		errs := make(chan error, senders)
		var begun atomic.Int32
		for i := range senders {
			go func() {
				begun.Add(1)
				if i%2 == 0 {
					errs <- a.ref.Tell(&testpb.Note{N: 100})
					return
				}
				_, err := zactor.Ask[testpb.Pong](testContext(t), a.ref, &testpb.Ping{})
				errs <- err
			}()
		}
		eventually(t, func() bool { return begun.Load() == senders })
		stop := g.Stop
		if drained {
			stop = g.StopDrained
		}
		if err := stop(a.ref); err != nil {
			t.Fatal(err)
		}
		close(a.open)
		for range senders {
			if err := receive(t, errs); !errors.Is(err, zmsg.ErrStopped) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("got %v", err)
			}
		}
		want := numbers(0, 0)
		if drained {
			want = numbers(0, 2)
		}
		eventually(t, func() bool { return g.Len() == 0 })
		if got := a.numbers(); !slices.Equal(got, want) {
			t.Errorf("drained %v: handled %v, want %v", drained, got, want)
		}
	}
}

// A restart with a delay keeps what waits, and who waits, in order.
func TestOverflowOverRestart(t *testing.T) {
	t.Parallel()
	for _, o := range []zactor.Overflow{zactor.DropOldest, zactor.Wait(time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, nil)
			var got []int64
			open := make(chan struct{})
			ref := spawn(t, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
				switch n.GetN() {
				case -2: // the first restart is at once
					panic("restart")
				case -1:
					<-open
					panic("restart")
				}
				got = append(got, n.GetN())
				return nil
			})), zactor.WithMailbox(3), zactor.WithOverflow(o), zactor.WithPolicy(zactor.Policy{MinBackoff: time.Minute, MaxBackoff: time.Minute}))
			for n := range int64(11) {
				go func() {
					if err := ref.Tell(&testpb.Note{N: n - 2}); err != nil {
						t.Errorf("tell: %v", err)
					}
				}()
				synctest.Wait()
			}
			close(open)
			synctest.Wait()
			if len(got) != 0 || ref.Load() != 3 {
				t.Errorf("before the restart: handled %v, %d wait", got, ref.Load())
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			first := int64(0)
			if o == zactor.DropOldest {
				first = 6
			}
			if want := numbers(first, 9)[1:]; !slices.Equal(got, want) {
				t.Errorf("%v: handled %v, want %v", o, got, want)
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a shutdown cuts is counted without what a policy has dropped.
func TestShutdownCountsWithPolicy(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.StopTimeout = time.Hour })
	begun := make(chan struct{}, 20)
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
		begun <- struct{}{}
		<-c.Context().Done() // the shutdown has told the actor to stop
		return nil
	})), zactor.WithMailbox(5), zactor.WithOverflow(zactor.DropOldest))
	if err := ref.Tell(&testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	receive(t, begun)
	for n := range int64(20) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := g.Shutdown(ended)
	var cut *zactor.CutError
	if !errors.As(err, &cut) || len(cut.Actors) != 1 || cut.Actors[0].Messages != 5 || len(begun) != 0 {
		t.Errorf("got %v, want 5 messages cut", err)
	}
}

// With a Manual a sender that waits lets the others go on, and learns Busy when nobody is going to make room.
func TestManualWithPolicies(t *testing.T) {
	t.Parallel()
	g, m, err := zactor.NewManual(zactor.Config{Overflow: zactor.Wait(time.Hour), Mailbox: 2})
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
		got = append(got, n.GetN())
		return nil
	})))
	for n := range int64(5) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	if want := numbers(0, 3)[1:]; !slices.Equal(got, want) {
		t.Errorf("stepped %v, want %v: as far as room is needed", got, want)
	}
	m.Run(100)
	if want := numbers(0, 5)[1:]; !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
	last := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
		for c.Self().Tell(&testpb.Note{}) == nil {
		}
		got = nil
		c.Stop()
		return nil
	})), zactor.WithOverflow(zactor.DropOldest), zactor.WithOverflow(zactor.Wait(time.Hour)))
	if err := last.Tell(&testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	if m.Run(100); got != nil {
		t.Error("it did not run")
	}
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}

// A forwarded message that waited for room may be handled, and over, before the forwarder is told: it is the receiver's by then.
func TestForwardWaitsForRoom(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	const n = 500
	got := make(chan int64, n)
	to := spawn(t, g, "to", factory(zactor.HandleTell(func(_ *zactor.Context, m *testpb.Note) error {
		got <- m.GetN()
		return nil
	})), zactor.WithMailbox(1), zactor.WithOverflow(zactor.Wait(bound)))
	refs := make([]zactor.Ref, 4)
	for i := range refs {
		refs[i] = spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { return c.Forward(to) })))
	}
	for i := range n {
		if err := refs[i%len(refs)].Tell(&testpb.Note{N: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[int64]bool{}
	for range n {
		seen[receive(t, got)] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d messages came", len(seen), n)
	}
}
