package zstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Meter counts what a driver does. Drivers make one and end each method with `defer m.End(op, time.Now(), &err)`.
type Meter struct {
	ops     [numOps][numResults]zmetrics.Counter
	seconds [numOps]zmetrics.Histogram
	large   zmetrics.Counter
	log     *slog.Logger

	warned atomic.Int64 // unix seconds of the last warning about a large state
}

type result uint8

const (
	resultOK result = iota
	resultConflict
	resultNotFound
	resultUnknown
	resultTooLarge
	resultUnavailable
	resultInvalid
	resultCancelled
	resultFailed

	numResults
)

var resultNames = [numResults]string{
	"ok", "conflict", "not_found", "unknown", "too_large", "unavailable", "invalid", "cancelled", "failed",
}

// warnEvery is the shortest time between two warnings about large states, in seconds.
const warnEvery = 60

// NewMeter resolves the counters; m nil counts into the void, log nil discards.
func NewMeter(m *zmetrics.Store, log *slog.Logger) *Meter {
	if m == nil {
		m = zmetrics.NewStore(nil)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Meter{large: m.Large, log: log}
	for op := range numOps {
		t.seconds[op] = m.Seconds.With(op.String())
		for r := range numResults {
			t.ops[op][r] = m.Ops.With(op.String(), resultNames[r])
		}
	}
	return t
}

// End counts one call that began at start and ended with *err.
func (t *Meter) End(op Op, start time.Time, err *error) {
	t.seconds[op].Observe(time.Since(start).Seconds())
	t.ops[op][resultOf(*err)].Inc()
}

// State warns of a state above half of the limit, at most once a minute.
func (t *Meter) State(k zmsg.Key, size, limit int) {
	if size <= limit/2 {
		return
	}
	t.large.Inc()
	now, last := time.Now().Unix(), t.warned.Load()
	if now-last >= warnEvery && t.warned.CompareAndSwap(last, now) {
		t.log.Warn("state is above half of the store's limit", "key", k.String(), "bytes", size, "limit", limit)
	}
}

func resultOf(err error) result {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, ErrUnknown):
		return resultUnknown
	case errors.Is(err, ErrConflict):
		return resultConflict
	case errors.Is(err, ErrNotFound):
		return resultNotFound
	case errors.Is(err, ErrTooLarge):
		return resultTooLarge
	case errors.Is(err, ErrUnavailable):
		return resultUnavailable
	case errors.Is(err, ErrInvalid):
		return resultInvalid
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return resultCancelled
	default:
		return resultFailed
	}
}
