package zmsg

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"zgame/zmsg/zgamepb"
)

// ids caches the message id of each type that knownOf does not know and that was asked for (0: none): reading an option takes a few
// hundred nanoseconds. It holds what never changes, so that sharing it between the nodes of a process is safe.
var ids sync.Map // protoreflect.MessageDescriptor -> uint32

// IDOf returns the message id of m's type: its option (zgame.id). ok is false when the type has none.
func IDOf(m proto.Message) (id uint32, ok bool) {
	if m == nil {
		return 0, false
	}
	if k := knownOf(m); k != nil {
		return k.id, k.id != 0
	}
	d := m.ProtoReflect().Descriptor()
	if v, hit := ids.Load(d); hit {
		id = v.(uint32)
		return id, id != 0
	}
	id = idOf(d)
	ids.Store(d, id)
	return id, id != 0
}

func idOf(d protoreflect.MessageDescriptor) uint32 {
	return uint32(option(d, zgamepb.E_Id.TypeDescriptor().Number()))
}

// option reads a numeric option of d, or 0. It reads the encoded options, because the extension is a known field in
// generated types, a dynamic one in compiled descriptors, and unknown bytes in descriptors that were sent around.
func option(d protoreflect.Descriptor, number protowire.Number) uint64 {
	b, err := proto.Marshal(d.Options())
	if err != nil {
		return 0
	}
	_, n, _ := FieldKey(b, number)
	return n
}

// Registry knows message types by id: those whose option (zgame.id) is set. It does not change after NewRegistry and
// may be used from any goroutine.
type Registry struct {
	byID   map[uint32]*entry
	byName map[string]uint32
	folded map[string]string // name in lower case -> name
}

type entry struct {
	name string
	typ  protoreflect.MessageType
	key  protowire.Number
}

// reservedIDs is the first id that does not belong to the framework.
const reservedIDs = 1000

// NewRegistry collects the message types of files, nested ones included, or of everything that is linked into the
// program when no files are given. It fails, with all faults at once, when two types have one id or names that
// are equal but for case, a type outside the
// packages zgame and zgame.* has an id below 1000, or a key field is marked twice or is not a string, bytes or integer.
func NewRegistry(files ...protoreflect.FileDescriptor) (*Registry, error) {
	r := &Registry{byID: map[uint32]*entry{}, byName: map[string]uint32{}, folded: map[string]string{}}
	var errs []error
	if len(files) == 0 {
		protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			files = append(files, f)
			return true
		})
	}
	seen := map[string]bool{}
	for _, f := range files {
		if !seen[f.Path()] {
			seen[f.Path()] = true
			errs = r.addAll(f.Messages(), errs)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) addAll(messages protoreflect.MessageDescriptors, errs []error) []error {
	for i := range messages.Len() {
		d := messages.Get(i)
		if err := r.add(d); err != nil {
			errs = append(errs, err)
		}
		errs = r.addAll(d.Messages(), errs)
	}
	return errs
}

func (r *Registry) add(d protoreflect.MessageDescriptor) error {
	id, name := idOf(d), string(d.FullName())
	if id == 0 {
		return nil
	}
	// The order in which files come is not the same in each run: name the two types in an order that is.
	if have := r.byID[id]; have != nil {
		return fmt.Errorf("zmsg: message id %d belongs to two types, %s and %s: give one of them another id",
			id, min(have.name, name), max(have.name, name))
	}
	if have := r.folded[strings.ToLower(name)]; have != "" {
		return fmt.Errorf("zmsg: message types %s and %s are named the same but for case: rename one of them", min(have, name), max(have, name))
	}
	pkg := d.ParentFile().Package()
	if id < reservedIDs && pkg != "zgame" && (len(pkg) < 6 || pkg[:6] != "zgame.") {
		return fmt.Errorf("zmsg: message id %d of %s is reserved to the framework: applications count from %d",
			id, name, reservedIDs)
	}
	key, err := keyField(d)
	if err != nil {
		return err
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil || typ.Descriptor() != d {
		typ = dynamicpb.NewMessageType(d)
	}
	r.byID[id] = &entry{name: name, typ: typ, key: key}
	r.byName[name] = id
	r.folded[strings.ToLower(name)] = name
	return nil
}

func keyField(d protoreflect.MessageDescriptor) (key protowire.Number, err error) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if option(f, zgamepb.E_Key.TypeDescriptor().Number()) == 0 {
			continue
		}
		switch f.Kind() {
		case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.FloatKind, protoreflect.DoubleKind,
			protoreflect.MessageKind, protoreflect.GroupKind:
			return 0, fmt.Errorf("zmsg: key field %s is a %s: it must be a string, bytes or an integer", f.FullName(), f.Kind())
		default:
		}
		if f.IsList() {
			return 0, fmt.Errorf("zmsg: key field %s is repeated: it must be a single value", f.FullName())
		}
		if key != 0 {
			return 0, fmt.Errorf("zmsg: %s has two key fields, %s is the second: mark one", d.FullName(), f.Name())
		}
		key = f.Number()
	}
	return key, nil
}

// New returns a new message of the type with the id; ok is false when the registry knows none.
func (r *Registry) New(id uint32) (m proto.Message, ok bool) {
	e := r.byID[id]
	if e == nil {
		return nil, false
	}
	return e.typ.New().Interface(), true
}

// Name returns the full name of the type with the id, "" if there is none.
func (r *Registry) Name(id uint32) string {
	if e := r.byID[id]; e != nil {
		return e.name
	}
	return ""
}

// ByName returns the id of the type with the full name.
func (r *Registry) ByName(full string) (id uint32, ok bool) {
	id, ok = r.byName[full]
	return id, ok
}

// KeyField returns the number of the field that the type marks with (zgame.key); ok is false when it marks none or
// the registry does not know the id.
func (r *Registry) KeyField(id uint32) (number protowire.Number, ok bool) {
	e := r.byID[id]
	if e == nil || e.key == 0 {
		return 0, false
	}
	return e.key, true
}

// IDs calls f for each id with the full name of its type, in no particular order.
func (r *Registry) IDs(f func(id uint32, name string)) {
	for id, e := range r.byID {
		f(id, e.name)
	}
}
