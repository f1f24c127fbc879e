package zrouter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zstore"
)

// Kind says what the objects of one type are. S is the state, usually a pointer to a protobuf message. A Kind is not changed
// after it was given to New.
type Kind[S any] struct {
	// Type is the number of the kind in keys, unique in the cluster; it is stored and never changes.
	Type uint32
	// Name is for settings, logs and metrics: letters, digits, '-' and '_', unique in the cluster.
	Name string
	// Version of the state's encoding, from 1. It rises when older code cannot read what newer code writes.
	Version uint32
	// Codec encodes the state. Defaults to Proto where S is a protobuf message; without it other types are refused.
	Codec Codec[S]
	// Migrate makes a state of what an older version has written. Without it such a record is refused.
	Migrate func(from uint32, raw []byte) (S, error)
	// Create makes the state of an object that is not there, or was deleted. With it objects are created, and claimed, by
	// the first message for them; nil: only MutableObject with a first state does so. An error with a code is the answer to
	// who asked, not executed, and nothing is created; another one is internal to him, and logged. It runs on a goroutine of the
	// set and may block, in which case the object's requests wait.
	Create func(k zmsg.Key) (S, error)
	// Handlers are what the objects handle. A message id belongs to one kind.
	Handlers []Handler[S]

	// OnActivate runs in the object's actor when the state is in memory, before the first message. An error means that
	// the object cannot be used: requests end with ErrUnusable, the ownership is given up.
	OnActivate func(c *Context[S]) error
	// BeforeRemove runs in the object's actor when a transfer is about to take it away: what it ran has ended, nothing new begins, and
	// nothing is written yet. An error keeps it here, and is told to who asked (in an ErrHandoff). It must not wait.
	BeforeRemove func(c *Context[S]) error
	// OnHandoff runs behind BeforeRemove. What it returns goes to the new owner besides the state, in the same write: what is
	// in no field of the state, such as timers; sessions that Context.Bind has bound go by themselves. It may change the state too: say Dirty. An error keeps the
	// object here, and so does Delete, or Stop, in one of the two hooks. Timers are to end here, and to begin again in RemoveAborted: what one changes
	// behind this hook is not in what is written. Hooks that have not returned within Settings.QuiesceTimeout end the transfer; what they did is taken back by
	// RemoveAborted when they return.
	OnHandoff func(c *Context[S]) (attachment []byte, err error)
	// RemoveAborted runs in the object's actor, before any other message, when the transfer has not come about after BeforeRemove has
	// agreed, and the object serves on here: it takes back what BeforeRemove and OnHandoff have done. A BeforeRemove that says no takes
	// back itself what it did before.
	RemoveAborted func(c *Context[S])
	// OnAdopt runs in the new owner's actor behind OnActivate, before the first message, with what OnHandoff has returned. It may run
	// again, with the same, until the object was saved here: on this node after the object left memory, or on another that has taken
	// over. An error: as one of OnActivate.
	OnAdopt func(c *Context[S], attachment []byte) error
	// OnDeactivate runs in the object's actor when it leaves memory, once, after what was to be saved is: with Moved behind the write that
	// has made another node the owner. State may be read.
	OnDeactivate func(c *Context[S], why Reason)
	// PullOnlineServer may know the owner of an object that has no owner in its record, where Create is nil: the route
	// that it returns is followed if its version is greater than the record's. ErrAgain: ask again, within the rounds of
	// the request. The zero Route: nobody. It is called on a goroutine of the set and writes nothing.
	PullOnlineServer func(ctx context.Context, k zmsg.Key) (Route, error)
	// Store keeps the objects of this kind. Defaults to that of the set. One of your own must hold what
	// zstoretest.Run asks.
	Store zstore.Store

	// Settings of the kind in code; those of the configuration go before them, those of the node behind.
	Settings Settings
}

// AnyKind is a Kind of any state.
type AnyKind interface {
	spec() (*kind, error)
	// KindName is the Kind's Name.
	KindName() string
}

// KindName implements AnyKind.
func (k Kind[S]) KindName() string { return k.Name }

// Handler is what objects of a kind with the state S do for one message id. Handle and HandleTell make it.
type Handler[S any] struct {
	h    zactor.Handler
	key  uint32
	err  error
	opts handlerOptions
}

type handlerOptions struct {
	clients  bool
	durable  bool
	memory   bool
	inServer bool
	byKey    bool
}

// rule is what is to be known of a message's id before its handler runs.
type rule struct {
	durable  bool // its answer is told after the save
	inServer bool
}

// HandlerOption says more about a handler.
type HandlerOption func(*handlerOptions)

// FromClients lets clients call the handler. Without it the id counts as no route for them.
func FromClients() HandlerOption { return func(o *handlerOptions) { o.clients = true } }

// Durable has the handler's answers told after what it changed is in the store, whatever the kind says.
func Durable() HandlerOption { return func(o *handlerOptions) { o.durable = true } }

// FromMemory has the handler's answers told at once, also in a kind that is durable.
func FromMemory() HandlerOption { return func(o *handlerOptions) { o.memory = true } }

// InServer has the handler run in objects that are in memory, and in those that were when their owner died; others, which nobody owns, are
// neither created nor brought there: the request ends with ErrNotInServer, or ErrNotFound where there is no record. It is for what is of no
// use to an object at rest, in a kind with Create.
func InServer() HandlerOption { return func(o *handlerOptions) { o.inServer = true } }

// ByKey has the handler run for messages that name the object by its key alone (Context.Object, Call): the id does not belong to the kind, so others may
// have handlers for it too, and clients cannot send it.
func ByKey() HandlerOption { return func(o *handlerOptions) { o.byKey = true } }

func (o *handlerOptions) actor() []zactor.HandlerOption {
	if o.clients {
		return []zactor.HandlerOption{zactor.FromClients()}
	}
	return nil
}

type message[T any] interface {
	*T
	proto.Message
}

// Handle makes the handler of a request. The answer is given when fn has returned, and, where it is durable, its effect is in
// the store.
func Handle[S, Q, R any, PQ message[Q], PR message[R]](fn func(c *Context[S], req PQ) (PR, error), opts ...HandlerOption) Handler[S] {
	h := Handler[S]{opts: options(opts)}
	h.key, h.err = zmsg.KeyFieldOf(PQ(nil))
	h.h = zactor.Handle(func(zc *zactor.Context, req PQ) (PR, error) {
		c := zc.Actor().(*cell[S])
		if done, err := c.enter(zc); done || err != nil {
			return nil, err
		}
		defer c.res.unwind()
		answer, err := fn(&c.ctx, req)
		c.leave()
		return answer, err
	}, h.opts.actor()...)
	return h
}

// HandleTell makes the handler of a one-way message. A request of the type is answered, with an empty OK, when fn returns nil.
func HandleTell[S, Q any, PQ message[Q]](fn func(c *Context[S], msg PQ) error, opts ...HandlerOption) Handler[S] {
	h := Handler[S]{opts: options(opts)}
	h.key, h.err = zmsg.KeyFieldOf(PQ(nil))
	switch any(PQ(nil)).(type) {
	case *wirepb.SessionClosed:
		h.h = handleOfSession(fn, func(r *residence, m PQ) { r.sessionClosed(zmsg.ClosedSession(any(m).(*wirepb.SessionClosed))) })
		return h
	case *wirepb.SessionMoved:
		h.h = handleOfSession(fn, func(r *residence, m PQ) { r.sessionMoved(any(m).(*wirepb.SessionMoved)) })
		return h
	}
	h.h = zactor.HandleTell(func(zc *zactor.Context, msg PQ) error {
		c := zc.Actor().(*cell[S])
		if done, err := c.enter(zc); done || err != nil {
			return err
		}
		defer c.res.unwind()
		err := fn(&c.ctx, msg)
		c.leave()
		return err
	}, h.opts.actor()...)
	return h
}

// handleOfSession makes the handler of what befalls sessions, which nobody sends a second time: what comes while the lease is not valid waits. note
// comes first.
func handleOfSession[S, Q any, PQ message[Q]](fn func(c *Context[S], msg PQ) error, note func(*residence, PQ)) zactor.Handler {
	return zactor.HandleTell(func(zc *zactor.Context, msg PQ) error {
		c := zc.Actor().(*cell[S])
		run := func() error {
			defer c.res.unwind()
			note(c.res, msg)
			err := fn(&c.ctx, msg)
			c.leave()
			c.res.noOutcome()
			return err
		}
		switch done, err := c.enter(zc); {
		case errors.Is(err, errLapsed):
			c.later(zc, run)
			return nil
		case done || err != nil:
			return err
		}
		return run()
	})
}

func options(opts []HandlerOption) (o handlerOptions) {
	for _, f := range opts {
		f(&o)
	}
	return o
}

// kind is a Kind without the type of its state.
type kind struct {
	typ      uint32
	name     string
	state    reflect.Type
	version  uint32 // of the state
	onDemand bool
	store    zstore.Store
	code     Settings             // as the program says
	set      Settings             // in force
	spawnOpt []zactor.SpawnOption // of its objects' actors
	adverts  []zmsg.Advert
	handlers map[uint32]handlerOptions // by message id
	rules    map[uint32]rule           // likewise, with what the settings say
	online   func(ctx context.Context, k zmsg.Key) (Route, error)
	create   func(k zmsg.Key) (zstore.Write, error)
	encode   func(state any) (zstore.Write, error)
	actor    func(r *residence) zactor.Actor
	counts   kindCounts
}

// spec implements AnyKind.
func (k Kind[S]) spec() (*kind, error) {
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("zrouter: kind %q: "+format, append([]any{k.Name}, args...)...))
	}
	if k.Type == 0 {
		bad("Type is 0: expected a number of its own")
	}
	if !validName(k.Name) {
		bad("the name has 1 to 64 letters, digits, '-' and '_'")
	}
	if k.Version == 0 {
		bad("Version is 0: expected 1 or more")
	}
	if k.Codec == nil {
		if k.Codec = defaultCodec[S](); k.Codec == nil {
			bad("Codec is nil, and %v is no pointer to a generated protobuf message: set Codec, such as JSON", reflect.TypeFor[S]())
		}
	}
	if len(k.Handlers) == 0 {
		bad("it has no handlers")
	}
	out := &kind{
		typ: k.Type, name: k.Name, state: reflect.TypeFor[S](), version: k.Version, onDemand: k.Create != nil, store: k.Store, code: k.Settings,
		handlers: make(map[uint32]handlerOptions), rules: make(map[uint32]rule), online: k.PullOnlineServer,
	}
	shared := &shared[S]{kind: k}
	closed, moved := false, false
	for i, h := range k.Handlers {
		if h.err != nil {
			faults = append(faults, fmt.Errorf("zrouter: kind %q: handler %d: %w", k.Name, i, h.err))
			continue
		}
		id := h.h.ID()
		if zmsg.SessionEvent(id) {
			closed, moved = closed || id == zmsg.SessionClosedID, moved || id == zmsg.SessionMovedID // they come by the actor's id, never by routing
			shared.handlers = append(shared.handlers, h.h)
			continue
		}
		if id == 0 {
			bad("handler %d: its message type has no (zgame.id), so nobody can send it to an object", i)
			continue
		}
		if _, twice := out.handlers[id]; twice {
			bad("message id %d is handled twice", id)
		}
		out.handlers[id] = h.opts
		shared.handlers = append(shared.handlers, h.h)
		if h.opts.byKey {
			if h.opts.clients {
				bad("message id %d: ByKey and FromClients are for one handler: clients send by id", id)
			}
			continue
		}
		out.adverts = append(out.adverts, zmsg.Advert{ID: id, Client: h.opts.clients, KeyField: h.key})
	}
	if !closed { // bound sessions end also where that is nothing to the kind
		shared.handlers = append(shared.handlers, zactor.HandleTell(func(zc *zactor.Context, e *wirepb.SessionClosed) error {
			zc.Actor().(*cell[S]).res.sessionClosed(zmsg.ClosedSession(e))
			return nil
		}))
	}
	if !moved {
		shared.handlers = append(shared.handlers, zactor.HandleTell(func(zc *zactor.Context, e *wirepb.SessionMoved) error {
			zc.Actor().(*cell[S]).res.sessionMoved(e)
			return nil
		}))
	}
	slices.SortFunc(shared.handlers, func(a, b zactor.Handler) int { return int(int64(a.ID()) - int64(b.ID())) })
	out.create = func(key zmsg.Key) (w zstore.Write, err error) { return shared.create(key) }
	out.encode = func(state any) (zstore.Write, error) { return shared.write(state.(S)) }
	out.actor = func(r *residence) zactor.Actor { return &cell[S]{shared: shared, res: r} }
	return out, errors.Join(faults...)
}

// shared is what the actors of one kind share.
type shared[S any] struct {
	kind     Kind[S]
	handlers []zactor.Handler
}

func (s *shared[S]) create(key zmsg.Key) (w zstore.Write, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("zrouter: Create of kind %q panicked: %v", s.kind.Name, v)
		}
	}()
	if s.kind.Create == nil {
		return w, errors.New("zrouter: the kind has no Create")
	}
	state, err := s.kind.Create(key)
	if err != nil {
		return w, err
	}
	return s.write(state)
}

// write makes the write of a state.
func (s *shared[S]) write(state S) (w zstore.Write, err error) {
	w.Schema = s.kind.Version
	w.State, err = s.kind.Codec.Append(nil, state)
	return w, err
}

func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, r := range []byte(s) {
		if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return true
}
