package zmsg

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"zgame/zmsg/wirepb"
)

// The fuzz tests hold the codec equal to the generated code in both directions: they accept the same bytes (but for
// the differences that doc comments name), read the same fields from them, and write the same bytes again.

func addBad(f *testing.F) {
	f.Helper()
	for _, h := range badFields {
		if b, err := hex.DecodeString(h); err == nil && len(b) < 1000 {
			f.Add(b)
		}
	}
}

func FuzzFrame(f *testing.F) {
	addBad(f)
	for _, g := range goldenPackets(f) {
		for i := range g.frames {
			f.Add(AppendFrame(nil, &g.frames[i]))
		}
	}
	f.Add([]byte{0x42, 2, 0x1a, 0, 0x42, 4, 0x1a, 2, 8, 1}) // two controls
	f.Fuzz(func(t *testing.T, b []byte) { checkFrame(t, b) })
}

func checkFrame(t *testing.T, b []byte) {
	t.Helper()
	orig := bytes.Clone(b)
	var w wirepb.Frame
	genErr := proto.Unmarshal(b, &w)
	var fr Frame
	err := fr.Decode(b)
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Fatalf("error without ErrMalformed: %v", err)
	}
	// What the codec leaves to others: the control message, and the JSON body, which has no place in binary.
	inner := parse(b, frameControl, &wirepb.Control{}) && parse(b, 9, &structpb.Struct{})
	if (err == nil && inner) != (genErr == nil) {
		t.Fatalf("codec: %v, generated code: %v (inner %v)", err, genErr, inner)
	}
	if genErr != nil {
		return
	}
	want := normalFrame(&w)
	if have := wireFrame(t, &fr); !proto.Equal(have, want) {
		t.Fatalf("fields differ\nhave %v\nwant %v", have, want)
	}
	// Control's own unknown fields and order are kept by both, but its encoding may be another: bring it to one form.
	if fr.Control != nil {
		fr.Control = append([]byte{}, marshal(t, want.Control)...)
	}
	again := AppendFrame(nil, &fr)
	if gen := marshal(t, want); !bytes.Equal(again, gen) {
		t.Fatalf("bytes differ\nhave %x\nwant %x", again, gen)
	}
	if len(again) != fr.size() {
		t.Fatalf("size %d, want %d", fr.size(), len(again))
	}
	if !bytes.Equal(b, orig) {
		t.Fatal("Decode changed its input")
	}
}

func FuzzEnvelope(f *testing.F) {
	addBad(f)
	for _, g := range goldenBatches() {
		for i := range g.envelopes {
			f.Add(AppendEnvelope(nil, &g.envelopes[i]))
		}
	}
	f.Add([]byte{0x99, 1, 1, 2, 3, 4, 5, 6, 7, 8}) // a chain that is not packed
	f.Fuzz(func(t *testing.T, b []byte) { checkEnvelope(t, b) })
}

func checkEnvelope(t *testing.T, b []byte) {
	t.Helper()
	var w wirepb.Envelope
	genErr := proto.Unmarshal(b, &w)
	// Rubbish from an earlier use must not show.
	e := Envelope{Text: "old", Sessions: []uint64{1, 2, 3}, Chain: []uint64{4}, Trace: Trace{ID: TraceID{1}, Span: 2}, Client: true}
	err := e.Decode(b)
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Fatalf("error without ErrMalformed: %v", err)
	}
	if (err == nil) != (genErr == nil) {
		if genErr == nil && hasBadTrace(b) {
			return
		}
		t.Fatalf("codec: %v, generated code: %v", err, genErr)
	}
	if genErr != nil {
		return
	}
	want := normalEnvelope(&w)
	if have := wireEnvelope(&e); !proto.Equal(have, want) {
		t.Fatalf("fields differ\nhave %v\nwant %v", have, want)
	}
	again, gen := AppendEnvelope(nil, &e), marshal(t, want)
	if !bytes.Equal(again, gen) {
		t.Fatalf("bytes differ\nhave %x\nwant %x", again, gen)
	}
	if len(again) != e.Size() {
		t.Fatalf("Size %d, want %d", e.Size(), len(again))
	}
}

// hasBadTrace reports whether one of the (possibly several) trace fields has not 16 bytes.
func hasBadTrace(b []byte) bool {
	var f field
	for len(b) > 0 {
		n := f.next(b)
		if n < 0 {
			return false
		}
		if f.number == envTrace && f.data != nil && len(f.data) != 16 && len(f.data) != 0 {
			return true
		}
		b = b[n:]
	}
	return false
}

func FuzzPacket(f *testing.F) {
	addBad(f)
	for _, g := range goldenPackets(f) {
		f.Add(encodePacket(g.frames))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var w wirepb.Packet
		genErr := proto.Unmarshal(b, &w)
		var frames []Frame
		inner := true
		var err error
		for rest := b; len(rest) > 0 && err == nil; {
			var fr Frame
			if rest, err = NextFrame(rest, &fr); err == nil {
				frames = append(frames, fr)
				inner = inner && proto.Unmarshal(fr.Control, &wirepb.Control{}) == nil
			}
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("error without ErrMalformed: %v", err)
		}
		if genErr == nil && err != nil {
			if len(w.GetFrames()) == 0 {
				return // bytes without a frame
			}
			t.Fatalf("generated code accepts, codec says %v", err)
		}
		if err == nil && genErr != nil {
			if !inner || bytes.Contains(b, []byte{0x4a}) {
				return // a control or JSON body that the codec does not look into
			}
			t.Fatalf("codec accepts, generated code says %v", genErr)
		}
		if err != nil {
			return
		}
		if len(frames) != len(w.GetFrames()) {
			t.Fatalf("%d frames, want %d", len(frames), len(w.GetFrames()))
		}
		for i := range frames {
			if have, want := wireFrame(t, &frames[i]), normalFrame(w.GetFrames()[i]); !proto.Equal(have, want) {
				t.Fatalf("frame %d\nhave %v\nwant %v", i, have, want)
			}
		}
	})
}

func FuzzBatch(f *testing.F) {
	addBad(f)
	for _, g := range goldenBatches() {
		f.Add(encodeBatch(g))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var w wirepb.Batch
		genErr := proto.Unmarshal(b, &w)
		checkBatch(t, b, &w, genErr)
		if genErr != nil || w.GetMagic() != BatchMagic {
			return
		}
		for _, e := range w.GetEnvelopes() {
			if len(e.GetTrace()) != 16 && len(e.GetTrace()) != 0 {
				return
			}
		}
		// In the order that nodes write, the codec takes everything that the generated code does.
		b = marshal(t, &w)
		if !checkBatch(t, b, &w, nil) {
			t.Fatalf("codec refuses the canonical form %x", b)
		}
	})
}

func checkBatch(t *testing.T, b []byte, w *wirepb.Batch, genErr error) (ok bool) {
	t.Helper()
	h, rest, err := DecodeBatchHead(b)
	var n int
	var e Envelope
	for err == nil && len(rest) > 0 {
		at := len(b) - len(rest)
		var told Told
		next, isTold := NextTold(b, at, &told)
		if rest, err = NextEnvelope(rest, &e); err != nil {
			if isTold {
				t.Fatalf("told, but %v", err)
			}
			break
		}
		if isTold { // then it is what the envelope is, and that says nothing more
			d := Tell{To: e.To, From: e.FromActor, ID: e.ID, Trace: e.Trace.ID, Body: e.Body}
			checkTold(t, &Arrival{Data: b}, told, &d)
			if want := d.Envelope(); next != len(b)-len(rest) || !proto.Equal(wireEnvelope(&e), wireEnvelope(&want)) {
				t.Fatalf("told to %d\nhave %+v\nwant %+v", next, d, e)
			}
		}
		if genErr == nil {
			if n >= len(w.GetEnvelopes()) {
				t.Fatalf("more than %d envelopes", n)
			}
			if have, want := wireEnvelope(&e), normalEnvelope(w.GetEnvelopes()[n]); !proto.Equal(have, want) {
				t.Fatalf("envelope %d\nhave %v\nwant %v", n, have, want)
			}
		}
		n++
	}
	if err != nil {
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrForeign) {
			t.Fatalf("error without a sentinel: %v", err)
		}
		return false // stricter than protobuf on order, see DecodeBatchHead
	}
	if genErr != nil {
		t.Fatalf("codec accepts, generated code says %v", genErr)
	}
	if n != len(w.GetEnvelopes()) || h.From.ID != w.GetNode() || h.From.Epoch != w.GetEpoch() || h.Number != w.GetNumber() {
		t.Fatalf("head %+v with %d envelopes, want %v", h, n, w)
	}
	return true
}

func FuzzText(f *testing.F) {
	reg, err := NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	for _, g := range goldenPackets(f) {
		frames := make([]*Frame, len(g.frames))
		for i := range g.frames {
			frames[i] = &g.frames[i]
		}
		b, err := EncodeText(nil, reg, frames...)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range badTexts {
		f.Add([]byte(s.in))
	}
	f.Add([]byte(`{"frames":[{"kind":1,"id":10,"seq":"3","json":{"session":"9","gate":"g"}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := DecodeText(b, reg)
		if err != nil {
			if CodeOf(err) != CodeBadRequest || OutcomeOf(err) != NotExecuted {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		for i := range frames {
			if frames[i].Err != nil {
				continue
			}
			// What was read can be written and read again, and is a frame in binary too.
			text, err := EncodeText(nil, reg, &frames[i].Frame)
			if err != nil {
				t.Fatalf("cannot be written again: %v", err)
			}
			again, err := DecodeText(text, reg)
			if err != nil || len(again) != 1 || again[0].Err != nil {
				t.Fatalf("cannot be read again: %s: %v %+v", text, err, again)
			}
			have, want := wireFrame(t, &again[0].Frame), wireFrame(t, &frames[i].Frame)
			if !proto.Equal(have, want) && reg.Name(frames[i].Frame.ID) == "" {
				t.Fatalf("fields differ\nhave %v\nwant %v", have, want)
			}
			checkFrame(t, AppendFrame(nil, &frames[i].Frame))
		}
	})
}
