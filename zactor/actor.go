package zactor

import (
	"context"
	"errors"
	"fmt"

	"zgame/zmsg"
)

// Actor is code and state behind one mailbox. Handlers is called once for each instance, before anything else, and
// tells what it handles; the handlers run one at a time.
type Actor interface {
	Handlers() []Handler
}

// Starter is an Actor that has work to do before its first message: OnStart runs once for each instance (a restart makes
// a new one). An error means that the actor does not start.
type Starter interface {
	OnStart(c *Context) error
}

// Stopper is an Actor that has work to do when it ends: OnStop runs once, after its last message, also when the actor
// goes because it failed too often (on the instance that failed last). It does not run before a restart.
type Stopper interface {
	OnStop(c *Context, why Reason)
}

// Reason says why an actor ended.
type Reason uint8

// The reasons. The numbers are part of the wire between nodes.
const (
	StopRequested Reason = iota + 1 // Stop, or Context.Stop
	StopShutdown                    // the group shuts down
	StopFailed                      // it failed more often than its policy allows, or did not start
	StopIdle                        // nothing came for as long as WithIdle says
	StopParent                      // its parent stopped or restarted
	LostNode                        // only in a Down: its node is gone
	UnknownActor                    // only in a Down: it was not there, or not any more
	reasons
)

var reasonNames = [reasons]string{"none", "requested", "shutdown", "failed", "idle", "parent", "lost_node", "unknown_actor"}

// String returns requested, shutdown, failed, idle, parent, lost_node or unknown_actor.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", r)
}

// Errors of this package. What a message or request can end with are the coded errors of zmsg: ErrBusy, ErrStopped,
// ErrUnknownActor, ErrNoRoute, ErrDraining, ErrTimeout, ErrCancelled, ErrPanicked, ErrCycle and the others.
var (
	// ErrExists says that an actor of the name is there already.
	ErrExists = errors.New("zactor: an actor of this name exists")
	// ErrClosed says that the group has been shut down, or is about to.
	ErrClosed = errors.New("zactor: group is shut down")
	// ErrDeferred is what a handler returns when it has called Context.Defer and replies later.
	ErrDeferred = errors.New("zactor: reply is deferred")
)

// notRunError wraps an error to say that the request was turned down before it did anything.
type notRunError struct{ err error }

func (e *notRunError) Error() string { return e.err.Error() }
func (e *notRunError) Unwrap() error { return e.err }

// NotRun wraps the error with which a handler turns a request down before it has done anything: the asker learns
// Outcome NotExecuted, and whoever routes may try another actor. Without it an error of a handler tells Executed (or
// Unknown where it comes from a nested request that says so): the handler did run, whatever a nested request did.
func NotRun(err error) error {
	if err == nil {
		return nil
	}
	return &notRunError{err}
}

// handlerReply makes the reply that tells a handler's error. The end of a context is no word on what was done before it:
// Unknown.
func handlerReply(err error) zmsg.Reply {
	r := zmsg.ErrorReply(err)
	_, turned := errors.AsType[*notRunError](err)
	isCoded := hasCode(err)
	switch {
	case turned:
		r.Outcome = zmsg.NotExecuted
	case !isCoded && errors.Is(err, context.DeadlineExceeded):
		r.Code, r.Outcome, r.Text = zmsg.CodeTimeout, zmsg.Unknown, "the handler ran out of time"
	case !isCoded && errors.Is(err, context.Canceled):
		r.Code, r.Outcome, r.Text = zmsg.CodeCancelled, zmsg.Unknown, "the handler was cut short"
	case !isCoded || r.Outcome == zmsg.NotExecuted:
		r.Outcome = zmsg.Executed
	}
	return r
}

func hasCode(err error) bool {
	_, ok := errors.AsType[*zmsg.Error](err)
	return ok
}
