package ztest

import (
	"net/url"
	"time"

	"zgame/znode"
	"zgame/ztest/faultproxy"
)

// Faulty is RealServers with a proxy between each node and each of its servers, by which tests break the connections and heal
// them: see NATSProxy and EtcdProxy. Leases are four seconds, so that the end of one is soon there, and the nodes look every half
// second whether NATS answers (10 times as often as in production), so that silence is noticed within a second and a half. A busy
// machine may miss both: a test in which that would be a fault sets Etcd.Lease and NATS.PingInterval longer, by Settings.
func Faulty() Option {
	return func(o *options) { o.real, o.faulty = true, true }
}

// proxies are those of one node.
type proxies struct{ nats, etcd *faultproxy.Proxy }

// NATSProxy is between node k and NATS: its bus, and its store. It needs Faulty.
func (c *Nodes) NATSProxy(k int) *faultproxy.Proxy {
	c.t.Helper()
	return c.proxiesOf(k).nats
}

// EtcdProxy is between node k and etcd. It needs Faulty.
func (c *Nodes) EtcdProxy(k int) *faultproxy.Proxy {
	c.t.Helper()
	return c.proxiesOf(k).etcd
}

func (c *Nodes) proxiesOf(k int) proxies {
	c.t.Helper()
	if !c.opts.faulty {
		c.t.Fatal("ztest: proxies: expected a cluster with the option Faulty")
	}
	return c.proxies[k]
}

// interpose puts proxies between node k, of these settings, and its servers.
func (c *Nodes) interpose(k int, s *znode.Settings) {
	c.t.Helper()
	u, err := url.Parse(c.nats.URL())
	if err != nil {
		c.t.Fatalf("ztest: address of NATS: %v", err)
	}
	if k == len(c.proxies) {
		c.proxies = append(c.proxies, proxies{faultproxy.Start(c.t, u.Host), faultproxy.Start(c.t, c.etcd.Endpoint())})
	}
	p := c.proxies[k]
	s.NATS.URL, s.Etcd.Endpoints = "nats://"+p.nats.Addr(), []string{"http://" + p.etcd.Addr()}
	s.NATS.PingInterval, s.Etcd.Lease = 500*time.Millisecond, 4*time.Second
}
