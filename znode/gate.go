package znode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

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
	drain := &n.cfg.Settings.Drain
	var directory zgate.Directory
	if s.Directory {
		directory = n.users
	}
	second := zgate.ReplaceOldest
	if s.SecondLogin == "reject" {
		second = zgate.RefuseNewest
	}
	return zgate.New(zgate.Config{
		Node: self, Addr: s.Address, Listener: n.cfg.Listen, TCPAddr: s.TCPAddress, TLS: secure, InsecurePlaintext: s.InsecurePlaintext,
		TrustedProxies: trusted, ProxyProtocol: s.ProxyProtocol,
		Auth: auth, Dispatcher: n.dispatcher, OnNoRoute: n.cfg.App.OnNoRoute, Groups: n.link,
		Tell: n.tell, Deliver: n.deliver, Ack: n.sessions.ack, Directory: directory, UserSessions: s.UserSessions, SecondLogin: second,
		AllowText: s.Text, Registry: registry, AllowedOrigins: append(n.pageOrigins(), s.Origins...),
		MaxSessions: s.MaxSessions, MaxMessage: s.MaxMessage, MaxUnauthenticated: s.MaxUnauthenticated, MaxPerIP: s.MaxPerAddress,
		AcceptRate: s.AcceptRate, AcceptBurst: s.AcceptBurst, Rate: s.Rate, Burst: s.Burst, ByteRate: s.ByteRate, ByteBurst: s.ByteBurst,
		Compression: s.Compression, CompressFrom: s.CompressFrom,
		BeforeLogin: n.cfg.App.BeforeLogin, PushWait: s.PushWait,
		ResumeWindow: resumeWindow(s.ResumeWindow), MaxSuspended: s.MaxSuspended, KeepBytes: s.KeepBytes, KeepTime: s.KeepTime, MaxKeepBytes: s.MaxKeepBytes,
		DrainTime: max(drain.Timeout/2, time.Millisecond), DrainSpread: max(drain.Delay, time.Millisecond),
		Logger: n.log, Metrics: zmetrics.NewGate(n.registry),
	})
}

// resumeWindow is the setting as the gate has it, to which 0 is the default.
func resumeWindow(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
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
