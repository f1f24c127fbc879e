package zstore_test

import (
	"fmt"
	"testing"

	"zgame/zmsg"
	"zgame/zstore"
)

// What a client learns when a handler returns an error of the store as it got it from a driver.
func TestErrorsTellClients(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    zmsg.Code
		outcome zmsg.Outcome
	}{
		{zstore.ErrUnavailable, zmsg.CodeUnavailable, zmsg.NotExecuted},
		{zstore.ErrUnknown, zmsg.CodeUnavailable, zmsg.Unknown},
		{fmt.Errorf("%w: %w", zstore.ErrUnknown, zstore.ErrUnavailable), zmsg.CodeUnavailable, zmsg.Unknown},
		{zstore.ErrConflict, zmsg.CodeConflict, zmsg.Executed},
		{zstore.ErrNotFound, zmsg.CodeNotFound, zmsg.Executed},
		{zstore.ErrTooLarge, zmsg.CodeTooLarge, zmsg.Executed},
		{zstore.ErrInvalid, zmsg.CodeInternal, zmsg.Executed},
	} {
		err := fmt.Errorf("driver: %w: detail", c.err)
		if code, outcome := zmsg.CodeOf(err), zmsg.OutcomeOf(err); code != c.code || outcome != c.outcome {
			t.Errorf("%v: told as %v, %v, want %v, %v", err, code, outcome, c.code, c.outcome)
		}
	}
}
