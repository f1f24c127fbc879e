package zmsg

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

func benchFrame() Frame {
	return Frame{
		Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1005, Seq: 123_456, TimeoutMs: 5000,
		Body: append([]byte{0x0a, 2, 'g', 'o', 0x12, 58}, make([]byte, 58)...),
	}
}

func benchEnvelope() Envelope {
	return Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, To: 9, Request: 123_456, ID: 1005, Seq: 123_456, Body: benchFrame().Body,
		Session: SessionRef{Gate: NodeRef{ID: "gate-1", Epoch: 1 << 40}, ID: 1<<63 + 5, Gen: 2}, User: "ann", Client: true,
		TimeoutMs: 4900, Trace: Trace{ID: TraceID{1}}, Chain: []uint64{1, 2},
	}
}

// Codec and generated code side by side: a packet with one request of 64 bytes, a batch with one envelope of the same.

func BenchmarkFrameEncode(b *testing.B) {
	f := benchFrame()
	buf := make([]byte, 0, 4096)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendPacketFrame(buf[:0], &f)
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		w := &wirepb.Packet{Frames: []*wirepb.Frame{wireFrame(b, &f)}}
		for b.Loop() {
			buf, _ = proto.MarshalOptions{}.MarshalAppend(buf[:0], w)
		}
	})
}

func BenchmarkFrameDecode(b *testing.B) {
	f := benchFrame()
	packet := AppendPacketFrame(nil, &f)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := NextFrame(packet, &f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		var w wirepb.Packet
		for b.Loop() {
			if err := proto.Unmarshal(packet, &w); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEnvelopeEncode(b *testing.B) {
	e := benchEnvelope()
	head := BatchHead{From: NodeRef{ID: "node-1", Epoch: 77}, Number: 5}
	buf := make([]byte, 0, 4096)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendBatchEnvelope(AppendBatchHead(buf[:0], head), &e)
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		w := &wirepb.Batch{Magic: BatchMagic, Node: "node-1", Epoch: 77, Number: 5, Envelopes: []*wirepb.Envelope{wireEnvelope(&e)}}
		for b.Loop() {
			buf, _ = proto.MarshalOptions{}.MarshalAppend(buf[:0], w)
		}
	})
}

func BenchmarkEnvelopeDecode(b *testing.B) {
	e := benchEnvelope()
	batch := AppendBatchEnvelope(AppendBatchHead(nil, BatchHead{From: NodeRef{ID: "node-1", Epoch: 77}, Number: 5}), &e)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, rest, err := DecodeBatchHead(batch)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = NextEnvelope(rest, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		var w wirepb.Batch
		for b.Loop() {
			if err := proto.Unmarshal(batch, &w); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkKeyHash(b *testing.B) {
	body := benchFrame().Body
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := KeyHash(body, 1); !ok {
			b.Fatal("no key")
		}
	}
}

func BenchmarkIDOf(b *testing.B) {
	m := &wirepb.SessionClosed{}
	b.ReportAllocs()
	for b.Loop() {
		IDOf(m)
	}
}
