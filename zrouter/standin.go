// Stand-ins for pieces that are on their way.

package zrouter

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"zgame/zmsg"
	"zgame/zstore"
)

type Codec[S any] interface {
	Append(dst []byte, s S) ([]byte, error)
	Decode(raw []byte) (S, error)
}
type protoCodec[S any] struct{}

func (protoCodec[S]) Append(dst []byte, s S) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, any(s).(proto.Message))
}

func (protoCodec[S]) Decode(raw []byte) (S, error) {
	s := reflect.New(reflect.TypeFor[S]().Elem()).Interface().(S)
	return s, proto.Unmarshal(raw, any(s).(proto.Message))
}

func defaultCodec[S any]() Codec[S] {
	if _, ok := any(*new(S)).(proto.Message); ok {
		return protoCodec[S]{}
	}
	return nil
}

func decodeState[S any](c Codec[S], version uint32, migrate func(uint32, []byte) (S, error), schema uint32, raw []byte) (S, error) {
	return c.Decode(raw)
}

type doneRing struct{}

func newDoneRing(int, []zstore.Done) *doneRing   { return &doneRing{} }
func (*doneRing) find(string) (zmsg.Reply, bool) { return zmsg.Reply{}, false }
func (*doneRing) add(string, *zmsg.Reply) error  { return nil }
func (*doneRing) list() []zstore.Done            { return nil }
func encoded(r *zmsg.Reply) zmsg.Reply           { return *r }
