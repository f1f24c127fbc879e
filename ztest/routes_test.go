package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zroute"
	"zgame/ztest"
)

// P14, X2, and issue 4: three nodes with actors are restarted one after the other while 30 clients of a fourth send requests, by turns and by
// key, and one-way messages. No client is disconnected, each request is answered, and no message is lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const clients = 30
	var told atomic.Int64
	handled := map[string]*atomic.Int64{"n2": {}, "n3": {}, "n4": {}}
	work := func() { time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) }
	app := znode.App{
		Routing: func(*znode.Node) znode.Routing {
			// The old actor of a key may be slow to answer on a busy machine: past MoveWait its requests end as unavailable, which this test does not send again.
			return znode.Routing{NextBest: true, MoveWait: patience, Remote: zroute.Strategies{
				Default: zroute.RoundRobin(), ByID: map[uint32]zroute.RemoteStrategy{1001: zroute.Rendezvous(nil)},
			}}
		},
		Setup: func(n *znode.Node) error {
			id := n.Self().ID
			if handled[id] == nil {
				return nil // the gate's node
			}
			_, err := n.Spawn("worker", func() zactor.Actor {
				return &actor{handlers: []zactor.Handler{
					zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) {
						work()
						handled[id].Add(1)
						return &chatpb.Members{}, nil
					}, zactor.FromClients()),
					zactor.Handle(func(_ *zactor.Context, m *chatpb.Join) (*chatpb.Joined, error) {
						work()
						return &chatpb.Joined{Room: m.GetRoom()}, nil
					}, zactor.FromClients()),
					zactor.HandleTell(func(*zactor.Context, *chatpb.Leave) error {
						told.Add(1)
						return nil
					}, zactor.FromClients()),
				}}
			})
			return err
		},
	}
	c := ztest.Cluster(t, 4, app, ztest.RealServers(), ztest.Settings(func(k int, s *znode.Settings) {
		s.Gate.Enabled = k == 0
	}))
	var stop atomic.Bool
	var asked, sent atomic.Int64
	var loops sync.WaitGroup
	sessions := make([]zmsg.SessionRef, clients)
	all := make([]*zclient.Client, clients)
	for i := range all {
		cl := c.Client(fmt.Sprint("client", i), 0)
		all[i], sessions[i] = cl, cl.Session().Ref
		loops.Go(func() { // ends when stop is set
			ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
			defer cancel()
			for n := 0; !stop.Load(); n++ {
				room := fmt.Sprint(i, "-", n)
				joined := &chatpb.Joined{}
				for _, r := range []struct{ req, answer proto.Message }{{&chatpb.Who{}, &chatpb.Members{}}, {&chatpb.Join{Room: room}, joined}} {
					if err := cl.Request(ctx, r.req, r.answer); err != nil {
						t.Errorf("client %d, %T %d: %v", i, r.req, n, err)
						return
					}
					asked.Add(1)
				}
				if joined.GetRoom() != room {
					t.Errorf("client %d asked for %s and got the answer for %s", i, room, joined.GetRoom())
				}
				if err := cl.Send(&chatpb.Leave{}); err != nil {
					t.Error(err)
					return
				}
				sent.Add(1)
			}
		})
	}
	t.Cleanup(func() { stop.Store(true) })
	goOn := func() {
		t.Helper()
		mark := asked.Load()
		ztest.Eventually(t, "traffic goes on", func() bool { return asked.Load() > mark+20*clients || t.Failed() })
	}
	goOn()
	for k := 1; k <= 3; k++ {
		before := handled[fmt.Sprint("n", k+1)].Load()
		c.Restart(k)
		goOn()
		if handled[fmt.Sprint("n", k+1)].Load() == before {
			t.Errorf("the new n%d gets nothing", k+1)
		}
	}
	stop.Store(true)
	loops.Wait()
	ztest.Eventually(t, fmt.Sprint("all ", sent.Load(), " one-way messages are handled"), func() bool { return told.Load() == sent.Load() })
	for i, cl := range all {
		if s := cl.State(); s.Reason != nil || cl.Session().Ref != sessions[i] {
			t.Errorf("client %d was disconnected: %v", i, s.Reason)
		}
	}
	t.Logf("%d requests, %d messages", asked.Load(), sent.Load())
}

// P16, P21, R14: a request to an id that nobody has, to one whose actors never answer, to an actor that is gone or never was, here and on
// another node: each has one outcome, at once where it can be known, else at its deadline.
func TestRequestsToNobody(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none)
	a, b := c.Node(0), c.Node(1)
	mute := spawn(t, a, actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, _ *chatpb.Who) (*chatpb.Members, error) {
		c.Defer()
		return nil, zactor.ErrDeferred
	})}})
	gone := spawn(t, a, actor{}, zactor.Private())
	if err := a.Group().StopWait(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	never := zmsg.Address{Node: a.Self(), Actor: 1 << 40}
	noNode := zmsg.Address{Node: zmsg.NodeRef{ID: "nobody", Epoch: 1}, Actor: 1}
	ztest.Eventually(t, "b has the route", func() bool {
		for _, n := range b.Nodes() {
			if n.Ref == a.Self() && len(n.Actors) == 1 {
				return true
			}
		}
		return false
	})
	for _, tt := range []struct {
		name  string
		to    zactor.Ref
		req   proto.Message
		limit time.Duration
		codes []zmsg.Code
		out   zmsg.Outcome
	}{
		{"an id that nobody has", b.Group().ByID(), &chatpb.Join{}, patience, []zmsg.Code{zmsg.CodeNoRoute}, zmsg.NotExecuted},
		{"an id whose actor is mute", b.Group().ByID(), &chatpb.Who{}, time.Second, []zmsg.Code{zmsg.CodeTimeout, zmsg.CodeCancelled}, zmsg.Unknown},
		{"a mute actor", b.Group().Ref(mute.Address()), &chatpb.Who{}, time.Second, []zmsg.Code{zmsg.CodeTimeout, zmsg.CodeCancelled}, zmsg.Unknown},
		{"an actor that has ended", b.Group().Ref(gone.Address()), &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeUnknownActor}, zmsg.NotExecuted},
		{"the same on its own node", a.Group().Ref(gone.Address()), &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeUnknownActor}, zmsg.NotExecuted},
		{"the same by a ref from before", gone, &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeStopped}, zmsg.NotExecuted},
		{"an actor that never was", b.Group().Ref(never), &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeUnknownActor}, zmsg.NotExecuted},
		{"a node that never was", b.Group().Ref(noNode), &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeUnavailable}, zmsg.NotExecuted},
		{"nobody", zactor.Ref{}, &chatpb.Who{}, patience, []zmsg.Code{zmsg.CodeUnknownActor}, zmsg.NotExecuted},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
		began := time.Now()
		_, err := zactor.Ask[chatpb.Members](ctx, tt.to, tt.req)
		took := time.Since(began)
		cancel()
		found := false
		for _, code := range tt.codes {
			found = found || zmsg.CodeOf(err) == code
		}
		if tt.limit < patience && errors.Is(err, context.DeadlineExceeded) {
			found = true
		} else if zmsg.OutcomeOf(err) != tt.out {
			found = false
		}
		if !found {
			t.Errorf("%s: %v (%v), want %v", tt.name, err, zmsg.OutcomeOf(err), tt.codes)
		}
		if tt.limit == patience && took > patience/3 { // the aim is 100 ms
			t.Errorf("%s: took %v", tt.name, took)
		}
	}
	client := c.Client("ann", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var e *zmsg.Error
	if err := client.Request(ctx, &chatpb.Join{Room: "x"}, &chatpb.Joined{}); !errors.As(err, &e) || e.Code != zmsg.CodeNoRoute || e.Outcome != zmsg.NotExecuted {
		t.Errorf("a client's: %v", err)
	}
}

// P18: kill -9 of the node that the strategy prefers: requests by id meet at most one failed try each, and are answered by another; when the
// lease has ended the node is off the list, and there are no more failed tries.
func TestKilledNodeIsExcluded(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	nats, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	etcd, err := embedded.StartEtcd(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	env := []string{
		"ZGAME_NATS_URL=" + nats.URL(), "ZGAME_ETCD_ENDPOINTS=http://" + etcd.Endpoint(), "ZGAME_ETCD_LEASE=" + lease.String(),
		"ZGAME_STORE_DRIVER=kv", "ZGAME_GATE_ENABLED=false", "ZGAME_PAGE_ADDRESS=",
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	node := func(id string, app znode.App) *znode.Node {
		s, err := znode.LoadSettings("", append(env, "ZGAME_ADMIN_ADDRESS=127.0.0.1:0", "ZGAME_NODE_ID="+id))
		if err != nil {
			t.Fatal(err)
		}
		s.Etcd.Lease = patience // these two are to stay, also on a busy machine
		n, err := znode.New(znode.Config{Settings: s, App: app})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Stop(context.Background()) })
		return n
	}
	asker := node("n1", none)
	node("n3", znode.App{Setup: setupNamed})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(ctx, self)
	other.Env = append(append(os.Environ(), env...), asNode+"=named", "ZGAME_NODE_ID=n2", "ZGAME_ADMIN_ADDRESS=")
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	at := func() string {
		t.Helper()
		m, err := zactor.Ask[chatpb.Joined](ctx, asker.Group().ByID(), &chatpb.Join{})
		if err != nil {
			t.Errorf("a request: %v", err)
		}
		return m.GetNode()
	}
	ztest.Eventually(t, "n3 has the route", func() bool {
		m, err := zactor.Ask[chatpb.Joined](ctx, asker.Group().ByID(), &chatpb.Join{})
		return err == nil && m.GetNode() != ""
	})
	ztest.Eventually(t, "n2 is the first", func() bool { return at() == "n2" })
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	there := func() bool {
		for _, n := range asker.Nodes() {
			if n.Ref.ID == "n2" {
				return true
			}
		}
		return false
	}
	before, asked := fallbacks(t, asker), 0
	for killed := time.Now(); there(); asked++ {
		if got := at(); got != "n3" {
			t.Fatalf("request %d after the kill was answered by %q", asked, got)
		}
		if time.Since(killed) > lease+patience {
			t.Fatal("a dead node is on the list")
		}
		time.Sleep(5 * time.Millisecond) // a load, not a flood
	}
	tries := fallbacks(t, asker) - before
	if tries == 0 || tries > asked {
		t.Errorf("%d failed tries of %d requests, want at most one for each, and some", tries, asked)
	}
	for range 20 {
		at()
	}
	if more := fallbacks(t, asker) - before - tries; more != 0 {
		t.Errorf("%d failed tries after the node was off the list", more)
	}
	t.Logf("%d requests until the lease had ended, %d failed tries", asked, tries)
}

// fallbacks reads how many further candidates the node has tried.
func fallbacks(t *testing.T, n *znode.Node) (total int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.AdminAddr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "zgame_route_fallbacks_total{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			total += int(f)
		}
	}
	return total
}
