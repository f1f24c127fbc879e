package znode

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"zgame/zdiscovery"
	"zgame/zdiscovery/etcddisc"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// Cluster is the list of a cluster's nodes, for programs that are none of them: tools of operators. Its methods may be called from any
// goroutine.
type Cluster struct {
	name string
	disc zdiscovery.Discovery
}

// OpenCluster connects to the discovery that the settings name. The caller closes the Cluster.
// Errors: discovery is not there; ctx's.
func OpenCluster(ctx context.Context, s Settings) (*Cluster, error) {
	secured, err := etcdTLS(&s)
	if err != nil {
		return nil, err
	}
	disc, err := etcddisc.New(etcddisc.Config{
		Endpoints: s.Etcd.Endpoints, Username: s.Etcd.User, Password: s.Etcd.Password, Prefix: "/" + s.Node.Cluster,
		TLS: secured, TTL: s.Etcd.Lease, Logger: slog.New(slog.DiscardHandler), Metrics: zmetrics.NewDiscovery(nil),
	})
	if err != nil {
		return nil, err
	}
	c := &Cluster{s.Node.Cluster, disc}
	limited, cancel := context.WithTimeout(ctx, s.Start.Timeout)
	defer cancel()
	if _, err := c.list(limited); err != nil {
		c.Close()
		return nil, fmt.Errorf("etcd at %s is not there: %w\n  say where it is: etcd.endpoints in --config, or %s_ETCD_ENDPOINTS", strings.Join(s.Etcd.Endpoints, ", "), err, EnvPrefix)
	}
	return c, nil
}

// Nodes returns what all nodes say about themselves, by their ids. Errors: there are none; discovery's; ctx's.
func (c *Cluster) Nodes(ctx context.Context) ([]zdiscovery.Node, error) {
	nodes, err := c.list(ctx)
	if err == nil && len(nodes) == 0 {
		err = c.empty()
	}
	return nodes, err
}

func (c *Cluster) empty() error {
	return fmt.Errorf("the cluster %q has no nodes; node.cluster, or ZGAME_NODE_CLUSTER, names the cluster that is meant", c.name)
}

// list returns the nodes as they are now.
func (c *Cluster) list(ctx context.Context) ([]zdiscovery.Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lists, err := c.disc.Watch(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case s, ok := <-lists:
		if !ok {
			return nil, zdiscovery.ErrClosed
		}
		return s.Nodes, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Node returns what the node called id says about itself. Errors: it is not there, with those that are; discovery's; ctx's.
func (c *Cluster) Node(ctx context.Context, id string) (zdiscovery.Node, error) {
	nodes, err := c.list(ctx)
	if err != nil {
		return zdiscovery.Node{}, err
	}
	ids := make([]string, len(nodes))
	for i := range nodes {
		if ids[i] = nodes[i].Ref.ID; ids[i] == id {
			return nodes[i], nil
		}
	}
	if len(ids) == 0 {
		return zdiscovery.Node{}, c.empty()
	}
	return zdiscovery.Node{}, fmt.Errorf("the cluster %q has no node %q; it has [%s]", c.name, id, strings.Join(ids, " "))
}

// Has reports whether a node is in the cluster, under the epoch that ref names. Errors: discovery's; ctx's.
func (c *Cluster) Has(ctx context.Context, ref zmsg.NodeRef) (bool, error) {
	nodes, err := c.list(ctx)
	return slices.ContainsFunc(nodes, func(n zdiscovery.Node) bool { return n.Ref == ref }), err
}

// Close ends the connection.
func (c *Cluster) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopStep)
	defer cancel()
	_ = c.disc.Close(ctx) // it has nothing to say goodbye to
}
