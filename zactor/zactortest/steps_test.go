package zactortest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// handlers is an Actor that is nothing but handlers.
type handlers []zactor.Handler

func (h handlers) Handlers() []zactor.Handler { return h }

// fakeTB notes what a kit says about a test.
type fakeTB struct {
	testing.TB
	said    []string
	failed  bool
	cleanup []func()
}

type fatal struct{}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Failed() bool      { return f.failed }
func (f *fakeTB) Cleanup(do func()) { f.cleanup = append(f.cleanup, do) }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.failed = true
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(fatal{})
}

func (f *fakeTB) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }
func (f *fakeTB) Log(...any)        {}

// run runs a test and its cleanups, and returns what was said.
func (f *fakeTB) run(test func()) string {
	one := func(do func()) {
		defer func() {
			if v := recover(); v != nil && v != (fatal{}) {
				panic(v)
			}
		}()
		do()
	}
	one(test)
	for _, do := range slices.Backward(f.cleanup) {
		one(do)
	}
	return strings.Join(f.said, "\n")
}

func TestStepsLeftovers(t *testing.T) {
	t.Parallel()
	note := func() zactor.Actor {
		return handlers{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			switch m.GetN() {
			case 1:
				return c.Tell(c.Self(), m) // and again, for ever
			case 2:
				return zactor.Async(c, func(context.Context) (int, error) { return 1, nil }, func(*zactor.Context, int, error) {})
			}
			return nil
		})}
	}
	for _, c := range []struct {
		name, want string
		test       func(s *zactortest.Steps, ref zactor.Ref)
	}{
		{"nothing", "", func(*zactortest.Steps, zactor.Ref) {}},
		{"all done", "", func(s *zactortest.Steps, ref zactor.Ref) { s.Send(ref, &testpb.Note{N: 2}); s.Run() }},
		{"a message waits", "a has something to do (1 waiting)", func(s *zactortest.Steps, ref zactor.Ref) { s.Send(ref, &testpb.Note{}) }},
		{"work waits", "1 pieces of work", func(s *zactortest.Steps, ref zactor.Ref) { s.Send(ref, &testpb.Note{N: 2}); s.Step(ref) }},
		{"nobody handles it", `message 990001 to "a": no_handler`, func(s *zactortest.Steps, ref zactor.Ref) { s.Send(ref, &testpb.Ping{}); s.Run() }},
		{"told", "", func(s *zactortest.Steps, ref zactor.Ref) { s.Send(ref, &testpb.Note{}); s.AllowLeftovers() }},
		{"a step of nobody", "a has nothing to do", func(s *zactortest.Steps, ref zactor.Ref) { s.Step(ref) }},
		{"a refused message", "refuses a *testpb.Note", func(s *zactortest.Steps, _ zactor.Ref) { s.Send(zactor.Ref{}, &testpb.Note{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tb := &fakeTB{TB: t}
			said := tb.run(func() {
				g, s := zactortest.NewSteps(tb, zactor.Config{})
				ref, err := g.Spawn("a", note)
				if err != nil {
					t.Fatal(err)
				}
				c.test(s, ref)
			})
			if !strings.Contains(said, c.want) || (c.want == "") != (said == "") {
				t.Errorf("the kit says %q, want %q", said, c.want)
			}
		})
	}
}

func TestProbeOfSteps(t *testing.T) {
	t.Parallel()
	g, s := zactortest.NewSteps(t, zactor.Config{})
	bank := zactortest.NewProbe(t, g, "bank", zactortest.Expect[testpb.Ping]())
	var got []string
	shop, err := g.Spawn("shop", func() zactor.Actor {
		return handlers{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			zactor.Then(c, bank.Ref(), &testpb.Ping{N: m.GetN()}, func(_ *zactor.Context, a *testpb.Pong, err error) {
				got = append(got, fmt.Sprint(a.GetN(), err != nil))
			})
			return nil
		})}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Send(shop, &testpb.Note{N: 1})
	s.Send(shop, &testpb.Note{N: 2})
	bank.None() // nothing has been stepped
	first, second := bank.Next(), bank.Next()
	second.Fail(errors.New("no"))
	first.Reply(&testpb.Pong{N: 7})
	s.Run()
	if want := []string{"0 true", "7 false"}; !slices.Equal(got, want) {
		t.Errorf("the shop got %q, want %q", got, want)
	}
	tb := &fakeTB{TB: t}
	said := tb.run(func() {
		g, _ := zactortest.NewSteps(tb, zactor.Config{})
		zactortest.NewProbe(tb, g, "idle", zactortest.Expect[testpb.Ping]()).Next()
	})
	if !strings.Contains(said, "no message came to the probe idle") {
		t.Errorf("the probe says %q", said)
	}
}

// The same seed gives the same numbers, in each turn others, also after a restart.
func TestStepsRand(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) (numbers []uint64) {
		g, s := zactortest.NewSteps(t, zactor.Config{Seed: seed})
		ref, err := g.Spawn("dice", func() zactor.Actor {
			return handlers{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
				if m.GetN() == 1 {
					panic("again")
				}
				numbers = append(numbers, c.Rand().Uint64(), c.Rand().Uint64())
				return nil
			})}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(4) {
			s.Send(ref, &testpb.Note{N: i % 3})
		}
		s.Run()
		return numbers
	}
	a, b, c := draw(0), draw(0), draw(7)
	if !slices.Equal(a, b) {
		t.Errorf("two runs drew %v and %v", a, b)
	}
	all := append(slices.Clone(a), c...)
	slices.Sort(all)
	if len(all) != 12 || len(slices.Compact(all)) != 12 {
		t.Errorf("turns, instances or seeds share numbers: %v, and with another seed %v", a, c)
	}
}

// A request whose answer takes time: it is asked, time passes, then it is looked at.
func TestRequest(t *testing.T) {
	t.Parallel()
	g, s := zactortest.NewSteps(t, zactor.Config{AskTimeout: time.Minute})
	slow, err := g.Spawn("slow", func() zactor.Actor {
		return handlers{zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			reply := c.Defer()
			c.After(time.Duration(p.GetN())*time.Second, func(*zactor.Context) { reply.Reply(&testpb.Pong{N: p.GetN()}) })
			return nil, zactor.ErrDeferred
		})}
	})
	if err != nil {
		t.Fatal(err)
	}
	soon, never := zactortest.Request[testpb.Pong](s, slow, &testpb.Ping{N: 10}), zactortest.Request[testpb.Pong](s, slow, &testpb.Ping{N: 3600})
	s.Run()
	if soon.Done() {
		t.Error("the answer came at once")
	}
	s.Advance(10 * time.Second)
	if pong, err := soon.Result(); err != nil || pong.GetN() != 10 {
		t.Errorf("got %v, %v", pong, err)
	}
	s.Advance(2 * time.Minute)
	if _, err := never.Result(); !errors.Is(err, zmsg.ErrTimeout) {
		t.Errorf("got %v, want a time-out", err)
	}
}

func ExampleNewSteps() {
	t := exampleTB() // in a test: its *testing.T
	g, s := zactortest.NewSteps(t, zactor.Config{})
	door, _ := g.Spawn("door", func() zactor.Actor {
		return handlers{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			fmt.Println(c.Now().Format(time.TimeOnly), "open")
			c.AfterKey("close", time.Minute, func(c *zactor.Context) { fmt.Println(c.Now().Format(time.TimeOnly), "closed") })
			return nil
		})}
	})
	s.Send(door, &testpb.Note{})
	s.Advance(40 * time.Second)
	s.Send(door, &testpb.Note{})
	s.Advance(time.Hour)
	// Output:
	// 00:00:00 open
	// 00:00:40 open
	// 00:01:40 closed
}

func ExampleSteps_Step() {
	t := exampleTB() // in a test: its *testing.T
	g, s := zactortest.NewSteps(t, zactor.Config{})
	say := func(name string) zactor.Ref {
		ref, _ := g.Spawn(name, func() zactor.Actor {
			return handlers{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
				fmt.Println(c.Name(), m.GetN())
				return nil
			})}
		})
		return ref
	}
	a, b := say("a"), say("b")
	for i := range int64(2) {
		s.Send(a, &testpb.Note{N: i})
		s.Send(b, &testpb.Note{N: i})
	}
	s.Step(b) // in whatever order the test wants to see
	s.Step(b)
	s.Step(a)
	fmt.Println(s.Leftovers())
	s.Run()
	// Output:
	// b 0
	// b 1
	// a 0
	// a has something to do (1 waiting)
	// a 1
}

// exampleTB stands for the *testing.T that an Example does not have.
func exampleTB() testing.TB { return &fakeTB{} }
