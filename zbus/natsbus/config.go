package natsbus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Config says where the servers are and how to speak to them. URL alone is enough.
type Config struct {
	// URL of the server, or several with commas between: nats://host:port, or tls://host:port. User and password may
	// stand in it. Defaults to nats://127.0.0.1:4222.
	URL string
	// Name of the connection, for the server's logs and monitoring. Defaults to "zgame".
	Name string

	// User and Password, where the server asks for them.
	User, Password string
	// Token, where the server asks for one instead.
	Token string
	// Creds is the path of a credentials file (JWT and NKEY seed), NKey that of a file with the seed alone.
	Creds, NKey string

	// TLS is the client's TLS setting; nil speaks TLS only where the URL or the server says so.
	TLS *tls.Config
	// CAFile, and CertFile with KeyFile, are PEM files, for settings without code; they add to TLS. They are read again for each
	// connection.
	CAFile, CertFile, KeyFile string
	// Insecure takes any certificate of a server that speaks TLS: for development only.
	Insecure bool

	// ConnectTimeout bounds one attempt to connect. Defaults to 2 s.
	ConnectTimeout time.Duration
	// ReconnectWait is the pause between two attempts for the same server; a random part of up to half is added.
	// Defaults to 250 ms. Attempts never end.
	ReconnectWait time.Duration
	// PingInterval is how often an idle connection is checked; MaxPings pings without an answer end it. A cut cable goes
	// unnoticed for up to (MaxPings + 1) intervals. Default to 5 s and 2.
	PingInterval time.Duration
	MaxPings     int
	// WriteTimeout bounds a write to the socket, and so how long Publish can wait for room in it. Defaults to 5 s.
	WriteTimeout time.Duration
	// Pending and PendingBytes are how many received messages wait for a receiver's handler, and how large they are
	// together; more (up to some 8,000 messages and 200 KiB more) are dropped, and reported through Events.Dropped. Default to
	// 65,536 and 64 MiB.
	Pending, PendingBytes int

	// Logger; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.URL == "" {
		c.URL = "nats://127.0.0.1:4222"
	}
	if c.Name == "" {
		c.Name = "zgame"
	}
	def(&c.ConnectTimeout, 2*time.Second)
	def(&c.ReconnectWait, 250*time.Millisecond)
	def(&c.PingInterval, 5*time.Second)
	def(&c.WriteTimeout, 5*time.Second)
	if c.MaxPings == 0 {
		c.MaxPings = 2
	}
	if c.Pending == 0 {
		c.Pending = 1 << 16
	}
	if c.PendingBytes == 0 {
		c.PendingBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("natsbus: "+format, args...)) }
	for s := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		switch {
		case err != nil:
			bad("URL is not one: expected nats://host:port") // the URL may hold a password: it is not repeated
		case u.Host == "":
			bad("URL %q has no host: expected nats://host:port", u.Redacted())
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
			bad("URL scheme %q: expected nats, tls, ws or wss", u.Scheme)
		}
	}
	for name, d := range map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "ReconnectWait": c.ReconnectWait, "PingInterval": c.PingInterval, "WriteTimeout": c.WriteTimeout,
	} {
		if d < 0 {
			bad("%s is %v: expected a positive duration", name, d)
		}
	}
	if c.Pending < 0 {
		bad("Pending is %d: expected a positive number", c.Pending)
	}
	if c.PendingBytes < 0 {
		bad("PendingBytes is %d: expected a positive number of bytes", c.PendingBytes)
	}
	if c.MaxPings < 0 {
		bad("MaxPings is %d: expected a positive number", c.MaxPings)
	}
	ways := 0
	for _, set := range []bool{c.User != "", c.Token != "", c.Creds != "", c.NKey != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		bad("User, Token, Creds and NKey exclude each other: %d are set, expected at most one", ways)
	}
	if c.Password != "" && c.User == "" {
		bad("Password without User: expected both or none")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("CertFile and KeyFile belong together: expected both or none")
	}
	return errors.Join(faults...)
}

// where is the URL without passwords, for errors and logs.
func (c Config) where() string {
	parts := strings.Split(c.URL, ",")
	for i, s := range parts {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil {
			parts[i] = u.Redacted()
		} else {
			parts[i] = "?"
		}
	}
	return strings.Join(parts, ",")
}
