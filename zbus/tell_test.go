package zbus_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zmsg"
)

// One-way messages that are told in runs, and all others, come in the order in which they were sent, each with what it was sent with;
// and they are counted as the others are.
func TestTellsInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const total = 20_000
		type arrived struct {
			to    uint64
			id    uint32
			body  string
			from  zmsg.Address
			trace zmsg.TraceID
			told  bool
		}
		got := make(chan arrived, total)
		b := c.start(t, "b", zbus.Handlers{
			Actor: func(to uint64, m *zmsg.Message) {
				got <- arrived{to: to, id: m.ID, body: string(m.Body()), from: m.From, trace: m.Trace.ID}
				echo(to, m)
			},
			Tells: func(to uint64, a *zmsg.Arrival, list []zmsg.Told) {
				for _, x := range list {
					m := zmsg.OpenMessage(a, x)
					if x.To != to || x.ID != m.ID {
						t.Errorf("told %+v for %d", x, to)
					}
					got <- arrived{to, m.ID, string(m.Body()), m.From, m.Trace.ID, true}
					m.Release()
				}
			},
		})
		a := c.start(t, "a", zbus.Handlers{})
		o := newOutcomes(total)
		want := make([]arrived, total)
		asked := 0
		r := rand.New(rand.NewPCG(1, 2))
		for i := range want {
			w := arrived{to: 1 + uint64(r.IntN(20))/17, id: uint32(1 + r.IntN(3)), body: fmt.Sprint(i), told: true}
			m := zmsg.NewMessage(w.id)
			m.SetBody([]byte(w.body))
			if r.IntN(3) == 0 {
				w.from = zmsg.Address{Node: a.ref, Actor: 1 + r.Uint64N(1000)}
				m.From = w.from
			}
			if r.IntN(3) == 0 {
				w.trace = zmsg.TraceID{1, byte(i)}
				m.Trace.ID = w.trace
			}
			to := zmsg.Address{Node: b.ref, Actor: w.to}
			switch r.IntN(12) {
			case 0: // a request
				w.told = false
				asked++
				a.sendUntil(t, func() error { return a.Send(to, m, o, 1) })
			case 1: // one-way, with more to say
				w.told = false
				m.User = "ann"
				a.sendUntil(t, func() error { return a.Send(to, m, nil, 0) })
			case 2: // by its value
				v := &wrapperspb.StringValue{Value: strings.Repeat("x", r.IntN(300))}
				m.Value = v
				m.BorrowBody(nil)
				body, err := m.EncodedBody()
				if err != nil {
					t.Fatal(err)
				}
				w.body = string(body)
				a.sendUntil(t, func() error {
					return a.Tell(b.ref, zmsg.Tell{To: w.to, From: w.from.Actor, ID: w.id, Trace: w.trace}, v)
				})
			default:
				a.sendUntil(t, func() error { return a.Send(to, m, nil, 0) })
			}
			m.Release()
			want[i] = w
		}
		for i := range want {
			if have := receiveWithin(t, got); have != want[i] {
				t.Fatalf("message %d: have %+v\nwant %+v", i, have, want[i])
			}
		}
		for range asked {
			if out := o.next(t); out.code != zmsg.CodeOK {
				t.Fatalf("an outcome is %v", out.code)
			}
		}
		eventually(t, "all counted", func() bool { return b.count(t, "envelopes_received_total", "actor") == total })
		eventually(t, "all counted as sent", func() bool { return a.count(t, "envelopes_sent_total", "actor") == total })
	})
}

// What cannot be sent is refused, and what comes behind is not touched by it.
func TestTellRefused(t *testing.T) {
	t.Parallel()
	hub := membus.NewHub(membus.Config{MaxPayload: 1 << 20})
	c := cluster{bus: func(testing.TB) zbus.Bus { return hub.Bus() }}
	got := make(chan string, 10)
	b := c.start(t, "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { got <- string(m.Body()); m.Release() }})
	a := c.start(t, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.OutboxBytes = 4 << 20 })
	text := func(s string) *wrapperspb.StringValue { return &wrapperspb.StringValue{Value: s} }
	tell := zmsg.Tell{To: 1, ID: 1}
	for name, x := range map[string]struct {
		err  error
		code zmsg.Code
	}{
		"bad text":  {a.Tell(b.ref, tell, text("\xff")), zmsg.CodeBadRequest},
		"too large": {a.Tell(b.ref, tell, text(strings.Repeat("x", 2<<20))), zmsg.CodeTooLarge},
		"no node":   {a.Tell(zmsg.NodeRef{}, tell, text("x")), zmsg.CodeUnknownActor},
	} {
		if zmsg.CodeOf(x.err) != x.code || zmsg.OutcomeOf(x.err) != zmsg.NotExecuted {
			t.Errorf("%s: %v, want code %v", name, x.err, x.code)
		}
	}
	if err := a.Tell(b.ref, tell, text("good")); err != nil {
		t.Fatal(err)
	}
	if have := receiveWithin(t, got); have != "\x0a\x04good" {
		t.Errorf("got %d bytes, %.20q", len(have), have)
	}
	hub.SetUp(false)
	eventually(t, "down", func() bool { return !a.Up() })
	if err := a.Tell(b.ref, tell, text("x")); zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Errorf("got %v while the bus is down", err)
	}
}

// The outbox's bound by bytes holds for what is encoded in place too.
func TestTellBytesAreBounded(t *testing.T) {
	t.Parallel()
	gate := newGateBus(newMem().bus(t))
	a := startOn(t, gate, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.OutboxBytes = 10_000 })
	v := &wrapperspb.StringValue{Value: strings.Repeat("x", 3000)}
	to := zmsg.NodeRef{ID: "b", Epoch: 1}
	taken := 0
	for range 20 {
		err := a.Tell(to, zmsg.Tell{To: 1, ID: 1}, v)
		if err == nil {
			taken++
		} else if zmsg.CodeOf(err) != zmsg.CodeBusy {
			t.Fatal(err)
		}
	}
	if taken != 3 {
		t.Errorf("%d taken, want 3", taken)
	}
	close(gate.released)
}
