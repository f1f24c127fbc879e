package zmsg

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

func TestPacketRoundTrip(t *testing.T) {
	for _, g := range goldenPackets(t) {
		rest := encodePacket(g.frames)
		for i := range g.frames {
			var f Frame
			var err error
			if rest, err = NextFrame(rest, &f); err != nil {
				t.Fatalf("%s: frame %d: %v", g.name, i, err)
			}
			if !reflect.DeepEqual(f, g.frames[i]) {
				t.Errorf("%s: frame %d\nhave %+v\nwant %+v", g.name, i, f, g.frames[i])
			}
		}
		if len(rest) != 0 {
			t.Errorf("%s: %x left over", g.name, rest)
		}
	}
}

func TestBatchRoundTrip(t *testing.T) {
	var e Envelope
	for _, g := range goldenBatches() {
		h, rest, err := DecodeBatchHead(encodeBatch(g))
		if err != nil || h != g.head {
			t.Fatalf("%s: head %+v, error %v, want %+v", g.name, h, err, g.head)
		}
		for i := range g.envelopes {
			if rest, err = NextEnvelope(rest, &e); err != nil {
				t.Fatalf("%s: envelope %d: %v", g.name, i, err)
			}
			if !proto.Equal(wireEnvelope(&e), wireEnvelope(&g.envelopes[i])) {
				t.Errorf("%s: envelope %d\nhave %+v\nwant %+v", g.name, i, e, g.envelopes[i])
			}
		}
		if len(rest) != 0 {
			t.Errorf("%s: %x left over", g.name, rest)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, g := range goldenBatches() {
		for i := range g.envelopes {
			e := &g.envelopes[i]
			if have, want := e.Size(), len(AppendEnvelope(nil, e)); have != want {
				t.Errorf("%s: Size %d, want %d", g.name, have, want)
			}
			if have, want := BatchEnvelopeSize(e), len(AppendBatchEnvelope(nil, e)); have != want {
				t.Errorf("%s: BatchEnvelopeSize %d, want %d", g.name, have, want)
			}
		}
	}
}

// A string that is not UTF-8 must not make the receiver refuse what travels beside it.
// The length of an envelope is guessed before it is written: both sides of each length of a length, for each guess.
func TestLengthsOfLengths(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 90, 100, 101, 102, 120, 125, 126, 127, 128, 129, 200, 16_370, 16_380, 16_384, 16_390, 40_000} {
		for _, e := range []Envelope{{Kind: 1, Body: make([]byte, n)}, {Kind: 1, User: strings.Repeat("u", n)}, {Text: strings.Repeat("t", n), Body: []byte("b")}} {
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&wirepb.Batch{Envelopes: []*wirepb.Envelope{wireEnvelope(&e), wireEnvelope(&e)}})
			if err != nil {
				t.Fatal(err)
			}
			got := AppendBatchEnvelope([]byte("x"), &e)
			if one := BatchEnvelopeSize(&e); len(got) != 1+one {
				t.Errorf("%d: %d bytes, BatchEnvelopeSize says %d", n, len(got)-1, one)
			}
			if got = AppendBatchEnvelope(got, &e); string(got[1:]) != string(want) || got[0] != 'x' {
				t.Errorf("%d: not the bytes of proto.Marshal", n)
			}
		}
	}
}

func TestBadUTF8IsReplaced(t *testing.T) {
	bad := "a\xffb"
	packet := AppendPacketFrame(nil, &Frame{Text: bad, Seq: 1})
	if bytes.Contains(AppendFrame(nil, &Frame{Text: bad}), []byte(bad)) {
		t.Error("AppendFrame let it through")
	}
	var f Frame
	if rest, err := NextFrame(packet, &f); err != nil || len(rest) != 0 || f.Text != "a\ufffdb" || f.Seq != 1 {
		t.Errorf("have %+v, %x, %v", f, rest, err)
	}
	batch := AppendBatchHead(nil, BatchHead{From: NodeRef{ID: bad}})
	batch = AppendBatchEnvelope(batch, &Envelope{
		Text: bad, User: bad, Group: bad, Session: SessionRef{Gate: NodeRef{ID: bad}}, Key: Key{ID: bad}, Owner: NodeRef{ID: bad}, Once: bad, Of: bad,
	})
	var w wirepb.Batch
	if err := proto.Unmarshal(batch, &w); err != nil {
		t.Fatal(err)
	}
	want := "a\ufffdb"
	e := w.GetEnvelopes()[0]
	for i, s := range []string{w.GetNode(), e.GetText(), e.GetUser(), e.GetGroup(), e.GetGate(), e.GetKeyId(), e.GetOwner(), e.GetOnce()} {
		if s != want {
			t.Errorf("string %d is %q", i, s)
		}
	}
	if err := new(Envelope).Decode(AppendEnvelope(nil, &Envelope{Text: bad})); err != nil {
		t.Error(err)
	}
}

// bad is what every decoder refuses: fields that are not fields.
var badFields = map[string]string{
	"tag is cut":                     "80",
	"tag overflows":                  "ffffffffffffffffffff01",
	"field number 0":                 "0001",
	"field number too large":         "8080808010" + "01",
	"varint is cut":                  "0880",
	"varint overflows":               "08ffffffffffffffffff7f",
	"length is cut":                  "3280",
	"length beyond the end":          "3205aabb",
	"length of 2^63":                 "3280808080808080808001",
	"length of 2^64-1":               "32ffffffffffffffffff01",
	"fixed32 is cut":                 "0d010203",
	"fixed64 is cut":                 "0901020304050607",
	"group without an end":           "0b",
	"group with another's end":       "0b14",
	"end of no group":                "0c",
	"wire type 6":                    "0e",
	"wire type 7":                    "0f",
	"group that holds a cut varint":  "0b0880",
	"groups, deeper than it is sane": strings.Repeat("0b", 20_000),
}

func TestMalformed(t *testing.T) {
	for name, h := range badFields {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Frame).Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: frame: %v", name, err)
		}
		if err := new(Envelope).Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: envelope: %v", name, err)
		}
		if _, err := NextFrame(b, new(Frame)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: packet: %v", name, err)
		}
		behind := append(AppendPacketFrame(nil, &Frame{ID: 1}), b...)
		if _, err := NextFrame(behind, new(Frame)); b[0] != 0x0a && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: behind a frame: %v", name, err)
		}
		head := append(AppendBatchHead(nil, BatchHead{}), b...)
		if _, _, err := DecodeBatchHead(head); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: head: %v", name, err)
		}
		if _, err := NextEnvelope(b, new(Envelope)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: batch: %v", name, err)
		}
		if _, _, ok := FieldKey(b, 1); ok {
			t.Errorf("%s: FieldKey found something", name)
		}
	}
	for name, b := range map[string][]byte{
		"text that is not UTF-8": {0x2a, 1, 0xff},
		"type that is not UTF-8": {0x52, 1, 0xff},
	} {
		if err := new(Frame).Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("frame with %s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"text that is not UTF-8": {0x4a, 1, 0xff},
		"trace of 3 bytes":       {0x92, 1, 3, 1, 2, 3},
		"chain of 7 bytes":       {0x9a, 1, 7, 1, 2, 3, 4, 5, 6, 7},
		"sessions of 9 bytes":    {0xb2, 1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9},
	} {
		if err := new(Envelope).Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("envelope with %s: %v", name, err)
		}
	}
}

func TestPacketWithoutFrame(t *testing.T) {
	for _, b := range [][]byte{nil, {0x10, 1}} {
		if _, err := NextFrame(b, new(Frame)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// Fields of a later minor version stand anywhere.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "later")
	frame := AppendPacketFrame(nil, &Frame{ID: 5})
	packet := bytes.Join([][]byte{unknown, frame, unknown, unknown, frame, unknown}, nil)
	n := 0
	for rest := packet; len(rest) > 0; n++ {
		var f Frame
		var err error
		if rest, err = NextFrame(rest, &f); err != nil || f.ID != 5 {
			t.Fatalf("%+v, %v", f, err)
		}
	}
	if n != 2 {
		t.Errorf("%d frames, want 2", n)
	}
	envelope := AppendBatchEnvelope(nil, &Envelope{ID: 6})
	h, rest, err := DecodeBatchHead(bytes.Join(
		[][]byte{AppendBatchHead(nil, BatchHead{Number: 3}), unknown, envelope, unknown, envelope, unknown}, nil))
	if err != nil || h.Number != 3 {
		t.Fatalf("%+v, %v", h, err)
	}
	for n = 0; len(rest) > 0; n++ {
		var e Envelope
		if rest, err = NextEnvelope(rest, &e); err != nil || e.ID != 6 {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if n != 2 {
		t.Errorf("%d envelopes, want 2", n)
	}
}

func TestForeignBatch(t *testing.T) {
	good := AppendBatchHead(nil, BatchHead{From: NodeRef{ID: "n", Epoch: 1}, Number: 1})
	other := bytes.Clone(good)
	other[1]++ // the major version
	twice := append(bytes.Clone(good), other[:5]...)
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("hello, is anybody there?"), "other major version": other, "short": good[:4],
		"magic changes": twice, "magic as varint": {8, 1, 2, 3, 4, 5, 6},
	} {
		if _, _, err := DecodeBatchHead(b); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := DecodeBatchHead(append(bytes.Clone(good), 0x12, 1, 0xff)); !errors.Is(err, ErrMalformed) {
		t.Errorf("node that is not UTF-8: %v", err)
	}
	late := append(AppendBatchEnvelope(nil, &Envelope{}), good...)
	if _, err := NextEnvelope(late, new(Envelope)); !errors.Is(err, ErrMalformed) {
		t.Errorf("head behind an envelope: %v", err)
	}
}

func TestDecodeMapsWhatItDoesNotKnow(t *testing.T) {
	b := marshal(t, &wirepb.Envelope{Outcome: 9, PushClass: 300, Kind: -4})
	var e Envelope
	if err := e.Decode(b); err != nil || e.Outcome != Unknown || e.Class != Reliable || e.Kind != -4 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestFieldKey(t *testing.T) {
	body := marshal(t, &wirepb.Welcome{Session: 7, User: "ann", Epoch: 1 << 60})
	if raw, _, ok := FieldKey(body, 3); !ok || string(raw) != "ann" {
		t.Errorf("user: %q %v", raw, ok)
	}
	if raw, num, ok := FieldKey(body, 5); !ok || raw != nil || num != 1<<60 {
		t.Errorf("epoch: %q %d %v", raw, num, ok)
	}
	if _, _, ok := FieldKey(body, 4); ok {
		t.Error("found a node that is not there")
	}
	twice := append(bytes.Clone(body), marshal(t, &wirepb.Welcome{User: "bob"})...)
	if raw, _, ok := FieldKey(twice, 3); !ok || string(raw) != "bob" {
		t.Errorf("the last counts: %q %v", raw, ok)
	}
	h, ok := KeyHash(body, 3)
	if !ok || h != HashBytes("ann") || h != HashBytes([]byte("ann")) {
		t.Errorf("hash of a string: %x %v", h, ok)
	}
	if a, ok := KeyHash(body, 1); !ok || a == Mix(7) {
		t.Errorf("hash of a number: %x %v", a, ok)
	}
	if _, ok := KeyHash(body, 4); ok {
		t.Error("hash of nothing")
	}
	// The value is fixed: nodes of two versions must agree.
	if h != 0xb4090a0ba3f8393c {
		t.Errorf("HashBytes(ann) is %#x", h)
	}
}
