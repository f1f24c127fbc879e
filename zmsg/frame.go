package zmsg

import "zgame/zmsg/wirepb"

// Subprotocols of the client's websocket.
const (
	SubprotocolPB   = "zgame.v1.pb"   // binary: protobuf; the default
	SubprotocolJSON = "zgame.v1.json" // text: protobuf JSON
)

// Frame is a client frame, decoded. Its fields are those of wirepb.Frame. Text and Body alias the bytes it was decoded
// from: they are valid as long as those are.
type Frame struct {
	Kind      wirepb.FrameKind
	ID        uint32
	Seq       uint64
	Code      Code
	Outcome   Outcome // of a response with a Code that is not OK
	Text      string
	Body      []byte
	TimeoutMs uint32
	Control   []byte // encoded wirepb.Control, nil if none
}
