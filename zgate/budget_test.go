//go:build !race && !invariants

package zgate

import (
	"bytes"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// reset forgets what is queued, as if it had been written.
func (c *conn) reset() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for i := range c.q.segs {
		if ch := c.q.segs[i].chunk; ch != nil {
			ch.free()
		}
	}
	c.q.segs, c.q.queued = c.q.segs[:0], 0
}

// The way of a request through the gate, from the websocket message to the queued response, does not allocate; neither
// does a push.
func TestAllocationBudget(t *testing.T) {
	reply := &zmsg.Reply{ID: 2, Body: make([]byte, 64)}
	r := newRig(t, func(c *Config) {
		c.Rate, c.ByteRate = -1, -1
		c.Tell = func(zmsg.Address, *zmsg.Message) error { return nil }
		c.Handlers[1] = func(_ *Session, m *zmsg.Message) {
			m.Reply(reply)
			m.Release()
		}
	})
	c := &conn{g: r.Gate, nc: &deafConn{}, tr: &deafConn{}, readAt: time.Now()}
	c.timer.conn = c
	s := &Session{g: r.Gate, user: "ann", ref: zmsg.SessionRef{Gate: testNode, ID: 1, Gen: 1}, rate: newRates(r.allowed, r.now())}
	s.c.Store(c)
	c.session.Store(s)
	c.corked.Store(true)
	packet := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: 1, Seq: 7, Body: make([]byte, 64)})
	buf := new(bytes.Buffer)
	if n := testing.AllocsPerRun(1000, func() {
		buf.Reset()
		buf.Write(packet)
		if v := s.handle(c, message{opBinary, buf.Bytes()}); v != nil {
			t.Fatal(v)
		}
		c.reset()
	}); n > 0 {
		t.Errorf("%v allocations for a request", n)
	}
	p := &zmsg.Push{ID: 9, Body: make([]byte, 64)}
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Push(p); err != nil {
			t.Fatal(err)
		}
		c.reset()
	}); n > 0 {
		t.Errorf("%v allocations for a push", n)
	}
	// Neither does it where all of it is kept until the client says that it has it.
	s.resume = &resumption{window: time.Minute, shown: true}
	ack := control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: 1 << 40}}})
	packet = zmsg.AppendPacketFrame(packet, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: ack})
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Push(p); err != nil {
			t.Fatal(err)
		}
		buf.Reset()
		buf.Write(packet)
		c.control.tokens = controlBurst
		if v := s.handle(c, message{opBinary, buf.Bytes()}); v != nil {
			t.Fatal(v)
		}
		c.reset()
	}); n > 0 {
		t.Errorf("%v allocations for a request and a push that are kept", n)
	}
	if n := s.resume.log.Len(); n > 1 {
		t.Errorf("%d frames are kept", n)
	}
	s.resume = nil
	// A push of an object that the session is bound to costs no memory either.
	r.sessions.put(s)
	b := zmsg.Binding{
		Key: zmsg.Key{Type: 2, ID: "go"}, Version: 1, Since: 1, Owner: zmsg.Address{Node: testNode, Actor: 9}, Gate: testNode,
		Sessions: []zmsg.SessionRef{s.ref},
	}
	if err := r.Bind(&b); err != nil {
		t.Fatal(err)
	}
	p = &zmsg.Push{ID: 9, Body: make([]byte, 64), Key: b.Key, Version: 1}
	ids := []uint64{s.ref.ID}
	if n := testing.AllocsPerRun(1000, func() {
		p.No++
		if err := r.Push(s.ref, p); err != nil {
			t.Fatal(err)
		}
		p.No++
		if _, failed := r.PushIDs(ids, p); failed > 0 {
			t.Fatal("failed")
		}
		c.reset()
	}); n > 0 {
		t.Errorf("%v allocations for two pushes of an object", n)
	}
	r.objects.leave(s.objects[0], s)
	r.wheel.remove(&c.timer)
}

// BenchmarkPush is a push into the queue of one session: of nobody's, and of an object that the session is bound to.
func BenchmarkPush(b *testing.B) {
	for _, of := range []string{"plain", "object", "kept"} {
		b.Run(of, func(b *testing.B) {
			r := newRig(b, func(c *Config) { c.Logger, c.Tell = nil, func(zmsg.Address, *zmsg.Message) error { return nil } })
			o := newBoundRig(r, 1)
			defer o.end()
			p := &zmsg.Push{ID: 9, Body: make([]byte, 64)}
			if of == "kept" {
				o.s.resume = &resumption{window: time.Minute, shown: true}
			}
			if of == "object" {
				if err := o.bind(1, 0, 1, false); err != nil {
					b.Fatal(err)
				}
				p.Key, p.Version = o.b.Key, 1
			}
			b.ReportAllocs()
			for b.Loop() {
				p.No++
				if err := r.Push(o.s.ref, p); err != nil {
					b.Fatal(err)
				}
				if p.No%32 == 0 {
					o.s.ack(o.s.c.Load(), p.No, 0)
				}
				o.s.c.Load().reset()
			}
		})
	}
}
