package zactor_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// hooked is an actor with all hooks.
type hooked struct {
	actor
	restart func(cause error)
}

func (h *hooked) OnRestart(_ *zactor.Context, cause error) {
	if h.restart != nil {
		h.restart(cause)
	}
}

func panics() zactor.Handler {
	return zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("on purpose") })
}

// What ends the goroutine that it runs on (t.FailNow does) must not leave an actor that nobody can stop.
func TestGoexitInHooksAndFactory(t *testing.T) {
	t.Parallel()
	goexitIn := func(t *testing.T, where string, backoff time.Duration, directive zactor.Directive) {
		t.Helper()
		g := zactortest.NewGroup(t, zactor.Config{})
		instances, stops, restarts := 0, 0, 0
		policy := zactor.Policy{MinBackoff: backoff, MaxRestarts: 4}
		if where == "decide" || directive != zactor.Restart {
			policy.Decide = func(error) zactor.Directive {
				if where == "decide" {
					runtime.Goexit()
				}
				return directive
			}
		}
		exit := func(here string) {
			if where == here && (instances > 1 || here == "stop" || here == "restart") {
				runtime.Goexit()
			}
		}
		ref := spawn(t, g, "a", func() zactor.Actor {
			instances++
			exit("factory")
			h := &hooked{restart: func(error) { restarts++; exit("restart") }}
			h.handlers = []zactor.Handler{panics(), zactor.Handle(echo)}
			h.start = func(*zactor.Context) error { exit("start"); return nil }
			h.stop = func(*zactor.Context, zactor.Reason) { stops++; exit("stop") }
			return h
		}, zactor.WithPolicy(policy))
		for range 2 {
			_ = ref.Tell(&testpb.Note{}) // the second may find it gone
		}
		_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
		if runs := (where == "stop" || where == "restart") && directive == zactor.Restart; runs != (err == nil) || !runs && !errors.Is(err, zmsg.ErrStopped) {
			t.Errorf("Goexit in %s, %v: %v", where, directive, err)
		}
		if err := g.StopWait(t.Context(), ref); err != nil && !errors.Is(err, zmsg.ErrUnknownActor) {
			t.Error(err)
		}
		if _, there := g.Lookup("a"); there || stops != 1 || where == "restart" && directive == zactor.Restart && restarts != 2 {
			t.Errorf("Goexit in %s: %d times OnStop, %d OnRestart; there: %v", where, stops, restarts, there)
		}
	}
	for _, where := range []string{"factory", "start", "restart", "decide", "stop"} {
		for _, backoff := range []time.Duration{-1, time.Millisecond} {
			for _, directive := range []zactor.Directive{zactor.Restart, zactor.Stop, zactor.Escalate} {
				synctest.Test(t, func(t *testing.T) { goexitIn(t, where, backoff, directive) })
			}
		}
	}
}

// The instance that failed is told once, also when those after it do not start.
func TestOnRestartOncePerInstance(t *testing.T) {
	t.Parallel()
	for _, backoff := range []time.Duration{-1, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g := zactortest.NewGroup(t, zactor.Config{})
			made, told := 0, 0
			ref := spawn(t, g, "a", func() zactor.Actor {
				made++
				if made > 1 && made < 5 {
					panic("on purpose")
				}
				h := &hooked{restart: func(error) { told++ }}
				h.handlers = []zactor.Handler{panics(), zactor.Handle(echo)}
				return h
			}, zactor.WithPolicy(zactor.Policy{MinBackoff: backoff}))
			_ = ref.Tell(&testpb.Note{})
			if _, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{}); err != nil || made != 5 || told != 1 {
				t.Errorf("backoff %v: %v; %d instances, OnRestart ran %d times", backoff, err, made, told)
			}
		})
	}
}

// An actor whose factory makes something else does not come back as that, however often it tries.
func TestRestartWithOtherHandlers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	made := 0
	ref := spawn(t, g, "a", func() zactor.Actor {
		if made++; made == 1 {
			return &actor{handlers: []zactor.Handler{panics(), zactor.Handle(echo)}}
		}
		return &actor{handlers: []zactor.Handler{panics()}}
	}, zactor.WithPolicy(zactor.Policy{MinBackoff: -1}))
	_ = ref.Tell(&testpb.Note{})
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); !errors.Is(err, zmsg.ErrStopped) || made != 6 {
		t.Errorf("%v; %d instances", err, made)
	}
}

// A child's failure that comes when its parent has another instance already is not that one's.
func TestEscalationToAnEarlierInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := zactortest.NewGroup(t, zactor.Config{})
		starts, release := 0, make(chan struct{})
		var child zactor.Ref
		parent := spawn(t, g, "parent", func() zactor.Actor {
			starts++
			first := starts == 1
			return &actor{
				handlers: []zactor.Handler{panics(), zactor.Handle(echo)},
				start: func(c *zactor.Context) (err error) {
					if first {
						child, err = c.Spawn("child", func() zactor.Actor {
							return &actor{handlers: []zactor.Handler{panics()}, stop: func(*zactor.Context, zactor.Reason) { <-release }}
						}, zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return zactor.Escalate }}))
					}
					return err
				},
			}
		})
		_ = child.Tell(&testpb.Note{})
		synctest.Wait() // the child is in its OnStop
		_ = parent.Tell(&testpb.Note{})
		synctest.Wait() // the parent waits for it
		close(release)
		if _, err := zactor.Ask[testpb.Pong](t.Context(), parent, &testpb.Ping{}); err != nil || starts != 2 {
			t.Errorf("%v; %d instances", err, starts)
		}
	})
}

// What a handler spawns when its wait ends by the restart ends with its instance.
func TestSuspendedHandlerSpawnsAtRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := zactortest.NewGroup(t, zactor.Config{})
		never := spawn(t, g, "never", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
			c.Defer()
			return nil, zactor.ErrDeferred
		})))
		var before []string
		ref := spawn(t, g, "a", func() zactor.Actor {
			h := &hooked{restart: func(error) { before = append(before, "OnRestart") }}
			h.handlers = []zactor.Handler{panics(), zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				if p.GetN() == 1 {
					return &testpb.Pong{N: int64(len(c.Children()))}, nil
				}
				_, err := zactor.Call[testpb.Pong](c, never, p)
				before = append(before, "handler")
				if _, err := c.Spawn("late", factory(panics())); err != nil {
					t.Error(err)
				}
				return nil, err
			})}
			return h
		}, zactor.Reentrant())
		go func() { _, _ = zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{}) }()
		synctest.Wait()
		_ = ref.Tell(&testpb.Note{})
		answer, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: 1})
		if err != nil || answer.GetN() != 0 {
			t.Errorf("the next instance has %d children of the one before; %v", answer.GetN(), err)
		}
		if len(before) != 2 || before[0] != "handler" {
			t.Errorf("in the order %q", before)
		}
	})
}

// refusing is Routes that take nobody.
type refusing struct{}

func (refusing) Register(uint64, string, zactor.Target, []zmsg.Advert) error {
	return errors.New("no room in the routes")
}
func (refusing) Unregister(uint64) {}

// Children are gone before OnStop, and none comes in it, also where the parent could not be announced.
func TestChildrenOfAnActorThatIsNotAnnounced(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.Routes = refusing{} })
	children, late := -1, error(nil)
	child := func() zactor.Actor { return &actor{handlers: []zactor.Handler{panics()}} }
	_, err := g.Spawn("parent", func() zactor.Actor {
		return &actor{
			handlers: []zactor.Handler{zactor.Handle(echo)},
			start: func(c *zactor.Context) error {
				_, err := c.Spawn("child", child, zactor.Private())
				return err
			},
			stop: func(c *zactor.Context, _ zactor.Reason) {
				children = len(c.Children())
				_, late = c.Spawn("late", child, zactor.Private())
			},
		}
	})
	if err == nil || children != 0 || !errors.Is(late, zmsg.ErrStopped) || g.Len() != 0 {
		t.Errorf("%v; in OnStop %d children, then %v; %d actors are left", err, children, late, g.Len())
	}
}

// A panic of the application's function for dead letters harms neither senders nor actors.
func TestOnDeadLetterPanics(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	g := newGroup(t, func(c *zactor.Config) {
		c.OnDeadLetter = func(zactor.DeadLetter) { calls.Add(1); panic("on purpose") }
	})
	begun, hold := make(chan struct{}), make(chan struct{})
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
		close(begun)
		<-hold
		return nil
	}), zactor.Handle(echo)), zactor.WithMailbox(2), zactor.WithOverflow(zactor.DropOldest))
	_ = ref.Tell(&testpb.Note{})
	receive(t, begun)
	asked := make(chan error, 1)
	go func() {
		_, err := zactor.Ask[testpb.Pong](context.WithoutCancel(t.Context()), ref, &testpb.Ping{})
		asked <- err
	}()
	eventually(t, func() bool { return ref.Load() == 1 })
	for range 2 { // the second drops the request
		if err := ref.Tell(&testpb.Say{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := receive(t, asked); !errors.Is(err, zmsg.ErrBusy) {
		t.Error(err)
	}
	_ = g.Stop(ref)
	close(hold)
	if err := g.StopWait(testContext(t), ref); err != nil && !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Error(err)
	}
	if n := calls.Load(); n != 3 || g.Len() != 0 {
		t.Errorf("%d calls, %d actors are left", n, g.Len())
	}
}
