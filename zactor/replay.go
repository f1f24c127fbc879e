package zactor

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// ReplayOptions says more about a Replay.
type ReplayOptions struct {
	// Logger gets what the actor logs. Defaults to none.
	Logger *slog.Logger
	// Middleware as Config.Middleware was where the record was made.
	Middleware []Middleware
}

// Report tells how a Replay went.
type Report struct {
	Header RecordHeader
	Turns  []ReplayedTurn
	// Stopped says why the replay ended before the record did; "" if it did not.
	Stopped string
	// Panic is what the last input that was run panicked with; nil if it did not.
	Panic *ReplayPanic
	// Same says that it is the panic of the record: the same value, in the same function or line.
	Same bool
}

// ReplayPanic is a panic in a replay.
type ReplayPanic struct {
	Value string
	Frame string // the function that panicked
	Line  string // where: the file, with its directory, and the line
	Stack string
}

// ReplayedTurn is one input of a record and what the actor did with it now.
type ReplayedTurn struct {
	Turn  uint64
	Input string
	Did   []string // what it sent and asked
	// Differs says where the actor went another way than in the record.
	Differs []string
	Panic   string // "" if there was none
}

// Diverged reports whether the actor went another way than in the record somewhere.
func (r *Report) Diverged() bool {
	return slices.ContainsFunc(r.Turns, func(t ReplayedTurn) bool { return len(t.Differs) > 0 })
}

// Verdict says in one line how the replay ended.
func (r *Report) Verdict() string {
	switch {
	case r.Panic != nil && r.Same:
		return "the same panic: " + r.Panic.Value + " in " + r.Panic.Frame
	case r.Panic != nil:
		return fmt.Sprintf("another panic: %s in %s (%s); the record has: %s in %s (%s)", r.Panic.Value, r.Panic.Frame, r.Panic.Line,
			r.Header.Panic, r.Header.Frame, r.Header.Line)
	case r.Stopped != "":
		return "stopped: " + r.Stopped
	default:
		return "no panic; the record has: " + r.Header.Panic + " in " + r.Header.Frame
	}
}

// String prints the run, a few lines for each input.
func (r *Report) String() string {
	var b strings.Builder
	h := &r.Header
	fmt.Fprintf(&b, "%s %q (%s, restart %d) of %s\nrecorded %s, %s\n", h.Type, h.Name, h.Actor, h.Instance, h.Build,
		h.At.Format(time.RFC3339Nano), r.base())
	for _, t := range r.Turns {
		fmt.Fprintf(&b, "#%d %s\n", t.Turn, t.Input)
		for _, d := range t.Did {
			fmt.Fprintf(&b, "    %s\n", d)
		}
		for _, d := range t.Differs {
			fmt.Fprintf(&b, "    ! %s\n", d)
		}
		if t.Panic != "" {
			fmt.Fprintf(&b, "    panic: %s\n", t.Panic)
		}
	}
	b.WriteString(r.Verdict() + "\n")
	return b.String()
}

func (r *Report) base() string {
	h := &r.Header
	var s string
	switch h.Base {
	case BaseStart:
		s = "from the instance's start"
	case BaseSnapshot:
		s = fmt.Sprintf("from a snapshot after %d inputs", h.Dropped)
	default:
		s = fmt.Sprintf("INCOMPLETE: %d inputs before these are not kept and there is no snapshot, so the actor starts afresh", h.Dropped)
	}
	if h.Truncated {
		s += "; TRUNCATED: the recorder's bound on bytes left no room for more"
	}
	return s
}

// Replay runs the inputs of a record again: in a group of its own that is stepped by hand, on the caller's goroutine, at the times of the
// record, on an instance that factory makes, with the random numbers of the record. What the actor sends is noted, not
// sent; what it asks gets the outcome of the record; work of Async does not run, its result is that of the record. So factory needs
// nothing that lives: what only Async uses may be nil.
//
// Where the actor goes another way than in the record (it is a mended one, or it did something that is in no record: time not
// from Context.Now, chance not from Context.Rand, a map's order, state that others change) the Report says so, and the run
// goes on. A handler that waits for something outside of zactor waits here too. The error is that of an actor that cannot be made:
// what the factory, OnStart or Restore said.
func Replay(rec *Record, factory func() Actor, o ReplayOptions) (*Report, error) {
	return newReplayer(rec).run(factory, o)
}
