package zrouter

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// Manager is all objects of one kind, as the node sees them. Its methods may be called from any goroutine; in a handler of
// an object use Ref, which keeps the mailbox in the call chain.
type Manager[S any] struct {
	set  *ManagerSet
	kind *kind
}

// ManagerOf returns the manager of a kind that the set hosts.
// Errors: the set hosts no kind of the type, or one whose state is not S.
func ManagerOf[S any](s *ManagerSet, typ uint32) (*Manager[S], error) {
	k := s.kinds[typ]
	if k == nil {
		return nil, fmt.Errorf("zrouter: this node hosts no kind of the type %d", typ)
	}
	if want := reflect.TypeFor[S](); want != k.state {
		return nil, fmt.Errorf("zrouter: the state of kind %q is a %v, not a %v", k.name, k.state, want)
	}
	return &Manager[S]{s, k}, nil
}

// MutableCache returns where the object is: what this node knows, or, where that is nothing or older than
// cache_update_interval, what the record says. It never writes.
// Errors: ErrNotFound (no record), ErrNotInServer (nobody owns it), ErrUnavailable, ctx's.
func (m *Manager[S]) MutableCache(ctx context.Context, k zmsg.Key) (Route, error) {
	return m.set.Lookup(ctx, k)
}

// MutableObject makes sure that the object is in memory and writable here: it is claimed, where nobody owns it or its owner is
// proven dead, and created if the kind has Create. Where another node owns it the error is ErrMoved in a RouteError that names
// the owner. first, if given, is the state of an object that is not there, whatever the kind says: objects that no message
// creates, such as users, are made by it.
// Errors: ErrMoved, ErrNotFound, ErrUnusable, ErrUnavailable, ErrClosing, ErrBusy, ctx's.
func (m *Manager[S]) MutableObject(ctx context.Context, k zmsg.Key, first ...S) (Route, error) {
	o := order{req: entry.Req{Own: true}}
	if len(first) > 0 {
		data, err := m.kind.encode(first[0])
		if err != nil {
			return Route{}, &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: err}
		}
		o.req.Make = true
		o.make = func(zmsg.Key) (zstore.Write, error) { return data, nil }
	}
	return m.set.await(ctx, k, o)
}

// Do runs fn in a turn of the object's actor, here: as MutableObject, and then fn with its state. fn must not block for long. It
// returns when fn has, with what it returned, and when the effect is in the store where the kind is durable (or fn
// called Save).
func (m *Manager[S]) Do(ctx context.Context, k zmsg.Key, fn func(c *Context[S]) error) error {
	var failed error
	_, err := m.set.await(ctx, k, order{req: entry.Req{Own: true, Work: true, Durable: m.kind.set.Durable == On}, work: func(zc *zactor.Context) {
		c := zc.Actor().(*cell[S])
		failed = fn(c.in(zc))
	}})
	if err != nil {
		return err
	}
	return failed
}

// Save returns when everything that the object has acknowledged is in the store. It is no fault when that is so already.
func (m *Manager[S]) Save(ctx context.Context, k zmsg.Key) error {
	_, err := m.set.await(ctx, k, order{req: entry.Req{Own: true, Work: true, Durable: true}, work: func(*zactor.Context) {}})
	return err
}

// MarkDirty has the object saved within its save delay.
func (m *Manager[S]) MarkDirty(ctx context.Context, k zmsg.Key) error {
	return m.Do(ctx, k, func(c *Context[S]) error { c.Dirty(); return nil })
}

// Remove saves the object and gives its ownership up. It returns when it has left the memory; it is no fault when it is not there.
func (m *Manager[S]) Remove(ctx context.Context, k zmsg.Key) error { return m.set.release(ctx, k) }

// RemoveCache forgets the route of an object that is not in memory here.
func (m *Manager[S]) RemoveCache(k zmsg.Key) { m.set.forget(k) }

// Ref returns a ref to the object for actors and others of this node: zactor.Ask, Call, Then and Tell with it find the owner at each
// use. In a handler, Context.Object is the same.
func (s *ManagerSet) Ref(k zmsg.Key) zactor.Ref { return s.group.Object(k) }

// Resident is how many objects are in memory here.
func (s *ManagerSet) Resident() int { return int(s.residents.Load()) }

// Lookup is Manager.MutableCache for an object of any kind.
func (s *ManagerSet) Lookup(ctx context.Context, k zmsg.Key) (Route, error) {
	return s.await(ctx, k, order{req: entry.Req{Look: true}})
}

// Recorded returns where the object is by its record, whatever this node remembers: the zero Owner where nobody has it. It neither writes nor asks
// PullOnlineServer, which may call it. Errors: ErrNotFound (no record), ErrClosing, ErrAgain, the store's.
func (s *ManagerSet) Recorded(ctx context.Context, k zmsg.Key) (Route, error) {
	if err := s.check(k); err != nil {
		return Route{}, err
	}
	rec, err := s.storeOf(s.kinds[k.Type]).Read(ctx, k)
	switch {
	case errors.Is(err, zstore.ErrNotFound), err == nil && rec.Deleted:
		return Route{}, ErrNotFound
	case err != nil:
		return Route{}, err
	}
	return Route{Owner: rec.Own.Node, Version: rec.Own.Version}, nil
}

// order is a request without a message.
type order struct {
	req  entry.Req
	work func(*zactor.Context)
	make func(k zmsg.Key) (zstore.Write, error)
}

// await has the entry of the object told of an order, and waits for its end.
func (s *ManagerSet) await(ctx context.Context, k zmsg.Key, want order) (Route, error) {
	if err := s.check(k); err != nil {
		return Route{}, &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: err}
	}
	type ending struct {
		route Route
		err   error
	}
	end := make(chan ending, 1)
	s.begin(k, want, func(r Route, err error) { end <- ending{r, err} })
	select {
	case e := <-end:
		if e.err != nil {
			return e.route, &RouteError{Key: k, Route: e.route, Outcome: zmsg.OutcomeOf(e.err), Cause: e.err, onDemand: s.onDemand(k.Type)}
		}
		return e.route, nil
	case <-ctx.Done():
		outcome := zmsg.NotExecuted
		if want.work != nil {
			outcome = zmsg.Unknown
		}
		return Route{}, &RouteError{Key: k, Outcome: outcome, Cause: context.Cause(ctx)}
	}
}

// begin has the entry of the object told of an order; then is told how it ends, once.
func (s *ManagerSet) begin(k zmsg.Key, want order, then func(r Route, err error)) {
	c := s.newCall(cloneKey(k), nil)
	want.req.ID = c.req.ID
	c.req, c.work, c.make, c.origin, c.then = want.req, want.work, want.make, s.self.Ref(), then
	s.ask(c)
}

// CallOption says more about a Call.
type CallOption func(*zmsg.Message)

// Once gives the request an idempotency key, 1 to 128 bytes: in a kind that remembers requests (Settings.Dedup) a request with a key
// that has run is answered as it was the first time, across moves, restarts and crashes.
func Once(id string) CallOption { return func(m *zmsg.Message) { m.Once = id } }

// Call sends a request to the object, wherever it is, and waits for its outcome. Actors use zactor.Ask or Call with Ref instead.
// Errors are *RouteError.
func Call[R any, PR interface {
	*R
	proto.Message
}](ctx context.Context, s *ManagerSet, k zmsg.Key, req proto.Message, opts ...CallOption) (PR, error) {
	id, ok := zmsg.IDOf(req)
	if !ok {
		return nil, &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: zmsg.Errorf(zmsg.CodeBadRequest, "%T has no (zgame.id)", req)}
	}
	m := zmsg.NewMessage(id)
	m.Value = req
	for _, o := range opts {
		o(m)
	}
	if d, ok := ctx.Deadline(); ok {
		m.Deadline = d
	}
	w := &waiter{outcome: make(chan zmsg.Reply, 1)}
	m.SetReplier(w, 0)
	if err := s.DeliverObject(k, m); err != nil {
		m.TakeReplier()
		m.Release()
		return nil, &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: err}
	}
	select {
	case r := <-w.outcome:
		route := Route{Owner: r.Owner, Version: r.Version}
		if err := r.Err(); err != nil {
			return nil, &RouteError{Key: k, Route: route, Outcome: zmsg.OutcomeOf(err), Cause: err}
		}
		out, err := answerOf[R, PR](&r)
		if err != nil {
			return nil, &RouteError{Key: k, Route: route, Outcome: zmsg.Executed, Cause: err}
		}
		return out, nil
	case <-ctx.Done():
		return nil, &RouteError{Key: k, Outcome: zmsg.Unknown, Cause: errors.Join(zmsg.ErrTimeout, context.Cause(ctx))}
	}
}

// answerOf returns the answer of a success, which is an R, or an error of CodeInternal that says what came instead. A handler that
// answers nothing has answered with an empty R.
func answerOf[R any, PR interface {
	*R
	proto.Message
}](r *zmsg.Reply) (PR, error) {
	out := PR(new(R))
	switch v := r.Value.(type) {
	case PR:
		return v, nil
	case nil:
	default:
		return nil, zmsg.Errorf(zmsg.CodeInternal, "the answer is a %T, not a %T", v, out)
	}
	if id, ok := zmsg.IDOf(out); ok && r.ID != 0 && r.ID != id {
		return nil, zmsg.Errorf(zmsg.CodeInternal, "the answer has the message id %d, not the %d of a %T", r.ID, id, out)
	}
	if err := proto.Unmarshal(r.Body, out); err != nil {
		return nil, zmsg.Errorf(zmsg.CodeInternal, "the answer is no %T: %v", out, err)
	}
	return out, nil
}

// waiter is a zmsg.Replier that a goroutine waits on.
type waiter struct{ outcome chan zmsg.Reply }

func (w *waiter) Reply(_ uint64, r *zmsg.Reply) {
	c := *r
	c.Body = append([]byte(nil), r.Body...)
	w.outcome <- c
}
