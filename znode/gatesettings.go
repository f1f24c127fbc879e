package znode

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"zgame/zgate"
)

// gateLimits is what settings alone say about a gate: limits and times.
func (s *Settings) gateLimits() zgate.Config {
	g, drain := &s.Gate, &s.Drain
	second := zgate.ReplaceOldest
	if g.SecondLogin == "reject" {
		second = zgate.RefuseNewest
	}
	return zgate.Config{
		Addr: g.Address, TCPAddr: g.TCPAddress, InsecurePlaintext: g.InsecurePlaintext, ProxyProtocol: g.ProxyProtocol,
		UserSessions: g.UserSessions, SecondLogin: second, AllowText: g.Text,
		MaxSessions: g.MaxSessions, MaxMessage: g.MaxMessage, MaxSend: g.MaxSend, MaxUnauthenticated: g.MaxUnauthenticated, MaxPerIP: g.MaxPerAddress,
		MaxInFlight: g.MaxInFlight, MaxGroups: g.MaxGroups, MaxWatchers: g.MaxWatchers, MaxBindings: g.MaxBindings, MaxRoutes: g.MaxRoutes,
		AcceptRate: g.AcceptRate, AcceptBurst: g.AcceptBurst, Rate: g.Rate, Burst: g.Burst, ByteRate: g.ByteRate, ByteBurst: g.ByteBurst,
		Compression: g.Compression, CompressFrom: g.CompressFrom, QueueBytes: g.QueueBytes, QueueAge: g.QueueAge,
		ResumeWindow: resumeWindow(g.ResumeWindow), MaxSuspended: g.MaxSuspended,
		KeepCount: g.KeepCount, KeepBytes: g.KeepBytes, KeepTime: g.KeepTime, MaxKeepBytes: g.MaxKeepBytes,
		HandshakeTimeout: g.HandshakeTimeout, LoginTimeout: g.LoginTimeout, AuthTimeout: g.AuthTimeout,
		Heartbeat: g.Heartbeat, Timeout: g.SilenceTimeout, CloseTimeout: g.CloseTimeout,
		RequestTimeout: g.RequestTimeout, MaxRequestTimeout: g.MaxRequestTimeout, JoinTimeout: g.JoinTimeout, PushWait: g.PushWait,
		DrainTime: max(drain.Timeout/2, time.Millisecond), DrainSpread: max(drain.Delay, time.Millisecond),
		HandoverTime: g.HandoverTime, DrainHandover: max(drain.Handover, time.Millisecond),
	}
}

// resumeWindow is the setting as the gate has it, to which 0 is the default.
func resumeWindow(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// gateNumbers are the settings that count, with their bounds: those of zgate.Config.
func (s *Settings) gateNumbers() []gateNumber {
	g := &s.Gate
	return []gateNumber{
		{"gate.user_sessions", g.UserSessions, 1, 1000, true},
		{"gate.max_sessions", g.MaxSessions, 1, 1 << 30, false},
		{"gate.max_unauthenticated", g.MaxUnauthenticated, 1, 1 << 30, false},
		{"gate.max_per_address", g.MaxPerAddress, 1, 1 << 30, true},
		{"gate.max_message", g.MaxMessage, 125, 64 << 20, false},
		{"gate.max_send", g.MaxSend, 4 << 10, 1 << 30, false},
		{"gate.max_in_flight", g.MaxInFlight, 1, 4096, false},
		{"gate.max_groups", g.MaxGroups, 1, 1 << 20, false},
		{"gate.max_watchers", g.MaxWatchers, 1, 1 << 20, false},
		{"gate.max_bindings", g.MaxBindings, 1, 1 << 20, false},
		{"gate.max_routes", g.MaxRoutes, 1, 1 << 16, false},
		{"gate.accept_rate", g.AcceptRate, 1, 1 << 30, true},
		{"gate.accept_burst", g.AcceptBurst, 1, 1 << 30, false},
		{"gate.rate", g.Rate, 1, 1 << 30, true},
		{"gate.burst", g.Burst, 1, 1 << 30, false},
		{"gate.byte_rate", g.ByteRate, 1, 1 << 30, true},
		{"gate.byte_burst", g.ByteBurst, 1, 1 << 30, false},
		{"gate.compress_from", g.CompressFrom, 1, 1 << 30, false},
		{"gate.queue_bytes", g.QueueBytes, 4 << 10, 1 << 30, false},
		{"gate.max_suspended", g.MaxSuspended, 1, 1 << 30, false},
		{"gate.keep_count", g.KeepCount, 1, 1 << 20, false},
		{"gate.keep_bytes", g.KeepBytes, 1 << 10, 1 << 30, false},
		{"gate.max_keep_bytes", g.MaxKeepBytes, 1 << 10, 1 << 40, false},
	}
}

type gateNumber struct {
	key              string
	value, low, high int
	unlimited        bool // -1: no limit
}

// gateTimes are the settings that are times, each of 1 ms to 1 h.
func (s *Settings) gateTimes() []gateTime {
	g := &s.Gate
	return []gateTime{
		{"gate.handshake_timeout", g.HandshakeTimeout},
		{"gate.login_timeout", g.LoginTimeout},
		{"gate.auth_timeout", g.AuthTimeout},
		{"gate.heartbeat", g.Heartbeat},
		{"gate.queue_age", g.QueueAge},
		{"gate.close_timeout", g.CloseTimeout},
		{"gate.request_timeout", g.RequestTimeout},
		{"gate.join_timeout", g.JoinTimeout},
		{"gate.push_wait", g.PushWait},
		{"gate.keep_time", g.KeepTime},
		{"gate.handover_time", g.HandoverTime},
	}
}

type gateTime struct {
	key   string
	value time.Duration
}

// gateFaults says what is wrong with the settings of the gate.
func (s *Settings) gateFaults() (faults []error) {
	g := &s.Gate
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	note := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	for _, n := range s.gateNumbers() {
		switch {
		case n.value >= n.low && n.value <= n.high || n.value == -1 && n.unlimited:
		case n.unlimited:
			fault("%s %d: expected %d to %d, or -1 for no limit", n.key, n.value, n.low, n.high)
		default:
			fault("%s %d: expected %d to %d", n.key, n.value, n.low, n.high)
		}
	}
	for _, d := range s.gateTimes() {
		if d.value < time.Millisecond || d.value > time.Hour {
			fault("%s %s: expected 1ms to 1h", d.key, d.value)
		}
	}
	if g.ByteBurst < g.MaxMessage {
		fault("gate.byte_burst %d: expected at least gate.max_message (%d)", g.ByteBurst, g.MaxMessage)
	}
	if g.KeepBytes > g.QueueBytes {
		fault("gate.keep_bytes %d: expected at most gate.queue_bytes (%d)", g.KeepBytes, g.QueueBytes)
	}
	if d := g.SilenceTimeout; d != 0 && (d < g.Heartbeat*3/2 || d > 2*time.Hour) {
		fault("gate.silence_timeout %s: expected 1.5 times gate.heartbeat (%s) to 2h, or 0 for twice gate.heartbeat", d, g.Heartbeat*3/2)
	}
	if d := g.MaxRequestTimeout; d < g.RequestTimeout || d > 24*time.Hour {
		fault("gate.max_request_timeout %s: expected gate.request_timeout (%s) to 24h", d, g.RequestTimeout)
	}
	if w := g.ResumeWindow; w != 0 && (w < time.Millisecond || w > time.Hour) {
		fault("gate.resume_window %s: expected 1ms to 1h, or 0: sessions end with their connections", w)
	}
	if known := []string{"replace", "reject"}; !slices.Contains(known, g.SecondLogin) {
		fault("gate.second_login %q: expected %s", g.SecondLogin, strings.Join(known, ", "))
	}
	faults = append(faults, g.Auth.faults()...)
	note(addressFault("gate.address", g.Address, !g.Enabled))
	note(addressFault("gate.tcp_address", g.TCPAddress, true))
	if g.URL != "" {
		note(linkFault("gate.url", g.URL, "ws", "wss"))
	}
	for _, o := range g.Origins {
		note(linkFault("gate.origins", o, "http", "https"))
		if u, err := url.Parse(o); err == nil && u.Path != "" {
			fault("gate.origins %q: expected scheme://host or scheme://host:port, without a path", o)
		}
	}
	if (g.TLS.Cert == "") != (g.TLS.Key == "") {
		fault("gate.tls: cert and key belong together; only one is set")
	}
	for _, l := range []struct{ key, address string }{{"gate.address", g.Address}, {"gate.tcp_address", g.TCPAddress}} {
		if !g.Enabled || g.TLS.Cert != "" || g.InsecurePlaintext || l.address == "" || zgate.LoopbackHost(l.address) {
			continue
		}
		fault("%s %q is reached from other machines, and the gate would speak plain text: expected gate.tls.cert and gate.tls.key, an address of "+
			"this machine such as 127.0.0.1:7000, or gate.insecure_plaintext (of dev: --insecure-plaintext) behind a proxy that ends TLS", l.key, l.address)
	}
	_, err := proxies(g.TrustedProxies)
	note(err)
	if g.ProxyProtocol && len(g.TrustedProxies) == 0 {
		fault("gate.proxy_protocol: expected gate.trusted_proxies too: the proxies' addresses")
	}
	return faults
}
