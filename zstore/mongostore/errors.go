package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"zgame/zstore"
)

// The server's error codes that say something definite.
const (
	codeTooLarge       = 10334 // BSONObjectTooLarge
	codeTooLargeUpdate = 17419 // resulting document after update is larger than the limit
	codeTooLargeMod    = 17420
)

// notRead says why a call that wrote nothing failed.
func notRead(ctx context.Context, op zstore.Op, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("mongostore: %s: %w", op, ctx.Err())
	}
	var server mongo.ServerError
	if unreachable(err) || mongo.IsNetworkError(err) || mongo.IsTimeout(err) || (errors.As(err, &server) && stateChange(server)) {
		return fmt.Errorf("%w: %s: %w", zstore.ErrUnavailable, op, err)
	}
	return fmt.Errorf("mongostore: %s: %w", op, err)
}

// sent counts the attempts of one command that got as far as a connection. The client retries on its own for as long as
// the context lasts, and the error that it returns in the end is that of one attempt, not always the telling one: seen
// with v2.10, after an attempt whose answer was cut it returns "not primary, nothing written" of a later one, and it can
// return the full pool of a second attempt after such a first one. So errors are not asked whether something was sent;
// the command monitor is, which the client calls with the call's own context before each attempt.
type sent struct{ n atomic.Int32 }

type sentKey struct{}

// counting returns a context whose commands count in the result.
func counting(ctx context.Context) (context.Context, *sent) {
	n := new(sent)
	return context.WithValue(ctx, sentKey{}, n), n
}

// monitored counts for counting and passes everything on to m, which may be nil.
func monitored(m *event.CommandMonitor) *event.CommandMonitor {
	out := new(event.CommandMonitor)
	if m != nil {
		*out = *m
	}
	out.Started = func(ctx context.Context, e *event.CommandStartedEvent) {
		if n, ok := ctx.Value(sentKey{}).(*sent); ok {
			n.n.Add(1)
		}
		if m != nil && m.Started != nil {
			m.Started(ctx, e)
		}
	}
	return out
}

// notWritten says what an error of a write command means. Whatever is not known to be definite is unknown.
//
//	no server, no connection                  ErrUnavailable
//	above a limit                             ErrTooLarge
//	the server refused it (validation, auth)  as it is
//	network error, time-out, step-down, write concern not met
//	                                          ErrUnknown
func notWritten(ctx context.Context, c *zstore.Change, n *sent, err error) error {
	var server mongo.ServerError
	switch {
	case errors.Is(err, driver.ErrDocumentTooLarge):
		return fmt.Errorf("%w: document of %s: %w", zstore.ErrTooLarge, c.Key, err)
	case n.n.Load() == 0:
		if ctx.Err() != nil {
			return fmt.Errorf("mongostore: %s of %s: %w", c.Op, c.Key, ctx.Err())
		}
		return fmt.Errorf("%w: %s of %s: %w", zstore.ErrUnavailable, c.Op, c.Key, err)
	case !errors.As(err, &server), mongo.IsNetworkError(err), mongo.IsTimeout(err), stateChange(server), concernNotMet(err):
		return unknown(ctx, c, err)
	case server.HasErrorCode(codeTooLarge), server.HasErrorCode(codeTooLargeUpdate), server.HasErrorCode(codeTooLargeMod):
		return fmt.Errorf("%w: document of %s: %w", zstore.ErrTooLarge, c.Key, err)
	}
	return fmt.Errorf("mongostore: %s of %s: %w", c.Op, c.Key, err)
}

// unreachable reports that there was no server or no connection for a read.
func unreachable(err error) bool {
	return errors.As(err, &topology.ServerSelectionError{}) || errors.As(err, &topology.WaitQueueTimeoutError{}) ||
		errors.As(err, &topology.ConnectionError{}) || errors.Is(err, mongo.ErrClientDisconnected)
}

func unknown(ctx context.Context, c *zstore.Change, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%w: %s of %s: %w", zstore.ErrUnknown, c.Op, c.Key, err)
}

// stateChange reports the errors of a server that stops, or is or becomes no primary. A write may have been under way,
// or an attempt before may have landed.
func stateChange(err mongo.ServerError) bool {
	codes := []int{
		6, 7, 89, // host unreachable, not found, network timeout (from a mongos)
		91, 189, 262, // shutdown, stepped down, exceeded time limit
		9001, 10058, 10107, 11600, 11602, 13435, 13436, // socket, not primary, interrupted
	}
	return slices.ContainsFunc(codes, err.HasErrorCode) || err.HasErrorLabel("RetryableWriteError") || err.HasErrorLabel("TransientTransactionError")
}

// concernNotMet reports a write that happened at the primary and is not known to have reached a majority's journals.
func concernNotMet(err error) bool {
	if errors.As(err, &mongo.WriteConcernError{}) {
		return true
	}
	var we mongo.WriteException
	if errors.As(err, &we) && we.WriteConcernError != nil {
		return true
	}
	var ce mongo.CommandError
	return errors.As(err, &ce) && (ce.HasErrorCode(64) || ce.HasErrorCode(100)) // WriteConcernFailed, UnsatisfiableWriteConcern
}
