package zmsg

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

// The model: the same things by generated code. Tests hold the codec equal to it.

func wireFrame(tb testing.TB, f *Frame) *wirepb.Frame {
	tb.Helper()
	w := &wirepb.Frame{
		Kind: f.Kind, Id: f.ID, Seq: f.Seq, Code: uint32(f.Code), Text: f.Text, Body: f.Body, TimeoutMs: f.TimeoutMs,
		Outcome: uint32(f.Outcome),
	}
	if f.Control != nil {
		w.Control = &wirepb.Control{}
		if err := proto.Unmarshal(f.Control, w.Control); err != nil {
			tb.Fatalf("control of %+v: %v", f, err)
		}
	}
	return w
}

func wireEnvelope(e *Envelope) *wirepb.Envelope {
	w := &wirepb.Envelope{
		Kind: e.Kind, To: e.To, FromActor: e.FromActor, Request: e.Request, Id: e.ID, Seq: e.Seq, Code: uint32(e.Code),
		Outcome: uint32(e.Outcome), Text: e.Text, Body: e.Body, Session: e.Session.ID, Generation: e.Session.Gen,
		Gate: e.Session.Gate.ID, GateEpoch: e.Session.Gate.Epoch, User: e.User, Client: e.Client, TimeoutMs: e.TimeoutMs,
		Chain: e.Chain, Hops: e.Hops, Op: e.Op, Sessions: e.Sessions, Group: e.Group, PushClass: uint32(e.Class),
		KeyType: e.Key.Type, KeyZone: e.Key.Zone, KeyId: e.Key.ID, RouteVersion: uint64(e.Version),
		Owner: e.Owner.ID, OwnerEpoch: e.Owner.Epoch, Once: e.Once, Push: e.PushNo, Of: e.Of, Span: e.Trace.Span, Resent: e.Resent,
	}
	if !e.Trace.IsZero() {
		w.Trace = e.Trace.ID[:]
	}
	return w
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := deterministic.Marshal(m)
	if err != nil {
		tb.Fatalf("marshal %v: %v", m, err)
	}
	return b
}

// control encodes a control message as frames carry it.
func control(tb testing.TB, c *wirepb.Control) []byte {
	tb.Helper()
	return append([]byte{}, marshal(tb, c)...)
}

// normal is w as the codec sees it: fields of text messages and unknown fields gone, enumerations mapped.
func normalFrame(w *wirepb.Frame) *wirepb.Frame {
	w = proto.CloneOf(w)
	w.Json, w.Type = nil, ""
	w.Outcome = uint32(outcomeOf(uint64(w.Outcome)))
	w.ProtoReflect().SetUnknown(nil)
	return w
}

func normalEnvelope(w *wirepb.Envelope) *wirepb.Envelope {
	w = proto.CloneOf(w)
	w.ProtoReflect().SetUnknown(nil)
	w.Outcome, w.PushClass = uint32(outcomeOf(uint64(w.Outcome))), uint32(classOf(uint64(w.PushClass)))
	if TraceID(append(w.Trace, make([]byte, 16)...)[:16]).IsZero() {
		w.Trace = nil
	}
	return w
}

// parse reports whether each value of a message field that the codec does not look into is a message as m. Each by itself: what is cut
// off in one may go on in the next, which generated code does not take.
func parse(b []byte, number protowire.Number, m proto.Message) bool {
	var f field
	for len(b) > 0 {
		n := f.next(b)
		if n < 0 {
			return true
		}
		if f.number == number && f.typ == protowire.BytesType && proto.Unmarshal(f.data, m) != nil {
			return false
		}
		b = b[n:]
	}
	return true
}
