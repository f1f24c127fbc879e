package zactor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmetrics"
)

// logged is what a group has logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the lines that contain all of the words.
func (l *logged) lines(words ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			out = append(out, line)
		}
	}
	return out
}

// watchedGroup makes a group whose log and metrics can be read.
func watchedGroup(tb testing.TB, change func(*zactor.Config)) (*zactor.Group, *logged, *prometheus.Registry) {
	tb.Helper()
	l, reg := new(logged), prometheus.NewRegistry()
	g := newGroup(tb, func(c *zactor.Config) {
		c.Logger = slog.New(slog.NewTextHandler(l, nil))
		c.Metrics = zmetrics.NewActor(reg)
		if change != nil {
			change(c)
		}
	})
	return g, l, reg
}

// slowInside is what a stack has to name.
//
//go:noinline
func slowInside(d time.Duration) { time.Sleep(d) }

func TestSlowHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, l, reg := watchedGroup(t, func(c *zactor.Config) { c.AskTimeout = time.Hour })
		ref := spawn(t, g, "sleepy", factory(zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
			done := make(chan struct{})
			go func() { defer close(done); <-t.Context().Done() }() // inherits the label, and is not the handler
			slowInside(time.Duration(n.GetN()) * time.Second)
			return nil
		})), zactor.WithType("sleeper"))
		tell := func(seconds int64) {
			if err := ref.Tell(&testpb.Note{N: seconds}); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 { // none of them is slow, all together are
			tell(1)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := l.lines("handler is slow"); len(got) != 0 {
			t.Fatalf("nothing was slow: %q", got)
		}
		tell(60)
		tell(0)
		time.Sleep(4900 * time.Millisecond)
		if got := l.lines("handler is slow"); len(got) != 0 {
			t.Fatalf("too early: %q", got)
		}
		time.Sleep(1400 * time.Millisecond)
		synctest.Wait()
		want := []string{"handler is slow", "level=WARN", "name=sleepy", "type=sleeper", "msg_id=990003", "msg=zgame.actortest.Note", "waiting=1", "zactor_test.slowInside"}
		if got := l.lines(want...); len(got) != 1 || strings.Contains(got[0], "TestSlowHandler.func1.1.1") && !strings.Contains(got[0], "span") || len(got[0]) > 17<<10 {
			t.Fatalf("got %q, want one line with %q", l.lines(""), want)
		}
		time.Sleep(time.Minute)
		tell(0)
		tell(30)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if got := l.lines("handler is slow"); len(got) != 2 {
			t.Errorf("%d reports, want one more for the next run: %q", len(got), got)
		}
		if n := count(t, reg, "zgame_actor_slow_handlers_total", ""); n != 2 {
			t.Errorf("counted %v", n)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A handler that waits in Call is slow too, and the report says for whom; also in the second half of a reentrant handler.
func TestSlowCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, l, _ := watchedGroup(t, nil)
		far := spawn(t, g, "oracle", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			time.Sleep(time.Duration(p.GetN()) * time.Second)
			return &testpb.Pong{}, nil
		})))
		ask := func(c *zactor.Context, n int64) {
			if _, err := zactor.Call[testpb.Pong](c, far, &testpb.Ping{N: n}); err != nil {
				t.Errorf("call: %v", err)
			}
		}
		plain := spawn(t, g, "plain", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { ask(c, 9); return nil })))
		again := spawn(t, g, "again", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
			ask(c, 9)
			slowInside(20 * time.Second)
			return nil
		})), zactor.Reentrant())
		for _, ref := range []zactor.Ref{plain, again} {
			if err := ref.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if got := l.lines("handler is slow", "name=plain", "waits_for=oracle", "zactor.Call"); len(got) != 1 {
			t.Errorf("got %q", got)
		}
		if got := l.lines("handler is slow", "name=again"); len(got) != 1 || !strings.Contains(got[0], "slowInside") || !strings.Contains(got[0], "msg_id=990003") {
			t.Errorf("got %q, want one about what follows the call", got)
		}
		if got := l.lines("handler is slow", "name=oracle"); len(got) != 2 {
			t.Errorf("got %q, want two", got)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A14.
func TestFullMailbox(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]zactor.SpawnOption{nil, {zactor.WithOverflow(zactor.DropOldest)}, {zactor.WithMailbox(1000), zactor.WithMailboxBytes(100 << 8)}} {
		synctest.Test(t, func(t *testing.T) {
			g, l, reg := watchedGroup(t, func(c *zactor.Config) { c.HandlerLimit, c.Mailbox = -1, 100 })
			open := make(chan struct{})
			ref := spawn(t, g, "room", factory(
				zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { <-open; return nil }),
				zactor.Handle(echo),
			), opts...)
			note := func() error { return ref.Tell(&testpb.Note{N: 1}) }
			for range 80 {
				_ = note()
			}
			time.Sleep(30 * time.Second)
			if got := l.lines("mailbox stays full"); len(got) != 0 {
				t.Fatalf("79 of 100 wait: %q", got)
			}
			_ = note() // 80: from here on it is above the mark
			for range 7 {
				_ = ref.Tell(&testpb.Ping{N: 1})
			}
			time.Sleep(9 * time.Second)
			if got := l.lines("mailbox stays full"); len(got) != 0 {
				t.Fatalf("too early: %q", got)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			got := l.lines("mailbox stays full", "level=WARN", "name=room", "zgame.actortest.Note", "head_age=")
			if len(got) != 1 || !strings.Contains(got[0], "zgame.actortest.Ping ") || len(opts) == 0 && !strings.Contains(got[0], "waiting=87 bound=100") {
				t.Fatalf("got %q", l.lines(""))
			}
			if n := count(t, reg, "zgame_actor_actors_over_mark", ""); n != 1 {
				t.Errorf("the gauge says %v", n)
			}
			time.Sleep(50 * time.Second)
			if got := l.lines("mailbox stays full"); len(got) != 1 {
				t.Errorf("it is told of again too soon: %q", got)
			}
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if got := l.lines("mailbox stays full"); len(got) != 2 || count(t, reg, "zgame_actor_full_mailboxes_total", "") != 2 {
				t.Errorf("%d reports after a minute, want 2", len(got))
			}
			close(open)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := count(t, reg, "zgame_actor_actors_over_mark", ""); n != 0 {
				t.Errorf("the gauge says %v, and nothing waits", n)
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The age of the head is known to within a round, while the queue moves on.
func TestHeadAge(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]zactor.SpawnOption{nil, {zactor.WithOverflow(zactor.DropNewest)}} {
		synctest.Test(t, func(t *testing.T) {
			g, l, _ := watchedGroup(t, func(c *zactor.Config) { c.HandlerLimit, c.Mailbox = -1, 100 })
			ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { time.Sleep(time.Second); return nil })), opts...)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { // keeps the mailbox full: each message waits for about 100 s
				defer close(ended)
				for ctx.Err() == nil {
					_ = ref.Tell(&testpb.Note{})
					time.Sleep(100 * time.Millisecond)
				}
			}()
			time.Sleep(400 * time.Second)
			cancel()
			<-ended
			got := l.lines("mailbox stays full")
			if len(got) < 4 {
				t.Fatalf("got %q", got)
			}
			_, age, _ := strings.Cut(got[len(got)-1], "head_age=")
			age, _, _ = strings.Cut(age, " ")
			if d, err := time.ParseDuration(age); err != nil || d < 85*time.Second || d > 101*time.Second {
				t.Errorf("the head is %s old, want about 100 s", age)
			}
			if err := g.Stop(ref); err != nil {
				t.Error(err)
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Log(err) // the backlog is cut
			}
		})
	}
}

// An idle group asks nothing of the clock; a group that works asks for one call at a time.
func TestWatchdogSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := zactortest.NewClock(time.Now())
		g, err := zactor.NewGroup(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { <-hold; return nil })))
		if n := clock.Pending(); n != 0 {
			t.Errorf("%d calls pending before the first message", n)
		}
		for range 3 {
			if err := ref.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				synctest.Wait()
				if n := clock.Pending(); n != 1 {
					t.Errorf("%d calls pending while an actor works, want 1", n)
				}
				clock.Advance(time.Second)
			}
			hold <- struct{}{}
			synctest.Wait()
			clock.Advance(time.Second)
			if n := clock.Pending(); n != 0 {
				t.Errorf("%d calls pending while all are idle", n)
			}
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchdogOff(t *testing.T) {
	t.Parallel()
	clock := zactortest.NewClock(time.Now())
	g := newGroup(t, func(c *zactor.Config) { c.Clock, c.HandlerLimit, c.QueueMark = clock, -1, -1 })
	hold, in := make(chan struct{}), make(chan struct{})
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { close(in); <-hold; return nil })))
	if err := ref.Tell(&testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	receive(t, in)
	if n := clock.Pending(); n != 0 {
		t.Errorf("%d calls pending", n)
	}
	close(hold)
	for _, bad := range []struct {
		cfg  zactor.Config
		want string
	}{
		{zactor.Config{HandlerLimit: -2}, "Config.HandlerLimit is -2ns: want a positive duration, or -1"},
		{zactor.Config{QueueMark: 1.5}, "Config.QueueMark is 1.5: want above 0 and at most 1"},
		{zactor.Config{QueueTime: -1}, "Config.QueueTime is -1ns"},
	} {
		if _, err := zactor.NewGroup(bad.cfg); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("got %v, want %q", err, bad.want)
		}
	}
}
