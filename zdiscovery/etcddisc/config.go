package etcddisc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"zgame/zdiscovery"
	"zgame/zmetrics"
)

// Config says where etcd is. Endpoints is required.
type Config struct {
	// Endpoints of the cluster: host:port, or http(s)://host:port.
	Endpoints []string
	// Prefix of the keys, so that clusters can share an etcd; a node's key is <Prefix>/nodes/<id>. Defaults to "/zgame".
	Prefix string
	// TTL is the lease of a node: a process that dies is off the list after it. Shorter notices sooner, and costs two
	// small calls in each third of it. Whole seconds, at least 1 s. Defaults to 10 s.
	TTL time.Duration
	// RequestTimeout bounds one call to etcd. Defaults to 5 s.
	RequestTimeout time.Duration
	// Heartbeat is how often a watch asks for a sign of life; two without one, and the list is read anew. It bounds how
	// long a cut cable keeps the list stale. Defaults to a third of TTL.
	Heartbeat time.Duration

	// Username and Password, where etcd asks for them.
	Username, Password string
	// TLS is the client's TLS setting; nil is plain text, unless an endpoint says https.
	TLS *tls.Config

	// Gone reports that the process of the holder of an id that Join wants is proven to have ended: then its lease is revoked,
	// and the id is free at once. Nil: nothing is ever proven, and Join waits for the end of the lease.
	Gone func(holder zdiscovery.Node) bool
	// Alive reports whether the holder of an id that Join wants answers; then Join is refused at once. It is only a
	// short cut: a holder that does not answer, but renews its lease, is found alive after one TTL. Defaults to opening
	// a TCP connection to the holder's Admin or Gate address within a second.
	Alive func(ctx context.Context, holder zdiscovery.Node) bool

	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics; nil counts for nobody.
	Metrics *zmetrics.Discovery
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.Prefix == "" {
		c.Prefix = "/zgame"
	}
	def(&c.TTL, 10*time.Second)
	def(&c.RequestTimeout, 5*time.Second)
	def(&c.Heartbeat, c.TTL/3)
	if c.Gone == nil {
		c.Gone = func(zdiscovery.Node) bool { return false }
	}
	if c.Alive == nil {
		c.Alive = dialHolder
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewDiscovery(nil)
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("etcddisc: "+format, args...)) }
	if len(c.Endpoints) == 0 {
		bad("Endpoints is empty: expected at least one host:port")
	}
	for _, e := range c.Endpoints {
		host := e
		if strings.Contains(e, "://") {
			u, err := url.Parse(e)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" {
				bad("endpoint %q: expected host:port or http(s)://host:port", e)
				continue
			}
			host = u.Host
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			bad("endpoint %q: expected host:port or http(s)://host:port", e)
		}
	}
	if strings.HasSuffix(c.Prefix, "/") {
		bad("Prefix %q ends with a slash: expected none there", c.Prefix)
	}
	if c.TTL < time.Second || c.TTL%time.Second != 0 {
		bad("TTL is %v: expected whole seconds, at least 1s", c.TTL)
	}
	if c.RequestTimeout < 0 {
		bad("RequestTimeout is %v: expected a positive duration", c.RequestTimeout)
	}
	if c.Heartbeat < 0 {
		bad("Heartbeat is %v: expected a positive duration", c.Heartbeat)
	}
	if c.Password != "" && c.Username == "" {
		bad("Password without Username: expected both or none")
	}
	return errors.Join(faults...)
}

// dialHolder is the default of Config.Alive.
func dialHolder(ctx context.Context, holder zdiscovery.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	for _, addr := range []string{holder.Admin, hostPort(holder.Gate)} {
		if addr == "" {
			continue
		}
		if c, err := d.DialContext(ctx, "tcp", addr); err == nil {
			_ = c.Close() // nothing was written: nothing to lose
			return true
		}
	}
	return false
}

// hostPort is the host and port of a gate's URL, "" if it has none.
func hostPort(gate string) string {
	u, err := url.Parse(gate)
	if err != nil || u.Host == "" {
		return ""
	}
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "wss" || u.Scheme == "https" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}
