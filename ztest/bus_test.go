package ztest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// bodies answers Who: a room "large" gets more than the bus takes, another one its own name back; "wait" waits for the go.
type bodies struct {
	large   int
	came    chan struct{}
	release chan struct{}
}

func (b bodies) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, m *chatpb.Who) (*chatpb.Members, error) {
		switch m.GetRoom() {
		case "large":
			return &chatpb.Members{Room: strings.Repeat("x", b.large)}, nil
		case "wait":
			b.came <- struct{}{}
			<-b.release
		}
		return &chatpb.Members{Room: m.GetRoom()}, nil
	})}
}

// F9: bodies of any size between nodes are delivered, or refused at once with a typed error; an answer above the bus's limit too.
func TestBodiesBetweenNodes(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.RealServers(), ztest.Settings(quick))
	ref, err := c.Node(1).Spawn("bodies", func() zactor.Actor { return bodies{large: embedded.MaxPayload + 1} })
	if err != nil {
		t.Fatal(err)
	}
	there := c.Node(0).Group().Ref(ref.Address())
	ask := func(room string) (*chatpb.Members, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return zactor.Ask[chatpb.Members](ctx, there, &chatpb.Who{Room: room})
	}
	for _, n := range []int{64<<10 - 1, 64<<10 + 1, 1 << 20, embedded.MaxPayload - 1024} {
		got, err := ask(strings.Repeat("x", n))
		if err != nil || len(got.GetRoom()) != n {
			t.Errorf("%d bytes: %v, %d back", n, err, len(got.GetRoom()))
		}
	}
	for name, want := range map[string]zmsg.Outcome{
		strings.Repeat("x", embedded.MaxPayload+1): zmsg.NotExecuted, "large": zmsg.Executed,
	} {
		begin := time.Now()
		if _, err := ask(name); zmsg.CodeOf(err) != zmsg.CodeTooLarge || zmsg.OutcomeOf(err) != want {
			t.Errorf("%d bytes: %v (%v), want too_large, %v", len(name), err, zmsg.OutcomeOf(err), want)
		}
		if took := time.Since(begin); took > patience/2 {
			t.Errorf("%d bytes: refused after %v", len(name), took)
		}
	}
	if got, err := ask("afterwards"); err != nil || got.GetRoom() != "afterwards" {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

// N1: the connection of the node that answers is cut while it works; its answer is sent when the connection is back.
func TestAnswerOutlivesACut(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Faulty(), ztest.Settings(quickMember))
	b := bodies{came: make(chan struct{}, 1), release: make(chan struct{})}
	ref, err := c.Node(1).Spawn("bodies", func() zactor.Actor { return b })
	if err != nil {
		t.Fatal(err)
	}
	answer := ask(t, c.Node(0).Group().Ref(ref.Address()), "wait", patience)
	<-b.came
	p := c.NATSProxy(1)
	p.Cut()
	missing(t, c.Node(1), "the bus is down")
	close(b.release)
	if got := <-ask(t, ref, "", patience); got.err != nil { // behind it
		t.Error(got.err)
	}
	p.Heal()
	if got := <-answer; got.err != nil {
		t.Errorf("got %v after %v", got.err, got.took)
	}
}

// Draining waits for handlers: 100 calls of 200 ms that are in flight when the node stops are all answered, those from its own node and those
// from another one.
func TestStopAnswersWhatIsInFlight(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.RealServers(), ztest.Settings(func(k int, s *znode.Settings) {
		quick(k, s)
		s.Drain.Timeout = patience
	}))
	const calls = 100
	var began atomic.Int64
	var answers []<-chan outcome
	var refs []zactor.Ref
	for range calls {
		ref, err := c.Node(1).Spawn("", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) {
				began.Add(1)
				time.Sleep(200 * time.Millisecond)
				return &chatpb.Members{}, nil
			})}}
		})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
		answers = append(answers, ask(t, ref, "", patience), ask(t, c.Node(0).Group().Ref(ref.Address()), "", patience))
	}
	ztest.Eventually(t, "all calls are in their handlers, or wait for them", func() bool { // who comes later is refused, rightly
		n := began.Load()
		for _, ref := range refs {
			n += int64(ref.Load())
		}
		return n == 2*calls
	})
	c.Stop(1) // fails the test when something was cut
	for i, ch := range answers {
		if got := <-ch; got.err != nil {
			t.Errorf("call %d: %v after %v", i, got.err, got.took)
		}
	}
	if n := began.Load(); n != 2*calls {
		t.Errorf("%d calls ran, want %d", n, 2*calls)
	}
}

// N5, X8: NATS starts after the node. The node waits for it, serves nobody meanwhile, and is ready then.
func TestNATSStartsLate(t *testing.T) {
	t.Parallel()
	etcd, err := embedded.StartEtcd(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	ports := [2]int{} // of NATS and of the gate
	for i := range ports {
		if ports[i], err = embedded.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	gate := fmt.Sprint("127.0.0.1:", ports[1])
	s := znode.DefaultSettings()
	s.Node.ID = "n1"
	s.NATS.URL, s.Etcd.Endpoints, s.Store.Driver = fmt.Sprint("nats://127.0.0.1:", ports[0]), []string{"http://" + etcd.Endpoint()}, "kv"
	s.Gate.Auth.Kind = "dev"
	s.Gate.Address, s.Admin.Address, s.Page.Address = gate, "127.0.0.1:0", ""
	n, err := znode.New(znode.Config{Settings: s, App: none})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- n.Start(ctx) }() // ends with ctx at the latest
	time.Sleep(1500 * time.Millisecond)     // longer than one attempt to connect
	select {
	case err := <-started:
		t.Fatalf("started without NATS: %v", err)
	default:
	}
	if c, err := net.Dial("tcp", gate); err == nil {
		c.Close()
		t.Error("the gate's port is open without NATS")
	}
	if err := n.Ready(ctx); err == nil {
		t.Error("ready without NATS")
	}
	nats, err := embedded.StartNATS(t.TempDir(), ports[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := n.Ready(ctx); err != nil {
		t.Errorf("not ready with NATS: %v", err)
	}
}

// logLines counts what nodes log at Warn and above.
type logLines struct{ n atomic.Int64 }

func (l *logLines) Enabled(_ context.Context, v slog.Level) bool { return v >= slog.LevelWarn }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler           { return l }
func (l *logLines) WithGroup(string) slog.Handler                { return l }
func (l *logLines) Handle(context.Context, slog.Record) error    { l.n.Add(1); return nil }

// N8: pushes to sessions of a gate that has just died are counted, and do not fill the log.
func TestPushesToADeadGate(t *testing.T) {
	t.Parallel()
	const pushes = 5000
	session := make(chan zmsg.SessionRef, 1)
	var failed, other atomic.Int64
	log := &logLines{}
	c := ztest.Cluster(t, 2, znode.App{Setup: func(n *znode.Node) error {
		if n.Self().ID != "n1" {
			return nil
		}
		_, err := n.Spawn("pusher", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(c *zactor.Context, _ *chatpb.Join) (*chatpb.Members, error) {
					session <- c.Session()
					return &chatpb.Members{}, nil
				}, zactor.FromClients()),
				zactor.Handle(func(c *zactor.Context, _ *chatpb.Who) (*chatpb.Members, error) {
					to := <-session
					for range pushes {
						switch err := c.Push(to, &chatpb.Typing{}); zmsg.CodeOf(err) {
						case zmsg.CodeOK:
						case zmsg.CodeUnavailable, zmsg.CodeNodeLost:
							failed.Add(1)
						default:
							other.Add(1)
							t.Errorf("push: %v", err)
						}
					}
					return &chatpb.Members{}, nil
				}),
			}}
		})
		return err
	}}, ztest.Logger(slog.New(log)))
	ztest.Call[chatpb.Members](t, c.Client("ann", 1), &chatpb.Join{Room: "r"})
	c.Kill(1)
	before := log.n.Load()
	ref, _ := c.Node(0).Group().Lookup("pusher")
	if got := <-ask(t, ref, "", patience); got.err != nil {
		t.Fatal(got.err)
	}
	// Each is an error, or counted when the bus says that nobody is there.
	ztest.Eventually(t, "every push is accounted for", func() bool {
		return failed.Load()+int64(metric(t, c.Node(0), "zgame_bus_dropped_total")) >= pushes
	})
	if n := log.n.Load() - before; n > 20 {
		t.Errorf("%d lines of log for %d pushes", n, pushes)
	}
}

// metric is the sum of a node's counters, or gauges, of that name.
func metric(t *testing.T, n *znode.Node, name string) (sum float64) {
	t.Helper()
	families, err := n.Registerer().(prometheus.Gatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() // it is one of the two
			}
		}
	}
	return sum
}
