package znode_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"zgame/zactor"
	"zgame/zbus/membus"
	"zgame/zdiscovery"
	"zgame/zdiscovery/memdisc"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// rig is the servers in memory that nodes of a test share.
type rig struct {
	bus   *membus.Hub
	disc  *memdisc.Hub
	store *memstore.Store
}

func newRig() *rig { return &rig{membus.New(), memdisc.New(), memstore.New()} }

func (r *rig) config(id string, app znode.App) znode.Config {
	s := znode.DefaultSettings()
	s.Node.ID, s.Gate.Auth.Kind = id, "dev"
	s.Gate.Address, s.Admin.Address, s.Page.Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	s.Drain.Delay = time.Millisecond
	return znode.Config{Settings: s, App: app, Backends: znode.Backends{Bus: r.bus.Bus(), Discovery: r.disc.Discovery(), Store: r.store.Share()}}
}

func start(t *testing.T, cfg znode.Config) *znode.Node {
	t.Helper()
	n, err := znode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })
	return n
}

func stop(t *testing.T, n *znode.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// X5, X9 of known-faults.md: start and stop, many times, on one port; every end is final.
func TestStartStopOnOnePort(t *testing.T) {
	port := freePort(t)
	r := newRig()
	var last uint64
	for range 20 {
		cfg := r.config("n1", znode.App{})
		cfg.Settings.Gate.Address = port
		n := start(t, cfg)
		if epoch := n.Self().Epoch; epoch <= last {
			t.Errorf("epoch %d after %d: expected it to rise at each start", epoch, last)
		} else {
			last = epoch
		}
		stop(t, n)
		stop(t, n)
	}
}

func TestHealthFollowsTheServers(t *testing.T) {
	r := newRig()
	cfg := r.config("n1", znode.App{Name: "test", Page: fstest.MapFS{"index.html": {Data: []byte("<html>hi")}}})
	n := start(t, cfg)
	admin, page := "http://"+n.AdminAddr(), "http://"+n.PageAddr()
	for host, want := range map[string]int{"localhost:9090": 200, "[::1]:9090": 200, "evil.example:9090": 403} { // a page whose name leads here
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+"/node", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if is := res.Header.Get("Zgame-Node"); res.StatusCode != want || is != n.Self().ID {
			t.Errorf("asked as %s: %d of %q, want %d", host, res.StatusCode, is, want)
		}
	}
	for _, c := range []struct {
		url    string
		status int
		want   string
	}{
		{admin + "/livez", 200, "alive"},
		{admin + "/readyz", 200, "ready"},
		{admin + "/metrics", 200, "zgame_gate_sessions 0"},
		{admin + "/metrics", 200, "zgame_router_suspended 0"},
		{admin + "/debug/pprof/", 404, ""}, // opt-in
		{page + "/", 200, "<html>hi"},
		{page + "/config.json", 200, `"gate":"` + n.GateURL() + `"`},
		{page + "/config.json", 200, `"dev":true`},
		{page + "/../settings.go", 404, ""},
	} {
		if status, body, _ := get(t, c.url); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %.100q, want %d with %q", c.url, status, body, c.status, c.want)
		}
	}
	if _, _, h := get(t, page+"/"); !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'self'") {
		t.Errorf("the page's headers lack a policy: %v", h)
	}
	r.bus.SetUp(false)
	if status, body, _ := get(t, admin+"/readyz"); status != 503 || !strings.Contains(body, "the bus is down") {
		t.Errorf("with the bus down: %d %q", status, body)
	}
	r.bus.SetUp(true)
	r.disc.SetUp(false)
	if status, body, _ := get(t, admin+"/readyz"); status != 503 || !strings.Contains(body, "discovery is down") {
		t.Errorf("with discovery down: %d %q", status, body)
	}
	r.disc.SetUp(true)
	if err := n.Store().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := get(t, admin+"/readyz"); status != 503 || !strings.Contains(body, "the store is down") {
		t.Errorf("with the store closed: %d %q", status, body)
	}
}

// A start that fails names the step and the cause, leaves nothing behind, and the name is free again.
func TestFailedStarts(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	errSetup := errors.New("no maps found")
	r := newRig()
	for _, c := range []struct {
		name   string
		app    znode.App
		change func(*znode.Config)
		want   []string
	}{
		{"setup", znode.App{Setup: func(*znode.Node) error { return errSetup }}, nil, []string{"set up the application", "no maps found"}},
		{"gate's port", znode.App{}, func(c *znode.Config) { c.Settings.Gate.Address = busy.Addr().String() }, []string{"gate cannot listen on", "gate.address", "--gate"}},
		{"admin's port", znode.App{}, func(c *znode.Config) { c.Settings.Admin.Address = busy.Addr().String() }, []string{"admin server cannot listen on", "admin.address"}},
		{"certificate", znode.App{}, func(c *znode.Config) { c.Settings.Gate.TLS.Cert, c.Settings.Gate.TLS.Key = "/no/cert", "/no/key" }, []string{"gate.tls", "/no/cert"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := r.config("n1", c.app)
			if c.change != nil {
				c.change(&cfg)
			}
			n, err := znode.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = n.Start(t.Context())
			if err == nil {
				t.Fatal("started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
	if nodes := start(t, r.config("n1", znode.App{})).Nodes(); len(nodes) != 1 {
		t.Errorf("after the failures the list has %d nodes, want the new one alone", len(nodes))
	}
}

// timedJoin notes how much time a Join has.
type timedJoin struct {
	zdiscovery.Discovery
	left time.Duration
}

func (d *timedJoin) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	return d.Discovery.Join(ctx, n)
}

// A node that was killed is on the list for a lease: its next start must outlast that, however short start.timeout is.
func TestJoinOutlastsALease(t *testing.T) {
	cfg := newRig().config("n1", znode.App{})
	cfg.Settings.Start.Timeout, cfg.Settings.Etcd.Lease = 5*time.Second, 20*time.Second
	join := &timedJoin{Discovery: cfg.Backends.Discovery}
	cfg.Backends.Discovery = join
	start(t, cfg)
	if join.left < cfg.Settings.Etcd.Lease {
		t.Errorf("Join has %v, less than a lease", join.left)
	}
}

func TestStopBeforeStart(t *testing.T) {
	n, err := znode.New(newRig().config("n1", znode.App{}))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n)
}

func TestBadSettingsAreRefused(t *testing.T) {
	cfg := newRig().config("a b", znode.App{})
	cfg.Settings.Gate.Address = "nowhere"
	if _, err := znode.New(cfg); err == nil || !strings.Contains(err.Error(), "node.id") || !strings.Contains(err.Error(), "gate.address") {
		t.Errorf("New: %v, want both faults", err)
	}
}

// A node whose place is lost before it has started, because something stood still for longer than the lease, takes another and starts.
func TestPlaceLostDuringStart(t *testing.T) {
	t.Parallel()
	r := newRig()
	var lost zmsg.NodeRef
	n := start(t, r.config("n1", znode.App{Setup: func(n *znode.Node) error {
		lost = n.Self()
		if !r.disc.Expire("n1") {
			t.Error("it was not on the list")
		}
		return nil
	}}))
	if err := n.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if lost.Epoch == 0 || n.Self().Epoch <= lost.Epoch {
		t.Errorf("it is %v, and was %v", n.Self(), lost)
	}
	eventually(t, "it is on the list as ready", func() bool {
		for _, o := range n.Nodes() {
			if o.Ref == n.Self() {
				return o.State == zdiscovery.Ready && o.Gate == n.GateURL()
			}
		}
		return false
	})
}

// A node whose lease ended, and whose id another process has taken meanwhile, must not go on: Wait ends with an error.
func TestTakenIDEndsTheNode(t *testing.T) {
	r := newRig()
	n := start(t, r.config("n1", znode.App{}))
	first := n.Self()
	ended := make(chan error, 1)
	go func() { ended <- n.Wait(context.Background()) }() // ends with the node's id
	// Whoever joins first has the id; the node is given it back until the other was faster.
	other := r.disc.Discovery()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for taken := false; !taken; {
		if !r.disc.Expire("n1") {
			runtime.Gosched() // it has not joined again yet
			continue
		}
		m, err := other.Join(ctx, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "n1"}})
		switch {
		case err == nil:
			taken = true
			defer func() { _ = m.Leave(ctx) }()
		case !errors.Is(err, zdiscovery.ErrTaken):
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		if !errors.Is(err, zdiscovery.ErrTaken) || !strings.Contains(err.Error(), "cannot join again") {
			t.Errorf("Wait returned %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the node goes on")
	}
	if n.Self().Epoch < first.Epoch {
		t.Errorf("epoch fell from %d to %d", first.Epoch, n.Self().Epoch)
	}
}

// forgetful is a Discovery that, asked to join again, gives an epoch of long ago, as an etcd does that lost its data.
type forgetful struct {
	zdiscovery.Discovery
	joins atomic.Int32
}

type forgotten struct{ zdiscovery.Member }

func (f forgotten) Ref() zmsg.NodeRef { return zmsg.NodeRef{ID: f.Member.Ref().ID, Epoch: 1} }

func (f *forgetful) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
	m, err := f.Discovery.Join(ctx, n)
	if err == nil && f.joins.Add(1) > 1 {
		m = forgotten{m}
	}
	return m, err
}

// An epoch that does not rise fences nothing: the node ends, and says what to do.
func TestEpochsMustRise(t *testing.T) {
	r := newRig()
	cfg := r.config("n1", znode.App{})
	cfg.Backends.Discovery = &forgetful{Discovery: cfg.Backends.Discovery}
	n := start(t, cfg)
	if !r.disc.Expire("n1") {
		t.Fatal("nothing to expire")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Wait(ctx); err == nil || !strings.Contains(err.Error(), "etcd has lost its data") {
		t.Errorf("Wait returned %v", err)
	}
}

type idle struct{}

func (idle) Handlers() []zactor.Handler { return nil }

// Actors that come later are announced too.
func TestLateActorsAreAnnounced(t *testing.T) {
	r := newRig()
	a, b := start(t, r.config("a", znode.App{})), start(t, r.config("b", znode.App{}))
	if _, err := a.Spawn("idle", func() zactor.Actor { return idle{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Spawn("idle", func() zactor.Actor { return idle{} }); err == nil {
		t.Error("two actors of one name")
	}
	if a.Group().Len() != 1 || b.Group().Len() != 0 {
		t.Errorf("groups have %d and %d actors, want 1 and 0", a.Group().Len(), b.Group().Len())
	}
}
