package zmsg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

// TextFrame is one frame of a text message. Err, when it is not nil, is what is wrong with it: then only Kind, ID and
// Seq of Frame are set (as far as they could be read), and the request is to be answered with Err.
type TextFrame struct {
	Frame Frame
	Err   *Error
}

// MaxFrames is how many frames a packet may have (docs/wire.md).
const MaxFrames = 64

// deterministic makes equal texts equal frames.
var deterministic = proto.MarshalOptions{Deterministic: true}

// badText is what DecodeText reports: the request cannot have run.
func badText(format string, args ...any) *Error {
	return &Error{Code: CodeBadRequest, Outcome: NotExecuted, Text: fmt.Sprintf(format, args...)}
}

// DecodeText reads a text message, a wirepb.Packet as protobuf JSON. A frame's body is `body` (base64), or `json`: the
// body as JSON, whose type is named by `type` (full name) or `id`, and which reg turns into bytes.
//
// A frame that cannot be read, but whose seq can, is returned with its Err; where not even that is possible, or the
// text is not a packet, the whole packet fails. Both are *Error with CodeBadRequest. Unknown fields of frames are
// skipped, as in binary; unknown fields of bodies are errors, because people write them by hand.
func DecodeText(b []byte, reg *Registry) ([]TextFrame, error) {
	var packet struct {
		Frames []json.RawMessage `json:"frames"`
	}
	if err := json.Unmarshal(b, &packet); err != nil {
		return nil, badText("text message is not a JSON packet {\"frames\":[...]}: %v", err)
	}
	if len(packet.Frames) == 0 {
		return nil, badText("text message has no frames: expected {\"frames\":[...]}")
	}
	if n := len(packet.Frames); n > MaxFrames { // before the work of decoding each
		return nil, badText("packet has %d frames: expected at most %d", n, MaxFrames)
	}
	frames := make([]TextFrame, len(packet.Frames))
	for i, raw := range packet.Frames {
		if err := decodeTextFrame(raw, reg, &frames[i]); err != nil {
			return nil, badText("frame %d: %v", i, err)
		}
	}
	return frames, nil
}

// decodeTextFrame returns an error when the frame's seq cannot be known; other faults go to t.Err.
func decodeTextFrame(raw json.RawMessage, reg *Registry, t *TextFrame) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return fmt.Errorf("not a JSON object: %.80s", raw)
	}
	// The JSON body is read straight into its type: by way of Struct, large integers would lose digits.
	body := fields["json"]
	delete(fields, "json")
	if string(body) == "null" {
		body = nil
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	var w wirepb.Frame
	err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(rest, &w)
	if err != nil {
		seq, known := looseUint(fields["seq"])
		if !known {
			return err
		}
		id, _ := looseUint(fields["id"])
		t.Frame = Frame{Kind: looseKind(fields["kind"]), ID: uint32(id), Seq: seq}
		t.Err = badText("%v", err)
		return nil
	}
	t.Frame = Frame{
		Kind: w.GetKind(), ID: w.GetId(), Seq: w.GetSeq(), Code: Code(w.GetCode()), Outcome: outcomeOf(uint64(w.GetOutcome())),
		Text: w.GetText(), Body: w.GetBody(), TimeoutMs: w.GetTimeoutMs(),
	}
	if w.Control != nil {
		// Appended to something, since the encoding of an empty Control is nil, which says that there is none.
		t.Frame.Control, err = deterministic.MarshalAppend([]byte{}, w.GetControl())
		if err != nil {
			return err
		}
	}
	if e := decodeTextBody(&t.Frame, w.GetType(), body, reg); e != nil {
		t.Frame = Frame{Kind: t.Frame.Kind, ID: t.Frame.ID, Seq: t.Frame.Seq}
		t.Err = e
	}
	return nil
}

func decodeTextBody(f *Frame, typ string, body json.RawMessage, reg *Registry) *Error {
	if typ != "" {
		id, ok := uint32(0), false
		if reg != nil {
			id, ok = reg.ByName(typ)
		}
		switch {
		case !ok:
			return badText("unknown type %q: expected the full name of a message with a (zgame.id)", typ)
		case f.ID != 0 && f.ID != id:
			return badText("type %s has id %d, the frame says id %d", typ, id, f.ID)
		}
		f.ID = id
	}
	if body == nil {
		return nil
	}
	if len(f.Body) > 0 {
		return badText("frame has both body and json: expected one of them")
	}
	if len(body) == 0 || body[0] != '{' {
		return badText("json is not an object: %.80s", body)
	}
	if reg == nil {
		return badText("json bodies are not understood here: send body")
	}
	m, ok := reg.New(f.ID)
	if !ok {
		return badText("no type is known for id %d: name a type, or send body", f.ID)
	}
	if err := protojson.Unmarshal(body, m); err != nil {
		return badText("json is not a %s: %v", reg.Name(f.ID), err)
	}
	b, err := deterministic.Marshal(m)
	if err != nil {
		return badText("json is not a %s: %v", reg.Name(f.ID), err)
	}
	f.Body = b
	return nil
}

// looseUint reads a number as protobuf JSON writes it, bare or quoted, from a frame that is wrong elsewhere.
func looseUint(raw json.RawMessage) (uint64, bool) {
	n, err := strconv.ParseUint(string(bytes.Trim(raw, `"`)), 10, 64)
	return n, err == nil && n != 0
}

func looseKind(raw json.RawMessage) wirepb.FrameKind {
	if k, ok := wirepb.FrameKind_value[string(bytes.Trim(raw, `"`))]; ok {
		return wirepb.FrameKind(k)
	}
	n, _ := looseUint(raw)
	return wirepb.FrameKind(int32(n))
}

// EncodeText appends frames as one text message, a wirepb.Packet as protobuf JSON. A body whose id reg knows is
// written as `json` beside `type`, any other as base64 `body`. It fails only on a Control that is malformed.
func EncodeText(dst []byte, reg *Registry, frames ...*Frame) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	buf.WriteString(`{"frames":[`)
	for i, f := range frames {
		if i > 0 {
			buf.WriteByte(',')
		}
		if err := encodeTextFrame(buf, reg, f); err != nil {
			return dst, err
		}
	}
	buf.WriteString("]}")
	return buf.Bytes(), nil
}

func encodeTextFrame(buf *bytes.Buffer, reg *Registry, f *Frame) error {
	w := &wirepb.Frame{
		Kind: f.Kind, Id: f.ID, Seq: f.Seq, Code: uint32(f.Code), Outcome: uint32(f.Outcome),
		Text: clean(f.Text), TimeoutMs: f.TimeoutMs,
	}
	if f.Control != nil {
		w.Control = &wirepb.Control{}
		if err := proto.Unmarshal(f.Control, w.Control); err != nil {
			return fmt.Errorf("%w control: %w", ErrMalformed, err)
		}
	}
	var body []byte
	if reg != nil {
		w.Type = reg.Name(f.ID)
		body = textBody(reg, f)
	}
	if body == nil {
		w.Body = f.Body
	}
	b, err := protojson.Marshal(w)
	if err != nil {
		return fmt.Errorf("zmsg: frame as JSON: %w", err)
	}
	if body != nil {
		// protojson would take the body only as a Struct; it is put in as it is.
		b = b[:bytes.LastIndexByte(b, '}')]
		if len(bytes.TrimSpace(b)) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, `"json":`...), body...), '}')
	}
	// protojson varies its white space on purpose; without any, equal frames are equal texts.
	return json.Compact(buf, b)
}

// textBody returns the body as a JSON object, nil where that is not possible.
func textBody(reg *Registry, f *Frame) []byte {
	m, ok := reg.New(f.ID)
	if !ok || proto.Unmarshal(f.Body, m) != nil {
		return nil
	}
	b, err := protojson.Marshal(m)
	if err != nil || len(b) == 0 || b[0] != '{' {
		return nil
	}
	return b
}
