package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
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

// layer notes when it is entered and left.
func layer(name string, notes *[]string) zactor.Middleware {
	return func(h zactor.HandlerInfo, next zactor.Func) zactor.Func {
		*notes = append(*notes, "made "+name+" "+h.Name)
		return func(c *zactor.Context) error {
			*notes = append(*notes, "into "+name)
			err := next(c)
			*notes = append(*notes, fmt.Sprintf("out of %s: %v", name, err))
			return err
		}
	}
}

func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	var notes []string // written by Spawn, then by the actor, read after its answers
	g := newGroup(t, func(c *zactor.Config) {
		c.Middleware = []zactor.Middleware{layer("a", &notes), layer("b", &notes)}
	})
	ref := spawn(t, g, "shop", factory(
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil }),
		zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) {
			notes = append(notes, "handler")
			return nil, zmsg.Errorf(1001, "no")
		}, zactor.With(layer("c", &notes)), zactor.FromClients(), zactor.With(layer("d", &notes))),
	))
	_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{})
	if zmsg.CodeOf(err) != 1001 || zmsg.OutcomeOf(err) != zmsg.Executed {
		t.Errorf("got %v", err)
	}
	if err := g.StopWait(testContext(t), ref); err != nil {
		t.Fatal(err)
	}
	const no = ": application: no (code 1001, executed)"
	want := []string{
		"made d zgame.actortest.Ping", "made c zgame.actortest.Ping", "made b zgame.actortest.Ping", "made a zgame.actortest.Ping",
		"made b zgame.actortest.Note", "made a zgame.actortest.Note",
		"into a", "into b", "into c", "into d", "handler", "out of d" + no, "out of c" + no, "out of b" + no, "out of a" + no,
	}
	if !slices.Equal(notes, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
}

func TestMiddlewareInfo(t *testing.T) {
	t.Parallel()
	var got []zactor.HandlerInfo
	note := func(h zactor.HandlerInfo, next zactor.Func) zactor.Func {
		got = append(got, h)
		return next
	}
	g := newGroup(t, func(c *zactor.Config) { c.Middleware = []zactor.Middleware{note} })
	shared := []zactor.Handler{
		zactor.Handle(echo, zactor.FromClients(), zactor.With(note)),
		zactor.HandleRaw(990010, func(*zactor.Context, *zmsg.Message) error { return nil }),
	}
	f := func() zactor.Actor { return &plain{shared} }
	spawn(t, g, "one", f, zactor.WithType("shop"))
	spawn(t, g, "", f) // the first must not have changed what they share
	ping := zactor.HandlerInfo{ID: 990001, Name: "zgame.actortest.Ping", Client: true, Actor: "one", Type: "shop"}
	raw := zactor.HandlerInfo{ID: 990010, Name: "message 990010", Actor: "one", Type: "shop"}
	want := []zactor.HandlerInfo{ping, ping, raw}
	ping.Actor, ping.Type = "", "zactor_test.plain"
	raw.Actor, raw.Type = "", "zactor_test.plain"
	want = append(want, ping, ping, raw)
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestMiddlewareFaults(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	for _, c := range []struct {
		mw   zactor.Middleware
		want string
	}{
		{nil, "middleware 0 of the handler of zgame.actortest.Ping is nil"},
		{func(zactor.HandlerInfo, zactor.Func) zactor.Func { return nil }, "returned nil"},
		{func(zactor.HandlerInfo, zactor.Func) zactor.Func { panic("ouch") }, "ouch"},
	} {
		if _, err := g.Spawn("", factory(zactor.Handle(echo, zactor.With(c.mw)))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q in it", err, c.want)
		}
	}
	if _, err := zactor.NewGroup(zactor.Config{Middleware: []zactor.Middleware{zactor.Recover(), nil}}); err == nil || !strings.Contains(err.Error(), "Middleware[1]") {
		t.Errorf("got %v, want the one that is nil", err)
	}
}

// What whoever asked learns when a layer answers in place of the handler, changes its error, or runs it twice.
func TestMiddlewareOutcomes(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	for _, c := range []struct {
		name string
		mw   func(next zactor.Func, c *zactor.Context) error
		ran  int32
		code zmsg.Code
		out  zmsg.Outcome
	}{
		{"goes through", func(next zactor.Func, c *zactor.Context) error { return next(c) }, 1, zmsg.CodeOK, zmsg.Executed},
		{"turned down", func(zactor.Func, *zactor.Context) error { return zactor.NotRun(zmsg.Errorf(zmsg.CodeForbidden, "no")) }, 0, zmsg.CodeForbidden, zmsg.NotExecuted},
		{"code", func(zactor.Func, *zactor.Context) error { return zmsg.Errorf(1001, "no") }, 0, 1001, zmsg.Executed},
		{"no code", func(zactor.Func, *zactor.Context) error { return errors.New("secret") }, 0, zmsg.CodeInternal, zmsg.Executed},
		{"nothing", func(zactor.Func, *zactor.Context) error { return nil }, 0, zmsg.CodeOK, zmsg.Executed},
		{"deferred without Defer", func(zactor.Func, *zactor.Context) error { return zactor.ErrDeferred }, 0, zmsg.CodeInternal, zmsg.Executed},
		{"after the answer", func(next zactor.Func, c *zactor.Context) error { return errors.Join(next(c), errors.New("late")) }, 1, zmsg.CodeOK, zmsg.Executed},
		{"twice", func(next zactor.Func, c *zactor.Context) error { return errors.Join(next(c), next(c)) }, 2, zmsg.CodeOK, zmsg.Executed},
		{"panic", func(zactor.Func, *zactor.Context) error { panic("boom") }, 0, zmsg.CodePanicked, zmsg.Unknown},
		{"panic after the answer", func(next zactor.Func, c *zactor.Context) error { _ = next(c); panic("boom") }, 1, zmsg.CodeOK, zmsg.Executed},
		{"goexit", func(zactor.Func, *zactor.Context) error { runtime.Goexit(); return nil }, 0, zmsg.CodePanicked, zmsg.Unknown},
		{"replies itself", func(_ zactor.Func, c *zactor.Context) error { c.Reply(&testpb.Pong{N: 7}); return nil }, 0, zmsg.CodeOK, zmsg.Executed},
		{"defers itself", func(_ zactor.Func, c *zactor.Context) error {
			d := c.Defer()
			c.After(0, func(*zactor.Context) { d.Fail(zmsg.ErrUnavailable) })
			return zactor.ErrDeferred
		}, 0, zmsg.CodeUnavailable, zmsg.Executed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var ran, starts atomic.Int32
			mw := func(_ zactor.HandlerInfo, next zactor.Func) zactor.Func {
				return func(x *zactor.Context) error { return c.mw(next, x) }
			}
			ref := spawn(t, g, "", func() zactor.Actor {
				starts.Add(1)
				return &actor{handlers: []zactor.Handler{
					zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { ran.Add(1); return &testpb.Pong{}, nil }, zactor.With(mw)),
					zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil }),
				}}
			})
			_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{})
			if zmsg.CodeOf(err) != c.code || err != nil && zmsg.OutcomeOf(err) != c.out {
				t.Errorf("got %v, want code %v, outcome %v", err, c.code, c.out)
			}
			// The actor goes on; a panic has made a new instance.
			if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Note{}); err != nil {
				t.Error(err)
			}
			wantStarts := int32(1)
			if strings.HasPrefix(c.name, "panic") || c.name == "goexit" {
				wantStarts = 2
			}
			if ran.Load() != c.ran || starts.Load() != wantStarts {
				t.Errorf("the handler ran %d times, %d instances; want %d and %d", ran.Load(), starts.Load(), c.ran, wantStarts)
			}
		})
	}
}

// A layer sees that the handler has returned, not what comes later.
func TestMiddlewareAndLater(t *testing.T) {
	t.Parallel()
	var seen []string
	mw := func(_ zactor.HandlerInfo, next zactor.Func) zactor.Func {
		return func(c *zactor.Context) error {
			err := next(c)
			seen = append(seen, fmt.Sprint(err))
			return err
		}
	}
	g := newGroup(t, nil)
	other := spawn(t, g, "", factory(zactor.Handle(echo)))
	ref := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		d := c.Defer()
		zactor.Then(c, other, p, func(c *zactor.Context, pong *testpb.Pong, _ error) {
			seen = append(seen, "then")
			d.Reply(pong)
		})
		return nil, zactor.ErrDeferred
	}, zactor.With(mw))))
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); err != nil {
		t.Fatal(err)
	}
	if err := g.StopWait(testContext(t), ref); err != nil {
		t.Fatal(err)
	}
	if want := []string{zactor.ErrDeferred.Error(), "then"}; !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	reg := prometheus.NewRegistry()
	g := newGroup(t, func(c *zactor.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Metrics = zmetrics.NewActor(reg)
		c.Middleware = []zactor.Middleware{zactor.Recover()}
	})
	var starts, stops atomic.Int32
	ref := spawn(t, g, "shop", counter(&starts, &stops))
	ask := func(n int64) (int64, error) {
		pong, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: n})
		return pong.GetN(), err
	}
	for i := range int64(100) {
		if got, err := ask(7); err != nil || got != i+1 {
			t.Fatalf("got %d, %v: the state must stay", got, err)
		}
		if _, err := ask(0); !errors.Is(err, zmsg.ErrPanicked) || zmsg.OutcomeOf(err) != zmsg.Unknown {
			t.Fatalf("got %v, want panicked", err)
		}
	}
	if got := count(t, reg, "zgame_actor_panics_total", ""); got != 100 {
		t.Errorf("%v panics counted", got)
	}
	for _, want := range []string{"handler panicked", "assignment to entry in nil map", "supervise_test.go", "name=shop", "msg_id=990001"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "handler panicked"); n > 50 {
		t.Errorf("%d lines in a moment: who causes panics must not fill the disk", n)
	}
	if _, err := ask(-1); !errors.Is(err, zmsg.ErrPanicked) { // Goexit: nothing ends it, the actor is supervised
		t.Errorf("got %v, want panicked", err)
	}
	if got, err := ask(7); err != nil || got != 1 || starts.Load() != 2 {
		t.Errorf("got %d, %v, %d starts, want a fresh instance", got, err, starts.Load())
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := zmetrics.NewHandlers(reg)
	g := newGroup(t, func(c *zactor.Config) { c.Middleware = []zactor.Middleware{zactor.Measure(m)} })
	f := factory(
		zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			switch p.GetText() {
			case "code":
				return nil, zmsg.Errorf(1001, "no")
			case "plain":
				return nil, errors.New("secret")
			case "late":
				return nil, context.DeadlineExceeded
			case "defer":
				d := c.Defer()
				c.After(0, func(*zactor.Context) { d.Reply(&testpb.Pong{}) })
				return nil, zactor.ErrDeferred
			case "panic":
				panic("boom")
			}
			return nil, nil
		}),
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil }),
	)
	refs := []zactor.Ref{spawn(t, g, "", f), spawn(t, g, "", f)}
	for _, text := range []string{"", "", "code", "plain", "late", "defer", "panic"} {
		for _, ref := range refs {
			_, _ = zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{Text: text})
		}
	}
	for range 65 {
		if err := refs[0].Tell(&testpb.Note{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), refs[0], &testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = uint64(m.GetCounter().GetValue()) + m.GetHistogram().GetSampleCount()
		}
	}
	const ping, note = "zgame.actortest.Ping", "zgame.actortest.Note"
	want := map[string]uint64{
		"zgame_handler_handled_total " + ping + " ok": 4, "zgame_handler_handled_total " + ping + " application": 2,
		"zgame_handler_handled_total " + ping + " internal": 2, "zgame_handler_handled_total " + ping + " timeout": 2,
		"zgame_handler_handled_total " + ping + " deferred": 2, "zgame_handler_handled_total " + ping + " panicked": 2,
		"zgame_handler_seconds " + ping:               14,
		"zgame_handler_handled_total " + note + " ok": 66,
		"zgame_handler_seconds " + note:               4, // the first, the 33rd, the 65th, and the request
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g := newGroup(t, nil)
	traces := make(chan zmsg.TraceID, 20)
	last := spawn(t, g, "", factory(
		zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) { traces <- c.Trace(); return nil, nil }),
		zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { traces <- c.Trace(); return nil }),
	))
	first := spawn(t, g, "front", factory(
		zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			traces <- c.Trace()
			if n.GetN() == 1 { // nothing is sent
				c.After(0, func(c *zactor.Context) { traces <- c.Trace() })
				return errors.New("no")
			}
			if err := c.Tell(last, n); err != nil {
				return err
			}
			if _, err := zactor.Call[testpb.Pong](c, last, &testpb.Ping{}); err != nil {
				return err
			}
			if _, err := zactor.Ask[testpb.Pong](c.Context(), last, &testpb.Ping{}); err != nil {
				return err
			}
			zactor.Then(c, last, &testpb.Ping{}, func(c *zactor.Context, _ *testpb.Pong, _ error) {
				traces <- c.Trace()
				if err := c.Tell(last, n); err != nil {
					t.Error(err)
				}
			})
			return nil
		}, zactor.With(zactor.Trace(logger))),
		zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) { traces <- c.Trace(); return nil, nil }),
	))
	take := func(n int) map[zmsg.TraceID]int {
		got := map[zmsg.TraceID]int{}
		for range n {
			got[receive(t, traces)]++
		}
		return got
	}
	send := func(n int64) {
		if err := first.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	send(0)
	got := take(7)
	if len(got) != 1 || got[zmsg.TraceID{}] != 0 {
		t.Errorf("got %v, want one trace all the way", got)
	}
	send(0)
	again := take(7)
	for id := range again {
		if got[id] != 0 || len(again) != 1 {
			t.Errorf("got %v after %v, want another trace", again, got)
		}
	}
	// A trace ends with what it is about.
	send(1)
	if got := take(2); got[zmsg.TraceID{}] != 1 {
		t.Errorf("got %v, want none in the timer", got)
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), first, &testpb.Ping{}); err != nil {
		t.Fatal(err)
	}
	if got := take(1); got[zmsg.TraceID{}] != 1 {
		t.Errorf("got %v, want none for a handler that is not traced", got)
	}
	// One that comes from outside stays.
	m := zmsg.NewMessage(990003)
	m.Trace.ID = zmsg.TraceID{0xab, 7}
	if err := first.Deliver(m); err != nil {
		t.Fatal(err)
	}
	if got := take(7); got[zmsg.TraceID{0xab, 7}] != 7 {
		t.Errorf("got %v, want the trace of the message", got)
	}
	// One without a trace that comes from outside gets one.
	if err := first.Deliver(zmsg.NewMessage(990003)); err != nil {
		t.Fatal(err)
	}
	if got := take(7); len(got) != 1 || got[zmsg.TraceID{}] != 0 {
		t.Errorf("got %v, want one trace", got)
	}
	if err := g.StopWait(testContext(t), first); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"level=DEBUG", "message handled", "name=front", "msg=zgame.actortest.Note", "trace=ab07", "result=ok", "result=internal", "duration="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g := newGroup(t, func(c *zactor.Config) { c.Metrics = zmetrics.NewActor(reg) })
		limited := zactor.With(zactor.Limit(10, 3))
		shared := []zactor.Handler{
			zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				time.Sleep(time.Duration(p.GetN()))
				return nil, nil
			}, limited),
			zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil }, limited),
		}
		f := func() zactor.Actor { return &plain{shared} }
		a, b := spawn(t, g, "a", f), spawn(t, g, "b", f)
		ask := func(ref zactor.Ref, n int) (passed int) {
			for range n {
				_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{})
				switch {
				case err == nil:
					passed++
				case zmsg.CodeOf(err) != zmsg.CodeRateLimited || zmsg.OutcomeOf(err) != zmsg.NotExecuted || !zmsg.CodeOf(err).Retry():
					t.Errorf("got %v, want rate limited, not executed, to be tried again", err)
				}
			}
			return passed
		}
		if got := ask(a, 5); got != 3 {
			t.Errorf("%d of 5 passed, want the burst of 3", got)
		}
		if got := ask(b, 5); got != 3 {
			t.Errorf("another actor: %d of 5 passed, want 3", got)
		}
		if _, err := zactor.Ask[testpb.Pong](t.Context(), a, &testpb.Note{}); err != nil {
			t.Errorf("another message: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		if got := ask(a, 5); got != 2 {
			t.Errorf("%d of 5 passed after 200 ms, want 2", got)
		}
		time.Sleep(time.Hour)
		if got := ask(a, 5); got != 3 {
			t.Errorf("%d of 5 passed after an hour, want 3", got)
		}
		if got := count(t, reg, "zgame_actor_errors_total", "rate_limited"); got != 2+2+3+2 {
			t.Errorf("%v counted, want 9", got)
		}
		// Slow handlers in one batch: tokens come back while they run.
		time.Sleep(time.Hour)
		results := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := zactor.Ask[testpb.Pong](t.Context(), b, &testpb.Ping{N: int64(100 * time.Millisecond)})
				results <- err
			}()
		}
		for range 20 {
			if err := <-results; err != nil {
				t.Errorf("10 a second, one after the other: %v", err)
			}
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, bad := range []func(){func() { zactor.Limit(0, 1) }, func() { zactor.Limit(1, 0) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("taken")
				}
			}()
			bad()
		}()
	}
}

func TestRequireUser(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.Middleware = []zactor.Middleware{zactor.RequireUser()} })
	var ran atomic.Int32
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { ran.Add(1); return nil }, zactor.FromClients())))
	for _, c := range []struct {
		client bool
		user   string
		code   zmsg.Code
		out    zmsg.Outcome
	}{
		{true, "", zmsg.CodeUnauthorized, zmsg.NotExecuted},
		{true, "ann", zmsg.CodeOK, zmsg.Executed},
		{false, "", zmsg.CodeOK, zmsg.Executed},
	} {
		replies := make(replier, 1)
		m := zmsg.NewMessage(990003)
		m.Client, m.User = c.client, c.user
		m.SetReplier(replies, 1)
		if err := ref.Deliver(m); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, replies); r.Code != c.code || r.Outcome != c.out {
			t.Errorf("client %v, user %q: got %v, %v, want %v, %v", c.client, c.user, r.Code, r.Outcome, c.code, c.out)
		}
	}
	if ran.Load() != 2 {
		t.Errorf("ran %d times, want 2", ran.Load())
	}
}
