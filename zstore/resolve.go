package zstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Verdict is what a read tells about a write whose outcome is unknown.
type Verdict uint8

// The verdicts.
const (
	// Landed: the record is what the write made.
	Landed Verdict = iota
	// Reissue: the record is still as it was before the write. It may land yet: issue it again with the same id.
	Reissue
	// Overtaken: the record is neither. Somebody else has written, before or after; the write is over, and whoever
	// issued it is fenced or has to read again.
	Overtaken
)

// String returns landed, reissue or overtaken.
func (v Verdict) String() string {
	switch v {
	case Landed:
		return "landed"
	case Reissue:
		return "reissue"
	default:
		return "overtaken"
	}
}

// Decide tells from a read what became of c, whose outcome was unknown. found is false where there is no record; a
// tombstone counts as one.
func Decide(c *Change, cur Record, found bool) Verdict {
	_, landed, err := c.Apply(cur, found)
	switch {
	case landed:
		return Landed
	case err == nil:
		return Reissue
	default:
		return Overtaken
	}
}

// Waits of Resolve between two tries: the upper end of a jittered wait, doubled each time.
const (
	firstWait = 5 * time.Millisecond
	longWait  = time.Second
)

// Resolve issues c and keeps at it while the outcome is unknown: it reads, decides, and issues the same write again,
// until the outcome is known or ctx is over. It returns the record after the write.
//
// Errors: those of the write. ErrConflict after an unknown outcome means that somebody else has written since, whether
// or not c landed before that. ErrUnknown (with the last cause) means that ctx was over first: neither serve nor
// discard what the write was about. An error that is definite at the first try (ErrUnavailable too) is returned at
// once.
func Resolve(ctx context.Context, s Store, c *Change) (Record, error) {
	rec, err := c.Do(ctx, s)
	for wait := firstWait; errors.Is(err, ErrUnknown); wait = min(2*wait, longWait) {
		if !sleep(ctx, rand.N(wait)) {
			return Record{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		rec, err = Settle(ctx, s, c)
	}
	return rec, err
}

// Settle is one round of Resolve, without its waits, for a write whose outcome is unknown: it reads, decides, and issues the same write
// again where the record is as before. It returns the record after the write.
//
// Errors: ErrUnknown (with the cause) where nobody knows still, also where this try was not sent; ErrConflict, ErrNotFound: the write is over.
func Settle(ctx context.Context, s Store, c *Change) (Record, error) {
	cur, err := s.Read(ctx, c.Key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Record{}, stillUnknown(err)
	}
	switch Decide(c, cur, cur.Rev > 0) { //nolint:exhaustive // Reissue goes on below
	case Landed:
		return cur, nil
	case Overtaken:
		return Record{}, fmt.Errorf("%w: %s was written by somebody else after the outcome of %s was unknown",
			ErrConflict, c.Key, c.Op)
	}
	rec, err := c.Do(ctx, s)
	if err != nil && !isVerdict(err) {
		err = stillUnknown(err)
	}
	return rec, err
}

// isVerdict reports whether err answers the question that an earlier unknown outcome left open. That a later try could
// not be sent does not.
func isVerdict(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound)
}

func stillUnknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// sleep reports false when ctx was over first.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
