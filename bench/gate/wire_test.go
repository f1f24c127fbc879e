//go:build linux

package gate

import (
	"strings"
	"testing"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// ofGate is what a gate sends of a frame.
func ofGate(f *zmsg.Frame) []byte {
	p := zmsg.AppendPacketFrame(nil, f)
	if len(p) < 126 {
		return append([]byte{0x82, byte(len(p))}, p...)
	}
	return append([]byte{0x82, 126, byte(len(p) >> 8), byte(len(p))}, p...)
}

// A request has the number that it was given, and its answer counts only as it is to be.
func TestGateWire(t *testing.T) {
	t.Parallel()
	w := newGateWire(echoID, rawBody())
	for _, n := range []uint64{0, 1, 127, 1 << 20} {
		b := w.request(nil, n)
		var f zmsg.Frame
		if _, err := zmsg.NextFrame(b[6:], &f); err != nil || f.Seq != firstSeq+n || f.ID != echoID || len(f.Body) != messageBytes {
			t.Fatalf("request %d is %+v: %v", n, f, err)
		}
	}
	good := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, ID: echoID, Seq: firstSeq + 5, Body: rawBody()}
	whole := ofGate(&good)
	for n := range whole {
		if _, size, err := w.next(whole[:n]); size != 0 || err != nil {
			t.Fatalf("%d of %d bytes are a message: %v", n, len(whole), err)
		}
	}
	if m, size, err := w.next(whole); m.kind != answer || m.number != 5 || size != len(whole) || err != nil {
		t.Errorf("got %+v, %d, %v", m, size, err)
	}
	bad := good
	bad.Body = append([]byte{1}, rawBody()[1:]...)
	if _, _, err := w.next(ofGate(&bad)); err == nil || !strings.Contains(err.Error(), "was answered with 01") {
		t.Errorf("wrong body: %v", err)
	}
	bad = zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, Seq: firstSeq, Code: zmsg.CodeBusy}
	if _, _, err := w.next(ofGate(&bad)); err == nil || !strings.Contains(err.Error(), "was answered busy") {
		t.Errorf("error: %v", err)
	}
	pushed := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: pushID, Seq: 3, Body: make([]byte, 1000)}
	stamp(pushed.Body, 77, 2)
	m, size, err := w.next(ofGate(&pushed))
	at, number := stampOf(m.body)
	if m.kind != push || m.number != 3 || size == 0 || err != nil || at != 77 || number != 2 {
		t.Errorf("got %+v, %d, %v", m, size, err)
	}
}

func TestTCPWire(t *testing.T) {
	t.Parallel()
	w := &tcpWire{}
	b := w.request(nil, 9)
	if m, size, err := w.next(b); m.kind != answer || m.number != 9 || size != messageBytes || err != nil {
		t.Errorf("got %+v, %d, %v", m, size, err)
	}
	if _, size, _ := w.next(b[1:]); size != 0 {
		t.Error("63 bytes are a message")
	}
}

// A client that gets what was not to come next says so.
func TestPushesCount(t *testing.T) {
	t.Parallel()
	s := &sock{wire: newGateWire(echoID, rawBody()), got: 4}
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, Seq: 6, Body: make([]byte, 16)}
	if _, err := pushes(s, ofGate(&f), func(message) {}); err == nil || !strings.Contains(err.Error(), "push 6 came where 5") {
		t.Errorf("got %v", err)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	least := Row{TCP: true, Must: 2, Aim: 1.5}
	most := Row{Most: true, Must: 3, Aim: 5}
	for _, c := range []struct {
		r    Result
		want string
	}{
		{Result{Row: least, TCP: []float64{1, 2, 4}, Gate: []float64{1.4, 3, 16}}, "aim"},
		{Result{Row: least, TCP: []float64{1}, Gate: []float64{2}}, "ok"},
		{Result{Row: least, TCP: []float64{1}, Gate: []float64{2.1}}, "**missed**"},
		{Result{Row: least, Gate: []float64{2.1}}, ""},
		{Result{Row: most, Gate: []float64{5}}, "aim"},
		{Result{Row: most, Gate: []float64{3}}, "ok"},
		{Result{Row: most, Gate: []float64{2.9}}, "**missed**"},
		{Result{Row: Row{Unit: allocations, Must: 1}, Gate: []float64{0.03}}, "aim"},
		{Result{Row: Row{}, Gate: []float64{2.9}}, ""},
	} {
		if got := c.r.Verdict(); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.r, got, c.want)
		}
	}
}
