package znode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
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
		pair, err := tls.LoadX509KeyPair(s.TLS.Cert, s.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("gate.tls: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
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
		Node: self, Addr: s.Address, Listener: n.cfg.Listen, TLS: secure,
		Auth: auth, Dispatcher: n.dispatcher, OnNoRoute: n.cfg.App.OnNoRoute, Groups: n.link,
		Tell: n.tell, Deliver: n.deliver, Ack: n.sessions.ack, Directory: directory, UserSessions: s.UserSessions, SecondLogin: second,
		AllowText: s.Text, Registry: registry, AllowedOrigins: append(n.pageOrigins(), s.Origins...),
		MaxSessions: s.MaxSessions, MaxMessage: s.MaxMessage, MaxUnauthenticated: s.MaxUnauthenticated, MaxPerIP: s.MaxPerAddress,
		AcceptRate: s.AcceptRate, AcceptBurst: s.AcceptBurst, Rate: s.Rate, Burst: s.Burst, ByteRate: s.ByteRate, ByteBurst: s.ByteBurst,
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
