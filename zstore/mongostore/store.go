package mongostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"zgame/zmsg"
	"zgame/zstore"
)

// MaxState is the largest state in bytes: MongoDB's limit for a document is 16 MB, the rest is for everything else.
const MaxState = 15 << 20

// Store is a zstore.Store on MongoDB. Make it with New.
type Store struct {
	zstore.Writer // the writing methods, on write

	cfg    Config
	log    *slog.Logger
	meter  *zstore.Meter
	client *mongo.Client
	one    *mongo.Collection // single documents: linearizable reads, majority writes
	many   *mongo.Collection // scans: majority reads
	closed atomic.Bool
}

var _ zstore.Store = (*Store)(nil)

// New connects and makes sure of the indexes. Errors: ErrUnavailable where no primary answers within Config.Timeout.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	opts := options.Client().ApplyURI(cfg.URI).
		SetAppName("zgame").
		SetRetryWrites(true).
		SetRetryReads(true).
		SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(durable()).
		SetServerSelectionTimeout(cfg.Timeout).
		SetConnectTimeout(cfg.Timeout).
		SetMonitor(monitored(cfg.Monitor))
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("mongostore: %w", err)
	}
	db := client.Database(cfg.Database)
	s := &Store{
		cfg:    cfg,
		log:    cfg.Logger,
		meter:  zstore.NewMeter(cfg.Metrics, cfg.Logger),
		client: client,
		one:    db.Collection(cfg.Collection, options.Collection().SetReadConcern(readconcern.Linearizable())),
		many:   db.Collection(cfg.Collection),
	}
	s.Writer = s.write
	if err := s.ensureIndexes(); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
		return nil, err
	}
	return s, nil
}

// durable is write concern majority with the journal: an acknowledged write survives the loss of any minority.
func durable() *writeconcern.WriteConcern {
	journal := true
	return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}
}

// codeIndexOptionsConflict is the server's error for an index that exists with other options.
const codeIndexOptionsConflict = 85

// ensureIndexes makes the indexes where they are not there.
func (s *Store) ensureIndexes() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	owner := mongo.IndexModel{
		Keys:    bson.D{{Key: "own.n", Value: 1}, {Key: "own.e", Value: 1}},
		Options: options.Index().SetName("owner"),
	}
	tombstones := mongo.IndexModel{
		Keys: bson.D{{Key: "mt", Value: 1}},
		Options: options.Index().SetName("tombstones").
			SetExpireAfterSeconds(int32(min(s.cfg.TombstoneTTL/time.Second, 1<<31-1))).
			SetPartialFilterExpression(bson.D{{Key: "del", Value: true}}),
	}
	for _, m := range []mongo.IndexModel{owner, tombstones} {
		_, err := s.many.Indexes().CreateOne(ctx, m)
		var server mongo.ServerError
		switch {
		case err == nil:
		case errors.As(err, &server) && server.HasErrorCode(codeIndexOptionsConflict):
			s.log.Warn("an index exists with other options and stays as it is", "collection", s.cfg.Collection, "err", err)
		case errors.As(err, &server) && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err):
			return fmt.Errorf("mongostore: making the indexes of %s.%s: %w", s.cfg.Database, s.cfg.Collection, err)
		default:
			return fmt.Errorf("%w: MongoDB at %s: %w", zstore.ErrUnavailable, s.cfg.redacted(), err)
		}
	}
	return nil
}

// begin returns the context of one call.
func (s *Store) begin(ctx context.Context, op zstore.Op) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("mongostore: %s: %w", op, err)
	}
	if s.closed.Load() {
		return nil, nil, fmt.Errorf("%w: closed", zstore.ErrUnavailable)
	}
	call, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	return call, cancel, nil
}

// Read implements zstore.Store.
func (s *Store) Read(ctx context.Context, k zmsg.Key) (_ zstore.Record, err error) {
	defer s.meter.End(zstore.OpRead, time.Now(), &err)
	if err := zstore.CheckKey(k); err != nil {
		return zstore.Record{}, err
	}
	call, end, err := s.begin(ctx, zstore.OpRead)
	if err != nil {
		return zstore.Record{}, err
	}
	defer end()
	rec, found, err := s.get(call, k)
	switch {
	case err != nil:
		return zstore.Record{}, notRead(ctx, zstore.OpRead, err)
	case !found:
		return zstore.Record{Key: k}, fmt.Errorf("%w: %s", zstore.ErrNotFound, k)
	case rec.Deleted:
		return rec, fmt.Errorf("%w: %s is deleted", zstore.ErrNotFound, k)
	}
	return rec, nil
}

func (s *Store) get(ctx context.Context, k zmsg.Key) (zstore.Record, bool, error) {
	var d document
	err := s.one.FindOne(ctx, bson.D{{Key: "_id", Value: idOf(k)}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return zstore.Record{Key: k}, false, nil
	}
	if err != nil {
		return zstore.Record{}, false, err
	}
	rec, err := d.record()
	return rec, true, err
}

// Scan implements zstore.Store. Config.Timeout does not bound it, ctx does.
func (s *Store) Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, zstore.Own) bool) (err error) {
	defer s.meter.End(zstore.OpScan, time.Now(), &err)
	if err := zstore.CheckOwner(owner); err != nil {
		return err
	}
	_, end, err := s.begin(ctx, zstore.OpScan)
	if err != nil {
		return err
	}
	end()
	cur, err := s.many.Find(ctx,
		bson.D{{Key: "own.n", Value: owner.ID}, {Key: "own.e", Value: int64(owner.Epoch)}},
		options.Find().SetProjection(bson.D{{Key: "own", Value: 1}}))
	if err != nil {
		return notRead(ctx, zstore.OpScan, err)
	}
	defer cur.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the server forgets a cursor by itself
	seen := make(map[zmsg.Key]struct{})         // a document that moves in the index may come twice
	for cur.Next(ctx) {
		var d document
		if err := cur.Decode(&d); err != nil {
			return fmt.Errorf("mongostore: scan: %w", err)
		}
		k := d.key()
		if _, again := seen[k]; again {
			continue
		}
		seen[k] = struct{}{}
		if !yield(k, d.own()) {
			return nil
		}
	}
	if err := cur.Err(); err != nil {
		return notRead(ctx, zstore.OpScan, err)
	}
	return nil
}

// Ping implements zstore.Store: it asks the primary.
func (s *Store) Ping(ctx context.Context) (err error) {
	defer s.meter.End(zstore.OpPing, time.Now(), &err)
	call, end, err := s.begin(ctx, zstore.OpPing)
	if err != nil {
		return err
	}
	defer end()
	if err := s.client.Ping(call, readpref.Primary()); err != nil {
		return notRead(ctx, zstore.OpPing, err)
	}
	return nil
}

// MaxState implements zstore.Store.
func (s *Store) MaxState() int { return MaxState }

// Close implements zstore.Store. It waits within ctx for calls under way, then cuts them.
func (s *Store) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	if err := s.client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("mongostore: close: %w", err)
	}
	return nil
}
