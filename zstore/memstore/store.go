package memstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zstore"
)

// DefaultMaxState is the largest state unless SetMaxState says otherwise: mongostore's, so that what passes here fits
// there.
const DefaultMaxState = 15 << 20

// db is the data that the clients share.
type db struct {
	mu      sync.Mutex
	records map[zmsg.Key]zstore.Record // guarded by mu; slices in it are owned by the map
	max     int                        // guarded by mu
}

// Store is one client of the records. Make it with New or Share.
type Store struct {
	zstore.Writer // the writing methods, on write

	db    *db
	meter *zstore.Meter

	mu     sync.Mutex
	faults Faults // guarded by mu
	closed bool   // guarded by mu
}

var _ zstore.Store = (*Store)(nil)

// Config of a store; the zero value is good.
type Config struct {
	// MaxState is the largest state in bytes. Defaults to DefaultMaxState.
	MaxState int
	// Logger gets warnings; nil discards.
	Logger *slog.Logger
	// Metrics counts; nil counts into the void.
	Metrics *zmetrics.Store
}

// New returns an empty store with the defaults of Config.
func New() *Store { return NewWith(Config{}) }

// NewWith returns an empty store.
func NewWith(cfg Config) *Store {
	if cfg.MaxState <= 0 {
		cfg.MaxState = DefaultMaxState
	}
	return client(&db{records: make(map[zmsg.Key]zstore.Record), max: cfg.MaxState}, zstore.NewMeter(cfg.Metrics, cfg.Logger))
}

func client(db *db, meter *zstore.Meter) *Store {
	s := &Store{db: db, meter: meter}
	s.Writer = s.write
	return s
}

// Share returns another client of the same records. Faults and Close of one do not touch the other.
func (s *Store) Share() *Store { return client(s.db, s.meter) }

// SetMaxState changes the limit, for all clients.
func (s *Store) SetMaxState(n int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.max = n
}

// Len returns how many records there are, tombstones too.
func (s *Store) Len() int {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return len(s.db.records)
}

// Prune forgets all tombstones, as a server does a day after the deletion.
func (s *Store) Prune() {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	maps.DeleteFunc(s.db.records, func(_ zmsg.Key, r zstore.Record) bool { return r.Deleted })
}

// Read implements zstore.Store.
func (s *Store) Read(ctx context.Context, k zmsg.Key) (_ zstore.Record, err error) {
	defer s.meter.End(zstore.OpRead, time.Now(), &err)
	if err := zstore.CheckKey(k); err != nil {
		return zstore.Record{}, err
	}
	if _, err := s.enter(ctx, zstore.OpRead, k); err != nil {
		return zstore.Record{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	rec, ok := s.db.records[k]
	if !ok {
		return zstore.Record{Key: k}, fmt.Errorf("%w: %s", zstore.ErrNotFound, k)
	}
	if rec.Deleted {
		return clone(rec), fmt.Errorf("%w: %s is deleted", zstore.ErrNotFound, k)
	}
	return clone(rec), nil
}

// Scan implements zstore.Store. It shows the records as they are at its start.
func (s *Store) Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, zstore.Own) bool) (err error) {
	defer s.meter.End(zstore.OpScan, time.Now(), &err)
	if err := zstore.CheckOwner(owner); err != nil {
		return err
	}
	if _, err := s.enter(ctx, zstore.OpScan, zmsg.Key{}); err != nil {
		return err
	}
	for _, rec := range s.owned(owner) {
		if !yield(rec.Key, rec.Own) {
			return nil
		}
	}
	return nil
}

func (s *Store) owned(owner zmsg.NodeRef) []zstore.Record {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var out []zstore.Record
	for _, rec := range s.db.records {
		if rec.Own.Node == owner {
			out = append(out, rec)
		}
	}
	return out
}

// Ping implements zstore.Store.
func (s *Store) Ping(ctx context.Context) (err error) {
	defer s.meter.End(zstore.OpPing, time.Now(), &err)
	_, err = s.enter(ctx, zstore.OpPing, zmsg.Key{})
	return err
}

// MaxState implements zstore.Store.
func (s *Store) MaxState() int {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return s.db.max
}

// Close implements zstore.Store. The records stay for the other clients.
func (s *Store) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// write carries c out, or what the fault of this call makes of it.
func (s *Store) write(ctx context.Context, c *zstore.Change) (_ zstore.Record, err error) {
	defer s.meter.End(c.Op, time.Now(), &err)
	limit := s.MaxState()
	if err := c.Check(limit); err != nil {
		return zstore.Record{}, err
	}
	s.meter.State(c.Key, len(c.State), limit)
	fault, err := s.enter(ctx, c.Op, c.Key)
	if err != nil {
		return zstore.Record{}, err
	}
	switch fault.Kind { //nolint:exhaustive // enter has taken the others
	case UnknownNotLanded:
		return zstore.Record{}, fmt.Errorf("%w: injected, not landed", zstore.ErrUnknown)
	case UnknownLanded:
		_, _ = s.db.apply(c) // its own verdict is lost with the answer
		return zstore.Record{}, fmt.Errorf("%w: injected, landed if it could", zstore.ErrUnknown)
	case UnknownLate:
		late := *c
		late.State, late.Done, late.Attachment = bytes.Clone(c.State), cloneDone(c.Done), bytes.Clone(c.Attachment)
		if fault.Later != nil {
			fault.Later(func() { _, _ = s.db.apply(&late) })
		}
		return zstore.Record{}, fmt.Errorf("%w: injected, may land later", zstore.ErrUnknown)
	}
	return s.db.apply(c)
}

func (d *db) apply(c *zstore.Change) (zstore.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	cur, found := d.records[c.Key]
	next, landed, err := c.Apply(cur, found)
	if err != nil {
		return zstore.Record{}, err
	}
	if !landed {
		next = clone(next) // what the map holds is nobody else's
		d.records[c.Key] = next
	}
	return clone(next), nil
}

func clone(r zstore.Record) zstore.Record {
	r.State, r.Done, r.Attachment = bytes.Clone(r.State), cloneDone(r.Done), bytes.Clone(r.Attachment)
	return r
}

func cloneDone(d []zstore.Done) []zstore.Done {
	d = slices.Clone(d)
	for i := range d {
		d[i].Reply = bytes.Clone(d[i].Reply)
	}
	return d
}
