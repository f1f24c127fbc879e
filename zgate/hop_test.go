//go:build !race && !invariants

package zgate

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zroute"
)

// hopEcho is an actor that answers with what came.
type hopEcho struct{ reply zmsg.Reply }

func (e *hopEcho) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleRaw(9, func(_ *zactor.Context, m *zmsg.Message) error {
		e.reply = zmsg.Reply{ID: 9, Body: m.Body()}
		m.Reply(&e.reply)
		return nil
	}, zactor.FromClients())}
}

// hopRig is a session without a socket whose requests go to an actor.
type hopRig struct {
	s      *Session
	c      *conn
	buf    *bytes.Buffer
	packet []byte
}

func newHopRig(tb testing.TB) *hopRig {
	tb.Helper()
	local := new(zroute.Local)
	d, err := zroute.New(zroute.Config{Node: testNode, Local: local})
	if err != nil {
		tb.Fatal(err)
	}
	group, err := zactor.NewGroup(zactor.Config{Node: testNode, Routes: local})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = group.Shutdown(tb.Context()) })
	if _, err := group.Spawn("echo", func() zactor.Actor { return &hopEcho{} }); err != nil {
		tb.Fatal(err)
	}
	r := newRig(tb, func(c *Config) { c.Logger, c.Rate, c.ByteRate, c.Dispatcher = nil, -1, -1, d })
	h := &hopRig{c: &conn{g: r.Gate, nc: &deafConn{}, tr: &deafConn{}, readAt: time.Now()}, buf: new(bytes.Buffer)}
	h.c.timer.conn = h.c
	h.s = &Session{g: r.Gate, user: "ann", ref: zmsg.SessionRef{Gate: testNode, ID: 1, Gen: 1}, rate: newRates(r.allowed, r.now())}
	h.s.c.Store(h.c)
	h.c.session.Store(h.s)
	h.c.corked.Store(true)
	h.packet = zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: 9, Seq: 7, Body: make([]byte, 64)})
	tb.Cleanup(func() { r.wheel.remove(&h.c.timer) })
	return h
}

// burst is n requests, until all are answered.
func (h *hopRig) burst(tb testing.TB, n int) {
	tb.Helper()
	for range n {
		h.buf.Reset()
		h.buf.Write(h.packet)
		if v := h.s.handle(h.c, message{opBinary, h.buf.Bytes()}); v != nil {
			tb.Fatal(v)
		}
	}
	for h.s.g.requests.Load() > 0 {
		runtime.Gosched()
	}
	h.c.reset()
}

// A request to an actor and its answer do not allocate either.
func TestHopAllocates(t *testing.T) {
	h := newHopRig(t)
	if n := testing.AllocsPerRun(200, func() { h.burst(t, 16) }); n > 1 {
		t.Errorf("%v allocations for 16 requests to an actor", n)
	}
}

// BenchmarkHop is a request to an actor and its answer, without a socket, 16 at once.
func BenchmarkHop(b *testing.B) {
	h := newHopRig(b)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.ReportAllocs()
	for b.Loop() {
		h.burst(b, 16)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/request")
}
