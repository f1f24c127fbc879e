package zrouter

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

var sentinels = []error{
	ErrNotFound, ErrNoNode, ErrMoved, ErrBusy, ErrHandoff, ErrHops, ErrClosing, ErrRefused, ErrUnavailable, ErrFenced,
	ErrUnknownOutcome, ErrAgain, ErrNotInServer, ErrTooLarge, ErrSchema, ErrUnusable,
}

// Each is told from every other, and still is when it comes back from another node as code, outcome and text.
func TestSentinelsCrossNodes(t *testing.T) {
	t.Parallel()
	for i, s := range sentinels {
		reply := zmsg.ErrorReply(fmt.Errorf("asked: %w", &RouteError{Cause: s, Outcome: zmsg.OutcomeOf(s)}))
		back := &RouteError{Cause: reply.Err(), Outcome: reply.Outcome}
		for j, other := range sentinels {
			if got := errors.Is(back, other); got != (i == j) {
				t.Errorf("%v is %v: %v", s, other, got)
			}
		}
		if reply.Text == "" {
			t.Errorf("%v: says nothing", s)
		}
		if zmsg.OutcomeOf(back) != zmsg.OutcomeOf(s) {
			t.Errorf("%v: outcome %v", s, zmsg.OutcomeOf(back))
		}
	}
}

// Every cause of an entry has an error that agrees with it about whether the request ran.
func TestCauseErrorsAreComplete(t *testing.T) {
	t.Parallel()
	n := 0
	for c := entry.Cause(0); named(c); c++ {
		n++
		e := causeError(c)
		if e == nil || e.Code == zmsg.CodeOK || e.Code == zmsg.CodeInternal || e.Text == "" {
			t.Errorf("%s: %v", c, e)
			continue
		}
		if ran := e.Outcome != zmsg.NotExecuted; ran != c.Executed() {
			t.Errorf("%s: outcome %v, but the entry says executed %v", c, e.Outcome, c.Executed())
		}
	}
	if n != len(causeErrors) || n < 13 {
		t.Errorf("%d causes have a name, %d an error", n, len(causeErrors))
	}
	if e := causeError(entry.Cause(n)); e.Outcome != zmsg.Unknown {
		t.Errorf("a cause that nobody knows: %v", e)
	}
	for c, want := range map[entry.Cause]error{
		entry.Busy: ErrBusy, entry.Moved: ErrMoved, entry.Lost: ErrFenced, entry.Broken: zmsg.ErrPanicked, entry.Contended: ErrAgain,
		entry.Unconfirmed: ErrUnknownOutcome, entry.Unended: ErrHandoff, entry.Refused: ErrRefused, entry.Unusable: ErrUnusable,
	} {
		if e := causeError(c); !errors.Is(e, want) {
			t.Errorf("%s: %v, want %v", c, e, want)
		}
	}
}

func named(c entry.Cause) (ok bool) {
	defer func() { _ = recover() }()
	return c.String() != ""
}

func TestRouteError(t *testing.T) {
	t.Parallel()
	key := zmsg.Key{Type: 2, ID: "ann"}
	at := Route{Owner: zmsg.NodeRef{ID: "n1", Epoch: 35}, Version: 7}
	for _, c := range []struct {
		err  RouteError
		want string
	}{
		{
			RouteError{Key: key, Route: at, Outcome: zmsg.NotExecuted, Cause: ErrMoved},
			"zrouter: object 2/0/ann of n1@z since version 7: moved: another node owns the object (not_executed; ask its owner)",
		},
		{
			RouteError{Key: key, Outcome: zmsg.NotExecuted, RetryAfter: time.Second, Cause: ErrBusy},
			"zrouter: object 2/0/ann: busy: too many requests wait for the object (not_executed; try again; not before 1s)",
		},
		{
			RouteError{Key: key, Route: Route{Version: 3}, Outcome: zmsg.Executed, Cause: zmsg.Errorf(1001, "join first")},
			"zrouter: object 2/0/ann of nobody since version 3: application: join first (executed)",
		},
		{
			RouteError{Key: key, Outcome: zmsg.Unknown, Cause: fmt.Errorf("saving: %w", zstore.ErrUnknown)},
			"zrouter: object 2/0/ann: saving: zstore: outcome unknown (unknown; try again if it may run twice, or with Once)",
		},
		{
			RouteError{Key: key, Outcome: zmsg.NotExecuted, Cause: ErrNotFound},
			"zrouter: object 2/0/ann: not_found: the object does not exist (not_executed; create it, or give its kind a Create)",
		},
		{
			RouteError{Key: key, Outcome: zmsg.NotExecuted, Cause: ErrNotFound, onDemand: true},
			"zrouter: object 2/0/ann: not_found: the object does not exist (not_executed; the first request to it makes it)",
		},
		{RouteError{Key: key, Outcome: zmsg.Unknown}, "zrouter: object 2/0/ann: no cause is known (unknown)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// The request's outcome counts, not that of the error beneath; code and text are the cause's, and nothing else leaves the node.
func TestRouteErrorTells(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("call: %w", &RouteError{Outcome: zmsg.Unknown, Cause: fmt.Errorf("host db-3: %w", zstore.ErrUnavailable)})
	if zmsg.CodeOf(err) != zmsg.CodeUnavailable || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("%v, %v", zmsg.CodeOf(err), zmsg.OutcomeOf(err))
	}
	if !errors.Is(err, zstore.ErrUnavailable) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFenced) {
		t.Error("what it is")
	}
	if r := zmsg.ErrorReply(err); strings.Contains(r.Text, "db-3") || r.Outcome != zmsg.Unknown {
		t.Errorf("%+v", r)
	}
	plain := &RouteError{Outcome: zmsg.Executed, Cause: errors.New("secret")}
	want := zmsg.Reply{Code: zmsg.CodeInternal, Outcome: zmsg.Executed}
	if r := zmsg.ErrorReply(plain); !reflect.DeepEqual(r, want) {
		t.Errorf("%+v", r)
	}
	if r := zmsg.ErrorReply(&RouteError{Outcome: zmsg.Unknown}); r.Code != zmsg.CodeInternal || r.Outcome != zmsg.Unknown {
		t.Errorf("without a cause: %+v", r)
	}
	if re, ok := errors.AsType[*RouteError](err); !ok || re.Outcome != zmsg.Unknown {
		t.Error("a RouteError is found as itself")
	}
}
