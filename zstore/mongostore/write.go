package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"zgame/zstore"
)

// maxRounds bounds how often a write that matched nothing is looked up and tried again. A record only moves forward, so
// the second round is the last, unless tombstones expire in between.
const maxRounds = 4

// write is every write: send it blind, and where it matched nothing, read, decide, and for a Create go on from what was
// read.
func (s *Store) write(ctx context.Context, c *zstore.Change) (_ zstore.Record, err error) {
	defer s.meter.End(c.Op, time.Now(), &err)
	if err := c.Check(MaxState); err != nil {
		return zstore.Record{}, err
	}
	s.meter.State(c.Key, len(c.State), MaxState)
	call, end, err := s.begin(ctx, c.Op)
	if err != nil {
		return zstore.Record{}, err
	}
	defer end()

	// What the record must be, if c is to fit; the server decides whether it is.
	cur := zstore.Record{Key: c.Key, Own: c.Own, Rev: c.Rev}
	found := c.Op != zstore.OpCreate
	for range maxRounds {
		next, _, err := c.Apply(cur, found)
		if err != nil {
			return zstore.Record{}, err
		}
		attempt, n := counting(call)
		rec, matched, err := s.send(attempt, c, &cur, &next, found)
		if err != nil {
			return zstore.Record{}, notWritten(ctx, c, n, err)
		}
		if matched {
			return rec, nil
		}
		if cur, found, err = s.get(call, c.Key); err != nil {
			// An earlier issue of this write may be what kept it from matching.
			return zstore.Record{}, unknown(ctx, c, err)
		}
		next, landed, err := c.Apply(cur, found)
		if err != nil {
			return zstore.Record{}, err
		}
		if landed {
			return next, nil
		}
	}
	return zstore.Record{}, fmt.Errorf("%w: %s of %s matches what is read but not what is written",
		zstore.ErrUnavailable, c.Op, c.Key)
}

// send issues the one command that turns cur into next. matched is false where the server found another record.
func (s *Store) send(ctx context.Context, c *zstore.Change, cur, next *zstore.Record, found bool) (rec zstore.Record, matched bool, err error) {
	switch {
	case c.Op == zstore.OpClaim:
		var d document
		err := s.one.FindOneAndUpdate(ctx, filter(c), update(c.Op, next),
			options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&d)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return zstore.Record{}, false, nil
		}
		if err != nil {
			return zstore.Record{}, false, err
		}
		rec, err := d.record()
		return rec, true, err
	case !found:
		_, err := s.one.InsertOne(ctx, fresh(next))
		if mongo.IsDuplicateKeyError(err) {
			return zstore.Record{}, false, nil
		}
		return *next, err == nil, err
	default:
		f := filter(c)
		if c.Op == zstore.OpCreate {
			f = tombstone(cur)
		}
		res, err := s.one.UpdateOne(ctx, f, update(c.Op, next))
		if err != nil {
			return zstore.Record{}, false, err
		}
		return *next, res.MatchedCount == 1, nil
	}
}
