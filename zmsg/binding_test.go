package zmsg

import (
	"errors"
	"reflect"
	"testing"
)

func TestBinding(t *testing.T) {
	gate := NodeRef{ID: "gate-1", Epoch: 5}
	for _, want := range []Binding{
		{Gate: gate, Sessions: []SessionRef{}},
		{Gate: gate, Sessions: []SessionRef{{gate, 1, 0}, {gate, 1<<64 - 1, 1<<32 - 1}}, Base: 1<<64 - 1, Since: 1<<64 - 1, Again: true},
	} {
		body, err := want.EncodeSessions()
		if err != nil {
			t.Fatal(err)
		}
		got := Binding{Gate: gate}
		if err := got.DecodeSessions(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for name, body := range map[string]string{"one generation too few": "\x0a\x08\x01\x00\x00\x00\x00\x00\x00\x00", "cut off": "\x0a\x08\x01"} {
		var b Binding
		if err := b.DecodeSessions([]byte(body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzBinding(f *testing.F) {
	f.Add(goldenBinding())
	f.Fuzz(func(t *testing.T, body []byte) {
		var b, again Binding
		if b.DecodeSessions(body) != nil {
			return
		}
		body, err := b.EncodeSessions()
		if err != nil || again.DecodeSessions(body) != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%+v, then %+v, %v", b, again, err)
		}
	})
}
