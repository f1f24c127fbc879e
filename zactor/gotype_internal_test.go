package zactor

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zactor/internal/testpb"
)

func TestGoType(t *testing.T) {
	t.Parallel()
	values := []any{nil, 1, "x", &testpb.Ping{}, &testpb.Ping{N: 1}, &testpb.Note{}, proto.Message(&testpb.Note{}), (*testpb.Note)(nil), []int{}}
	for _, a := range values {
		for _, b := range values {
			if got, want := goTypeOf(a) == goTypeOf(b), reflect.TypeOf(a) == reflect.TypeOf(b); got != want {
				t.Errorf("%T and %T: same type %v, want %v", a, b, got, want)
			}
		}
	}
}
