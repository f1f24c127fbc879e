package zmsg

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

var update = flag.Bool("update", false, "rewrite testdata/golden/golden.json from the codec")

const goldenFile = "testdata/golden/golden.json"

// golden is one entry of the golden file, which holds all client languages equal: type is the protobuf type, hex its
// bytes, json the same as protobuf JSON.
type golden struct {
	Name string          `json:"name"`
	Type string          `json:"type"`
	Hex  string          `json:"hex"`
	JSON json.RawMessage `json:"json"`
}

type goldenPacket struct {
	name   string
	frames []Frame
}

func goldenPackets(tb testing.TB) []goldenPacket {
	tb.Helper()
	c := func(w *wirepb.Control) Frame {
		return Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(tb, w)}
	}
	hello := &wirepb.Hello{Token: "ann", Version: 1, Client: "golden/1"}
	welcome := &wirepb.Welcome{
		Session: 1<<63 + 5, Generation: 1, User: "ann", Node: "node-1", Epoch: 77, HeartbeatMs: 10_000, TimeoutMs: 30_000,
		MaxMessage: 65_536, MaxInFlight: 64, Resume: "r", Version: 1,
	}
	request := Frame{
		Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1005, Seq: 7, Body: []byte("\x0a\x02go\x12\x05hello"), TimeoutMs: 5000,
	}
	push := Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: 1000, Seq: 300, Body: []byte{0x0a, 2, 'g', 'o', 0x10, 1}}
	return []goldenPacket{
		{"hello", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: hello}})}},
		{"hello to resume", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{
			Token: "ann", Resume: "r", LastPush: 299, Version: 1, ResumeWindowMs: 60_000,
		}}})}},
		{"welcome back", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: &wirepb.Welcome{
			Session: 5, Generation: 2, User: "ann", Node: "node-1", Epoch: 77, Resume: "r", Resumed: true, ResumeWindowMs: 30_000,
		}}})}},
		{"welcome without resume", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: &wirepb.Welcome{
			Session: 5, Generation: 1, User: "ann", Refused: wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED,
		}}})}},
		{"welcome", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Welcome{Welcome: welcome}})}},
		{"ping", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 1}}})}},
		{"empty ping", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{}}})}},
		{"pong", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Pong{Pong: &wirepb.Pong{Nonce: 1<<64 - 1}}})}},
		{"ack", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: 300}}})}},
		{"ack of a response", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: 300, Response: 7}}})}},
		{"goaway", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Goaway{Goaway: &wirepb.Goaway{
			DelayMs: 1500, Address: "ws://other:7000/ws", Text: "draining",
		}}})}},
		{"closing", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Closing{Closing: &wirepb.Closing{
			Code: 3001, Text: "going down", DelayMs: 2000,
		}}})}},
		{"gap", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Gap{Gap: &wirepb.Gap{
			KeyType: 2, KeyZone: 1, KeyId: "go", Missed: 3,
		}}})}},
		{"gap of a session", []Frame{c(&wirepb.Control{Control: &wirepb.Control_Gap{Gap: &wirepb.Gap{First: 300, Last: 302}}})}},
		{"empty control", []Frame{{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: []byte{}}}},
		{"request", []Frame{request}},
		{"one-way", []Frame{{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1003}}},
		{"largest numbers", []Frame{{
			Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1<<32 - 1, Seq: 1<<64 - 1, Body: make([]byte, 200), TimeoutMs: 1<<32 - 1,
		}}},
		{"response", []Frame{{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, ID: 1006, Seq: 7, Body: []byte{0x10, 1}}}},
		{"error response", []Frame{{
			Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, Seq: 7, Code: CodeNoRoute, Outcome: NotExecuted,
			Text: "nobody handles 4711 – \U0001f937",
		}}},
		{"application error", []Frame{{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, Seq: 8, Code: 1000, Text: "join the room first"}}},
		{"push", []Frame{push}},
		{"several frames", []Frame{push, request, push}},
		{"empty frame", []Frame{{}}},
	}
}

type goldenBatch struct {
	name      string
	head      BatchHead
	envelopes []Envelope
}

func goldenBatches() []goldenBatch {
	head := BatchHead{From: NodeRef{ID: "node-1", Epoch: 77}, Number: 1}
	session := SessionRef{Gate: NodeRef{ID: "gate-1", Epoch: 1 << 40}, ID: 1<<63 + 5, Gen: 2}
	trace := TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	request := Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, To: 9, FromActor: 4, Request: 12, ID: 1005, Seq: 7,
		Body: []byte("\x0a\x02go\x12\x05hello"), Session: session, User: "ann", Client: true, TimeoutMs: 4900, Trace: Trace{ID: trace},
		Chain: []uint64{1, 1<<64 - 1}, Hops: 1,
	}
	reply := Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY, Request: 12, Code: CodeTimeout, Outcome: Unknown, Text: "too slow",
	}
	return []goldenBatch{
		{"head alone", head, nil},
		{"empty envelope", head, []Envelope{{}}},
		{"request", head, []Envelope{request}},
		{"reply", head, []Envelope{reply}},
		{"push to many", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 1000, Body: []byte{1},
			Sessions: []uint64{5, 6, 7}, Class: Latest,
		}}},
		{"push of the latest of something", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 1000, Body: []byte{1}, Session: session,
			Class: Latest, Of: "unit/7",
		}}},
		{"publish to a group", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 1000, Body: []byte{1},
			Group: "room/go",
		}}},
		{"object", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT, ID: 2001, Key: Key{Type: 2, Zone: 1, ID: "go"}, Version: 3,
			Owner: NodeRef{ID: "node-2", Epoch: 78},
		}}},
		{"watch an actor, and no more", head, []Envelope{
			{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL, ID: 17, Request: 3, To: 9},
			{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL, ID: 18, Request: 3},
		}},
		{"a watched actor is down", head, []Envelope{{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL, ID: 19, Request: 3, Code: 2}}},
		{"noted", head, []Envelope{{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL, ID: 20, Request: 3, Seq: 19}}},
		{"object, once, and who answers", head, []Envelope{
			{
				Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT, Request: 13, ID: 2001, TimeoutMs: 4900, Hops: 1, Key: Key{Type: 2, ID: "go"},
				Version: 3, Owner: NodeRef{ID: "gate-1", Epoch: 1 << 40}, Once: "ann/41",
			},
			{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY, Request: 13, ID: 2002, Body: []byte{1}, Version: 4, Owner: NodeRef{ID: "node-2", Epoch: 78}},
		}},
		{"object, sent again by its client", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT, Request: 14, ID: 2001, Seq: 300, Session: session, User: "ann", Client: true,
			TimeoutMs: 4900, Key: Key{Type: 2, ID: "go"}, Resent: true,
		}}},
		{"an object's push", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 1000, Body: []byte{1}, Session: session,
			Key: Key{Type: 2, ID: "go"}, Version: 4, PushNo: 300,
		}}},
		{"an object binds sessions", head, []Envelope{{
			Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_BIND, Session: SessionRef{Gate: session.Gate},
			FromActor: 4, Request: 12, Key: Key{Type: 2, ID: "go"}, Version: 4, PushNo: 299, Body: goldenBinding(),
		}}},
		{"several envelopes", BatchHead{From: head.From, Number: 1 << 50}, []Envelope{request, reply, request}},
	}
}

func goldenBinding() []byte {
	b := Binding{Sessions: []SessionRef{{ID: 1<<63 + 5, Gen: 2}, {ID: 7, Gen: 1}}, Base: 200, Since: 2}
	body, err := b.EncodeSessions()
	if err != nil {
		panic(err)
	}
	return body
}

func encodePacket(frames []Frame) []byte {
	var b []byte
	for i := range frames {
		b = AppendPacketFrame(b, &frames[i])
	}
	return b
}

func encodeBatch(g goldenBatch) []byte {
	b := AppendBatchHead(nil, g.head)
	for i := range g.envelopes {
		b = AppendBatchEnvelope(b, &g.envelopes[i])
	}
	return b
}

func compactJSON(tb testing.TB, m proto.Message) json.RawMessage {
	tb.Helper()
	b, err := protojson.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, b); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// goldens is what the golden file must say: bytes from the codec, JSON from the generated code.
func goldens(tb testing.TB) []golden {
	tb.Helper()
	var all []golden
	add := func(name string, b []byte, m proto.Message) {
		if err := proto.Unmarshal(b, m); err != nil {
			tb.Fatalf("%s: generated code refuses %x: %v", name, b, err)
		}
		if want := marshal(tb, m); !bytes.Equal(b, want) {
			tb.Errorf("%s: codec and generated code differ\n codec %x\n  gen  %x", name, b, want)
		}
		all = append(all, golden{name, string(m.ProtoReflect().Descriptor().FullName()), hex.EncodeToString(b), compactJSON(tb, m)})
	}
	for _, g := range goldenPackets(tb) {
		add(g.name, encodePacket(g.frames), &wirepb.Packet{})
	}
	for _, g := range goldenBatches() {
		add(g.name, encodeBatch(g), &wirepb.Batch{})
	}
	return all
}

func TestGolden(t *testing.T) {
	have := goldens(t)
	if *update {
		b, err := json.MarshalIndent(have, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var want []golden
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if len(have) != len(want) {
		t.Fatalf("%d golden entries, the file has %d: run with -update and review", len(have), len(want))
	}
	for i := range have {
		var compact bytes.Buffer
		if err := json.Compact(&compact, want[i].JSON); err != nil {
			t.Fatal(err)
		}
		if h, w := have[i], want[i]; h.Name != w.Name || h.Type != w.Type || h.Hex != w.Hex || string(h.JSON) != compact.String() {
			t.Errorf("%s: the wire has changed\nhave %s %s\n     %s\nwant %s %s\n     %s",
				h.Name, h.Type, h.Hex, h.JSON, w.Type, w.Hex, compact.String())
		}
	}
}
