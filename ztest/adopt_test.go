package ztest_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
	"zgame/zuser"
)

// roamer is a client whose network leads to one gate, then to another.
type roamer struct {
	*listener
	mu   sync.Mutex
	to   string
	conn net.Conn
	lost atomic.Int64 // sessions
}

func roam(t *testing.T, c *ztest.Nodes, name string, k int) *roamer {
	t.Helper()
	r := &roamer{}
	r.lead(c, k)
	cl, err := zclient.New(zclient.Config{
		URL: "ws://gate.example/ws", Token: name, RequestTimeout: patience, MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			nc, err := new(net.Dialer).DialContext(ctx, network, r.to)
			if err != nil {
				return nil, err
			}
			r.conn = nc
			return nc, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.listener = listen(t, cl)
	cl.OnLost(func(zclient.Lost) { r.lost.Add(1) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cl.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cl.Close()
		<-cl.Done()
	})
	return r
}

// lead has the client's next connection go to node k's gate, and breaks the one of now.
func (r *roamer) lead(c *ztest.Nodes, k int) {
	url := c.Node(k).GateURL()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = url[len("ws://") : len(url)-len("/ws")]
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// cut breaks the client's connection, and the ones that it tries from now on.
func (r *roamer) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = "127.0.0.1:1"
	_ = r.conn.Close()
}

// A gate is killed. Its clients go on with their sessions at another one: the same id, a gap with an open end; what was under way ends as unknown, and does
// not run a second time; the directory has them, once.
func TestSessionGoesOnAtAnotherGate(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	app := none
	app.Setup = func(n *znode.Node) error {
		if n.Self().ID != "n3" {
			return nil
		}
		_, err := n.Spawn("", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(c *zactor.Context, req *chatpb.Say) (*chatpb.Said, error) {
					if runs.Add(1); req.GetText() == "never" {
						c.Defer()
					}
					return &chatpb.Said{}, nil
				}, zactor.FromClients()),
			}}
		})
		return err
	}
	c := users(t, app, nil)
	r := roam(t, c, "ann", 0)
	before := r.Session()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := line(t, c, 1, "ann", 1); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "a push comes", func() bool { return len(r.heard()) == 1 })
	outcome := make(chan error, 1)
	go func() { outcome <- r.Request(ctx, &chatpb.Say{Room: "x", Text: "never"}, new(chatpb.Said)) }()
	ztest.Eventually(t, "the request runs", func() bool { return runs.Load() == 1 })
	c.Kill(0)
	r.lead(c, 1)
	ztest.Eventually(t, "it is back", func() bool {
		s := r.State()
		return s.Phase == zclient.Online && s.Session.Ref.Gate == c.Node(1).Self()
	})
	after := r.Session()
	if !after.Resumed || after.Ref.ID != before.Ref.ID || after.Ref.Gen != before.Ref.Gen+1 || r.lost.Load() != 0 {
		t.Errorf("it goes on as %+v, was %+v; lost %d times", after, before, r.lost.Load())
	}
	if err := <-outcome; zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("what was under way: %v", err)
	}
	if err := r.Request(ctx, &chatpb.Say{Room: "x", Text: "hi"}, new(chatpb.Said)); err != nil || runs.Load() != 2 {
		t.Errorf("the next request: %v; %d have run", err, runs.Load())
	}
	ztest.Eventually(t, "the gap is told", func() bool { return r.missed() > 0 })
	r.mu.Lock()
	if g := r.gaps[0]; g.First != 2 || g.Last != 0 {
		t.Errorf("told of %+v", g)
	}
	r.mu.Unlock()
	if err := line(t, c, 2, "ann", 2); err != nil {
		t.Error(err)
	}
	ztest.Eventually(t, "a push comes", func() bool { return len(r.heard()) == 2 })
	ztest.Eventually(t, "the directory has it, once", func() bool {
		got := sessionsOf(t, c, 2, "ann")
		return len(got) == 1 && got[0] == after.Ref
	})
}

// A user whose gate is gone is not there until he is back; after the window nobody goes on with his session.
func TestSessionIsNotGoneOnWithTooLate(t *testing.T) {
	t.Parallel()
	c := users(t, none, func(s *znode.Settings) { s.Gate.ResumeWindow = 10 * time.Millisecond })
	r := roam(t, c, "ann", 0)
	before := r.Session()
	c.Kill(0)
	ztest.Eventually(t, "he is not there", func() bool { return errors.Is(line(t, c, 1, "ann", 1), zuser.ErrNotInServer) })
	gone := time.Now()
	ztest.Eventually(t, "the window is over", func() bool { return time.Since(gone) > 3*time.Second })
	r.lead(c, 1)
	ztest.Eventually(t, "it is back", func() bool {
		s := r.State()
		return s.Phase == zclient.Online && s.Session.Ref.Gate == c.Node(1).Self()
	})
	if after := r.Session(); after.Resumed || after.Ref.ID == before.Ref.ID {
		t.Errorf("it goes on as %+v, was %+v", after, before)
	}
	ztest.Eventually(t, "the loss is told", func() bool { return r.lost.Load() == 1 })
	if err := line(t, c, 2, "ann", 1); err != nil {
		t.Error(err)
	}
}

// A session goes on for its own client alone: a claim that is not the token's, or none, or for another user, changes nothing.
func TestFalseClaims(t *testing.T) {
	t.Parallel()
	c := users(t, none, nil)
	ann := c.Client("ann", 0)
	ref := ann.Session().Ref
	next := zmsg.SessionRef{Gate: c.Node(1).Self(), ID: ref.ID, Gen: ref.Gen + 1}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, x := range []struct {
		user  string
		claim []byte
	}{{"ann", nil}, {"ann", make([]byte, 32)}, {"bob", make([]byte, 32)}} {
		_, a, err := c.Node(1).Users().Bind(ctx, zmsg.Login{User: x.user, Session: next, Most: 1, Resumes: ref, Claim: x.claim})
		if err != nil || a != zmsg.Lapsed {
			t.Errorf("%s, %x: %v, %v", x.user, x.claim, a, err)
		}
	}
	if got := sessionsOf(t, c, 2, "ann"); len(got) != 1 || got[0] != ref || ann.State().Phase != zclient.Online {
		t.Errorf("the directory has %v, not %v", got, ref)
	}
}
