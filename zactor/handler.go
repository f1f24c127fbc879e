package zactor

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Handler is what an actor does for one message id. Handle, HandleTell and HandleRaw make them.
type Handler struct {
	call  Func // an error that it returns is told to whoever asked; on success whoever asked is answered
	types *types
	opts  *handlerOptions // shared, never changed, nil only in the zero Handler
}

// handlerOptions is what the options of a handler say.
type handlerOptions struct {
	flags  handlerFlags
	layers []Middleware // outermost first
}

type handlerFlags uint8

const (
	fromClients handlerFlags = 1 << iota
	sharded
	allHandlerFlags = iota
)

// flagsOnly holds the options of handlers without middleware of their own: an actor keeps a pointer, no copy.
var flagsOnly = func() (all [1 << allHandlerFlags]handlerOptions) {
	for i := range all {
		all[i].flags = handlerFlags(i)
	}
	return all
}()

// types is what all handlers of the same message types share; it never changes.
type types struct {
	id    uint32 // message id of the request
	reply uint32 // message id of the answer, 0 if it has none
	key   uint32 // number of the request's key field, 0 if it has none
	name  string // for errors and logs
	req   goType // *Q, zero for HandleRaw
	err   error  // the types cannot be handled
}

// ID returns the message id that h handles.
func (h Handler) ID() uint32 { return h.types.id }

func (h *Handler) has(f handlerFlags) bool { return h.opts.flags&f != 0 }

// HandlerOption says more about a handler.
type HandlerOption func(*handlerOptions)

// FromClients lets clients call the handler. Without it the id counts as no route for them.
func FromClients() HandlerOption { return func(o *handlerOptions) { o.flags |= fromClients } }

// Sharded declares the message id sharded: all nodes' actors that handle it are candidates together, and each message
// goes to the one that its key picks, which is the field marked (zgame.key), or the session where no field is marked.
func Sharded() HandlerOption { return func(o *handlerOptions) { o.flags |= sharded } }

// Handle makes the handler of a request: fn gets the decoded message and returns the answer or an error (see Context for
// what may be kept, zmsg.Errorf for errors with a code). A one-way message of the type runs fn too; what it
// returns is dropped.
func Handle[Q, R any, PQ message[Q], PR message[R]](fn func(c *Context, req PQ) (PR, error), opts ...HandlerOption) Handler {
	t := typesOf(reflect.TypeFor[Q](), reflect.TypeFor[R](), PQ(nil), PR(nil))
	return newHandler(t, opts, func(c *Context) error {
		req, err := value[Q, PQ](c)
		if err != nil {
			return err
		}
		r, err := fn(c, req)
		switch {
		case err != nil:
			return err
		case r == nil:
			c.answer(t.reply, nil)
		default:
			c.answer(t.reply, r)
		}
		return nil
	})
}

// HandleTell makes the handler of a one-way message. A request of the type is answered, with an empty OK, when fn
// returns nil.
func HandleTell[Q any, PQ message[Q]](fn func(c *Context, msg PQ) error, opts ...HandlerOption) Handler {
	t := typesOf(reflect.TypeFor[Q](), nil, PQ(nil), nil)
	return newHandler(t, opts, func(c *Context) error {
		req, err := value[Q, PQ](c)
		if err != nil {
			return err
		}
		return fn(c, req) // nil: whoever calls the handler gives the empty answer
	})
}

// HandleRaw makes the handler of a message id that gets the message as it came. m is valid during the call, unless
// Context.Take makes it fn's. A request that fn leaves unanswered is answered, with an empty OK, when fn returns nil.
func HandleRaw(id uint32, fn func(c *Context, m *zmsg.Message) error, opts ...HandlerOption) Handler {
	t := &types{id: id, name: fmt.Sprintf("message %d", id)}
	if id == 0 {
		t.err = errors.New("zactor: HandleRaw for message id 0: ids start at 1")
	}
	return newHandler(t, opts, func(c *Context) error { return fn(c, c.Message()) })
}

func newHandler(t *types, opts []HandlerOption, call Func) Handler {
	h := Handler{call: call, types: t, opts: &flagsOnly[0]}
	if len(opts) == 0 {
		return h
	}
	var o handlerOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.layers == nil {
		h.opts = &flagsOnly[o.flags]
	} else {
		h.opts = &o
	}
	return h
}

// message is a pointer to T that is a protobuf message.
type message[T any] interface {
	*T
	proto.Message
}

// typesCache holds what Handle derives from Go types by reflection; it never changes, so nodes may share it.
var typesCache sync.Map // [2]reflect.Type -> *types

func typesOf(q, r reflect.Type, req, answer proto.Message) *types {
	key := [2]reflect.Type{q, r}
	if t, ok := typesCache.Load(key); ok {
		return t.(*types)
	}
	t := &types{name: string(req.ProtoReflect().Descriptor().FullName()), req: goTypeOf(req)}
	var ok bool
	if t.id, ok = zmsg.IDOf(req); !ok {
		t.err = fmt.Errorf("zactor: message %s has no id: add `option (zgame.id) = …;` to it", t.name)
	}
	if answer != nil {
		t.reply, _ = zmsg.IDOf(answer)
	}
	var err error
	if t.key, err = zmsg.KeyFieldOf(req); t.err == nil {
		t.err = err
	}
	actual, _ := typesCache.LoadOrStore(key, t)
	return actual.(*types)
}

// value returns the request as its Go type, decoding the body where only that is there.
func value[Q any, PQ message[Q]](c *Context) (PQ, error) {
	switch v := c.it.value.(type) {
	case PQ:
		return v, nil
	case nil:
	default:
		return nil, NotRun(zmsg.Errorf(zmsg.CodeBadRequest, "value is a %T", v))
	}
	q := PQ(new(Q))
	if m := c.it.msg; m != nil {
		if err := decodeNew(m.Body(), q); err != nil {
			return nil, NotRun(zmsg.Errorf(zmsg.CodeBadRequest, "body does not parse as %s", q.ProtoReflect().Descriptor().FullName()))
		}
	}
	return q, nil
}

// decodeNew is proto.Unmarshal into a message that was just made: it need not be reset, which is a fifth of the work for a small one.
func decodeNew(b []byte, m proto.Message) error { return zmsg.UnmarshalNew(b, m) }

// handlerTable returns hs sorted by id, or what is wrong with them. It keeps hs where that is in order already.
func handlerTable(hs []Handler) ([]Handler, error) {
	var errs []error
	for i, h := range hs {
		if h.types == nil {
			errs = append(errs, fmt.Errorf("zactor: handler %d is the zero Handler: make it with Handle, HandleTell or HandleRaw", i))
			continue
		}
		if h.types.err != nil {
			errs = append(errs, h.types.err)
		}
		for j := range i {
			if o := hs[j]; o.types != nil && o.types.id == h.types.id {
				errs = append(errs, fmt.Errorf("zactor: message id %d is handled twice: by handler %d (%s) and by handler %d (%s)",
					h.types.id, j, o.types.name, i, h.types.name))
			}
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	byID := func(a, b Handler) int { return cmp.Compare(a.types.id, b.types.id) }
	if !slices.IsSortedFunc(hs, byID) {
		hs = slices.SortedFunc(slices.Values(hs), byID)
	}
	return hs, nil
}

// find returns the handler of id in a table of handlerTable, nil if there is none.
func find(hs []Handler, id uint32) *Handler {
	if len(hs) <= 8 {
		for i := range hs {
			if hs[i].types.id == id {
				return &hs[i]
			}
		}
		return nil
	}
	i, ok := slices.BinarySearchFunc(hs, id, func(h Handler, id uint32) int { return cmp.Compare(h.types.id, id) })
	if !ok {
		return nil
	}
	return &hs[i]
}

// findType returns the handler whose request has the Go type of v. A local send carries no id: comparing types here is
// cheaper than looking the id up there.
func findType(hs []Handler, v any) *Handler {
	t := goTypeOf(v)
	if t == (goType{}) {
		return nil
	}
	for i := range hs {
		if hs[i].types.req == t {
			return &hs[i]
		}
	}
	return nil
}

func adverts(hs []Handler) []zmsg.Advert {
	ads := make([]zmsg.Advert, 0, len(hs))
	for _, h := range hs {
		if zmsg.SessionEvent(h.types.id) {
			continue // comes by actor id, never by routing
		}
		ad := zmsg.Advert{ID: h.types.id, Client: h.has(fromClients), Sharded: h.has(sharded)}
		if ad.Sharded {
			ad.KeyField = h.types.key
		}
		ads = append(ads, ad)
	}
	return ads
}
