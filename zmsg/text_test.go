package zmsg

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

func wireRegistry(tb testing.TB) *Registry {
	tb.Helper()
	r, err := NewRegistry(wirepb.File_zgame_v1_wire_proto)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// What a person types into the console of a browser.
func TestDecodeText(t *testing.T) {
	want := &wirepb.SessionClosed{Session: 1<<63 + 1, Gate: "g", Reason: "über"}
	for name, in := range map[string]string{
		"by type": `{"frames":[{"kind":"FRAME_KIND_REQUEST","type":"zgame.v1.SessionClosed","seq":"7","timeoutMs":50,
			"json":{"session":"9223372036854775809","gate":"g","reason":"über"}}]}`,
		"by id, numbers bare, proto names": `{"frames":[{"kind":1,"id":10,"seq":7,"timeout_ms":50,
			"json":{"session":9223372036854775809,"gate":"g","reason":"\u00fcber"}}]}`,
		"base64, a field of a later version": `{"frames":[{"kind":1,"id":10,"seq":7,"timeoutMs":50,"later":[1],
			"body":"CIGAgICAgICAgAEaAWc6BcO8YmVy"}]}`,
	} {
		frames, err := DecodeText([]byte(in), wireRegistry(t))
		if err != nil || len(frames) != 1 || frames[0].Err != nil {
			t.Errorf("%s: %+v, %v", name, frames, err)
			continue
		}
		f := frames[0].Frame
		if f.Kind != wirepb.FrameKind_FRAME_KIND_REQUEST || f.ID != 10 || f.Seq != 7 || f.TimeoutMs != 50 {
			t.Errorf("%s: %+v", name, f)
		}
		var have wirepb.SessionClosed
		if err := proto.Unmarshal(f.Body, &have); err != nil || !proto.Equal(&have, want) {
			t.Errorf("%s: %v, %v", name, &have, err)
		}
	}
}

func TestDecodeTextControl(t *testing.T) {
	frames, err := DecodeText([]byte(`{"frames":[{"kind":4,"control":{"hello":{"token":"ann"}}},{"kind":4,"control":{}}]}`), nil)
	if err != nil || len(frames) != 2 {
		t.Fatal(frames, err)
	}
	var c wirepb.Control
	if err := proto.Unmarshal(frames[0].Frame.Control, &c); err != nil || c.GetHello().GetToken() != "ann" {
		t.Errorf("%v, %v", &c, err)
	}
	if c := frames[1].Frame.Control; c == nil || len(c) != 0 {
		t.Errorf("an empty control is %v", c)
	}
}

// badTexts: seq 0 means that the whole packet fails.
var badTexts = []struct {
	name, in, want string
	seq            uint64
}{
	{"empty", ``, "not a JSON packet", 0},
	{"garbage", "\x00\x01\xff", "not a JSON packet", 0},
	{"array", `[]`, "not a JSON packet", 0},
	{"no frames", `{}`, "no frames", 0},
	{"null frames", `{"frames":null}`, "no frames", 0},
	{"cut", `{"frames":[{"kind":1`, "not a JSON packet", 0},
	{"frame is a number", `{"frames":[1]}`, "not a JSON object", 0},
	{"frame is null", `{"frames":[null]}`, "not a JSON object", 0},
	{"too deep", `{"frames":[` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `]}`, "not a JSON packet", 0},
	{"field of a wrong type, no seq", `{"frames":[{"kind":1,"id":"x"}]}`, "frame 0", 0},
	{"field of a wrong type", `{"frames":[{"kind":1,"id":"x","seq":"7"}]}`, "id", 7},
	{"body is not base64", `{"frames":[{"kind":1,"id":10,"seq":7,"body":"!"}]}`, "body", 7},
	{"unknown type", `{"frames":[{"kind":1,"type":"chat.Jion","seq":7,"json":{}}]}`, `unknown type "chat.Jion"`, 7},
	{"unknown id with json", `{"frames":[{"kind":1,"id":4711,"seq":7,"json":{}}]}`, "no type is known for id 4711", 7},
	{"type and id differ", `{"frames":[{"kind":1,"id":11,"type":"zgame.v1.SessionClosed","seq":7}]}`, "has id 10", 7},
	{"body and json", `{"frames":[{"kind":1,"id":10,"seq":7,"body":"CAE=","json":{}}]}`, "both body and json", 7},
	{"json is a list", `{"frames":[{"kind":1,"id":10,"seq":7,"json":[]}]}`, "not an object", 7},
	{"json has an unknown field", `{"frames":[{"kind":1,"id":10,"seq":7,"json":{"sesion":1}}]}`, "sesion", 7},
	{"json has a wrong type", `{"frames":[{"kind":1,"id":10,"seq":7,"json":{"session":"x"}}]}`, "not a zgame.v1.SessionClosed", 7},
}

func TestDecodeTextErrors(t *testing.T) {
	for _, tt := range badTexts {
		frames, err := DecodeText([]byte(tt.in), wireRegistry(t))
		if tt.seq != 0 {
			if err != nil || len(frames) != 1 || frames[0].Err == nil || frames[0].Frame.Seq != tt.seq ||
				frames[0].Frame.Kind != wirepb.FrameKind_FRAME_KIND_REQUEST {
				t.Errorf("%s: want an error of seq %d alone, have %+v, %v", tt.name, tt.seq, frames, err)
				continue
			}
			err = frames[0].Err
		}
		if err == nil || CodeOf(err) != CodeBadRequest || OutcomeOf(err) != NotExecuted || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: want an error with %q, have %v", tt.name, tt.want, err)
		}
	}
	many := []byte(`{"frames":[` + strings.Repeat(`{},`, MaxFrames) + `{}]}`)
	if _, err := DecodeText(many, nil); CodeOf(err) != CodeBadRequest || !strings.Contains(err.Error(), "65 frames") {
		t.Errorf("too many frames: %v", err)
	}
	// One bad frame leaves the others alone.
	frames, err := DecodeText([]byte(`{"frames":[{"kind":1,"id":10,"seq":7,"json":{"x":1}},{"kind":1,"id":10,"seq":8,"json":{}}]}`), wireRegistry(t))
	if err != nil || len(frames) != 2 || frames[0].Err == nil || frames[1].Err != nil || frames[1].Frame.Seq != 8 {
		t.Errorf("%+v, %v", frames, err)
	}
	frames, err = DecodeText([]byte(`{"frames":[{"kind":1,"id":10,"seq":7,"json":{}}]}`), nil)
	if err != nil || frames[0].Err == nil {
		t.Errorf("without a registry: %+v, %v", frames, err)
	}
}

func TestEncodeText(t *testing.T) {
	reg := wireRegistry(t)
	body := marshal(t, &wirepb.SessionClosed{Session: 5, User: "ann"})
	for _, tt := range []struct {
		name, want string
		frames     []*Frame
	}{
		{
			"known", `{"frames":[{"kind":"FRAME_KIND_PUSH","id":10,"seq":"3","type":"zgame.v1.SessionClosed","json":{"session":"5","user":"ann"}}]}`,
			[]*Frame{{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: 10, Seq: 3, Body: body}},
		},
		{"known, empty", `{"frames":[{"id":10,"type":"zgame.v1.SessionClosed","json":{}}]}`, []*Frame{{ID: 10}}},
		{"known, but not that", `{"frames":[{"id":10,"body":"/w==","type":"zgame.v1.SessionClosed"}]}`, []*Frame{{ID: 10, Body: []byte{0xff}}}},
		{
			"unknown", `{"frames":[{"kind":"FRAME_KIND_PUSH","id":4711,"body":"AQI="}]}`,
			[]*Frame{{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: 4711, Body: []byte{1, 2}}},
		},
		{
			"two, an error and a control", `{"frames":[{"kind":"FRAME_KIND_RESPONSE","seq":"1","code":2,"text":"a\"\ufffd"},` +
				`{"kind":"FRAME_KIND_CONTROL","control":{"ping":{}}}]}`,
			[]*Frame{
				{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, Seq: 1, Code: 2, Text: "a\"\xff"},
				{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: control(t, &wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{}}})},
			},
		},
		{"none", `{"frames":[]}`, nil},
	} {
		have, err := EncodeText([]byte(">"), reg, tt.frames...)
		want := strings.ReplaceAll(tt.want, `\ufffd`, "\ufffd")
		if err != nil || string(have) != ">"+want {
			t.Errorf("%s\nhave %s, %v\nwant >%s", tt.name, have, err, want)
		}
	}
	if _, err := EncodeText(nil, reg, &Frame{Control: []byte{0xff}}); err == nil {
		t.Error("a malformed control is written")
	}
	// All of the wire's own packets read back as protobuf JSON.
	for _, g := range goldenPackets(t) {
		for i := range g.frames {
			b, err := EncodeText(nil, reg, &g.frames[i])
			if err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
			back, err := DecodeText(b, reg)
			if err != nil || back[0].Err != nil || !proto.Equal(wireFrame(t, &back[0].Frame), wireFrame(t, &g.frames[i])) {
				t.Errorf("%s: %s\nhave %+v, %v\nwant %+v", g.name, b, back, err, g.frames[i])
			}
		}
	}
}
