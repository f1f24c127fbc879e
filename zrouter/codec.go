package zrouter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Codec makes bytes of a state and a state of bytes. Its methods are called from any goroutine, for one state by one at a time, and
// may not keep the slices. Proto and JSON are there.
type Codec[S any] interface {
	// Append appends the encoding of s to dst. It must not hold on to memory of s: the state changes afterwards.
	Append(dst []byte, s S) ([]byte, error)
	// Decode makes a new state. It must not hold on to raw.
	Decode(raw []byte) (S, error)
}

// Proto is the codec of protobuf messages; S is a pointer to a generated type. Equal states have equal bytes. Fields that this
// version does not know are kept, so that code before and after an added field can take turns. It panics where S is no such
// type.
func Proto[S proto.Message]() Codec[S] {
	c, ok := protoOf[S]()
	if !ok {
		panic(fmt.Sprintf("zrouter: Proto of %s: expected a pointer to a generated protobuf message", reflect.TypeFor[S]()))
	}
	return c
}

// defaultCodec is Proto where S is a protobuf message, else nil.
func defaultCodec[S any]() Codec[S] {
	c, ok := protoOf[S]()
	if !ok {
		return nil
	}
	return c
}

func protoOf[S any]() (c Codec[S], ok bool) {
	t := reflect.TypeFor[S]()
	if t.Kind() != reflect.Pointer || !t.Implements(reflect.TypeFor[proto.Message]()) {
		return nil, false
	}
	// A nil message of a generated type knows its type, others do not.
	defer func() {
		if recover() != nil {
			c, ok = nil, false
		}
	}()
	var none S
	_, ok = any(any(none).(proto.Message).ProtoReflect().Type().New().Interface()).(S)
	return protoCodec[S]{}, ok
}

type protoCodec[S any] struct{}

var errNil = errors.New("the state is nil: expected what Create or Migrate made")

func (protoCodec[S]) Append(dst []byte, s S) ([]byte, error) {
	m := any(s).(proto.Message)
	if !m.ProtoReflect().IsValid() {
		return dst, errNil
	}
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
}

func (protoCodec[S]) Decode(raw []byte) (S, error) {
	var none S
	m := any(none).(proto.Message).ProtoReflect().Type().New().Interface()
	if err := proto.Unmarshal(raw, m); err != nil {
		return none, err
	}
	return any(m).(S), nil
}

// JSON is the codec of package encoding/json. A field that this version does not know is an error, since it would be lost with the
// next save: raise Kind.Version when a field is added or renamed.
func JSON[S any]() Codec[S] { return jsonCodec[S]{} }

type jsonCodec[S any] struct{}

func (jsonCodec[S]) Append(dst []byte, s S) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return dst, err
	}
	if isNull(b) {
		return dst, errNil
	}
	return append(dst, b...), nil
}

func (jsonCodec[S]) Decode(raw []byte) (S, error) {
	var s, none S
	if isNull(raw) {
		return none, errors.New("the stored state is null")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return none, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return none, errors.New("something follows the state's JSON")
	}
	return s, nil
}

func isNull(b []byte) bool { return string(bytes.TrimSpace(b)) == "null" }

// decodeState makes the state of a record's raw bytes, which were written as schema, for code whose states are version. Errors:
// ErrSchema where raw is newer, ErrUnusable where it cannot be decoded or, being older, not be migrated; a panic of the codec or of
// migrate is such an error too.
func decodeState[S any](codec Codec[S], version uint32, migrate func(from uint32, raw []byte) (S, error), schema uint32, raw []byte) (s S, err error) {
	doing := "decoding the state"
	fail := func(cause error) error {
		return fmt.Errorf("%w: %s of version %d: %w", ErrUnusable, doing, schema, cause)
	}
	var none S
	defer func() {
		if v := recover(); v != nil {
			s, err = none, fail(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	switch {
	case schema > version:
		return none, tooNew(schema, version)
	case schema == version:
		s, err = codec.Decode(raw)
	case migrate == nil:
		return none, fail(fmt.Errorf("this node has version %d, and its kind no Migrate from older ones", version))
	default:
		doing = "migrating the state"
		s, err = migrate(schema, raw)
	}
	if err != nil {
		return none, fail(err)
	}
	return s, nil
}

// tooNew is the ErrSchema of a state that a newer version of the program wrote.
func tooNew(schema, version uint32) error {
	return &zmsg.Error{
		Code: zmsg.CodeSchema, Outcome: zmsg.NotExecuted,
		Text: fmt.Sprintf("the object's state has version %d, this node knows versions up to %d: a node of the newer program can serve it", schema, version),
	}
}
