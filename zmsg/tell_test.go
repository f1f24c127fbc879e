package zmsg

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"zgame/zmsg/wirepb"
)

func drawTell(t *rapid.T) Tell {
	small := func(name string) uint64 {
		return rapid.OneOf(rapid.Uint64Max(300), rapid.Uint64Range(1<<13, 1<<15), rapid.Uint64()).Draw(t, name)
	}
	d := Tell{To: max(1, small("to")), From: small("from"), ID: uint32(small("id"))}
	if rapid.Bool().Draw(t, "traced") {
		d.Trace = TraceID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
	}
	if n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(16_300, 16_500)).Draw(t, "size"); n > 0 {
		d.Body = bytes.Repeat([]byte{7}, n)
	}
	return d
}

// A Tell is on the wire what its envelope is, and comes back as it was; so does what is encoded in place.
func TestTellIsItsEnvelope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var batch, want []byte
		var tells []Tell
		for range rapid.IntRange(1, 4).Draw(t, "n") {
			d := drawTell(t)
			e := d.Envelope()
			want = AppendBatchEnvelope(want, &e)
			if rapid.Bool().Draw(t, "in place") {
				v := &wrapperspb.BytesValue{Value: d.Body}
				d.Body, _ = proto.Marshal(v)
				e = d.Envelope()
				want = AppendBatchEnvelope(slices.Clip(batch), &e)
				var err error
				if batch, err = AppendBatchTellOf(batch, &d, v); err != nil {
					t.Fatal(err)
				}
			} else {
				batch = AppendBatchTell(batch, &d)
			}
			if !bytes.Equal(batch, want) {
				t.Fatalf("have %x\nwant %x", batch, want)
			}
			tells = append(tells, d)
		}
		a := &Arrival{From: NodeRef{ID: "n", Epoch: 3}, Data: batch}
		at := 0
		for _, d := range tells {
			var told Told
			next, ok := NextTold(batch, at, &told)
			if !ok {
				t.Fatalf("no tell at %d of %x", at, batch)
			}
			checkTold(t, a, told, &d)
			at = next
		}
		if at != len(batch) {
			t.Fatalf("ends at %d of %d", at, len(batch))
		}
	})
}

func checkTold(t interface{ Fatalf(string, ...any) }, a *Arrival, told Told, d *Tell) {
	have := a.Tell(told)
	if have.To != d.To || have.From != d.From || have.ID != d.ID || have.Trace != d.Trace || !bytes.Equal(have.Body, d.Body) {
		t.Fatalf("have %+v, want %+v", have, d)
	}
	m := OpenMessage(a, told)
	from := Address{}
	if d.From != 0 {
		from = Address{Node: a.From, Actor: d.From}
	}
	if m.ID != d.ID || m.From != from || m.Trace.ID != d.Trace || !bytes.Equal(m.Body(), d.Body) || m.Wants() || m.Client || m.User != "" ||
		!m.Session.IsZero() || !m.Deadline.IsZero() || m.Chain != nil || m.Seq != 0 || m.Hops != 0 || m.Value != nil {
		t.Fatalf("have %+v, want %+v", m, d)
	}
	m.Release()
}

// A message that is opened again has nothing of before.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	full := Tell{To: 1, From: 2, ID: 3, Trace: TraceID{4}, Body: []byte("body")}
	bare := Tell{To: 1, ID: 5}
	batch := AppendBatchTell(AppendBatchTell(nil, &full), &bare)
	a := &Arrival{From: NodeRef{ID: "n", Epoch: 1}, Data: batch}
	var first, second Told
	next, ok1 := NextTold(batch, 0, &first)
	if _, ok2 := NextTold(batch, next, &second); !ok1 || !ok2 {
		t.Fatal("not told")
	}
	var m Message
	m.Open(a, first)
	if m.ID != 3 || m.From.Actor != 2 || string(m.Body()) != "body" || m.Trace.ID != full.Trace {
		t.Fatalf("have %+v", &m)
	}
	m.Trace = Trace{ID: TraceID{9}}
	m.Open(a, second)
	if m.ID != 5 || !m.From.IsZero() || m.Body() != nil || !m.Trace.IsZero() {
		t.Fatalf("have %+v", &m)
	}
	m.Close()
	if m.ID != 0 {
		t.Fatalf("have %+v", &m)
	}
}

// What does not encode leaves the batch as it was.
func TestTellOfBadText(t *testing.T) {
	t.Parallel()
	batch := AppendBatchTell(nil, &Tell{To: 1, ID: 2})
	before := bytes.Clone(batch)
	got, err := AppendBatchTellOf(batch, &Tell{To: 1, ID: 2}, &wrapperspb.StringValue{Value: "\xff"})
	if err == nil || !bytes.Equal(got, before) {
		t.Errorf("err %v, batch %x, want %x", err, got, before)
	}
}

// wrapper is a Go type that does not say what its message is.
type wrapper struct{ proto.Message }

func TestKnownTypes(t *testing.T) {
	t.Parallel()
	closed, frame, packet := &wirepb.SessionClosed{}, &wirepb.Ping{}, &wirepb.Packet{}
	for range 3 {
		if id, ok := IDOf(closed); id != SessionClosedID || !ok {
			t.Errorf("id %d %v", id, ok)
		}
		if id, ok := Plain(closed); id != SessionClosedID || !ok {
			t.Errorf("plain id %d %v", id, ok)
		}
		if _, ok := IDOf(frame); ok {
			t.Error("an id of a type without one")
		}
		if _, ok := Plain(packet); ok {
			t.Error("a message that holds others is plain")
		}
		if _, ok := Plain(&descriptorpb.UninterpretedOption_NamePart{}); ok {
			t.Error("a message with required fields is plain")
		}
		for _, m := range []proto.Message{wrapper{closed}, dynamicpb.NewMessage(closed.ProtoReflect().Descriptor())} {
			if id, ok := IDOf(m); id != SessionClosedID || !ok {
				t.Errorf("%T: id %d %v", m, id, ok)
			}
			if _, ok := Plain(m); ok {
				t.Errorf("%T is plain", m)
			}
		}
		for _, m := range []proto.Message{wrapper{frame}, dynamicpb.NewMessage(frame.ProtoReflect().Descriptor())} {
			if _, ok := IDOf(m); ok {
				t.Errorf("%T has an id", m)
			}
		}
		if id, ok := IDOf((*wirepb.SessionClosed)(nil)); id != SessionClosedID || !ok {
			t.Errorf("id %d %v of a nil message", id, ok)
		}
	}
	if _, ok := Plain(nil); ok {
		t.Error("nil is plain")
	}
}

// Encoding and decoding say what the library says.
func TestMarshalIsTheLibrarys(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{
		&wirepb.SessionClosed{User: "ann", Session: 5}, &wirepb.Packet{Frames: []*wirepb.Frame{{Id: 4, Body: []byte("x")}}},
		&descriptorpb.UninterpretedOption_NamePart{}, &descriptorpb.UninterpretedOption{Name: []*descriptorpb.UninterpretedOption_NamePart{{}}},
		&descriptorpb.UninterpretedOption_NamePart{NamePart: new("x"), IsExtension: new(true)},
		wrapper{&wirepb.Ping{Nonce: 3}},
		&wirepb.Hello{Token: strings.Repeat("x", 5000)}, &wirepb.Hello{Token: "\xff"},
	} {
		want, wantErr := proto.Marshal(m)
		have, err := MarshalAppend(nil, m)
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(have, want) {
			t.Errorf("%T: have %x %v, want %x %v", m, have, err, want, wantErr)
		}
	}
	for _, b := range [][]byte{nil, {0x08}, {0x0a, 1, 'x'}, {0x0a, 1, 'x', 0x10, 1}, {0xff}} {
		want, have := &descriptorpb.UninterpretedOption_NamePart{}, &descriptorpb.UninterpretedOption_NamePart{}
		wantErr, err := proto.Unmarshal(b, want), UnmarshalNew(b, have)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(have, want) {
			t.Errorf("%x: have %v %v, want %v %v", b, have, err, want, wantErr)
		}
	}
}
