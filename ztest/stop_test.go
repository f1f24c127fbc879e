package ztest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// logged is what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) lines(level string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, "level="+level) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// X6: a node stops with many clients. Each is told that it shuts down and when to come back, spread; nothing is logged as an error or a warning.
func TestStopWithManyClients(t *testing.T) {
	t.Parallel()
	clients := 1000
	if testing.Short() {
		clients = 100
	}
	const spread = 10 * time.Second
	log := &logged{}
	c := ztest.Cluster(t, 1, znode.App{Name: "stop"}, ztest.Logger(slog.New(slog.NewTextHandler(log, nil))), ztest.Settings(func(_ int, s *znode.Settings) {
		s.Drain.Delay, s.Gate.MaxPerAddress, s.Gate.Directory = spread, -1, false
	}))
	states := make(chan zclient.State, clients)
	all := make([]*zclient.Client, clients)
	var wg sync.WaitGroup
	for from := range 20 {
		wg.Go(func() {
			for i := from; i < clients; i += 20 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				cl, err := zclient.Dial(ctx, zclient.Config{URL: c.Node(0).GateURL(), Token: fmt.Sprint("user", i), MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
				cancel()
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				all[i] = cl
				var once sync.Once
				cl.OnState(func(s zclient.State) {
					if s.Phase == zclient.Waiting || s.Phase == zclient.Closed {
						once.Do(func() { states <- s; _ = cl.Close() })
					}
				})
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	before := len(log.lines("WARN")) // that everybody is believed, of the start
	c.Stop(0)
	late, zero := 0, 0
	for range clients {
		select {
		case s := <-states:
			if s.Phase != zclient.Waiting || s.Reason.Code != 3001 || s.Delay > spread {
				t.Fatalf("%v after %s, reason %v", s.Phase, s.Delay, s.Reason)
			}
			if s.Delay > spread/2 {
				late++
			}
			if s.Delay < time.Millisecond {
				zero++
			}
		case <-time.After(patience):
			t.Fatal("a client was not told")
		}
	}
	if late < clients/4 || late > clients*3/4 || zero > clients/20 {
		t.Errorf("%d of %d come back in the second half of the time, %d at once", late, clients, zero)
	}
	if faults := append(log.lines("ERROR"), log.lines("WARN")[before:]...); len(faults) > 0 {
		t.Errorf("logged:\n%s", strings.Join(faults, "\n"))
	}
	for _, cl := range all {
		_ = cl.Close()
		<-cl.Done()
	}
}

// R12: an actor fails more often than it may. Its OnStop runs, and tells the clients that watch it, who read a code; the request that did it ends as panicked.
func TestWatchersOfAnActorThatFails(t *testing.T) {
	t.Parallel()
	match := &match{}
	app := znode.App{Name: "match", Setup: func(n *znode.Node) error {
		if n.Self().ID != "n2" {
			return nil // the gate is another node's
		}
		_, err := n.Spawn("match", func() zactor.Actor { return match }, zactor.WithPolicy(zactor.Policy{MaxRestarts: -1}))
		return err
	}}
	c := ztest.Cluster(t, 2, app, ztest.Settings(gateAlone))
	ends := make(chan zclient.State, 3)
	var all []*zclient.Client
	for i := range 3 {
		cl := c.Client(fmt.Sprint("user", i), 0)
		cl.OnState(func(s zclient.State) {
			if s.Phase == zclient.Closed {
				ends <- s
			}
		})
		ztest.Eventually(t, "the match is there", func() bool {
			_, err := zclient.Call[chatpb.Joined](t.Context(), cl, &chatpb.Join{Room: "m"})
			return err == nil
		})
		all = append(all, cl)
	}
	if err := all[0].Request(t.Context(), &chatpb.Who{}, nil); zmsg.CodeOf(err) != zmsg.CodePanicked && zmsg.CodeOf(err) != zmsg.CodeCancelled && zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Errorf("%v", err)
	}
	for range 3 {
		select {
		case s := <-ends:
			if s.Reason.Code != 4001 || s.Reason.Text != "the match is over: failed" {
				t.Errorf("%v", s.Reason)
			}
		case <-time.After(patience):
			t.Fatal("a client was not told")
		}
	}
}

// match is an actor with clients that watch it.
type match struct{ watching []zmsg.SessionRef }

func (m *match) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.Handle(func(c *zactor.Context, j *chatpb.Join) (*chatpb.Joined, error) {
			m.watching = append(m.watching, c.Session())
			return &chatpb.Joined{Room: j.GetRoom()}, nil
		}, zactor.FromClients()),
		zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) { panic("a fault of the game") }, zactor.FromClients()),
	}
}

func (m *match) OnStop(c *zactor.Context, why zactor.Reason) {
	for _, s := range m.watching {
		_ = c.Kick(s, 4001, "the match is over: "+why.String())
	}
}
