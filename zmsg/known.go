package zmsg

import (
	"reflect"
	"sync/atomic"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"
	"google.golang.org/protobuf/runtime/protoimpl"
)

// known is what never changes of a Go type of messages.
type known struct {
	typ   unsafe.Pointer
	id    uint32
	total bool // no message of the type can lack a required field
	plain bool // and none holds another message
}

// knownTypes finds what is known by the Go type, in a few nanoseconds; sync.Map and the way to a descriptor take twenty, for each
// message that is sent. Each type has its place, or one of the next; one that finds none free goes the long way. It holds what never
// changes, so that sharing it between the nodes of a process is safe.
var knownTypes [1 << knownBits]atomic.Pointer[known]

const (
	knownBits   = 9
	knownProbes = 4
)

// knownOf returns what is known of m's type; nil where the Go type does not say what the message is (dynamic messages, wrappers),
// and where there is no place. m is not nil.
func knownOf(m proto.Message) *known {
	// An interface without methods is its type's word and its value's, in all versions of Go so far; TestKnownTypes fails where
	// that changes.
	v := any(m)
	typ := *(*unsafe.Pointer)(unsafe.Pointer(&v))
	at := Mix(uint64(uintptr(typ)))
	for i := range uint64(knownProbes) {
		k := knownTypes[(at+i)%uint64(len(knownTypes))].Load()
		switch {
		case k == nil:
			return learn(m, typ, at)
		case k.typ == typ:
			return k
		}
	}
	return nil
}

func learn(m proto.Message, typ unsafe.Pointer, at uint64) *known {
	r := m.ProtoReflect()
	info, ok := r.Type().(*protoimpl.MessageInfo)
	if !ok || info.GoReflectType != reflect.TypeOf(m) {
		return nil
	}
	k := &known{typ: typ, id: idOf(r.Descriptor()), total: total(r.Descriptor(), map[protoreflect.FullName]bool{})}
	k.plain = k.total && plain(r)
	for i := range uint64(knownProbes) {
		p := &knownTypes[(at+i)%uint64(len(knownTypes))]
		if p.CompareAndSwap(nil, k) {
			break
		}
		if have := p.Load(); have.typ == typ {
			return have
		}
	}
	return k
}

// total reports whether nothing that d can hold has a required field.
func total(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[d.FullName()] {
		return true
	}
	seen[d.FullName()] = true
	if d.RequiredNumbers().Len() > 0 || d.ExtensionRanges().Len() > 0 {
		return false
	}
	for i := range d.Fields().Len() {
		if inner := d.Fields().Get(i).Message(); inner != nil && !total(inner, seen) {
			return false
		}
	}
	return true
}

// plain reports whether a message holds no others, and is encoded by the library's own code.
func plain(m protoreflect.Message) bool {
	if f := m.ProtoMethods(); f == nil || f.Marshal == nil {
		return false
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fields.Get(i).Message() != nil { // maps too
			return false
		}
	}
	return true
}

// Plain returns the message id of v's type, 0 if it has none, and whether AppendBatchTellOf encodes it.
func Plain(v proto.Message) (id uint32, ok bool) {
	if v == nil {
		return 0, false
	}
	k := knownOf(v)
	if k == nil {
		return 0, false
	}
	return k.id, k.plain
}

// marshalPlain is MarshalAppend for a type that is plain. proto.Marshal finds out first how long a message is, and those that it holds,
// which takes as long as to encode it; what holds none need not know.
func marshalPlain(b []byte, v proto.Message) ([]byte, error) {
	m := v.ProtoReflect()
	out, err := m.ProtoMethods().Marshal(protoiface.MarshalInput{Message: m, Buf: b})
	return out.Buf, err
}

// MarshalAppend is proto.MarshalOptions{}.MarshalAppend, without the search for required fields that are missing where there are none.
func MarshalAppend(b []byte, m proto.Message) ([]byte, error) {
	if m == nil {
		return b, nil
	}
	k := knownOf(m)
	return proto.MarshalOptions{AllowPartial: k != nil && k.total}.MarshalAppend(b, m)
}

// UnmarshalNew is proto.Unmarshal into a message that was just made, which need not be reset.
func UnmarshalNew(b []byte, v proto.Message) error {
	m := v.ProtoReflect()
	f := m.ProtoMethods()
	if f == nil || f.Unmarshal == nil {
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, v)
	}
	out, err := f.Unmarshal(protoiface.UnmarshalInput{
		Message: m, Buf: b, Resolver: protoregistry.GlobalTypes, Depth: protowire.DefaultRecursionLimit,
		Flags: protoiface.UnmarshalCheckRequired,
	})
	if err != nil || out.Flags&protoiface.UnmarshalInitialized != 0 {
		return err
	}
	return proto.CheckInitialized(v)
}
