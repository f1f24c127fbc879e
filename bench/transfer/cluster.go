package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"zgame/bench/benchpb"
	"zgame/internal/embedded"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
)

// patience bounds everything that takes no time when all is well.
const patience = time.Minute

// bagType is the type of the objects.
const bagType = 9

// key is that of a Bag whose state has about size bytes.
func key(name string, i, size int) zmsg.Key {
	return zmsg.Key{Type: bagType, ID: fmt.Sprintf("%s-%d-%d", name, i, size)}
}

// sizeOf is what key was made with.
func sizeOf(k zmsg.Key) int {
	n, _ := strconv.Atoi(k.ID[strings.LastIndexByte(k.ID, '-')+1:])
	return n
}

// seen is what the handlers of all nodes of this process have seen go wrong.
type seen struct {
	doubled atomic.Int64 // a number that had been there
	skipped atomic.Int64 // numbers between one and the one before
}

// app is the program of the nodes.
func (s *seen) app() znode.App {
	type ctx = zrouter.Context[*benchpb.Bag]
	return znode.App{Name: "bags", Objects: func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*benchpb.Bag]{
			Type: bagType, Name: "bag", Version: 1,
			Create: func(k zmsg.Key) (*benchpb.Bag, error) {
				return &benchpb.Bag{Last: map[uint32]uint64{}, Pad: make([]byte, sizeOf(k))}, nil
			},
			Handlers: []zrouter.Handler[*benchpb.Bag]{zrouter.Handle(func(c *ctx, p *benchpb.Put) (*benchpb.Kept, error) {
				bag := c.State()
				if bag.Last == nil {
					bag.Last = map[uint32]uint64{}
				}
				switch last := bag.Last[p.GetFrom()]; {
				case p.GetN() <= last:
					s.doubled.Add(1)
				default:
					s.skipped.Add(int64(p.GetN() - last - 1))
					bag.Last[p.GetFrom()] = p.GetN()
				}
				c.Dirty()
				return &benchpb.Kept{N: bag.Last[p.GetFrom()], Hops: c.Message().Hops}, nil
			})},
		}}
	}}
}

// Cluster is the nodes of this process, and the servers.
type Cluster struct {
	seen  seen
	dir   string
	nats  *embedded.NATS
	etcd  *embedded.Etcd
	lease time.Duration
	nodes []*znode.Node // a, b, c; nil: stopped
}

// Open starts the servers and three nodes. Close ends them. lease is that of nodes in etcd.
func Open(lease time.Duration) (c *Cluster, err error) {
	c = &Cluster{lease: lease}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "zgame-bench-transfer-"); err != nil {
		return c, err
	}
	if c.nats, err = embedded.StartNATS(c.dir+"/nats", 0); err != nil {
		return c, err
	}
	if c.etcd, err = embedded.StartEtcd(c.dir+"/etcd", 0); err != nil {
		return c, err
	}
	for _, id := range []string{"a", "b", "c"} {
		n, err := c.start(id)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
	}
	return c, c.settle()
}

// servers are the addresses that a node needs.
type servers struct {
	nats, etcd string
	lease      time.Duration
}

func (c *Cluster) servers() servers {
	return servers{c.nats.URL(), "http://" + c.etcd.Endpoint(), c.lease}
}

func (s servers) settings(id string) znode.Settings {
	set := znode.DefaultSettings()
	set.Node.ID, set.Node.LockDir, set.Node.LoadInterval = id, "", 0
	set.Gate.Enabled, set.Page.Address, set.Admin.Address = false, "", ""
	set.NATS.URL, set.Etcd.Endpoints, set.Store.Driver = s.nats, []string{s.etcd}, "kv"
	set.Etcd.Lease = s.lease
	return set
}

func (c *Cluster) start(id string) (*znode.Node, error) {
	n, err := znode.New(znode.Config{Settings: c.servers().settings(id), App: c.seen.app()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return n, n.Start(ctx)
}

// settle waits until the running nodes know each other.
func (c *Cluster) settle() error {
	return eventually("the nodes know each other", func() bool {
		for _, n := range c.running() {
			ready := 0
			for _, o := range n.Nodes() {
				if o.State == "ready" {
					ready++
				}
			}
			if ready < len(c.running()) {
				return false
			}
		}
		return true
	})
}

func (c *Cluster) running() (nodes []*znode.Node) {
	for _, n := range c.nodes {
		if n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func eventually(what string, ok func() bool) error {
	for until := time.Now().Add(patience); !ok(); rest(5 * time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("bench: not within %v: %s", patience, what)
		}
	}
	return nil
}

// restart starts a node that was stopped.
func (c *Cluster) restart(i int) (err error) {
	if c.nodes[i], err = c.start([]string{"a", "b", "c"}[i]); err != nil {
		return err
	}
	return c.settle()
}

// owner is the index of the node that owns an object; -1: none of the running ones.
func (c *Cluster) owner(k zmsg.Key) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := c.running()[0].Store().Read(ctx, k) // the record: a look-up could say what a node remembers, and changes what it does
	if err != nil {
		return -1, err
	}
	for i, n := range c.nodes {
		if n != nil && n.Self() == r.Own.Node {
			return i, nil
		}
	}
	return -1, nil
}

// Close ends everything.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range slices.Backward(c.nodes) {
		if n != nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			errs = append(errs, n.Stop(ctx))
			cancel()
		}
	}
	if c.etcd != nil {
		c.etcd.Stop()
	}
	if c.nats != nil {
		c.nats.Stop()
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
