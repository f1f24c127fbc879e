package znode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"zgame/zgate"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// newGate makes the node's gate; its port opens with Gate.Start.
func (n *Node) newGate(ctx context.Context, self zmsg.NodeRef, registry *zmsg.Registry) (*zgate.Gate, error) {
	s := &n.cfg.Settings.Gate
	var secure *tls.Config
	if s.TLS.Cert != "" {
		files, err := zgate.NewCertFiles(s.TLS.Cert, s.TLS.Key, n.log)
		if err != nil {
			return nil, fmt.Errorf("gate.tls: %w", err)
		}
		secure = files.TLS()
	}
	trusted, err := proxies(s.TrustedProxies)
	if err != nil {
		return nil, err
	}
	auth, err := n.newAuth(ctx)
	if err != nil {
		return nil, err
	}
	c := n.cfg.Settings.gateLimits()
	c.Node, c.Listener, c.TLS, c.TrustedProxies, c.Auth = self, n.cfg.Listen, secure, trusted, auth
	if s.Directory {
		c.Directory = n.users
	}
	c.Dispatcher, c.OnNoRoute, c.BeforeLogin, c.Groups = n.dispatcher, n.cfg.App.OnNoRoute, n.cfg.App.BeforeLogin, n.link
	c.Tell, c.Deliver, c.Resent, c.Ack, c.Peers = n.tell, n.deliver, n.objects.set.DeliverResent, n.sessions.ack, n.sessions.moves
	c.Tracer = n.tracing.Tracer()
	c.Registry, c.AllowedOrigins = registry, append(n.pageOrigins(), s.Origins...)
	c.Logger, c.Metrics = n.log, zmetrics.NewGate(n.registry)
	return zgate.New(c)
}

// proxies reads gate.trusted_proxies. The error names each entry that is none.
func proxies(list []string) (prefixes []netip.Prefix, err error) {
	var faults []error
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if a, err2 := netip.ParseAddr(s); err2 == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("gate.trusted_proxies %q: expected an address, or a network such as 10.0.0.0/8", s))
			continue
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, errors.Join(faults...)
}

// pageOrigins are the origins of the node's own page on this machine.
func (n *Node) pageOrigins() []string {
	address := n.cfg.Settings.Page.Address
	if n.cfg.ListenPage != nil {
		address = n.cfg.ListenPage.Addr().String()
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" || n.cfg.App.Page == nil {
		return nil
	}
	return []string{"http://localhost:" + port, "http://127.0.0.1:" + port}
}
