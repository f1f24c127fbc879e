package zclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Config says where to connect and as whom. URL or URLs is needed; everything else has a default.
type Config struct {
	// URL is the gate's websocket, ws://host:port/ws or wss://host/ws, or where it listens for clients over bare TCP, tcp://host:port or
	// tcps://host:port over TLS.
	URL string
	// URLs are gates to choose from, instead of URL. They are shuffled, and tried in turn with back-off, one connection at a time. A client that has lost its connection
	// tries the gate of its session first, unless that said that it goes or is full (3001, 3005, 3007).
	URLs []string
	// Token is shown to the gate at each login; what it means is up to the gate's authenticator.
	Token string
	// TokenFunc is asked for the token of each login instead, from the goroutine that connects, for tokens that expire. An
	// error counts as a connection that failed. Where the gate does not take a token (3501) of a client that has been online,
	// it is asked for another one, once, and then the client is closed.
	TokenFunc func(ctx context.Context) (string, error)
	// Name tells the server which program this is, for its logs. Defaults to "zclient-go".
	Name string
	// Header is sent with the websocket handshake, for proxies that want one.
	Header http.Header
	// TLS is for wss and tcps. Nil takes Go's defaults.
	TLS *tls.Config
	// Dialer opens the network connection, beneath TLS; for tests, faults and unusual networks. Nil dials TCP, through
	// the proxy that the environment names.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	// RetryFirst lets Connect and Dial try until their ctx ends. Otherwise they return when the first try fails, or with URLs one at each.
	RetryFirst bool
	// MinBackoff and MaxBackoff bound the wait before the n-th try to connect again in a row: it is a random part of
	// min(MaxBackoff, MinBackoff*2^n). Default to 500 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// ResumeWindow is for how long the session is to outlive a lost connection, at most; the gate may grant less. While it
	// does, a client that comes back gets what it missed, and requests in flight go on. Defaults to an hour; -1: the session
	// ends with its connection.
	ResumeWindow time.Duration
	// StableAfter is how long a connection must have lasted to be a success, after which back-off begins anew.
	// Defaults to 10 s.
	StableAfter time.Duration
	// HandshakeTimeout is for all of connect, TLS, websocket and login. Defaults to 10 s.
	HandshakeTimeout time.Duration
	// RequestTimeout is the deadline of a request whose ctx has none. Defaults to 10 s.
	RequestTimeout time.Duration
	// MaxWaiting is how many requests may wait for a connection while there is none; more are CodeBusy. Defaults to 64; -1: they fail at once, with CodeUnavailable.
	MaxWaiting int
	// DrainTimeout is how long requests in flight may take to end when the server asks to go elsewhere. Defaults to 5 s.
	DrainTimeout time.Duration
	// MaxMessage is the largest message that is taken from the server, in bytes. Defaults to 16 MiB.
	MaxMessage int
	// MaxPushes is how many pushes may wait for handlers; more ends the connection (KindSlow). Defaults to 8,192.
	MaxPushes int

	// Logger gets connects and losses. Nil discards them.
	Logger *slog.Logger

	rand func() float64 // tests; nil is math/rand/v2
}

func (c Config) withDefaults() Config {
	set(&c.Name, "zclient-go")
	set(&c.MinBackoff, 500*time.Millisecond)
	set(&c.MaxBackoff, max(30*time.Second, c.MinBackoff))
	set(&c.ResumeWindow, time.Hour)
	set(&c.StableAfter, 10*time.Second)
	set(&c.HandshakeTimeout, 10*time.Second)
	set(&c.RequestTimeout, 10*time.Second)
	set(&c.DrainTimeout, 5*time.Second)
	set(&c.MaxMessage, 16<<20)
	set(&c.MaxPushes, 8192)
	set(&c.MaxWaiting, 64)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func set[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// validate reports every fault of c, which has its defaults.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zclient: "+format, args...)) }
	faults = append(faults, c.urlFaults()...)
	if c.Token != "" && c.TokenFunc != nil {
		fault("Token and TokenFunc are both set: expected one of them")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"MinBackoff", c.MinBackoff},
		{"MaxBackoff", c.MaxBackoff},
		{"StableAfter", c.StableAfter},
		{"HandshakeTimeout", c.HandshakeTimeout},
		{"RequestTimeout", c.RequestTimeout},
		{"DrainTimeout", c.DrainTimeout},
	} {
		if d.value < 0 {
			fault("%s is %v: expected a positive duration", d.name, d.value)
		}
	}
	if c.MaxBackoff < c.MinBackoff {
		fault("MaxBackoff is %v: expected at least MinBackoff (%v)", c.MaxBackoff, c.MinBackoff)
	}
	if c.MaxMessage < 0 || c.MaxPushes < 0 {
		fault("MaxMessage is %d and MaxPushes %d: expected positive numbers", c.MaxMessage, c.MaxPushes)
	}
	return errors.Join(faults...)
}
