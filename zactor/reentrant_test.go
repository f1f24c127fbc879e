package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// Two actors that ask each other: a cycle where they wait with their mailboxes, an answer where they are reentrant.
func TestReentrantActorsMayAskEachOther(t *testing.T) {
	t.Parallel()
	for _, reentrant := range []bool{false, true} {
		g := newGroup(t, nil)
		var opts []zactor.SpawnOption
		if reentrant {
			opts = append(opts, zactor.Reentrant())
		}
		var a, b zactor.Ref
		partner := func(other *zactor.Ref) func() zactor.Actor {
			return factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				if p.GetN() == 0 {
					return &testpb.Pong{N: 1}, nil
				}
				r, err := zactor.Call[testpb.Pong](c, *other, &testpb.Ping{N: p.GetN() - 1})
				return &testpb.Pong{N: r.GetN() + 1}, err
			}))
		}
		a = spawn(t, g, "a", partner(&b), opts...)
		b = spawn(t, g, "b", partner(&a), opts...)
		pong, err := zactor.Ask[testpb.Pong](testContext(t), a, &testpb.Ping{N: 9})
		switch {
		case !reentrant && !errors.Is(err, zmsg.ErrCycle):
			t.Errorf("got %v, want a cycle", err)
		case reentrant && (err != nil || pong.GetN() != 10):
			t.Errorf("got %v, %v", pong, err)
		}
	}
}

// While handlers wait, others run; never two at once, and each gets its own answer.
func TestReentrantInterleaves(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	slow := spawn(t, g, "slow", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		later := c.Defer()
		c.After(time.Duration(p.GetN()%7)*time.Millisecond, func(*zactor.Context) { later.Reply(&testpb.Pong{N: p.GetN()}) })
		return nil, zactor.ErrDeferred
	})))
	var inside, most atomic.Int32
	state := 0 // -race tells if two handlers touch it at once
	front := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		n := inside.Add(1)
		defer inside.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		sum := int64(0)
		for i := range int64(3) {
			state++
			r, err := zactor.Call[testpb.Pong](c, slow, &testpb.Ping{N: p.GetN() + i})
			if err != nil {
				return nil, err
			}
			sum += r.GetN()
		}
		return &testpb.Pong{N: sum}, nil
	})), zactor.Reentrant())
	var wg sync.WaitGroup
	for i := range int64(200) {
		wg.Go(func() {
			r, err := zactor.Ask[testpb.Pong](testContext(t), front, &testpb.Ping{N: i})
			if err != nil || r.GetN() != 3*i+3 {
				t.Errorf("%d: got %v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if state != 600 {
		t.Errorf("state is %d, want 600", state)
	}
	if most.Load() < 2 {
		t.Error("no two handlers waited at once")
	}
}

// A handler that waits learns of the end of its instance, runs to its end before OnStop, and cannot ask any more.
func TestReentrantEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stop", "panic", "shutdown", "goexit"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := zactor.NewGroup(zactor.Config{Node: zmsg.NodeRef{ID: "n", Epoch: 1}})
				if err != nil {
					t.Fatal(err)
				}
				silent := spawn(t, g, "silent", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
					c.Defer()
					return nil, zactor.ErrDeferred
				})))
				var mu sync.Mutex
				var said []string
				say := func(format string, args ...any) {
					mu.Lock()
					said = append(said, fmt.Sprintf(format, args...))
					mu.Unlock()
				}
				f := func() zactor.Actor {
					return &actor{
						handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
							if p.GetText() == "panic" {
								panic("boom")
							}
							_, err := zactor.Call[testpb.Pong](c, silent, &testpb.Ping{})
							_, again := zactor.Call[testpb.Pong](c, silent, &testpb.Ping{})
							say("%d: %v, again %v", p.GetN(), zmsg.CodeOf(err), zmsg.CodeOf(again))
							if p.GetText() == "then panic" {
								panic("late")
							}
							return nil, err
						})},
						stop: func(*zactor.Context, zactor.Reason) { say("OnStop") },
					}
				}
				ref := spawn(t, g, "front", f, zactor.Reentrant())
				ended := make(chan error, 2)
				for i, text := range []string{"", "then panic"} {
					go func() {
						_, err := zactor.Ask[testpb.Pong](context.Background(), ref, &testpb.Ping{N: int64(i), Text: text})
						ended <- err
					}()
				}
				synctest.Wait()
				switch end {
				case "stop":
					if err := g.StopWait(context.Background(), ref); err != nil {
						t.Error(err)
					}
				case "panic":
					_ = ref.Tell(&testpb.Ping{Text: "panic"})
				case "shutdown":
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					_ = g.Shutdown(ctx)
				case "goexit":
					_ = g.Stop(silent) // its promised replies end: the handlers go on with an error
				}
				for range 2 {
					if err := <-ended; err == nil {
						t.Error("no error")
					}
				}
				synctest.Wait()
				mu.Lock()
				got := append([]string(nil), said...)
				mu.Unlock()
				want := 2
				if end == "stop" || end == "shutdown" {
					want = 3
					if len(got) == 3 && got[2] != "OnStop" {
						t.Errorf("OnStop came too early: %q", got)
					}
				}
				if len(got) != want {
					t.Errorf("said %q", got)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = g.Shutdown(ctx)
			})
		})
	}
}

// The number of handlers that wait is bounded by the mailbox's bound.
func TestReentrantIsBounded(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	release := make(chan struct{})
	block := spawn(t, g, "block", factory(zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) {
		<-release
		return nil, nil
	})))
	front := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		return zactor.Call[testpb.Pong](c, block, p)
	})), zactor.Reentrant(), zactor.WithMailbox(4))
	var busy, fine atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			switch _, err := zactor.Ask[testpb.Pong](testContext(t), front, &testpb.Ping{}); {
			case err == nil:
				fine.Add(1)
			case errors.Is(err, zmsg.ErrBusy):
				busy.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool { return busy.Load() == 16 })
	close(release)
	wg.Wait()
	if fine.Load() != 4 {
		t.Errorf("%d went through, want 4", fine.Load())
	}
}
