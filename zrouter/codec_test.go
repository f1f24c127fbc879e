package zrouter

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"zgame/zmsg"
	"zgame/zrouter/internal/testpb"
)

// plainState is a state without protobuf.
type plainState struct {
	Name  string
	Lines []string          `json:",omitempty"`
	Count map[string]uint64 `json:",omitempty"`
}

func TestProtoCodec(t *testing.T) {
	t.Parallel()
	c := Proto[*testpb.Log]()
	state := &testpb.Log{Lines: []string{"a", "b"}}
	b, err := c.Append([]byte("before"), state)
	if err != nil || !bytes.HasPrefix(b, []byte("before")) {
		t.Fatal(b, err)
	}
	raw := b[len("before"):]
	got, err := c.Decode(raw)
	if err != nil || !proto.Equal(got, state) {
		t.Fatal(got, err)
	}
	again, _ := c.Decode(raw)
	if again == got {
		t.Error("the same message twice")
	}
	for i := range raw { // whose memory is used again
		raw[i] = 'x'
	}
	if !proto.Equal(got, state) {
		t.Error("the state holds on to the bytes")
	}
	if empty, err := c.Decode(nil); err != nil || empty == nil || len(empty.Lines) != 0 {
		t.Errorf("%v %v", empty, err)
	}
	if _, err := c.Append(nil, nil); !errors.Is(err, errNil) {
		t.Error(err)
	}
}

// M5: what a newer version of the program has added survives a save by this one.
func TestProtoKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	newer := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "added later")
	state, err := Proto[*testpb.Log]().Decode(newer)
	if err != nil {
		t.Fatal(err)
	}
	state.Lines = []string{"x"}
	b, err := Proto[*testpb.Log]().Append(nil, state)
	if err != nil || !bytes.Contains(b, newer) {
		t.Errorf("%q %v", b, err)
	}
}

func TestWhatHasADefaultCodec(t *testing.T) {
	t.Parallel()
	if defaultCodec[*testpb.Log]() == nil {
		t.Error("none for a generated message")
	}
	for name, none := range map[string]bool{
		"struct": defaultCodec[plainState]() == nil, "pointer": defaultCodec[*plainState]() == nil, "any": defaultCodec[any]() == nil,
		"any message": defaultCodec[proto.Message]() == nil, "dynamic": defaultCodec[*dynamicpb.Message]() == nil,
	} {
		if !none {
			t.Errorf("%s has a default codec", name)
		}
	}
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "expected a pointer to a generated") {
			t.Error(v)
		}
	}()
	Proto[proto.Message]()
}

func TestJSONCodec(t *testing.T) {
	t.Parallel()
	state := &plainState{Name: "ann", Count: map[string]uint64{"b": 2, "a": math.MaxUint64}}
	c := JSON[*plainState]()
	b, err := c.Append([]byte("- "), state)
	if want := `- {"Name":"ann","Count":{"a":18446744073709551615,"b":2}}`; err != nil || string(b) != want {
		t.Fatalf("%s %v, want %s", b, err, want)
	}
	if got, err := c.Decode(b[2:]); err != nil || !reflect.DeepEqual(got, state) {
		t.Fatalf("%+v %v", got, err)
	}
	if v, err := JSON[plainState]().Decode([]byte(`{"Name":"bob"} `)); err != nil || v.Name != "bob" {
		t.Error(v, err)
	}
	for raw, want := range map[string]string{
		`{"Name":"a","Added":1}`: "Added", `{"Name":"a"} {}`: "follows", `{"Name":1}`: "Name", "null": "null", " null\n": "null", "": "EOF",
		`{"Name":"a"}}`: "follows",
	} {
		if _, err := c.Decode([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", raw, err, want)
		}
	}
	if _, err := c.Append(nil, nil); !errors.Is(err, errNil) {
		t.Error(err)
	}
	if b, err := JSON[any]().Append([]byte("-"), func() {}); err == nil || string(b) != "-" {
		t.Error(b, err)
	}
}

// panics is a codec of a program that has a bad day.
type panics struct{ Codec[plainState] }

func (panics) Decode([]byte) (plainState, error) { panic("no idea") }

func TestDecodeState(t *testing.T) {
	t.Parallel()
	c := JSON[plainState]()
	upper := func(from uint32, raw []byte) (plainState, error) {
		if from != 1 {
			return plainState{Name: "half"}, zmsg.Errorf(1001, "version %d is too old", from)
		}
		return plainState{Name: strings.ToUpper(string(raw))}, nil
	}
	for _, k := range []struct {
		name    string
		codec   Codec[plainState]
		migrate func(uint32, []byte) (plainState, error)
		schema  uint32
		raw     string
		want    string
		err     error
		says    []string
	}{
		{"same", c, nil, 3, `{"Name":"a"}`, "a", nil, nil},
		{"same, with migrate", c, upper, 3, `{"Name":"a"}`, "a", nil, nil},
		{"older", c, upper, 1, `ann`, "ANN", nil, nil},
		{"older, without migrate", c, nil, 1, `ann`, "", ErrUnusable, []string{"version 1", "version 3", "no Migrate"}},
		{"too old", c, upper, 2, `ann`, "", ErrUnusable, []string{"migrating", "version 2 is too old"}},
		{"migrate panics", c, func(uint32, []byte) (plainState, error) { panic("oh") }, 1, ``, "", ErrUnusable, []string{"migrating", "panic: oh", "codec_test.go"}},
		{"newer", c, upper, 4, `{"Name":"a"}`, "", ErrSchema, []string{"version 4", "up to 3"}},
		{"broken", c, upper, 3, `{`, "", ErrUnusable, []string{"decoding the state of version 3"}},
		{"codec panics", panics{}, nil, 3, `{`, "", ErrUnusable, []string{"panic: no idea"}},
	} {
		got, err := decodeState(k.codec, 3, k.migrate, k.schema, []byte(k.raw))
		if got.Name != k.want || !errors.Is(err, k.err) {
			t.Errorf("%s: %+v, %v", k.name, got, err)
		}
		for _, s := range k.says {
			if !strings.Contains(fmt.Sprint(err), s) {
				t.Errorf("%s: %v\nlacks %q", k.name, err, s)
			}
		}
		if err != nil && (zmsg.OutcomeOf(err) != zmsg.NotExecuted || zmsg.CodeOf(err) != zmsg.CodeOf(k.err)) {
			t.Errorf("%s: told as %v, %v", k.name, zmsg.CodeOf(err), zmsg.OutcomeOf(err))
		}
	}
}

// M5, two versions of a program in turn: a field is added and one renamed; the old version refuses what the new one wrote, and says why.
func TestStateOfTwoVersions(t *testing.T) {
	t.Parallel()
	type v2 struct {
		Title string
		Likes int
	}
	c1, c2 := JSON[plainState](), JSON[v2]()
	migrate := func(_ uint32, raw []byte) (v2, error) {
		old, err := c1.Decode(raw)
		return v2{Title: old.Name}, err
	}
	raw, _ := c1.Append(nil, plainState{Name: "ann"})
	s, err := decodeState(c2, 2, migrate, 1, raw)
	if err != nil || s.Title != "ann" {
		t.Fatal(s, err)
	}
	s.Likes++
	if raw, err = c2.Append(nil, s); err != nil {
		t.Fatal(err)
	}
	if _, err = decodeState(c1, 1, nil, 2, raw); !errors.Is(err, ErrSchema) {
		t.Error(err)
	}
	if _, err = decodeState(c1, 1, nil, 1, raw); !errors.Is(err, ErrUnusable) { // the new version forgot to raise its number
		t.Error(err)
	}
}

func FuzzState(f *testing.F) {
	f.Add(uint32(2), []byte("\n\x01a"))
	f.Add(uint32(1), []byte(`{"Name":"a"}`))
	f.Add(uint32(3), []byte{0xff})
	pc, jc := Proto[*testpb.Log](), JSON[*plainState]()
	f.Fuzz(func(t *testing.T, schema uint32, raw []byte) {
		fuzzState(t, pc, schema, raw, func(a, b *testpb.Log) bool { return proto.Equal(a, b) })
		fuzzState(t, jc, schema, raw, func(a, b *plainState) bool {
			return a.Name == b.Name && len(a.Lines) == len(b.Lines) && len(a.Count) == len(b.Count)
		})
	})
}

func fuzzState[S any](t *testing.T, c Codec[S], schema uint32, raw []byte, equal func(a, b S) bool) {
	t.Helper()
	s, err := decodeState(c, 2, func(_ uint32, raw []byte) (S, error) { return c.Decode(raw) }, schema, raw)
	switch {
	case schema > 2:
		if !errors.Is(err, ErrSchema) {
			t.Fatalf("a newer schema: %v", err)
		}
	case err != nil:
		if !errors.Is(err, ErrUnusable) {
			t.Fatal(err)
		}
	default:
		b, err := c.Append(nil, s)
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		again, err := decodeState(c, 2, nil, 2, b)
		if err != nil || !equal(s, again) {
			t.Fatalf("%v is %v after a round trip: %v", s, again, err)
		}
		twice, err := c.Append(nil, again)
		if err != nil || !bytes.Equal(b, twice) {
			t.Fatalf("equal states, but %q and %q: %v", b, twice, err)
		}
	}
}
