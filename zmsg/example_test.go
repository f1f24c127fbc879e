package zmsg_test

import (
	"errors"
	"fmt"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// A packet is a concatenation of frames.
func ExampleNextFrame() {
	var packet []byte
	for seq := range uint64(2) {
		packet = zmsg.AppendPacketFrame(packet, &zmsg.Frame{
			Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1005, Seq: seq + 1, Body: []byte("body"),
		})
	}
	var f zmsg.Frame
	for rest := packet; len(rest) > 0; {
		var err error
		if rest, err = zmsg.NextFrame(rest, &f); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(f.ID, f.Seq, string(f.Body))
	}
	// Output:
	// 1005 1 body
	// 1005 2 body
}

func ExampleNextEnvelope() {
	batch := zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: zmsg.NodeRef{ID: "node-1", Epoch: 7}, Number: 1})
	batch = zmsg.AppendBatchEnvelope(batch, &zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, To: 9, ID: 1005})

	head, rest, err := zmsg.DecodeBatchHead(batch)
	fmt.Println(head.From.ID, head.Number, err)
	var e zmsg.Envelope // used again and again
	for len(rest) > 0 {
		if rest, err = zmsg.NextEnvelope(rest, &e); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.To, e.ID)
	}
	_, _, err = zmsg.DecodeBatchHead([]byte("hello"))
	fmt.Println(errors.Is(err, zmsg.ErrForeign))
	// Output:
	// node-1 1 <nil>
	// 9 1005
	// true
}

// Bodies can be written by hand where text messages are allowed.
func ExampleDecodeText() {
	reg, err := zmsg.NewRegistry(wirepb.File_zgame_v1_wire_proto)
	if err != nil {
		fmt.Println(err)
		return
	}
	frames, err := zmsg.DecodeText([]byte(`{"frames":[
		{"kind":"FRAME_KIND_REQUEST","seq":1,"type":"zgame.v1.SessionClosed","json":{"user":"ann"}},
		{"kind":"FRAME_KIND_REQUEST","seq":2,"type":"zgame.v1.SesionClosed","json":{}}
	]}`), reg)
	fmt.Println(len(frames), err)
	fmt.Printf("%d %q\n", frames[0].Frame.ID, frames[0].Frame.Body)
	fmt.Println(frames[1].Frame.Seq, frames[1].Err)
	// Output:
	// 2 <nil>
	// 10 "*\x03ann"
	// 2 bad_request: unknown type "zgame.v1.SesionClosed": expected the full name of a message with a (zgame.id) (code 7, not_executed)
}
