package zmsg

import "google.golang.org/protobuf/proto"

// KeyFieldOf returns the number of the field that m's type marks with (zgame.key), 0 when it marks none. It fails
// when the mark cannot be used: two marks, or a field that is no single string, bytes or integer.
func KeyFieldOf(m proto.Message) (number uint32, err error) {
	n, err := keyField(m.ProtoReflect().Descriptor())
	return uint32(n), err
}
