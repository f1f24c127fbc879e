package memstore

import (
	"context"
	"fmt"
	"time"

	"zgame/zmsg"
	"zgame/zstore"
)

// FaultKind says how a call goes wrong.
type FaultKind uint8

// The kinds. The unknown ones apply to writes alone; another method under them is Unavailable.
const (
	None             FaultKind = iota
	Unavailable                // ErrUnavailable, nothing written
	UnknownLanded              // ErrUnknown; the write happened, if its preconditions held
	UnknownNotLanded           // ErrUnknown; nothing was written and never will be by this call
	UnknownLate                // ErrUnknown; the write is handed to Fault.Later, which may run it whenever it likes
)

// Fault is what happens to one call.
type Fault struct {
	Kind FaultKind
	// Delay passes before anything else happens, with the time package. The call ends with the context's error when
	// the context is over first; nothing is written then.
	Delay time.Duration
	// Later gets the write of an UnknownLate call: a packet that the network still holds.
	Later func(land func())
}

// Faults decides the fault of each call of one client. k is zero for Scan and Ping. It is called from the goroutine of
// the call, must be safe for concurrent use, and must not call the store.
type Faults func(op zstore.Op, k zmsg.Key) Fault

// SetFaults makes f decide from the next call on; nil ends all faults.
func (s *Store) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// enter is the way to the server: closed, delayed, or not there.
func (s *Store) enter(ctx context.Context, op zstore.Op, k zmsg.Key) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Fault{}, fmt.Errorf("memstore: %s: %w", op, err)
	}
	s.mu.Lock()
	closed, faults := s.closed, s.faults
	s.mu.Unlock()
	if closed {
		return Fault{}, fmt.Errorf("%w: closed", zstore.ErrUnavailable)
	}
	var f Fault
	if faults != nil {
		f = faults(op, k)
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return Fault{}, fmt.Errorf("memstore: %s: %w", op, ctx.Err())
		}
	}
	if f.Kind == Unavailable || (f.Kind != None && !op.Writes()) {
		return Fault{}, fmt.Errorf("%w: injected", zstore.ErrUnavailable)
	}
	return f, nil
}
