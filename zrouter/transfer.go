package zrouter

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// TransferOption says more about a Transfer.
type TransferOption func(*transferOptions) error

type transferOptions struct {
	silent  bool
	private []byte
}

// WithoutNotify does not tell the target: it loads the object when the first request arrives.
func WithoutNotify() TransferOption {
	return func(o *transferOptions) error { o.silent = true; return nil }
}

// Private goes to the target's load: Context.Private has it in OnActivate and OnAdopt there. It is kept in the record, with
// what OnHandoff returned, until the new owner has written; it counts as part of the state's size.
func Private(arg []byte) TransferOption {
	return func(o *transferOptions) error { o.private = arg; return nil }
}

// PrivateMessage is Private of a message's encoding.
func PrivateMessage(m proto.Message) TransferOption {
	return func(o *transferOptions) (err error) { o.private, err = proto.Marshal(m); return err }
}

// maxLooks is how often Transfer looks where the object is: others may move it meanwhile.
const maxLooks = 3

// Transfer makes the node to the owner of an object of this node, without losing, doubling or reordering a request: what runs
// ends, what comes meanwhile waits, the state and the new owner are written in one step, and what waited goes to the new owner, in order.
// Where to is zero the object is given up: what waited is placed anew where the kind has Create, and ends with ErrNotInServer otherwise.
// It returns the route that is so now: that the object is with to already is no fault. A second Transfer of an object waits until the
// first has ended. One that fails with an outcome of not executed has left everything as it was.
//
// Errors, in a RouteError: ErrMoved (another node owns it; the Route says which), ErrNotFound, ErrNotInServer (nobody owns it), ErrRefused (the target is not
// there, does not host the kind, drains, or has no room), ErrHandoff (what it runs has not ended within Settings.QuiesceTimeout, or
// BeforeRemove or OnHandoff said no), ErrUnavailable (the store, or the lease), ErrTooLarge, ErrBusy, ErrClosing; ErrUnknownOutcome, outcome unknown; ctx's,
// after which a transfer that has begun goes on by itself.
func (s *ManagerSet) Transfer(ctx context.Context, k zmsg.Key, to zmsg.NodeRef, opts ...TransferOption) (Route, error) {
	var o transferOptions
	for _, f := range opts {
		if err := f(&o); err != nil {
			return Route{}, &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: err}
		}
	}
	failed := func(r Route, err error) (Route, error) {
		if told, ok := errors.AsType[*RouteError](err); ok {
			return told.Route, err
		}
		return r, &RouteError{Key: k, Route: r, Outcome: zmsg.OutcomeOf(err), Cause: err}
	}
	if err := s.check(k); err != nil {
		return failed(Route{}, err)
	}
	var last error
	for range maxLooks {
		r, err := s.move(ctx, k, to, &o)
		if !errors.Is(err, errLookAgain) {
			if err != nil {
				return failed(r, err)
			}
			return r, nil
		}
		if last == nil || !errors.Is(err, errNotHere) {
			last = err
		}
		r, err = s.await(ctx, k, order{req: entry.Req{Look: true, Again: true}}) // in the record, whatever route is known
		switch {
		case to.IsZero() && errors.Is(err, ErrNotInServer):
			return s.knownRoute(k), nil
		case err != nil && errors.Is(last, errUnconfirmed):
			return failed(r, ErrUnknownOutcome)
		case err != nil:
			return failed(r, err)
		case r.Owner == to:
			return r, nil
		case !s.self.Is(r.Owner):
			return failed(r, ErrMoved)
		}
	}
	if errors.Is(last, errUnconfirmed) { // it is here still, or again
		return failed(Route{}, ErrHandoff)
	}
	return failed(Route{}, ErrBusy)
}

// Transfer is ManagerSet.Transfer.
func (m *Manager[S]) Transfer(ctx context.Context, k zmsg.Key, to zmsg.NodeRef, opts ...TransferOption) (Route, error) {
	if k.Type != m.kind.typ {
		return Route{}, &RouteError{
			Key: k, Outcome: zmsg.NotExecuted, Cause: zmsg.Errorf(zmsg.CodeBadRequest, "the key is of the type %d, not %d as this manager's", k.Type, m.kind.typ),
		}
	}
	return m.set.Transfer(ctx, k, to, opts...)
}

// Why a transfer has to look where the object is.
var (
	errLookAgain   = errors.New("zrouter: it has to be seen who owns the object")
	errNotHere     = fmt.Errorf("%w: it is not in memory here", errLookAgain)
	errUnconfirmed = fmt.Errorf("%w: nobody knows whether it has moved", errLookAgain)
)

// move is startMove, and waits.
func (s *ManagerSet) move(ctx context.Context, k zmsg.Key, to zmsg.NodeRef, o *transferOptions) (Route, error) {
	type ending struct {
		route Route
		err   error
	}
	end := make(chan ending, 1)
	m := &move{to: to, silent: o.silent, private: o.private, then: func(r Route, err error) { end <- ending{r, err} }}
	s.startMove(k, m)
	select {
	case e := <-end:
		return e.route, e.err
	case <-ctx.Done():
		outcome := zmsg.Unknown
		if s.withdraw(k, m) {
			outcome = zmsg.NotExecuted
		}
		return Route{}, &RouteError{Key: k, Outcome: outcome, Cause: context.Cause(ctx)}
	}
}

// knownRoute is the route of an object as far as this node knows.
func (s *ManagerSet) knownRoute(k zmsg.Key) Route {
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.objects[k]; o != nil {
		return o.entry.Route
	}
	r, _, _ := sh.routes.get(k, s.seconds(s.clock.Now()))
	return r
}

// startMove has an object that is in memory here moved, as soon as moves that were asked for before have ended. m.then is told how it
// ends, once: errLookAgain where the object is not here.
func (s *ManagerSet) startMove(k zmsg.Key, m *move) {
	sh := s.shard(k)
	t := sh.lock()
	o := sh.objects[k]
	switch {
	case s.closed.Load():
		t.say(m, Route{}, ErrClosing)
	case o == nil || !o.owns():
		t.say(m, Route{}, errNotHere)
	case o.moves.len() >= maxMoves:
		t.say(m, o.entry.Route, ErrBusy)
	default:
		o.moves = o.moves.append(m)
		t.moveOn(o)
	}
	t.end()
}

// withdraw takes back a move that has not begun; false where it has.
func (s *ManagerSet) withdraw(k zmsg.Key, m *move) bool {
	sh := s.shard(k)
	t := sh.lock()
	defer t.end()
	o := sh.objects[k]
	if o == nil {
		return false
	}
	for at := &o.moves; *at != nil; at = &(*at).next {
		if *at == m && !m.begun {
			*at = m.next
			t.settle(o)
			return true
		}
	}
	return false
}

// owns reports that the entry has, or is about to have, the object in memory.
func (o *object) owns() bool {
	p := o.entry.Phase
	return p.Resident() || p == entry.Loading || p == entry.Claiming
}

// maxMoves is how many transfers of one object may wait for their turn.
const maxMoves = 64

func (m *move) len() (n int) {
	for ; m != nil; m = m.next {
		n++
	}
	return n
}

func (m *move) append(last *move) *move {
	if m == nil {
		return last
	}
	at := m
	for at.next != nil {
		at = at.next
	}
	at.next = last
	return m
}

// say tells the end of a move, when the lock is released.
func (t *turn) say(m *move, r Route, err error) {
	t.ends = append(t.ends, func() { m.then(r, err) })
}

// moveOn begins the next transfer that was asked for, when what is carried out now is done. It is called whenever something was told to
// an entry that has one.
func (t *turn) moveOn(o *object) {
	if m := o.moves; m != nil && !m.begun && !m.queued {
		m.queued = true
		t.later(o, entry.Event{Kind: entry.Transfer}, nil)
	}
}

// beginMove begins the first of an object's transfers, if the object is as it must be; while it is on its way to that, the transfer waits.
func (t *turn) beginMove(o *object) {
	m := o.moves
	if m == nil || m.begun {
		return
	}
	m.queued = false
	e := &o.entry
	s := t.sh.set
	t.serving(o)
	switch {
	case o.inert || !o.owns():
		t.endMove(o, e.Route, errNotHere)
	case e.Suspended:
		t.endMove(o, e.Route, ErrUnavailable)
	case e.TooOld && !e.Unknown:
		t.endMove(o, e.Route, ErrUnavailable)
	case !e.Admits() || e.Moves:
	case s.self.Is(m.to):
		t.endMove(o, e.Route, nil)
	default:
		if err := s.canTake(m.to, o.kind); err != nil {
			s.countsOf(o).handoffs("refused").Inc()
			t.endMove(o, e.Route, err)
			return
		}
		m.begun, m.number, m.began = true, s.lastID.Add(1), t.time()
		t.tell(o, &entry.Event{Kind: entry.Transfer, Target: m.to, Notify: !m.silent})
		if m.to.IsZero() {
			t.watchQuiet(o, m)
		}
	}
}

// canTake says why a node cannot be the owner of objects of a kind, as far as the list of nodes tells.
func (s *ManagerSet) canTake(n zmsg.NodeRef, k *kind) error {
	if n.IsZero() {
		return nil
	}
	why := "is not on the list of nodes"
	for i := range s.members.Nodes().Nodes {
		if x := &s.members.Nodes().Nodes[i]; x.Ref == n {
			if why = notFit(x, k.typ); why == "" {
				return nil
			}
		}
	}
	return &zmsg.Error{Code: zmsg.CodeRefused, Outcome: zmsg.NotExecuted, Text: "the node " + n.String() + " " + why}
}

// endMove tells who asked for the first of an object's transfers how it has ended, and lets the next begin.
func (t *turn) endMove(o *object, r Route, err error) {
	m := o.moves
	if m.timer != nil {
		m.timer.Stop()
	}
	o.moves = m.next
	t.say(m, r, err)
	t.moveOn(o)
	t.settle(o)
}

// notMoved ends a transfer that the entry says has not happened.
func (t *turn) notMoved(o *object, x *entry.Effect) {
	m := o.moves
	if m == nil || !m.begun {
		return
	}
	var err error
	result := x.Cause.String()
	switch x.Cause {
	case entry.Moved:
		err = errNotHere
	case entry.Unconfirmed:
		err = errUnconfirmed
	case entry.Refused:
		err = ErrRefused
		if m.refusal != "" {
			err = &zmsg.Error{Code: zmsg.CodeRefused, Outcome: zmsg.NotExecuted, Text: "the node " + m.to.String() + " " + m.refusal}
		}
	case entry.Unavailable:
		var veto *vetoError
		switch {
		case errors.As(o.why, &veto) && m.written:
			err, result = veto, "vetoed"
		case errors.Is(o.why, zstore.ErrTooLarge) && m.written:
			err, result = &zmsg.Error{Code: zmsg.CodeTooLarge, Outcome: zmsg.NotExecuted, Text: "state and attachment are above the store's limit"}, "too_large"
		default:
			err = ErrUnavailable
		}
	default:
		err = causeError(x.Cause)
	}
	t.sh.set.countsOf(o).handoffs(result).Inc()
	if res := o.res; res != nil && res.agreed && !res.dropped {
		res.agreed = false
		_ = res.ref.Turn(res.cell.aborted, nil) // an actor that has ended has nothing to go on with
	}
	t.endMove(o, x.Route, err)
}

// moved ends a transfer that has happened.
func (t *turn) moved(o *object, r Route) {
	m := o.moves
	if m == nil || !m.begun {
		return
	}
	c, now := t.sh.set.countsOf(o), t.time()
	c.handoffs("ok").Inc()
	if !m.frozen.IsZero() {
		if o.res != nil {
			o.res.away = now.Sub(m.frozen)
		}
		t.sh.set.counts.HandoffSeconds.With("freeze").Observe(m.wrote.Sub(m.frozen).Seconds())
		t.sh.set.counts.HandoffSeconds.With("commit").Observe(now.Sub(m.wrote).Seconds())
	}
	t.endMove(o, r, nil)
}

// vetoError is that a hook of the kind does not let an object go.
type vetoError struct{ cause error }

func (e *vetoError) Error() string { return "handoff: the object is not let go: " + e.cause.Error() }

// Unwrap has an ErrHandoff with the hook's words first, for those who are told its code and text alone.
func (e *vetoError) Unwrap() []error {
	return []error{&zmsg.Error{Code: zmsg.CodeHandoff, Outcome: zmsg.NotExecuted, Text: "the object is not let go: " + e.cause.Error()}, e.cause}
}

// abandonMove ends the first of an object's transfers whose set does nothing any more.
func (t *turn) abandonMove(o *object, err error) {
	m := o.moves
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.written {
		err = ErrUnknownOutcome
	}
	o.moves = m.next
	t.say(m, o.entry.Route, err)
}
