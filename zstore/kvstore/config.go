package kvstore

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"

	"zgame/zmetrics"
)

// Config says where the bucket is.
type Config struct {
	// URL of the server, or several with commas between. Defaults to nats://127.0.0.1:4222. Not used with Conn.
	URL string
	// User and Password, where the server asks for them; Creds is the path of a credentials file (JWT and NKEY seed). Not
	// used with Conn.
	User, Password, Creds string
	// Options of the connection beyond what New sets: TLS, say. Not used with Conn.
	Options []nats.Option
	// Conn is a connection to use, which Close leaves open. Best made with nats.ReconnectBufSize(-1): a buffered write
	// that is sent after its caller has given up is safe but useless.
	Conn *nats.Conn

	// Bucket holds the records: letters, digits, '-' and '_'. Made where it is not there. Defaults to "zgame".
	Bucket string
	// Replicas of the stream, 1 to 5; 3 survives the loss of a server. Zero: 1 where New makes the stream, else as it is.
	Replicas int
	// Memory makes the stream in memory, where New makes it: for tests.
	Memory bool

	// Timeout bounds a call whose context allows more, and New. Defaults to 5 s.
	Timeout time.Duration
	// TombstoneTTL is how long a deleted record's numbers are kept, at least 24 h; it must exceed the age of any cached
	// route. Defaults to 24 h.
	TombstoneTTL time.Duration
	// Remember is the number of compare-and-set tokens to remember, each about 300 bytes. Defaults to 65,536; negative:
	// none, every write reads first.
	Remember int

	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics; nil counts into the void.
	Metrics *zmetrics.Store
}

// minTombstoneTTL keeps a key's numbers longer than any route that is cached somewhere.
const minTombstoneTTL = 24 * time.Hour

func (c Config) withDefaults() Config {
	if c.URL == "" {
		c.URL = nats.DefaultURL
	}
	if c.Bucket == "" {
		c.Bucket = "zgame"
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.TombstoneTTL == 0 {
		c.TombstoneTTL = minTombstoneTTL
	}
	if c.Remember == 0 {
		c.Remember = 1 << 16
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewStore(nil)
	}
	return c
}

var bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (c Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kvstore: "+format, args...)) }
	if !bucketName.MatchString(c.Bucket) {
		bad("bucket is %q, expected letters, digits, '-' and '_'", c.Bucket)
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		bad("replicas is %d, expected 1 to 5, or 0 for the default", c.Replicas)
	}
	if c.Timeout < 0 {
		bad("timeout is %s, expected more than 0", c.Timeout)
	}
	if c.TombstoneTTL < minTombstoneTTL {
		bad("tombstone TTL is %s, expected at least %s", c.TombstoneTTL, minTombstoneTTL)
	}
	return errors.Join(faults...)
}
