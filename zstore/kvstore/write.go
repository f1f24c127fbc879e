package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"zgame/zstore"
)

// maxRounds bounds how often a write reads again and tries once more. A document only moves forward, so a write that
// has lost finds that out in the second round; more are for a replicated stream, which refuses a write while another
// one is under way that a read does not show yet.
const maxRounds = 8

// write is every write: find the document, decide, send it with the token.
//
//	remembered, and the write fits  -> send; refused -> read
//	not remembered                  -> read (Create: send with the token of "nothing there")
//	read, and it does not fit       -> the error
func (s *Store) write(ctx context.Context, c *zstore.Change) (_ zstore.Record, err error) {
	defer s.meter.End(c.Op, time.Now(), &err)
	limit := s.MaxState()
	if err := c.Check(limit); err != nil {
		return zstore.Record{}, err
	}
	s.meter.State(c.Key, len(c.State), limit)
	call, end, err := s.begin(ctx, c.Op)
	if err != nil {
		return zstore.Record{}, err
	}
	defer end()
	subj := subject(s.prefix, c.Key)

	h, known := s.tokens.get(c.Key)
	// Claim returns the state, which is not remembered. What is remembered allows a try but no verdict: neither "does
	// not fit" nor "landed before" may be out of date.
	trial := c.Op != zstore.OpClaim && (known || c.Op == zstore.OpCreate)
	if !known {
		h.rec.Key = c.Key
	}
	if trial {
		if next, landed, err := c.Apply(h.rec, h.found()); err == nil && !landed {
			s.hit.Inc()
			rec, err := s.put(call, subj, h, next)
			if !errors.Is(err, errStale) {
				return rec, s.notWritten(ctx, call, c, err)
			}
			s.stale.Inc()
		}
	} else {
		s.miss.Inc()
	}
	for round := range maxRounds {
		if round > 1 && !pause(call, round) {
			break
		}
		h, err := s.get(call, c.Key, subj)
		if err != nil {
			return zstore.Record{}, notRead(ctx, call, c.Op, err)
		}
		next, landed, err := c.Apply(h.rec, h.found())
		if err != nil {
			return zstore.Record{}, err
		}
		if landed {
			return next, nil
		}
		rec, err := s.put(call, subj, h, next)
		if !errors.Is(err, errStale) {
			return rec, s.notWritten(ctx, call, c, err)
		}
	}
	return zstore.Record{}, fmt.Errorf("%w: %s of %s: the server refuses the write as out of date, though it reads as current",
		zstore.ErrUnavailable, c.Op, c.Key)
}

// errStale: the token is not that of the last document any more. Nothing was written.
var errStale = errors.New("kvstore: token out of date")

// put writes next on top of h.
func (s *Store) put(ctx context.Context, subj string, h head, next zstore.Record) (zstore.Record, error) {
	data, err := encode(&next, &h.unknown)
	if err != nil {
		return zstore.Record{}, definite{fmt.Errorf("kvstore: %s: %w", next.Key, err)}
	}
	msg := nats.NewMsg(subj)
	msg.Data = data
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(h.seq, 10)}
	if !next.Own.Node.IsZero() {
		msg.Header[ownHeader] = []string{formatOwn(next.Own)}
	}
	if next.Deleted {
		msg.Header[jetstream.MsgTTLHeader] = []string{strconv.FormatInt(int64(s.cfg.TombstoneTTL/time.Second), 10) + "s"}
	}
	ack, err := s.js.PublishMsg(ctx, msg)
	if err != nil {
		if isStale(err) {
			s.tokens.drop(next.Key)
			err = errStale
		}
		return zstore.Record{}, err
	}
	s.tokens.put(head{rec: next, unknown: h.unknown, seq: ack.Sequence})
	return next, nil
}

func isStale(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// definite marks an error that came before anything was sent.
type definite struct{ error }

func (d definite) Unwrap() error { return d.error }

// codeStoreFailed is the server's error for a write that its storage did not take: a full bucket, or a disk that failed
// at who knows which point.
const codeStoreFailed jetstream.ErrorCode = 10077

// notWritten says what an error of put means. Whatever is not known to be definite is unknown.
func (s *Store) notWritten(ctx, call context.Context, c *zstore.Change, err error) error {
	if err == nil {
		return nil
	}
	var api *jetstream.APIError
	switch {
	case errors.As(err, &definite{}):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: document of %s: %w", zstore.ErrTooLarge, c.Key, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: %s of %s: %w", zstore.ErrUnavailable, c.Op, c.Key, err)
	case errors.As(err, &api) && api.ErrorCode != codeStoreFailed:
		if api.Code == 503 {
			return fmt.Errorf("%w: %s of %s: %w", zstore.ErrUnavailable, c.Op, c.Key, err)
		}
		return fmt.Errorf("kvstore: %s of %s: %w", c.Op, c.Key, err)
	}
	s.tokens.drop(c.Key)
	if ctx.Err() != nil {
		err = ctx.Err() // errors.Is finds the caller's own reason
	} else if cause := context.Cause(call); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: %s of %s: %w", zstore.ErrUnknown, c.Op, c.Key, err)
}

// pause waits a moment before another round; false when the call is over.
func pause(ctx context.Context, round int) bool {
	t := time.NewTimer(rand.N(time.Duration(1<<round) * time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
