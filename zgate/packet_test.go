package zgate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zroute"
)

// dispatch is a Dispatcher made of a function.
type dispatch func(m *zmsg.Message) (zroute.Result, int, error)

func (f dispatch) Dispatch(m *zmsg.Message) (zroute.Result, int, error) { return f(m) }

// Each outcome of a request has its count and its one response.
func TestOutcomes(t *testing.T) {
	const local, remote, busy, none, failed, dispatchPanics, object = 1, 2, 3, 4, 5, 6, 7
	var got atomic.Pointer[zmsg.Message]
	begin := time.Now()
	r := newRig(t, func(c *Config) {
		c.Dispatcher = dispatch(func(m *zmsg.Message) (zroute.Result, int, error) {
			switch m.ID {
			case local, remote, object:
				cp := *m
				got.Store(&cp)
				m.Reply(&zmsg.Reply{ID: 77, Body: m.Body()})
				return map[uint32]zroute.Result{local: zroute.OnLocal, remote: zroute.OnRemote, object: zroute.OnObject}[m.ID], 0, nil
			case busy:
				return zroute.Busy, 0, &zmsg.Error{Code: zmsg.CodeBusy, Text: "mailbox full"}
			case failed:
				return zroute.Failed, 2, &zmsg.Error{Code: zmsg.CodeTooLarge, Outcome: zmsg.NotExecuted}
			case dispatchPanics:
				panic("in the dispatcher")
			}
			return zroute.NoRoute, 3, &zmsg.Error{Code: zmsg.CodeNoRoute, Text: "3 tried"}
		})
	})
	c := r.login("ann")
	for _, tt := range []struct {
		id      uint32
		code    zmsg.Code
		outcome string
	}{
		{idEcho, zmsg.CodeOK, "gate"},
		{idPanic, zmsg.CodePanicked, "failed"},
		{local, zmsg.CodeOK, "local"},
		{remote, zmsg.CodeOK, "remote"},
		{object, zmsg.CodeOK, "object"},
		{busy, zmsg.CodeBusy, "busy"},
		{none, zmsg.CodeNoRoute, "no_route"},
		{failed, zmsg.CodeTooLarge, "failed"},
		{dispatchPanics, zmsg.CodePanicked, "failed"},
		{0, zmsg.CodeBadRequest, "rejected"},
	} {
		before, all := r.counter("messages_total", tt.outcome), r.counter("messages_total")
		f := c.call(tt.id, "body")
		if f.Code != tt.code || tt.code != 0 && f.ID != 0 {
			t.Errorf("id %d: %+v, expected %v", tt.id, f, tt.code)
		}
		// The count may follow the response.
		eventually(t, tt.outcome+" counted", func() bool { return r.counter("messages_total", tt.outcome) == before+1 })
		if n := r.counter("messages_total"); n != all+1 {
			t.Errorf("id %d: counted %v times", tt.id, n-all)
		}
	}
	// One-way: no response, whatever becomes of it.
	for _, id := range []uint32{local, remote, busy, none, failed, dispatchPanics, idPanic, 0} {
		c.send(request(id, 0, "x"))
	}
	c.echo("only this")
	m := got.Load()
	if m.User != "ann" || m.Session != c.ref() || !m.Client || m.Trace.IsZero() || m.Deadline.IsZero() {
		t.Errorf("message %+v", m)
	}
	if n := strings.Count(r.log.String(), "stack="); n != 4 {
		t.Errorf("%d stacks logged", n)
	}
	if n := strings.Count(r.log.String(), "no node took a message"); n < 1 || n > 1+int(time.Since(begin)/time.Second) {
		t.Errorf("%d no-route warnings: they are to be rate limited", n)
	}
	eventually(t, "no request is in flight", func() bool { return r.requests.Load() == 0 }) // that may follow the response
}

// A timeout of the client is the deadline, within the gate's bound.
func TestDeadline(t *testing.T) {
	deadlines := make(chan time.Time, 1)
	r := newRig(t, func(c *Config) {
		c.MaxRequestTimeout = 20 * time.Second
		c.Dispatcher = dispatch(func(m *zmsg.Message) (zroute.Result, int, error) {
			deadlines <- m.Deadline
			return zroute.NoRoute, 0, nil
		})
	})
	c := r.login("ann")
	for _, tt := range []struct {
		ms   uint32
		want time.Duration
	}{{0, 10 * time.Second}, {1500, 1500 * time.Millisecond}, {3_600_000, 20 * time.Second}} {
		f := request(1, 1, "")
		f.TimeoutMs = tt.ms
		before := time.Now()
		c.send(f)
		d := <-deadlines
		if d.Before(before.Add(tt.want)) || d.After(time.Now().Add(tt.want)) {
			t.Errorf("timeout_ms %d: deadline in %v", tt.ms, d.Sub(before))
		}
		c.next()
	}
}

func TestOnNoRoute(t *testing.T) {
	type held struct {
		r     zmsg.Replier
		token uint64
	}
	later := make(chan held, 1)
	r := newRig(t, func(c *Config) {
		c.OnNoRoute = func(m *zmsg.Message, _ int) (*zmsg.Reply, bool) {
			switch m.ID {
			case 1:
				return &zmsg.Reply{ID: 2, Body: []byte("from the hook: " + string(m.Body()))}, true
			case 2:
				m.ReplyError(zmsg.Errorf(1234, "by itself"))
				return nil, true
			case 3:
				replier, token := m.TakeReplier()
				later <- held{replier, token}
				return nil, true
			case 4:
				return nil, true // silence
			case 5:
				panic("in the hook")
			}
			return nil, false
		}
	})
	c := r.login("ann")
	if f := c.call(1, "x"); f.ID != 2 || string(f.Body) != "from the hook: x" {
		t.Errorf("reply: %+v", f)
	}
	if f := c.call(2, "x"); f.Code != 1234 || f.Text != "by itself" {
		t.Errorf("by itself: %+v", f)
	}
	c.send(request(3, 33, ""))
	h := <-later
	h.r.Reply(h.token, &zmsg.Reply{ID: 9})
	if f := c.next(); f.Seq != 33 || f.ID != 9 {
		t.Errorf("later: %+v", f)
	}
	h.r.Reply(h.token, &zmsg.Reply{ID: 9}) // a second one is counted alone
	c.send(request(4, 44, ""))
	if f := c.call(5, ""); f.Code != zmsg.CodePanicked {
		t.Errorf("panic: %+v", f)
	}
	if f := c.call(6, ""); f.Code != zmsg.CodeNoRoute || f.Outcome != zmsg.NotExecuted {
		t.Errorf("not handled: %+v", f)
	}
	for outcome, n := range map[string]float64{"no_route_hook": 3, "silenced": 1, "no_route": 1, "failed": 1} {
		if got := r.counter("messages_total", outcome); got != n {
			t.Errorf("%s: %v, expected %v", outcome, got, n)
		}
	}
	if n := r.counter("drops_total", "late"); n != 1 {
		t.Errorf("%v late replies", n)
	}
	eventually(t, "no request is in flight", func() bool { return r.requests.Load() == 0 }) // that may follow the response
}

// F3: every short and bent message is a protocol error, and no panic. One connection each; the others go on.
func TestBrokenPackets(t *testing.T) {
	r := newRig(t)
	other := r.login("other")
	good := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: 1, Body: []byte("abc")})
	broken := map[string][]byte{
		"empty": {}, "kind 0": zmsg.AppendPacketFrame(nil, &zmsg.Frame{ID: 1}),
		"a response": zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 2, ID: 1, Seq: 1}),
		"a push":     zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 3, ID: 1}),
		"kind 99":    zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 99, ID: 1}),
		"huge field": {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"bad group":  {0x0b, 0x0b, 0x0b, 0x0b},
		"65 frames":  bytes.Repeat(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho}), 65),
		"no control": zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x0a, 0x05}}),
	}
	for n := 1; n < len(good); n++ {
		broken[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	for name, b := range broken {
		c := r.login("ann")
		if err := c.ws.write(opBinary, b); err != nil {
			t.Fatal(err)
		}
		if text, _ := c.closedWith(CloseProtocol); text == "" {
			t.Errorf("%s: no text", name)
		}
	}
	other.echo("still here")
	c := r.login("ann")
	frames := make([]zmsg.Frame, 64)
	for i := range frames {
		frames[i] = request(idEcho, uint64(i+1), "x")
	}
	c.send(frames...) // 64 are fine
	for i := range frames {
		if f := c.next(); f.Seq != uint64(i+1) {
			t.Fatalf("response %d: %+v", i+1, f)
		}
	}
}

// F7: a wrong request has the same fate in both codecs, and so has a wrong packet.
func TestSameFateInBothCodecs(t *testing.T) {
	r := newRig(t)
	for _, o := range []dialing{{}, {text: true}} {
		c := r.login("ann", o)
		for id, code := range map[uint32]zmsg.Code{0: zmsg.CodeBadRequest, idUnknown: zmsg.CodeNoRoute, idPanic: zmsg.CodePanicked} {
			if f := c.call(id, "\x00\x01"); f.Code != code {
				t.Errorf("text %v, id %d: %+v", o.text, id, f)
			}
		}
		c.send(zmsg.Frame{Kind: 2, ID: 1, Seq: 1})
		c.closedWith(CloseProtocol)
	}
	// What only text can have wrong in one request ends that request, with its seq.
	c := r.login("ann", dialing{text: true})
	if err := c.ws.write(opText, []byte(`{"frames":[{"kind":"FRAME_KIND_REQUEST","seq":"9","type":"no.such.Type","json":{}}]}`)); err != nil {
		t.Fatal(err)
	}
	if f := c.next(); f.Seq != 9 || f.Code != zmsg.CodeBadRequest || f.Text == "" {
		t.Errorf("unknown type: %+v", f)
	}
	c.echo("goes on")
}

// Requests in flight keep their own bytes: nothing aliases the buffer that messages are read into. With -tags
// invariants that buffer is overwritten after each message.
func TestRequestsInFlightKeepTheirBytes(t *testing.T) {
	r := newRig(t)
	c := r.login("ann")
	const n = 100
	for i := range n {
		c.send(request(idHeld, uint64(i+1), strings.Repeat(string(rune('a'+i%26)), 200+i)))
	}
	var msgs []*zmsg.Message
	for range n {
		msgs = append(msgs, <-r.held)
	}
	for _, m := range msgs {
		m.Reply(&zmsg.Reply{ID: 1, Body: m.Body()})
		m.Release()
	}
	for i := range n {
		f := c.next()
		if want := strings.Repeat(string(rune('a'+i%26)), 200+i); f.Seq != uint64(i+1) || string(f.Body) != want {
			t.Fatalf("response %d has seq %d and %.20q", i+1, f.Seq, f.Body)
		}
	}
}

// The gate answers at the deadline by itself; what comes later is counted, and does not meet the next request with
// the same seq.
func TestTimeout(t *testing.T) {
	r := newRig(t)
	c := r.login("ann")
	f := request(idHeld, 5, "")
	f.TimeoutMs = 50
	c.send(f)
	late := <-r.held
	if f := c.next(); f.Seq != 5 || f.Code != zmsg.CodeTimeout {
		t.Fatalf("no timeout: %+v", f)
	}
	c.send(request(idHeld, 5, ""))
	second := <-r.held
	late.Reply(&zmsg.Reply{ID: 1, Body: []byte("late")})
	second.Reply(&zmsg.Reply{ID: 1, Body: []byte("right")})
	if f := c.next(); string(f.Body) != "right" {
		t.Errorf("%+v", f)
	}
	if n := r.counter("drops_total", "late"); n != 1 {
		t.Errorf("%v late", n)
	}
	if n := r.counter("responses_total", "timeout"); n != 1 {
		t.Errorf("%v timeouts", n)
	}
}

// A session that ends takes its requests along: replies are counted and go nowhere.
func TestReplyToEndedSession(t *testing.T) {
	r := newRig(t)
	c := r.login("ann")
	c.send(request(idHeld, 1, ""))
	m := <-r.held
	c.ws.end()
	eventually(t, "session gone", func() bool { return r.Sessions() == 0 })
	m.Reply(&zmsg.Reply{ID: 1})
	if n := r.counter("drops_total", "closed"); n != 1 {
		t.Errorf("%v drops", n)
	}
	if n := r.requests.Load(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestTooManyInFlight(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInFlight = 3 })
	c := r.login("ann")
	for seq := range uint64(4) {
		c.send(request(idHeld, seq+1, ""))
	}
	if f := c.next(); f.Seq != 4 || f.Code != zmsg.CodeBusy {
		t.Fatalf("the fourth: %+v", f)
	}
	(<-r.held).Reply(&zmsg.Reply{ID: 1})
	c.next()
	c.echo("a place is free")
}

// A burst that the reader takes in one go is answered in one write; answers that come from elsewhere do not wait.
func TestAnswersOfOthersDoNotWait(t *testing.T) {
	r := newRig(t)
	c := r.login("ann")
	c.send(request(idHeld, 1, "a"), request(idEcho, 2, "b"), request(idHeld, 3, "c"))
	if f := c.next(); f.Seq != 2 {
		t.Fatalf("%+v", f)
	}
	var wg sync.WaitGroup
	for range 2 {
		m := <-r.held
		wg.Go(func() { m.Reply(&zmsg.Reply{ID: 1, Body: m.Body()}) })
	}
	wg.Wait()
	got := string(c.next().Body) + string(c.next().Body)
	if got != "ac" && got != "ca" {
		t.Errorf("%q", got)
	}
}

func TestReplyValueAndBadValue(t *testing.T) {
	r := newRig(t)
	for _, o := range []dialing{{}, {text: true}} {
		c := r.login("ann", o)
		c.send(request(idHeld, 1, ""), request(idHeld, 2, ""), request(idHeld, 3, ""))
		(<-r.held).Reply(&zmsg.Reply{ID: 8, Value: &wirepb.Ping{Nonce: 300}})
		f := c.next()
		var p wirepb.Ping
		if err := proto.Unmarshal(f.Body, &p); err != nil || p.GetNonce() != 300 {
			t.Errorf("value: %+v", f)
		}
		(<-r.held).Reply(&zmsg.Reply{ID: 8, Value: &wirepb.Hello{Token: "\xff"}})
		if f := c.next(); f.Code != zmsg.CodeInternal || f.Seq != 2 {
			t.Errorf("value that cannot be encoded: %+v", f)
		}
		(<-r.held).Reply(&zmsg.Reply{Code: 1001, Text: "bad \xff text"})
		if f := c.next(); f.Code != 1001 || f.Seq != 3 {
			t.Errorf("text that is not UTF-8: %+v", f)
		}
	}
}

func TestNewTrace(t *testing.T) {
	seen := map[zmsg.TraceID]bool{}
	g := &Gate{traces: 77}
	conns := []*conn{{g: g}, {g: g}}
	for i := range 2000 {
		id := conns[i%2].newTrace()
		if id.IsZero() || seen[id] {
			t.Fatal("zero or twice")
		}
		seen[id] = true
	}
}

// Whatever the bytes of a message are, the gate neither panics nor answers a request more than once.
func FuzzMessage(f *testing.F) {
	f.Add(false, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: 1, Body: []byte("x")}))
	f.Add(false, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x1a, 0}}))
	f.Add(true, []byte(`{"frames":[{"kind":"FRAME_KIND_REQUEST","id":100,"seq":"1","body":"eA=="}]}`))
	f.Add(true, []byte(`{"frames":[{"kind":4,"control":{"ping":{"nonce":"1"}}}]}`))
	f.Add(false, binary.AppendUvarint([]byte{0x0a}, 1<<63))
	r := newRig(f, func(c *Config) { c.Rate, c.MaxMessage, c.Logger = -1, 1<<20, nil })
	f.Fuzz(func(t *testing.T, text bool, b []byte) {
		nc := &deafConn{}
		c := &conn{g: r.Gate, nc: nc, tr: nc, readAt: time.Now()}
		c.timer.conn = c
		c.text.Store(text)
		c.control = bucket{tokens: controlBurst}
		s := &Session{g: r.Gate, user: "ann", ref: zmsg.SessionRef{Gate: testNode, ID: 1, Gen: 1}, rate: newRates(r.allowed, 0)}
		s.c.Store(c)
		c.session.Store(s)
		c.corked.Store(true) // nothing is written
		op := opBinary
		if text {
			op = opText
		}
		_ = s.handle(c, message{op, b})
		c.finish()
		for n := s.requests.close(); n > 0; n-- {
			r.requestDone()
		}
		r.wheel.remove(&c.timer)
		for len(r.held) > 0 {
			<-r.held
		}
	})
}
