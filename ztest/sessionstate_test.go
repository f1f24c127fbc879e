package ztest_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// diary is what one actor, or object, was told of a session.
type diary struct {
	mu   sync.Mutex
	list []string
}

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, what)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// events are handlers of all that is told of sessions.
func (d *diary) events() []zactor.Handler {
	return []zactor.Handler{
		zactor.HandleTell(func(_ *zactor.Context, e *wirepb.SessionSuspended) error {
			if e.GetUser() != "ann" || e.GetCode() < 1000 || e.GetWindowMs() == 0 || zmsg.SuspendedSession(e).IsZero() {
				d.note("a wrong word: " + e.String())
			}
			d.note("suspended")
			return nil
		}),
		zactor.HandleTell(func(_ *zactor.Context, e *wirepb.SessionResumed) error {
			if e.GetUser() != "ann" || zmsg.ResumedSession(e).IsZero() {
				d.note("a wrong word: " + e.String())
			}
			d.note("resumed")
			return nil
		}),
		zactor.HandleTell(func(*zactor.Context, *wirepb.SessionMoved) error { d.note("moved"); return nil }),
		zactor.HandleTell(func(*zactor.Context, *wirepb.SessionClosed) error { d.note("closed"); return nil }),
	}
}

// watchSession starts an actor on n that watches, and returns its diary.
func watchSession(t *testing.T, n *znode.Node, s zmsg.SessionRef) *diary {
	t.Helper()
	d := &diary{}
	spawn(t, n, actor{handlers: d.events(), start: func(c *zactor.Context) error { return c.WatchSession(s) }})
	return d
}

// wanderer dials what its client asks for, or another gate.
type wanderer struct {
	wire
	mu sync.Mutex
	to string // host:port; "": as asked
}

func (r *wanderer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	r.mu.Lock()
	if r.to != "" {
		addr = r.to
	}
	r.mu.Unlock()
	return r.wire.dial(ctx, network, addr)
}

func (r *wanderer) goTo(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = strings.TrimSuffix(strings.TrimPrefix(url, "ws://"), "/ws")
}

// Whoever watches a session, on its gate's node or another, and the object that it is bound to, is told that its client is away, that it is back, that the session
// is at another gate, and of its end: each once, in that order; who comes to it late is told that it is away.
func TestSessionStates(t *testing.T) {
	t.Parallel()
	bound := &diary{}
	app := znode.App{Name: "states", Objects: func(*znode.Node) []zrouter.AnyKind {
		handlers := []zrouter.Handler[*chatpb.Joined]{
			zrouter.Handle(func(c *zrouter.Context[*chatpb.Joined], _ *chatpb.Join) (*chatpb.Joined, error) {
				return &chatpb.Joined{}, c.Bind(c.Session())
			}, zrouter.FromClients()),
			zrouter.HandleTell(func(*zrouter.Context[*chatpb.Joined], *wirepb.SessionSuspended) error {
				bound.note("suspended")
				return nil
			}),
			zrouter.HandleTell(func(*zrouter.Context[*chatpb.Joined], *wirepb.SessionResumed) error {
				bound.note("resumed")
				return nil
			}),
			zrouter.HandleTell(func(*zrouter.Context[*chatpb.Joined], *wirepb.SessionMoved) error { bound.note("moved"); return nil }),
			zrouter.HandleTell(func(*zrouter.Context[*chatpb.Joined], *wirepb.SessionClosed) error { bound.note("closed"); return nil }),
		}
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.Joined]{
			Type: 9, Name: "state", Version: 1, Create: func(zmsg.Key) (*chatpb.Joined, error) { return &chatpb.Joined{}, nil }, Handlers: handlers,
		}}
	}}
	c := ztest.Cluster(t, 3, app)
	r := &wanderer{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ann, err := zclient.Dial(ctx, zclient.Config{
		URL: c.Node(0).GateURL(), Token: "ann", RequestTimeout: patience, Dialer: r.dial, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ann.Close()
		<-ann.Done()
	})
	ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: "x"})
	session := ann.Session().Ref
	all := []*diary{watchSession(t, c.Node(0), session), watchSession(t, c.Node(1), session), watchSession(t, c.Node(2), session), bound}
	deaf := spawn(t, c.Node(1), actor{start: func(c *zactor.Context) error { return c.WatchSession(session) }}) // has no handlers, and is none the worse
	c.Settle()
	tell := func(what string, diaries []*diary, want ...string) {
		t.Helper()
		ztest.Eventually(t, what, func() bool {
			return !slices.ContainsFunc(diaries, func(d *diary) bool { return len(d.read()) < len(want) })
		})
		for i, d := range diaries {
			if got := d.read(); !slices.Equal(got, want) {
				t.Fatalf("%s: number %d was told %v, want %v", what, i, got, want)
			}
		}
	}
	ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: "x"}) // the gate has the watches: they are before this

	r.cut(true)
	tell("away", all, "suspended")
	late := watchSession(t, c.Node(2), session)
	tell("away, to who comes late", []*diary{late}, "suspended")
	r.cut(false)
	tell("back", append(all, late), "suspended", "resumed")

	r.cut(true)
	r.goTo(c.Node(1).GateURL())
	tell("away again", append(all, late), "suspended", "resumed", "suspended")
	r.cut(false)
	tell("at another gate", append(all, late), "suspended", "resumed", "suspended", "moved")
	ztest.Eventually(t, "it is there", func() bool { return ann.Session().Ref.Gate == c.Node(1).Self() })
	ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: "x"}) // it binds itself there
	c.Settle()

	r.cut(true)
	tell("away from the other", append(all, late), "suspended", "resumed", "suspended", "moved", "suspended")
	r.cut(false)
	tell("back at the other", append(all, late), "suspended", "resumed", "suspended", "moved", "suspended", "resumed")
	if err := ann.Close(); err != nil {
		t.Error(err)
	}
	tell("the end", append(all, late), "suspended", "resumed", "suspended", "moved", "suspended", "resumed", "closed")
	if _, ok := c.Node(1).Group().Lookup(""); ok || deaf.Load() != 0 {
		t.Error("who has no handlers has something left to do")
	}
}

// However often a connection breaks, what is told goes to and fro, and ends as it is.
func TestSessionStatesAlternate(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none)
	ann, w := wired(t, c, "ann", 0)
	session := ann.Session().Ref
	ztest.Eventually(t, "the gate knows that its client has a token", func() bool { return ann.RTT() > 0 })
	here, there := watchSession(t, c.Node(0), session), watchSession(t, c.Node(1), session)
	c.Settle()
	w.cut(true) // of those that follow all may be over before anybody is told
	ztest.Eventually(t, "it is away", func() bool { return len(here.read()) == 1 && len(there.read()) == 1 })
	for range 40 {
		w.cut(false)
		time.Sleep(time.Millisecond) // sometimes it is back by then, sometimes not
	}
	ztest.Eventually(t, "all is as it is", func() bool {
		a, b := here.read(), there.read()
		return ann.State().Phase == zclient.Online && len(a) > 0 && len(a)%2 == 0 && slices.Equal(a, b)
	})
	for i, what := range here.read() {
		if want := [...]string{"suspended", "resumed"}[i%2]; what != want {
			t.Fatalf("told %v", here.read())
		}
	}
}

// The gate is killed while the client is away: its end is told once, by the watchers' own nodes, and nothing behind it.
func TestSessionStatesOfAKilledGate(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, none, ztest.Settings(func(_ int, s *znode.Settings) { s.Etcd.Lease = 2 * time.Second }))
	ann, w := wired(t, c, "ann", 0)
	ztest.Eventually(t, "the gate knows that its client has a token", func() bool { return ann.RTT() > 0 })
	session := ann.Session().Ref
	all := []*diary{watchSession(t, c.Node(1), session), watchSession(t, c.Node(2), session)}
	c.Settle()
	w.cut(true)
	told := func(want ...string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(all, func(d *diary) bool { return !slices.Equal(d.read(), want) })
		}
	}
	ztest.Eventually(t, "away", told("suspended"))
	c.Kill(0)
	ztest.Eventually(t, "the end", told("suspended", "closed"))
	w.cut(false)
	c.Settle()
	if !told("suspended", "closed")() {
		t.Errorf("told %v and %v", all[0].read(), all[1].read())
	}
}
