package zgate

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// F11 of known-faults.md: what clients say never becomes a label: the number of series does not grow with clients, whatever they send.
func TestClientsMakeNoSeries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	series := func() (n int) {
		families, err := r.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	visit := func(i int) {
		name := fmt.Sprintf("user-%d-\xff", i)
		c := r.dialRaw(true)
		hello, err := proto.Marshal(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{
			Token: fmt.Sprint("user", i), Client: fmt.Sprint("client", i), Resume: fmt.Sprint("resume", i), ResumeWindowMs: 1000,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		c.frame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: hello}))
		c.frame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: uint32(1000 + i), Seq: 1, Body: []byte(name)}))
		c.frame(0x88, append([]byte{0x0f, byte(0xa0 + i%50)}, fmt.Sprint("bye", i)...)) // 4000 and up
		for {
			if _, _, err := c.wsRead(); err != nil {
				break
			}
		}
		_ = c.Close()
	}
	for i := range 5 {
		visit(i)
	}
	eventually(t, "all are gone", func() bool { return r.counter("connections") == 0 })
	before := series()
	for i := range 200 {
		visit(i + 5)
	}
	eventually(t, "all are gone", func() bool { return r.counter("connections") == 0 })
	if n := series(); n > before+5 {
		t.Errorf("%d series, before 200 clients %d", n, before)
	}
}
