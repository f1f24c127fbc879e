package zmsg

import (
	"errors"
	"fmt"
)

// Code is the result of a request as the client sees it. 0 is OK, 1 to 999 belong to the framework, applications
// number theirs from 1000. The numbers are part of the wire and never change meaning.
type Code uint32

// The framework's codes.
const (
	CodeOK           Code = 0
	CodeInternal     Code = 1  // the handler failed with an error that carries no code
	CodeNoRoute      Code = 2  // nobody handles the message id, or clients may not call it
	CodeBusy         Code = 3  // the mailbox, a lane or a limit is full
	CodeTimeout      Code = 4  // no answer within the deadline
	CodePanicked     Code = 5  // the handler panicked
	CodeStopped      Code = 6  // the actor stopped before it ran the request
	CodeBadRequest   Code = 7  // the body is not what the message id says
	CodeUnauthorized Code = 8  // log in first
	CodeForbidden    Code = 9  // logged in, but not allowed
	CodeRateLimited  Code = 10 // too many requests
	CodeUnavailable  Code = 11 // the bus, the store or the owner is not reachable now
	CodeDraining     Code = 12 // the node is shutting down; ask another
	CodeTooLarge     Code = 13 // the message is above a limit
	CodeCancelled    Code = 14 // the caller gave up
	CodeUnknownActor Code = 15 // no such actor at the address
	CodeNodeLost     Code = 16 // the node that had the request is gone
	CodeCycle        Code = 17 // the call chain would wait for itself
	CodeNotFound     Code = 18 // the thing asked for does not exist
	CodeConflict     Code = 19 // somebody else changed it meanwhile

	// Of stateful actors.
	CodeNoNode         Code = 20 // no node that may own the object is ready
	CodeMoved          Code = 21 // another node owns the object
	CodeHandoff        Code = 22 // the object could not be handed over; it stays where it is
	CodeHops           Code = 23 // forwarded too often
	CodeRefused        Code = 24 // the node that was to take the object over does not
	CodeFenced         Code = 25 // it ran, but its node lost the object before it was saved
	CodeUnknownOutcome Code = 26 // nobody can tell whether it ran
	CodeAgain          Code = 27 // nothing is wrong: try again
	CodeNotInServer    Code = 28 // the object exists, but nobody has it in memory, and a request does not bring it there
	CodeSchema         Code = 29 // the object's state was written by a newer version of the program
	CodeUnusable       Code = 30 // the object cannot be brought into memory: its stored state cannot be read, or its program refuses it

	// NumCodes is one more than the greatest code of the framework that this version knows.
	NumCodes = 31
	// CodeApplication is the first code that applications may use.
	CodeApplication Code = 1000
)

var codeNames = [NumCodes]string{
	CodeOK: "ok", CodeInternal: "internal", CodeNoRoute: "no_route", CodeBusy: "busy", CodeTimeout: "timeout",
	CodePanicked: "panicked", CodeStopped: "stopped", CodeBadRequest: "bad_request", CodeUnauthorized: "unauthorized",
	CodeForbidden: "forbidden", CodeRateLimited: "rate_limited", CodeUnavailable: "unavailable",
	CodeDraining: "draining", CodeTooLarge: "too_large", CodeCancelled: "cancelled",
	CodeUnknownActor: "unknown_actor", CodeNodeLost: "node_lost", CodeCycle: "cycle", CodeNotFound: "not_found",
	CodeConflict: "conflict", CodeNoNode: "no_node", CodeMoved: "moved", CodeHandoff: "handoff", CodeHops: "hops",
	CodeRefused: "refused", CodeFenced: "fenced", CodeUnknownOutcome: "unknown_outcome", CodeAgain: "again",
	CodeNotInServer: "not_in_server", CodeSchema: "schema", CodeUnusable: "unusable",
}

// String returns the code's snake_case name, "application" from 1000 on, "framework" for a framework code that this
// version does not know. It is fit for a metric label.
func (c Code) String() string {
	switch {
	case int(c) < len(codeNames):
		return codeNames[c]
	case c >= CodeApplication:
		return "application"
	default:
		return "framework"
	}
}

// Retry reports whether the same request may succeed when it is sent again later without change. Whether it is safe
// to send again is another question: Outcome answers it.
func (c Code) Retry() bool {
	switch c {
	case CodeBusy, CodeTimeout, CodeStopped, CodeRateLimited, CodeUnavailable, CodeDraining, CodeNodeLost, CodeConflict,
		CodeNoNode, CodeMoved, CodeHandoff, CodeHops, CodeRefused, CodeFenced, CodeUnknownOutcome, CodeAgain, CodeSchema:
		return true
	default:
		return false
	}
}

// Outcome says whether a request that failed ran.
type Outcome uint8

// The outcomes. Executed is the zero value because errors of handlers are the common case.
const (
	Executed    Outcome = iota // the handler ran (or rejected the request by its own decision)
	NotExecuted                // it certainly did not run: sending it again is safe
	Unknown                    // it may have run
)

// String returns executed, not_executed or unknown.
func (o Outcome) String() string {
	switch o {
	case Executed:
		return "executed"
	case NotExecuted:
		return "not_executed"
	default:
		return "unknown"
	}
}

// Error is a failure with a code for the client. Handlers return it (see Errorf), requests end with it.
type Error struct {
	Code    Code
	Outcome Outcome
	Text    string
}

// Error returns the code's name and the text.
func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s (code %d, %s)", e.Code, uint32(e.Code), e.Outcome)
	}
	return fmt.Sprintf("%s: %s (code %d, %s)", e.Code, e.Text, uint32(e.Code), e.Outcome)
}

// Is reports whether target is an *Error with the same code, so that errors.Is(err, zmsg.ErrBusy) works whatever the
// text is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Sentinels for errors.Is. They are compared by code.
var (
	ErrNoRoute      error = &Error{Code: CodeNoRoute, Outcome: NotExecuted}
	ErrBusy         error = &Error{Code: CodeBusy, Outcome: NotExecuted}
	ErrTimeout      error = &Error{Code: CodeTimeout, Outcome: Unknown}
	ErrPanicked     error = &Error{Code: CodePanicked, Outcome: Unknown}
	ErrStopped      error = &Error{Code: CodeStopped, Outcome: NotExecuted}
	ErrBadRequest   error = &Error{Code: CodeBadRequest, Outcome: NotExecuted}
	ErrUnavailable  error = &Error{Code: CodeUnavailable, Outcome: NotExecuted}
	ErrDraining     error = &Error{Code: CodeDraining, Outcome: NotExecuted}
	ErrTooLarge     error = &Error{Code: CodeTooLarge, Outcome: NotExecuted}
	ErrCancelled    error = &Error{Code: CodeCancelled, Outcome: Unknown}
	ErrUnknownActor error = &Error{Code: CodeUnknownActor, Outcome: NotExecuted}
	ErrNodeLost     error = &Error{Code: CodeNodeLost, Outcome: Unknown}
	ErrCycle        error = &Error{Code: CodeCycle, Outcome: NotExecuted}
)

// Errorf makes the error that a handler returns to tell the client a code of its own; the outcome is Executed.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code that err carries: CodeOK for nil, CodeInternal for an error without a code.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// OutcomeOf returns the outcome that err carries: Executed for nil, Unknown for an error that does not say.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Executed
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return Unknown
}
