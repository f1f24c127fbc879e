package zactor_test

import (
	"context"
	"errors"
	"os"
	"sync"
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

// Who has been answered waits no longer: a request to it is no cycle.
func TestReplyThenCallIsNoCycle(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var a, b zactor.Ref
	calls := make(chan error, 2)
	a = spawn(t, g, "a", factory(
		zactor.Handle(echo),
		zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
			_, err := zactor.Call[testpb.Pong](c, b, &testpb.Ping{})
			return err
		}),
	))
	b = spawn(t, g, "b", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
		c.Reply(&testpb.Pong{})
		_, err := zactor.Call[testpb.Pong](c, a, &testpb.Ping{})
		calls <- err
		zactor.Then(c, a, &testpb.Ping{}, func(c *zactor.Context, _ *testpb.Pong, err error) {
			if err == nil {
				_, err = zactor.Call[testpb.Pong](c, a, &testpb.Ping{})
			}
			calls <- err
		})
		return nil, nil
	})))
	_ = a.Tell(&testpb.Note{})
	for range 2 {
		if err := receive(t, calls); err != nil {
			t.Error(err)
		}
	}
}

// Where there is no message, or not any more, Forward does not make one up.
func TestForwardWithoutAMessage(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	to := spawn(t, g, "to", factory(zactor.Handle(echo)))
	errs := make(chan error, 3)
	forward := func(c *zactor.Context) { errs <- c.Forward(to) }
	ref := spawn(t, g, "", func() zactor.Actor {
		return &actor{
			handlers: []zactor.Handler{zactor.HandleRaw(1001, func(c *zactor.Context, _ *zmsg.Message) error {
				zactor.Then(c, to, &testpb.Ping{}, func(c *zactor.Context, _ *testpb.Pong, _ error) { forward(c) })
				m := c.Take()
				forward(c)
				m.Release()
				return nil
			})},
			start: func(c *zactor.Context) error { forward(c); return nil },
		}
	})
	m := zmsg.NewMessage(1001)
	m.SetBody([]byte{8, 1})
	if err := ref.Deliver(m); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := receive(t, errs); !errors.Is(err, zmsg.ErrBadRequest) {
			t.Error(err)
		}
	}
}

func TestCallCycle(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	// a asks b, b asks whom the text names.
	var a, b zactor.Ref
	b = spawn(t, g, "b", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		to, _ := c.Group().Lookup(p.GetText())
		if p.GetN() == 1 {
			return zactor.Ask[testpb.Pong](c.Context(), to, &testpb.Ping{})
		}
		return zactor.Call[testpb.Pong](c, to, &testpb.Ping{})
	})))
	a = spawn(t, g, "a", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		if p.GetText() == "" {
			return &testpb.Pong{}, nil
		}
		return zactor.Call[testpb.Pong](c, b, p)
	})))
	spawn(t, g, "echo", factory(zactor.Handle(echo)))
	for _, n := range []int64{0, 1} {
		for _, who := range []string{"a", "b"} { // a waits for itself through b; b for itself
			began := time.Now()
			_, err := zactor.Ask[testpb.Pong](testContext(t), a, &testpb.Ping{N: n, Text: who})
			if !errors.Is(err, zmsg.ErrCycle) {
				t.Errorf("%s: got %v after %v, want a cycle", who, err, time.Since(began))
			}
		}
		if _, err := zactor.Ask[testpb.Pong](testContext(t), a, &testpb.Ping{N: n, Text: "echo"}); err != nil {
			t.Errorf("no cycle: got %v", err)
		}
	}
}

func TestThenAndDefer(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	hold := make(chan struct{})
	bank := spawn(t, g, "bank", factory(zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		<-hold
		if p.GetN() < 0 {
			return nil, zmsg.Errorf(1001, "no money")
		}
		return &testpb.Pong{N: 2 * p.GetN()}, nil
	})))
	open := 0 // the state that only turns touch
	shop := spawn(t, g, "shop", factory(
		zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			open++
			d := c.Defer()
			user := c.User()
			zactor.Then(c, bank, p, func(c *zactor.Context, r *testpb.Pong, err error) {
				open--
				if c.User() != user || c.Session().ID != 9 {
					t.Errorf("the continuation is about %q, session %d", c.User(), c.Session().ID)
				}
				if err != nil {
					d.Fail(err)
					return
				}
				if !d.Reply(r) {
					t.Error("nobody waits")
				}
				if d.Reply(r) {
					t.Error("a second reply went out")
				}
			})
			return nil, zactor.ErrDeferred
		}),
		zactor.Handle(func(*zactor.Context, *testpb.Note) (*testpb.Pong, error) { return &testpb.Pong{N: int64(open)}, nil }),
	))
	const n = 50
	replies := make(replier, n)
	for i := range int64(n) {
		m := zmsg.NewMessage(990001)
		m.Value, m.User, m.Session.ID = &testpb.Ping{N: i}, "ann", 9
		m.SetReplier(replies, uint64(i))
		if err := shop.Deliver(m); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := zactor.Ask[testpb.Pong](testContext(t), shop, &testpb.Note{}); err != nil || r.GetN() != n {
		t.Fatalf("got %v, %v: the shop must be open while the bank works", r, err)
	}
	close(hold)
	sum := int64(0)
	for range n {
		r := receive(t, replies)
		sum += r.Value.(*testpb.Pong).GetN()
	}
	if want := int64(n * (n - 1)); sum != want {
		t.Errorf("sum %d, want %d", sum, want)
	}
	m := zmsg.NewMessage(990001)
	m.Value, m.Session.ID = &testpb.Ping{N: -1}, 9
	m.SetReplier(replies, 0)
	if err := shop.Deliver(m); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, replies); r.Code != 1001 {
		t.Errorf("got %+v", r)
	}
}

// What an instance owes when it fails or ends is told to those who wait.
func TestDeferredEnds(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	kept := make(chan zactor.Deferred, 10)
	ref := spawn(t, g, "", factory(
		zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
			kept <- c.Defer()
			return nil, nil
		}),
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("boom") }),
	))
	ended := make(chan error)
	ask := func() {
		_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{})
		ended <- err
	}
	go ask()
	d := receive(t, kept)
	_ = ref.Tell(&testpb.Note{})
	if err := receive(t, ended); !errors.Is(err, zmsg.ErrPanicked) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("got %v, want panicked", err)
	}
	if d.Reply(&testpb.Pong{}) {
		t.Error("a reply after the end went out")
	}
	go ask()
	receive(t, kept)
	_ = g.Stop(ref)
	if err := receive(t, ended); !errors.Is(err, zmsg.ErrStopped) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("got %v, want stopped, unknown", err)
	}
}

// A late reply ends nobody else's request, and is counted.
func TestTimeoutAndLateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g, err := zactor.NewGroup(zactor.Config{AskTimeout: time.Second, Metrics: zmetrics.NewActor(reg)})
		if err != nil {
			t.Fatal(err)
		}
		var late []zactor.Deferred
		ref := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			if p.GetN() == 0 {
				late = append(late, c.Defer())
				return nil, zactor.ErrDeferred
			}
			return &testpb.Pong{N: p.GetN()}, nil
		})))
		began := time.Now()
		_, err = zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
		if took := time.Since(began); !errors.Is(err, zmsg.ErrTimeout) || zmsg.OutcomeOf(err) != zmsg.Unknown || took < time.Second || took > time.Second+100*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err = zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{}); !errors.Is(err, zmsg.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		var wg sync.WaitGroup
		for n := range int64(500) {
			wg.Go(func() {
				pong, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: n + 1})
				if err != nil || pong.GetN() != n+1 {
					t.Errorf("got %v, %v, want %d", pong, err, n+1)
				}
			})
			if n == 250 {
				for _, d := range late {
					d.Reply(&testpb.Pong{N: -1})
				}
			}
		}
		wg.Wait()
		if got := count(t, reg, "zgame_actor_late_replies_total", ""); got != 2 {
			t.Errorf("%v late replies counted, want 2", got)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The deadline of a request bounds those that its handler makes, and what is late does not run.
func TestDeadlineTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := zactor.NewGroup(zactor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int32
		slow := spawn(t, g, "slow", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
			ran.Add(1)
			<-c.Context().Done()
			if !errors.Is(context.Cause(c.Context()), context.DeadlineExceeded) {
				t.Errorf("the context ended with %v", context.Cause(c.Context()))
			}
			time.Sleep(50 * time.Millisecond) // the others see the deadline first
			return nil, nil
		})))
		front := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			return zactor.Call[testpb.Pong](c, slow, p)
		})))
		began := time.Now()
		ended := make(chan error, 2)
		for range 2 { // the second waits behind the first until it is late
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := zactor.Ask[testpb.Pong](ctx, front, &testpb.Ping{})
				ended <- err
			}()
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, zmsg.ErrTimeout) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if took := time.Since(began); took > 1100*time.Millisecond || ran.Load() != 1 {
			t.Errorf("took %v, %d ran, want 1", took, ran.Load())
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// 512 requests in flight, for 2 seconds or as long as ZGAME_SOAK says: each ends once, with its own outcome; what the handlers have seen
// is what was asked.
func TestNoRequestLostOrDoubled(t *testing.T) {
	t.Parallel()
	long := 2 * time.Second
	if s := os.Getenv("ZGAME_SOAK"); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	g := newGroup(t, nil)
	refs := make([]zactor.Ref, 8)
	var handled, asked atomic.Int64
	f := func() zactor.Actor {
		return &plain{[]zactor.Handler{zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			handled.Add(1)
			if p.GetN()%9973 == 0 {
				panic("boom")
			}
			return &testpb.Pong{N: p.GetN()}, nil
		})}}
	}
	for i := range refs {
		refs[i] = spawn(t, g, "", f, zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
	}
	end := time.Now().Add(long)
	var wg sync.WaitGroup
	for caller := range int64(512) {
		wg.Go(func() {
			for n := caller + 1; time.Now().Before(end); n += 512 {
				pong, err := zactor.Ask[testpb.Pong](context.Background(), refs[n%8], &testpb.Ping{N: n})
				asked.Add(1)
				switch {
				case n%9973 == 0:
					if !errors.Is(err, zmsg.ErrPanicked) {
						t.Errorf("%d: got %v, want panicked", n, err)
					}
				case err != nil || pong.GetN() != n:
					t.Errorf("%d: got %v, %v", n, pong, err)
				}
			}
		})
	}
	wg.Wait()
	if handled.Load() != asked.Load() {
		t.Errorf("%d asked, %d handled", asked.Load(), handled.Load())
	}
	t.Logf("%d requests", asked.Load())
}
