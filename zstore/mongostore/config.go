package mongostore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"zgame/zmetrics"
)

// Config says where the collection is.
type Config struct {
	// URI of the server, mongodb:// or mongodb+srv://, with credentials, TLS and the replica set's name. Its read and
	// write concern, read preference and retry settings are overruled. Defaults to mongodb://127.0.0.1:27017.
	URI string
	// Database and Collection hold the records. Default to "zgame" and "objects".
	Database, Collection string

	// Timeout bounds a call whose context allows more, New, and the search for a server. Defaults to 5 s.
	Timeout time.Duration
	// TombstoneTTL is how long a deleted record's numbers are kept, at least 24 h; it must exceed the age of any cached
	// route. An index that exists already keeps its own. Defaults to 24 h.
	TombstoneTTL time.Duration

	// Monitor sees every command, for tracing and tests; nil: nobody does.
	Monitor *event.CommandMonitor
	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics; nil counts into the void.
	Metrics *zmetrics.Store
}

// minTombstoneTTL keeps a key's numbers longer than any route that is cached somewhere.
const minTombstoneTTL = 24 * time.Hour

func (c Config) withDefaults() Config {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.URI, "mongodb://127.0.0.1:27017")
	def(&c.Database, "zgame")
	def(&c.Collection, "objects")
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.TombstoneTTL == 0 {
		c.TombstoneTTL = minTombstoneTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewStore(nil)
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("mongostore: "+format, args...)) }
	if err := options.Client().ApplyURI(c.URI).Validate(); err != nil {
		bad("URI: %w, expected mongodb://host:port/?replicaSet=name", err)
	}
	if strings.ContainsAny(c.Database, "/\\. \"$\x00") || len(c.Database) > 63 {
		bad("database is %q, expected at most 63 bytes without / \\ . \" $ and spaces", c.Database)
	}
	if strings.ContainsAny(c.Collection, "$\x00") || strings.HasPrefix(c.Collection, "system.") {
		bad("collection is %q, expected a name without $ that does not begin with system.", c.Collection)
	}
	if c.Timeout < 0 {
		bad("timeout is %s, expected more than 0", c.Timeout)
	}
	if c.TombstoneTTL < minTombstoneTTL {
		bad("tombstone TTL is %s, expected at least %s", c.TombstoneTTL, minTombstoneTTL)
	}
	return errors.Join(faults...)
}

// redacted is the hosts of the URI, without credentials, for errors and logs.
func (c Config) redacted() string {
	hosts := options.Client().ApplyURI(c.URI).Hosts
	return strings.Join(hosts, ",")
}
