package zactor_test

import (
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
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// journal is what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) is(tb testing.TB, want ...string) {
	tb.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		tb.Errorf("got  %q\nwant %q", got, want)
	}
}

// kid makes an actor that notes its end.
func (j *journal) kid() *actor {
	return &actor{
		handlers: []zactor.Handler{zactor.Handle(echo)},
		stop:     func(c *zactor.Context, why zactor.Reason) { j.add("%s %v", c.Name(), why) },
	}
}

func (j *journal) kidFactory() zactor.Actor { return j.kid() }

// family is a parent with children a, b, c and a grandchild b/x.
func family(tb testing.TB, g *zactor.Group, j *journal, opts ...zactor.SpawnOption) *puppet {
	tb.Helper()
	p := newPuppet(tb)
	start := func(c *zactor.Context) error {
		j.add("start with %d", len(c.Children()))
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Spawn(name, func() zactor.Actor {
				kid := j.kid()
				if name == "b" {
					kid.start = func(c *zactor.Context) error { _, err := c.Spawn("x", j.kidFactory); return err }
				}
				return kid
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	stop := func(c *zactor.Context, why zactor.Reason) { j.add("%s %v with %d", c.Name(), why, len(c.Children())) }
	p.Ref = spawn(tb, g, "p", p.factory(start, stop), opts...)
	return p
}

// Children end before their parent, the youngest first, and are gone when its OnStop runs.
func TestChildrenEndInReverse(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	j := &journal{}
	p := family(t, g, j)
	var names []string
	p.do(func(c *zactor.Context) {
		for _, child := range c.Children() {
			names = append(names, child.String())
		}
		if !c.Parent().IsZero() {
			t.Errorf("the parent of a group's actor is %v", c.Parent())
		}
	})
	if want := []string{"p/a", "p/b", "p/c"}; !slices.Equal(names, want) {
		t.Errorf("children %q, want %q", names, want)
	}
	if _, ok := g.Lookup("p/b/x"); !ok || g.Len() != 5 {
		t.Errorf("p/b/x is there: %v; %d actors", ok, g.Len())
	}
	stopWait(t, g, p.Ref)
	j.is(t, "start with 0", "p/c parent", "p/b/x parent", "p/b parent", "p/a parent", "p requested with 0")
	if g.Len() != 0 {
		t.Errorf("%d actors are left", g.Len())
	}

	// A shutdown keeps its reason all the way down.
	g = newGroup(t, nil)
	family(t, g, j)
	if err := g.Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
	j.is(t, "start with 0", "p/c shutdown", "p/b/x shutdown", "p/b shutdown", "p/a shutdown", "p shutdown with 0")
}

// A child that ends is no child any more, and its name is free.
func TestChildEndsAlone(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	p := spawnPuppet(t, g, "p")
	for range 3 {
		var child zactor.Ref
		p.do(func(c *zactor.Context) {
			var err error
			if child, err = c.Spawn("a", factory()); err != nil {
				t.Error(err)
			}
			if _, err := c.Spawn("a", factory()); !errors.Is(err, zactor.ErrExists) {
				t.Errorf("a second p/a: %v", err)
			}
			if _, err := c.Spawn("b", func() zactor.Actor {
				return &actor{start: func(*zactor.Context) error { return errors.New("no") }}
			}); err == nil {
				t.Error("p/b has started")
			}
			if n := len(c.Children()); n != 1 {
				t.Errorf("%d children, want 1", n)
			}
		})
		stopWait(t, g, child)
		p.do(func(c *zactor.Context) {
			if n := len(c.Children()); n != 0 {
				t.Errorf("%d children, want none", n)
			}
		})
	}
	// Without a name of its own, or of its parent: as it is.
	p.do(func(c *zactor.Context) {
		if child, _ := c.Spawn("", factory()); child.String() == "p/" {
			t.Error("a child without a name has one")
		}
	})
	q := spawnPuppet(t, g, "")
	q.do(func(c *zactor.Context) { _, _ = c.Spawn("mine", factory()) })
	if _, ok := g.Lookup("mine"); !ok {
		t.Error("the child of a nameless parent has not the name it was given")
	}
}

// A restart ends the children: the new instance makes new ones. A parent that fails for good takes them along.
func TestRestartEndsChildren(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	j := &journal{}
	p := family(t, g, j, zactor.WithPolicy(zactor.Policy{MaxRestarts: 1}))
	j.take()
	p.panics()
	p.do(func(*zactor.Context) {})
	j.is(t, "p/c parent", "p/b/x parent", "p/b parent", "p/a parent", "start with 0")
	if g.Len() != 5 {
		t.Errorf("%d actors, want 5", g.Len())
	}
	w := spawnPuppet(t, g, "")
	downs := w.watch(p.Ref)
	p.panics()
	isDown(t, downs, p.Ref, zactor.StopFailed)
	j.is(t, "p/c parent", "p/b/x parent", "p/b parent", "p/a parent", "p failed with 0")
}

// A child that waits for its parent's answer, in a handler or in OnStop, does not hold up the parent's end or restart.
func TestChildThatWaitsForItsParent(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stop", "restart", "shutdown"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, nil)
			p := spawnPuppet(t, g, "p")
			answered, last := make(chan error, 1), make(chan error, 10)
			asks := func(c *zactor.Context) error {
				_, err := zactor.Call[testpb.Pong](c, c.Parent(), &testpb.Ping{N: 1})
				return err
			}
			child := newPuppet(t)
			p.do(func(c *zactor.Context) {
				var err error
				child.Ref, err = c.Spawn("", child.factory(nil, func(c *zactor.Context, _ zactor.Reason) { last <- asks(c) }))
				if err != nil {
					t.Error(err)
				}
			})
			p.later(func(c *zactor.Context) {
				asking := make(chan struct{})
				child.later(func(c *zactor.Context) { close(asking); answered <- asks(c) })
				receive(t, asking)
				switch end {
				case "stop":
					c.Stop()
				case "restart":
					panic("told to")
				case "shutdown":
					go func() { _ = g.Shutdown(testContext(t)) }() // ends with it
				}
			})
			if err := receive(t, answered); (end != "shutdown") != (err != nil) {
				t.Errorf("the child's request ended with %v", err)
			}
			if err := receive(t, last); (end != "shutdown") != (err != nil) {
				t.Errorf("its request in OnStop ended with %v", err)
			}
			if end == "restart" {
				p.do(func(*zactor.Context) {})
			}
		})
	}
}

// Nobody has children while he ends: they would be left behind.
func TestSpawnDuringTheEndIsRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var errs []error
	try := func(c *zactor.Context) {
		_, err := c.Spawn("late", factory())
		errs = append(errs, err)
	}
	p := newPuppet(t)
	p.Ref = spawn(t, g, "p", p.factory(nil, func(c *zactor.Context, _ zactor.Reason) { try(c) }))
	p.do(func(c *zactor.Context) {
		c.Stop()
		try(c)
	})
	_ = g.StopWait(testContext(t), p.Ref)
	eventually(t, func() bool { return g.Len() == 0 })
	if len(errs) != 2 || !errors.Is(errs[0], zmsg.ErrStopped) || !errors.Is(errs[1], zmsg.ErrStopped) {
		t.Errorf("got %v, want ErrStopped twice", errs)
	}
	if _, ok := g.Lookup("p/late"); ok {
		t.Error("the late child is there")
	}
	// An instance that does not start leaves none behind either.
	_, err := g.Spawn("q", func() zactor.Actor {
		return &actor{start: func(c *zactor.Context) error {
			_, _ = c.Spawn("early", factory())
			return errors.New("no")
		}}
	})
	if err == nil || g.Len() != 0 {
		t.Errorf("%v, %d actors are left", err, g.Len())
	}
}

// always is a policy of one directive.
func always(d zactor.Directive) zactor.SpawnOption {
	return zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return d }})
}

// Escalate ends the child and makes its failure the parent's, whose policy decides; without a parent it is
// Config.OnEscalate's.
func TestEscalate(t *testing.T) {
	t.Parallel()
	escalated := make(chan *zactor.EscalatedError, 10)
	g := newGroup(t, func(c *zactor.Config) { c.OnEscalate = func(e *zactor.EscalatedError) { escalated <- e } })
	for _, c := range []struct {
		name string
		opt  zactor.SpawnOption
	}{
		{"directive", always(zactor.Escalate)},
		{"past the limit", zactor.WithPolicy(zactor.Policy{MaxRestarts: -1, PastLimit: zactor.Escalate})},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := spawnPuppet(t, g, "")
			alone := spawnPuppet(t, g, "", c.opt)
			downs := w.watch(alone.Ref)
			alone.panics()
			isDown(t, downs, alone.Ref, zactor.StopFailed)
			if e := receive(t, escalated); e.Child != alone.Ref || !isToldTo(e) {
				t.Errorf("escalated %v", e)
			}

			causes := make(chan error, 10)
			var starts atomic.Int32
			p := newPuppet(t)
			p.Ref = spawn(t, g, "", p.factory(func(*zactor.Context) error { starts.Add(1); return nil }, nil), zactor.WithPolicy(zactor.Policy{
				Decide: func(cause error) zactor.Directive {
					causes <- cause
					return [...]zactor.Directive{zactor.Resume, zactor.Restart, zactor.Escalate}[len(causes)-1]
				},
			}))
			child := newPuppet(t)
			for i := range 3 {
				p.do(func(ctx *zactor.Context) { child.Ref, _ = ctx.Spawn("", child.factory(nil, nil), c.opt) })
				downs = w.watch(child.Ref, p.Ref)
				child.panics()
				isDown(t, downs, child.Ref, zactor.StopFailed)
				eventually(t, func() bool { return len(causes) == i+1 })
				if i < 2 {
					p.do(func(ctx *zactor.Context) {
						if len(ctx.Children()) != 0 {
							t.Error("the child is still there")
						}
					})
				}
			}
			isDown(t, downs, p.Ref, zactor.StopFailed)
			if e := receive(t, escalated); e.Child != p.Ref || !isToldTo(e) {
				t.Errorf("escalated %v", e)
			}
			for range 3 {
				var e *zactor.EscalatedError
				if cause := receive(t, causes); !errors.As(cause, &e) || !isToldTo(cause) {
					t.Errorf("the parent's cause is %v", cause)
				}
			}
			if starts.Load() != 2 {
				t.Errorf("the parent has started %d times, want resume, restart, escalate", starts.Load())
			}
		})
	}
}

func isToldTo(err error) bool {
	var p *zactor.PanicError
	return errors.As(err, &p) && p.Value == "told to"
}

// Resume keeps the state and the timers, answers whoever asked, and does not count as a restart.
func TestResume(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var starts, stops atomic.Int32
	ref := spawn(t, g, "", counter(&starts, &stops), zactor.WithPolicy(zactor.Policy{
		MaxRestarts: -1, Decide: func(error) zactor.Directive { return zactor.Resume },
	}))
	for i := range int64(50) {
		if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); zmsg.CodeOf(err) != zmsg.CodePanicked {
			t.Fatalf("got %v", err)
		}
		if a, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: 1}); err != nil || a.GetN() != i+1 {
			t.Fatalf("%v %v: the state is lost", a, err)
		}
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: -1}); zmsg.CodeOf(err) != zmsg.CodePanicked { // Goexit
		t.Fatalf("got %v", err)
	}
	if a, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: 1}); err != nil || a.GetN() != 51 {
		t.Errorf("%v %v: the state is lost", a, err)
	}
	if starts.Load() != 1 || stops.Load() != 0 {
		t.Errorf("%d starts, %d stops", starts.Load(), stops.Load())
	}
}

var errFlood = errors.New("flood")

// Decide picks by the cause; one that panics itself counts as Stop.
func TestDecide(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w := spawnPuppet(t, g, "")
	decide := func(cause error) zactor.Directive {
		var p *zactor.PanicError
		switch {
		case errors.Is(cause, errFlood):
			return zactor.Resume
		case errors.As(cause, &p) && p.Value == "told to":
			return zactor.Restart
		case errors.As(cause, &p) && p.Value == 7:
			panic("no idea")
		}
		return zactor.Stop
	}
	for _, c := range []struct {
		value  any
		starts int32
		ends   bool
	}{{errFlood, 1, false}, {"told to", 2, false}, {"else", 1, true}, {7, 1, true}} {
		var starts atomic.Int32
		p := newPuppet(t)
		p.Ref = spawn(t, g, "", p.factory(func(*zactor.Context) error { starts.Add(1); return nil }, nil), zactor.WithPolicy(zactor.Policy{Decide: decide}))
		downs := w.watch(p.Ref)
		p.later(func(*zactor.Context) { panic(c.value) })
		if c.ends {
			isDown(t, downs, p.Ref, zactor.StopFailed)
		} else {
			p.do(func(*zactor.Context) {})
		}
		if starts.Load() != c.starts {
			t.Errorf("panic of %v: %d starts, want %d", c.value, starts.Load(), c.starts)
		}
	}
}

// restarter is an actor with an OnRestart hook.
type restarter struct {
	actor
	again func(c *zactor.Context, cause error)
}

func (r *restarter) OnRestart(c *zactor.Context, cause error) { r.again(c, cause) }

// OnRestart runs on the instance that failed, before the next is made, not at the end for good; its panic is no failure.
func TestOnRestart(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	j := &journal{}
	p := newPuppet(t)
	made := 0
	p.Ref = spawn(t, g, "p", func() zactor.Actor {
		made++
		n := made
		a, _ := p.factory(func(*zactor.Context) error { j.add("start %d", n); return nil },
			func(_ *zactor.Context, why zactor.Reason) { j.add("stop %d %v", n, why) })().(*actor)
		return &restarter{*a, func(c *zactor.Context, cause error) {
			j.add("restart %d %v %d", n, isToldTo(cause), len(c.Children()))
			if n == 2 {
				panic("in OnRestart")
			}
		}}
	}, zactor.WithPolicy(zactor.Policy{MaxRestarts: 2, MinBackoff: -1}))
	w := spawnPuppet(t, g, "")
	downs := w.watch(p.Ref)
	for range 3 {
		p.later(func(c *zactor.Context) {
			_, _ = c.Spawn("", factory())
			panic("told to")
		})
	}
	isDown(t, downs, p.Ref, zactor.StopFailed)
	j.is(t, "start 1", "restart 1 true 1", "start 2", "restart 2 true 1", "start 3", "stop 3 failed")
}

// The wait before a restart grows, by the group's clock; messages wait meanwhile, a stop does not.
func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := zactortest.NewClock(time.Unix(0, 0))
		g := newGroup(t, func(c *zactor.Config) { c.Clock = clock })
		var at []time.Duration
		p := newPuppet(t)
		p.Ref = spawn(t, g, "", p.factory(func(*zactor.Context) error {
			at = append(at, clock.Now().Sub(time.Unix(0, 0)))
			return nil
		}, nil), zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: time.Second, MaxBackoff: 5 * time.Second, Window: time.Minute}))
		for range 6 {
			p.panics()
		}
		synctest.Wait()
		for range 40 {
			clock.Advance(500 * time.Millisecond)
			synctest.Wait()
		}
		want := []time.Duration{0, 0, 1, 3, 7, 12, 17}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(at, want) {
			t.Errorf("started at %v, want %v", at, want)
		}
		p.panics()
		p.later(func(*zactor.Context) { t.Error("a message was handled during the wait") })
		synctest.Wait()
		if err := g.StopWait(t.Context(), p.Ref); err != nil {
			t.Error(err)
		}
	})
}
