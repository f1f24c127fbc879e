package ztest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zbus/membus"
	"zgame/zclient"
	"zgame/zdiscovery/memdisc"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/zstore/memstore"
)

// patience bounds every wait of this package: far above what a busy machine needs.
const patience = time.Minute

// Option changes how Cluster builds.
type Option func(*options)

type options struct {
	real     bool
	faulty   bool
	settings func(k int, s *znode.Settings)
	logger   *slog.Logger
}

// RealServers runs the nodes on embedded NATS (JetStream as the store) and etcd, with the production drivers. Leases are a minute
// long, so that a busy machine does not cost a node its place; see Settings.
func RealServers() Option { return func(o *options) { o.real = true } }

// Settings lets f change the settings of each node, k from 0.
func Settings(f func(k int, s *znode.Settings)) Option { return func(o *options) { o.settings = f } }

// Logger takes what the nodes log; without it nothing is logged.
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Nodes is a running cluster. Its methods are called from the test's goroutine.
type Nodes struct {
	t     testing.TB
	opts  options
	app   znode.App
	nodes []*znode.Node // nil: stopped or killed

	// In memory.
	bus   *membus.Hub
	buses []*membus.Bus // of the nodes
	disc  *memdisc.Hub
	discs []*memdisc.Disc // of the nodes
	store *memstore.Store
	// Real.
	nats *embedded.NATS
	etcd *embedded.Etcd
	// Faulty: of the nodes.
	proxies []proxies
}

// Cluster starts n nodes, n1 to n<n>, each with the app, and waits until each knows all. They stop with the test.
func Cluster(tb testing.TB, n int, app znode.App, opts ...Option) *Nodes {
	tb.Helper()
	c := &Nodes{t: tb, app: app}
	for _, o := range opts {
		o(&c.opts)
	}
	if c.opts.real {
		c.startServers()
	} else {
		c.bus, c.disc, c.store = membus.New(), memdisc.New(), memstore.New()
	}
	for range n {
		c.Add()
	}
	return c
}

func (c *Nodes) startServers() {
	c.t.Helper()
	var err error
	if c.nats, err = embedded.StartNATS(c.t.TempDir(), 0); err != nil {
		c.t.Fatalf("ztest: embedded NATS: %v", err)
	}
	c.t.Cleanup(c.nats.Stop)
	if c.etcd, err = embedded.StartEtcd(c.t.TempDir(), 0); err != nil {
		c.t.Fatalf("ztest: embedded etcd: %v", err)
	}
	c.t.Cleanup(c.etcd.Stop)
}

// Add starts one more node and waits until all running nodes know it. It returns its index.
func (c *Nodes) Add() int {
	c.t.Helper()
	c.nodes = append(c.nodes, nil)
	k := len(c.nodes) - 1
	c.start(k)
	c.t.Cleanup(func() { c.Stop(k) })
	return k
}

// Restart drains and stops node k, and starts it anew under its id, as a rolling update does.
func (c *Nodes) Restart(k int) {
	c.t.Helper()
	c.Stop(k)
	c.start(k)
}

// Start starts node k anew under its id, after Stop or Kill.
func (c *Nodes) Start(k int) {
	c.t.Helper()
	if c.nodes[k] != nil {
		c.t.Fatalf("ztest: Start(%d): the node runs", k)
	}
	c.start(k)
	c.t.Cleanup(func() { c.Stop(k) })
}

// start starts node k, which does not run, and waits until all running nodes know it.
func (c *Nodes) start(k int) {
	c.t.Helper()
	s := znode.DefaultSettings()
	s.Node.ID = fmt.Sprintf("n%d", k+1)
	s.Gate.Address, s.Page.Address, s.Admin.Address = "127.0.0.1:0", "", "127.0.0.1:0"
	s.Gate.Text, s.Gate.Auth.Kind = true, "dev"
	s.Node.LockDir = "" // the nodes of a test live in one process
	s.Drain.Timeout, s.Drain.Delay = 5*time.Second, 10*time.Millisecond
	cfg := znode.Config{App: c.app, Logger: c.opts.logger}
	if c.opts.real {
		s.NATS.URL, s.Etcd.Endpoints, s.Store.Driver = c.nats.URL(), []string{"http://" + c.etcd.Endpoint()}, "kv"
		s.Etcd.Lease = patience
		if c.opts.faulty {
			c.interpose(k, &s)
		}
	} else {
		if k == len(c.buses) {
			c.buses, c.discs = append(c.buses, nil), append(c.discs, nil)
		}
		c.buses[k], c.discs[k] = c.bus.Bus(), c.disc.Discovery()
		cfg.Backends = znode.Backends{Bus: c.buses[k], Discovery: c.discs[k], Store: c.store.Share()}
	}
	if c.opts.settings != nil {
		c.opts.settings(k, &s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cfg.Settings = s
	n, err := znode.New(cfg)
	if err != nil {
		c.t.Fatalf("ztest: node %s: %v", s.Node.ID, err)
	}
	if err := n.Start(ctx); err != nil {
		c.t.Fatalf("ztest: node %s: %v", s.Node.ID, err)
	}
	c.nodes[k] = n
	c.Settle()
}

// Node returns node k, from 0; nil for one that was stopped or killed.
func (c *Nodes) Node(k int) *znode.Node { return c.nodes[k] }

// Len is how many nodes were started, with those that were stopped or killed.
func (c *Nodes) Len() int { return len(c.nodes) }

// Stop drains and stops node k; the test fails when something had to be cut. Stopping twice is stopping once.
func (c *Nodes) Stop(k int) {
	c.t.Helper()
	n := c.nodes[k]
	if n == nil {
		return
	}
	c.nodes[k] = nil
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		c.t.Errorf("ztest: stop of node %s: %v", n.Self().ID, err)
	}
}

// Kill ends node k as kill -9 does: nobody hears of it any more, and it hears of nobody. In memory its lease ends before Kill
// returns; on real servers, which needs Faulty, when its time is over. What is left of the node ends with the test.
func (c *Nodes) Kill(k int) {
	c.t.Helper()
	n := c.nodes[k]
	if n == nil || c.opts.real && !c.opts.faulty {
		c.t.Fatalf("ztest: Kill(%d): expected a running node, in memory or with the option Faulty", k)
	}
	c.nodes[k] = nil
	if c.opts.real {
		c.proxies[k].nats.Cut()
		c.proxies[k].etcd.Cut()
	} else {
		c.killInMemory(k, n)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = n.Stop(ctx) // it can leave nothing in order
	})
}

func (c *Nodes) killInMemory(k int, n *znode.Node) {
	c.t.Helper()
	c.buses[k].SetUp(false)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.discs[k].Close(ctx); err != nil { // a dead process does not join again
		c.t.Fatal(err)
	}
	c.disc.Expire(n.Self().ID)
}

// Expire ends the lease of node k, which goes on and joins again. It is for clusters in memory.
func (c *Nodes) Expire(k int) {
	c.t.Helper()
	if c.opts.real || c.nodes[k] == nil || !c.disc.Expire(c.nodes[k].Self().ID) {
		c.t.Fatalf("ztest: Expire(%d): expected a running node, in memory", k)
	}
}

// SetBus takes the bus away from all nodes (false) or gives it back (true). It is for clusters in memory.
func (c *Nodes) SetBus(up bool) {
	c.t.Helper()
	if c.opts.real {
		c.t.Fatal("ztest: SetBus: expected a cluster in memory")
	}
	c.bus.SetUp(up)
}

// Hold keeps what node from sends to node to on its way, until release is called: then it arrives, in its order. One thing at a time is held.
// It is for clusters in memory.
func (c *Nodes) Hold(from, to int) (release func()) {
	c.t.Helper()
	if c.opts.real || c.nodes[from] == nil || c.nodes[to] == nil {
		c.t.Fatalf("ztest: Hold(%d, %d): expected running nodes, in memory", from, to)
	}
	type message struct {
		subject string
		data    []byte
	}
	var mu sync.Mutex // of what follows
	var held []message
	var passes *byte // of the message that is let go now
	open := false
	sender, inbox := c.nodes[from].Self(), ".n."+c.nodes[to].Self().ID+"."
	c.bus.Lose(func(subject string, data []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if open || len(data) == 0 || &data[0] == passes || !strings.Contains(subject, inbox) {
			return false
		}
		head, _, err := zmsg.DecodeBatchHead(data)
		if err != nil || head.From != sender {
			return false
		}
		held = append(held, message{strings.Clone(subject), bytes.Clone(data)})
		return true
	})
	return func() {
		for {
			mu.Lock()
			if len(held) == 0 {
				open = true
				mu.Unlock()
				c.bus.Lose(nil)
				return
			}
			m := held[0]
			held, passes = held[1:], &m.data[0]
			mu.Unlock()
			if err := c.buses[from].Publish(m.subject, "", m.data); err != nil {
				c.t.Errorf("ztest: Hold: %v", err)
			}
		}
	}
}

// OwnerOf returns the index of the node that owns an object, -1 where no running node does.
func (c *Nodes) OwnerOf(k zmsg.Key) int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range c.nodes {
		if n == nil {
			continue
		}
		route, err := n.Objects().Lookup(ctx, k)
		if err != nil && !errors.Is(err, zrouter.ErrNotFound) && !errors.Is(err, zrouter.ErrNotInServer) {
			c.t.Fatalf("ztest: owner of %v: %v", k, err)
		}
		return slices.IndexFunc(c.nodes, func(o *znode.Node) bool { return o != nil && o.Self() == route.Owner })
	}
	return -1
}

// Subscriptions is how many subscriptions there are at the bus, over all nodes.
func (c *Nodes) Subscriptions() int {
	if c.opts.real {
		return c.nats.Subscriptions()
	}
	return c.bus.Subscriptions()
}

// Settle waits until every running node has every running node, ready, in its list.
func (c *Nodes) Settle() {
	c.t.Helper()
	Eventually(c.t, "every node knows every other", func() bool {
		running := 0
		for _, n := range c.nodes {
			if n != nil {
				running++
			}
		}
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			ready := 0
			for _, other := range n.Nodes() {
				if other.State == "ready" {
					ready++
				}
			}
			if ready != running {
				return false
			}
		}
		return true
	})
}

// Client connects a client of that name to node k's gate; where that says to come back, it does. It closes with the test.
func (c *Nodes) Client(name string, k int) *zclient.Client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dial := func() (*zclient.Client, error) {
		return zclient.Dial(ctx, zclient.Config{URL: c.nodes[k].GateURL(), Token: name, RequestTimeout: patience})
	}
	cl, err := dial()
	for err != nil && comesBack(err) && ctx.Err() == nil { // the store, or a user's object, is not there for a moment, or the machine is at its limit
		time.Sleep(dialAgain)
		cl, err = dial()
	}
	if err != nil {
		c.t.Fatalf("ztest: client %s: %v", name, err)
	}
	c.t.Cleanup(func() {
		_ = cl.Close() // says why it was closed before, if it was
		<-cl.Done()
	})
	return cl
}

// dialAgain is how long Client waits between two tries.
const dialAgain = 20 * time.Millisecond

// comesBack reports that a client that ended so is to come back.
func comesBack(err error) bool {
	r, ok := errors.AsType[*zclient.Reason](err)
	return ok && r.Code >= 3000 && zgate.CloseCode(r.Code).Reconnect()
}

// Eventually waits until ok is true, at most a minute, and fails the test with what otherwise. It is for states that
// nothing signals; ok is asked again and again.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("ztest: not within %v: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
