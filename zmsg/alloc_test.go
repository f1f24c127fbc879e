//go:build !race

package zmsg

import (
	"testing"

	"zgame/zmsg/wirepb"
)

// The allocation budget of the hot paths. Under -race the counts are not those of production.
func TestCodecDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 4096)
	frame := benchFrame()
	packet := AppendPacketFrame(nil, &frame)
	envelope := benchEnvelope()
	batch := AppendBatchEnvelope(AppendBatchHead(nil, BatchHead{From: NodeRef{ID: "node-1", Epoch: 7}, Number: 1}), &envelope)
	var f Frame
	var e Envelope
	if _, rest, err := DecodeBatchHead(batch); err != nil {
		t.Fatal(err)
	} else if _, err = NextEnvelope(rest, &e); err != nil { // e has its slices now
		t.Fatal(err)
	}
	reg := wireRegistry(t)
	message := &wirepb.SessionClosed{}
	for name, run := range map[string]func(){
		"AppendPacketFrame": func() { buf = AppendPacketFrame(buf[:0], &frame) },
		"NextFrame":         func() { _, _ = NextFrame(packet, &f) },
		"append a batch": func() {
			buf = AppendBatchEnvelope(AppendBatchHead(buf[:0], BatchHead{From: NodeRef{ID: "node-1"}}), &envelope)
		},
		"read a batch": func() {
			_, rest, _ := DecodeBatchHead(batch)
			_, _ = NextEnvelope(rest, &e)
		},
		"KeyHash":  func() { KeyHash(frame.Body, 1) },
		"IDOf":     func() { IDOf(message) },
		"Registry": func() { reg.Name(10); reg.KeyField(10) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
