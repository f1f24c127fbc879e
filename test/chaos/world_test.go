//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/notes"
	"zgame/test/chaos/oracle"
	"zgame/test/chaos/seam"
	"zgame/znode"
	"zgame/zstore/kvstore"
)

// lease is how long a node that is dead may hold its objects.
const lease = 3 * time.Second

// Ports of the servers.
const (
	busPort   = 4222
	storePort = 4223
	etcdPort  = 2379
)

// world is a cluster: three servers beside the test, nodes on hosts of their own, and a node in this process that asks for objects
// and hosts none.
type world struct {
	t   *testing.T
	opt options
	rng *rand.Rand // of the test's goroutine
	dir string
	lan *lan

	bus, store, etcd *server
	seam             *seam.Listener
	nodes            []*node // that host lists
	gate             *node   // that hosts none and has clients
	client           *znode.Node
	env              []string   // of nodes
	started          []*process // all processes, in order

	mu    sync.Mutex
	procs map[string]*oracle.Proc // guarded by mu, as is what they point to
}

// server is one server, which may end and begin again with its data.
type server struct {
	w    *world
	name string
	args []string
	*process
}

// node is one node, whose process may end and begin again.
type node struct {
	w    *world
	id   string
	host *host
	env  []string
	*process
	proc string // the name of its process
}

// options of a world.
type options struct {
	// calm is a world to which nothing is done that might excuse a failure: its leases and connections bear a busy machine too.
	calm bool
	// memory has appends acknowledged before they are saved: a crash loses some.
	memory bool
}

// newWorld makes a cluster of three nodes and a gate; all of it ends with the test.
func newWorld(t *testing.T, opt options) *world {
	t.Helper()
	hash := oracle.Chain(seed, 0)
	for _, c := range t.Name() {
		hash = oracle.Chain(hash, uint64(c))
	}
	w := &world{t: t, opt: opt, rng: rand.New(rand.NewPCG(seed, hash)), dir: t.TempDir(), lan: newLAN(t), procs: map[string]*oracle.Proc{}}
	t.Cleanup(func() {
		w.killAll()
		if t.Failed() {
			t.Logf("again: -chaos.seed=%d -chaos.rounds=%d -test.run='%s'", seed, *rounds, strings.ReplaceAll("^"+t.Name()+"$", "/", "$/^"))
		}
	})
	w.bus = w.server("nats", busPort, "bus")
	w.store = w.server("nats", storePort, "store")
	w.etcd = w.server("etcd", etcdPort, "etcd")
	var err error
	if w.seam, err = seam.Listen(w.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.seam.Close)
	w.openJournal()
	w.env = []string{
		"ZGAME_NATS_URL=" + w.url("nats", busPort), "ZGAME_NATS_PING_INTERVAL=500ms", "ZGAME_ETCD_ENDPOINTS=" + w.url("http", etcdPort),
		"ZGAME_STORE_DRIVER=kv", "ZGAME_ETCD_LEASE=" + lease.String(), "ZGAME_DRAIN_DELAY=50ms", "ZGAME_LOG_FORMAT=json",
		"ZGAME_ADMIN_ADDRESS=:9090", "ZGAME_NODE_LOCK_DIR=" + filepath.Join(w.dir, "locks"),
		"CHAOS_STORE=" + w.url("nats", storePort), "CHAOS_DIR=" + w.dir, "CHAOS_DURABLE=" + strconv.FormatBool(!opt.memory),
	}
	if opt.calm {
		w.env = append(w.env, "ZGAME_NATS_PING_INTERVAL=10s", "ZGAME_ETCD_LEASE="+(20*lease).String())
	}
	for i := range 3 {
		w.nodes = append(w.nodes, w.node(fmt.Sprint("n", i+1), "ZGAME_GATE_ENABLED=false"))
	}
	w.gate = w.node("gate", "ZGAME_GATE_ADDRESS=:7000", "ZGAME_GATE_INSECURE_PLAINTEXT=true", "ZGAME_GATE_AUTH_KIND=dev", "CHAOS_HOSTS=none")
	for _, n := range append(slices.Clone(w.nodes), w.gate) {
		n.start()
	}
	w.startClient()
	return w
}

func (w *world) url(scheme string, port int) string {
	return fmt.Sprintf("%s://%s:%d", scheme, w.lan.address(), port)
}

func (w *world) server(command string, port int, name string) *server {
	s := &server{w: w, name: name, args: []string{command, "--host", w.lan.address(), "--port", fmt.Sprint(port), "--data", filepath.Join(w.dir, name)}}
	s.start()
	return s
}

func (s *server) start() {
	s.w.t.Helper()
	s.process = s.w.start(nil, s.name, nil, s.args...)
	s.prints("is ready")
}

// away kills the server, and starts it again after a while.
func (s *server) away(d time.Duration) {
	s.w.t.Helper()
	s.kill()
	wait(d)
	s.start()
}

func (w *world) node(id string, env ...string) *node {
	return &node{w: w, id: id, host: w.lan.host(), env: append([]string{"ZGAME_NODE_ID=" + id}, env...)}
}

// start starts the node's process and waits until it is ready.
func (n *node) start() {
	n.w.t.Helper()
	n.begin()
	n.prints("node is ready")
}

// begin starts the node's process.
func (n *node) begin() {
	n.w.t.Helper()
	n.process = n.w.start(n.host, n.id, append(slices.Clone(n.env), n.w.env...), "node")
	n.proc = notes.Proc(n.id, n.pid())
	n.w.mu.Lock()
	n.w.procs[n.proc] = &oracle.Proc{Peace: n.w.opt.calm}
	n.w.mu.Unlock()
}

// die is kill -9 of the node.
func (n *node) die() {
	n.kill()
	n.w.mu.Lock()
	n.w.procs[n.proc].Died = notes.Now()
	n.w.mu.Unlock()
}

// pause stops the process, and lets it go on after d.
func (n *node) pause(d time.Duration) {
	n.w.t.Helper()
	from := notes.Now()
	n.send(syscall.SIGSTOP)
	wait(d)
	n.send(syscall.SIGCONT)
	n.w.mu.Lock()
	p := n.w.procs[n.proc]
	p.Pauses = append(p.Pauses, oracle.Span{From: from, To: notes.Now()})
	n.w.mu.Unlock()
}

// cut drops packets of the node for d.
func (n *node) cut(how way, port int, d time.Duration) {
	n.w.t.Helper()
	n.host.drop(how, port)
	wait(d)
	n.host.heal()
}

// any draws a node that hosts lists.
func (w *world) any() *node { return w.nodes[w.rng.IntN(len(w.nodes))] }

// named returns the node with the id.
func (w *world) named(id string) *node {
	w.t.Helper()
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.id == id })
	if i < 0 {
		w.t.Fatalf("there is no node %q that hosts lists", id)
	}
	return w.nodes[i]
}

// owning draws a node that owns lists.
func (l *load) owning() *node { return l.w.owner(l.any()) }

// between draws a time.
func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)))
}

// wait lets time pass: that is what a fault is about here, nothing is waited for by it.
func wait(d time.Duration) { <-time.After(d) }

// startClient starts the node in this process.
func (w *world) startClient() {
	w.t.Helper()
	s := znode.DefaultSettings()
	s.Node.ID, s.Node.LockDir = "client", ""
	s.Gate.Enabled, s.Admin.Address = false, ""
	s.NATS.URL, s.NATS.PingInterval = w.url("nats", busPort), time.Second
	s.Etcd.Endpoints, s.Etcd.Lease = []string{w.url("http", etcdPort)}, 20*lease
	s.Store.Driver = "kv"
	s.Node.LoadInterval = 0
	store, err := kvstore.New(kvstore.Config{URL: w.url("nats", storePort), Bucket: chaospb.Bucket})
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := znode.New(znode.Config{Settings: s, App: znode.App{Name: "client"}, Backends: znode.Backends{Store: store}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.client = n
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			w.t.Logf("the client's node stops: %v", err)
		}
	})
}
