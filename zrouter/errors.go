package zrouter

import (
	"strconv"
	"strings"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
)

// Sentinels for errors.Is. Each is a *zmsg.Error, compared by code, so they are found in errors that come from other nodes too.
// What a call returns is a *RouteError around one of them, or around the error of the object's handler; whether the request ran is
// the RouteError's Outcome (see zmsg.OutcomeOf), which may differ from the sentinel's.
var (
	// ErrNotFound: there is no record of the object, and its kind is not created by a request.
	ErrNotFound error = &zmsg.Error{Code: zmsg.CodeNotFound, Outcome: zmsg.NotExecuted, Text: "the object does not exist"}
	// ErrNoNode: no node that hosts the kind is ready.
	ErrNoNode error = &zmsg.Error{Code: zmsg.CodeNoNode, Outcome: zmsg.NotExecuted, Text: "no node that hosts the kind is ready"}
	// ErrMoved: another node owns the object; the RouteError's Route says which.
	ErrMoved error = &zmsg.Error{Code: zmsg.CodeMoved, Outcome: zmsg.NotExecuted, Text: "another node owns the object"}
	// ErrBusy: too many requests wait for the object, or the node has as many objects as it may.
	ErrBusy error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too many requests wait for the object"}
	// ErrHandoff: the object was not handed over; it stays where it is, and serves.
	ErrHandoff error = &zmsg.Error{Code: zmsg.CodeHandoff, Outcome: zmsg.NotExecuted, Text: "the object was not handed over"}
	// ErrHops: the request was forwarded as often as it may be (Settings.MaxHops).
	ErrHops error = &zmsg.Error{Code: zmsg.CodeHops, Outcome: zmsg.NotExecuted, Text: "forwarded too often"}
	// ErrClosing: the node shuts down.
	ErrClosing error = &zmsg.Error{Code: zmsg.CodeDraining, Outcome: zmsg.NotExecuted, Text: "the node is shutting down"}
	// ErrRefused: the node that was to take the object over does not; the object stays where it is, and serves.
	ErrRefused error = &zmsg.Error{Code: zmsg.CodeRefused, Outcome: zmsg.NotExecuted, Text: "the target does not take the object"}
	// ErrUnavailable: the store, the bus or the owner is not reachable now, or the owner may not serve at the moment.
	ErrUnavailable error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the object cannot be served now"}
	// ErrFenced: the request ran, but before its effect was saved the node lost the object to another.
	ErrFenced error = &zmsg.Error{Code: zmsg.CodeFenced, Outcome: zmsg.Unknown, Text: "the node lost the object before it was saved"}
	// ErrUnknownOutcome: nobody can tell whether the request ran.
	ErrUnknownOutcome error = &zmsg.Error{Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown, Text: "it may have run"}
	// ErrAgain: nothing is wrong, but it did not work this time. Hooks that pull or save return it to be called again, after a
	// random time up to the retry interval, at most Settings.RetryMaxTTL times in all.
	ErrAgain error = &zmsg.Error{Code: zmsg.CodeAgain, Outcome: zmsg.NotExecuted, Text: "try again"}
	// ErrNotInServer: the record exists, nobody owns the object, and its kind is not claimed by a request.
	ErrNotInServer error = &zmsg.Error{Code: zmsg.CodeNotInServer, Outcome: zmsg.NotExecuted, Text: "nobody has the object in memory"}
	// ErrTooLarge: the request ran, but the state it left is above the limit of the store, so it cannot be saved.
	ErrTooLarge error = &zmsg.Error{Code: zmsg.CodeTooLarge, Outcome: zmsg.Executed, Text: "the object's state is above the store's limit"}
	// ErrSchema: a newer version of the program wrote the object's state.
	ErrSchema error = &zmsg.Error{Code: zmsg.CodeSchema, Outcome: zmsg.NotExecuted, Text: "a newer version of the program wrote the object's state"}
	// ErrUnusable: the object cannot be brought into memory: its stored state cannot be decoded, or not be brought to this version, or
	// OnActivate says so.
	ErrUnusable error = &zmsg.Error{Code: zmsg.CodeUnusable, Outcome: zmsg.NotExecuted, Text: "the object cannot be brought into memory"}
)

// Route says who owns an object, and since which version. A zero Owner with a version: nobody since then.
type Route = entry.Route

// RouteError is what became of a request to an object that was not answered by its handler with success.
type RouteError struct {
	Key        zmsg.Key
	Route      Route         // as far as it is known; zero: not at all
	Outcome    zmsg.Outcome  // whether the request ran
	RetryAfter time.Duration // not worth trying again sooner; 0: not said
	Cause      error

	onDemand bool // a request makes such objects
}

// Error says what was asked of whom, what went wrong, whether it ran, and what to do.
func (e *RouteError) Error() string {
	var b strings.Builder
	b.WriteString("zrouter: object ")
	b.WriteString(e.Key.String())
	if e.Route != (Route{}) {
		b.WriteString(" of ")
		if e.Route.Owner.IsZero() {
			b.WriteString("nobody")
		} else {
			b.WriteString(e.Route.Owner.String())
		}
		b.WriteString(" since version ")
		b.WriteString(strconv.FormatUint(uint64(e.Route.Version), 10))
	}
	b.WriteString(": ")
	switch c := e.Cause.(type) { //nolint:errorlint // only where it is the cause itself its parts are told one by one
	case nil:
		b.WriteString("no cause is known")
	case *zmsg.Error:
		b.WriteString(c.Code.String())
		if c.Text != "" {
			b.WriteString(": ")
			b.WriteString(c.Text)
		}
	default:
		b.WriteString(c.Error())
	}
	b.WriteString(" (")
	b.WriteString(e.Outcome.String())
	if a := e.advice(); a != "" {
		b.WriteString("; ")
		b.WriteString(a)
	}
	if e.RetryAfter > 0 {
		b.WriteString("; not before ")
		b.WriteString(e.RetryAfter.String())
	}
	b.WriteByte(')')
	return b.String()
}

// Unwrap returns the cause.
func (e *RouteError) Unwrap() error { return e.Cause }

// As lets zmsg.CodeOf, zmsg.OutcomeOf and zmsg.ErrorReply find the cause's code and text with the outcome of this request: an error
// of the store that means "not written" may well belong to a request that ran.
func (e *RouteError) As(target any) bool {
	t, ok := target.(**zmsg.Error)
	if !ok {
		return false
	}
	told := zmsg.ErrorReply(e.Cause)
	*t = &zmsg.Error{Code: told.Code, Outcome: e.Outcome, Text: told.Text}
	if e.Cause == nil {
		(*t).Code = zmsg.CodeInternal
	}
	return true
}

// advice says what the caller can do.
func (e *RouteError) advice() string {
	code := zmsg.CodeOf(e.Cause)
	switch code { //nolint:exhaustive // the others have nothing to say beyond their outcome
	case zmsg.CodeNotFound:
		if e.onDemand {
			return "the first request to it makes it"
		}
		return "create it, or give its kind a Create"
	case zmsg.CodeNoNode:
		return "start a node that hosts the kind"
	case zmsg.CodeMoved:
		return "ask its owner"
	case zmsg.CodeNotInServer:
		return "what brings it into memory, such as a login, has to come first"
	case zmsg.CodeTooLarge:
		return "make the state smaller, or split it into several objects"
	case zmsg.CodeSchema:
		return "update this node"
	case zmsg.CodeUnusable:
		return "see the node's log; the record is untouched"
	}
	switch {
	case !code.Retry():
		return ""
	case e.Outcome == zmsg.NotExecuted:
		return "try again"
	case e.Outcome == zmsg.Unknown:
		return "try again if it may run twice, or with Once"
	}
	return ""
}

var causeErrors = [...]*zmsg.Error{
	entry.Busy:        coded(ErrBusy),
	entry.Unavailable: coded(ErrUnavailable),
	entry.Contended:   {Code: zmsg.CodeAgain, Outcome: zmsg.NotExecuted, Text: "others were faster at claiming the object, again and again"},
	entry.Hops:        coded(ErrHops),
	entry.NotFound:    coded(ErrNotFound),
	entry.NotInServer: coded(ErrNotInServer),
	entry.Moved:       coded(ErrMoved),
	entry.Unusable:    coded(ErrUnusable),
	entry.Refused:     coded(ErrRefused),
	entry.Unended:     {Code: zmsg.CodeHandoff, Outcome: zmsg.NotExecuted, Text: "what the object runs has not ended within quiesce_timeout: it was not handed over"},
	entry.Unconfirmed: {Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown, Text: "it was handed to a new owner that does not answer"},
	entry.Lost:        coded(ErrFenced),
	entry.Broken:      {Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "the object's handler panicked; its last saved state is loaded again"},
	entry.Unsavable:   coded(ErrTooLarge),
}

func coded(err error) *zmsg.Error { return err.(*zmsg.Error) } //nolint:errorlint // the sentinels above are just that

// causeError is what a caller is told where an entry refused for c. It is shared: nobody changes it.
func causeError(c entry.Cause) *zmsg.Error {
	if int(c) < len(causeErrors) {
		return causeErrors[c]
	}
	return &zmsg.Error{Code: zmsg.CodeInternal, Outcome: zmsg.Unknown, Text: "refused for a cause without a name"}
}

// createError is that an object was not created, since its first state could not be made: what Create returned, or why it does not
// encode. It does not unwrap: an error of the store in there is none of the write, which was never begun.
type createError struct{ cause error }

func (e *createError) Error() string { return "the object cannot be created: " + e.cause.Error() }

// told is what callers are told: the error of Create where it has a code, as with a handler's error; no handler has run.
func (e *createError) told() error {
	told := zmsg.ErrorReply(e.cause)
	return &zmsg.Error{Code: told.Code, Outcome: zmsg.NotExecuted, Text: told.Text}
}
