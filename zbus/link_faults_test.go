package zbus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// receiveWithin is a receive that fails the test instead of hanging.
func receiveWithin[T any](tb testing.TB, ch <-chan T) (x T) {
	tb.Helper()
	select {
	case x = <-ch:
	case <-time.After(within):
		tb.Fatal("nothing came")
	}
	return x
}

// gateBus is a bus whose Publish waits while it is shut, and counts.
type gateBus struct {
	zbus.Bus
	mu       sync.Mutex
	batches  int
	sizes    []int
	entered  chan struct{}
	released chan struct{}
	err      error
}

func newGateBus(b zbus.Bus) *gateBus {
	return &gateBus{Bus: b, entered: make(chan struct{}, 1<<16), released: make(chan struct{})}
}

func (g *gateBus) Publish(subject, reply string, data []byte) error {
	g.entered <- struct{}{}
	<-g.released
	g.mu.Lock()
	defer g.mu.Unlock()
	g.batches++
	g.sizes = append(g.sizes, len(data))
	if g.err != nil {
		return g.err
	}
	return g.Bus.Publish(subject, reply, data)
}

// TestBatching: what comes while the bus is busy travels together, in batches of the configured size; what comes alone
// goes alone, at once.
func TestBatching(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	got := make(chan uint64, 2000)
	b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { got <- m.Seq; m.Release() }})
	bus := newGateBus(hub.Bus())
	a := startOn(t, bus, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.BatchBytes = 8 << 10 })
	send := func(seq uint64) {
		m := message(strings.Repeat("x", 100))
		defer m.Release()
		m.Seq = seq
		if err := a.Send(zmsg.Address{Node: b.ref, Actor: 1}, m, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	send(0)
	receiveWithin(t, bus.entered) // the outbox is inside Publish with the first
	for i := range 1000 {
		send(uint64(i + 1))
	}
	close(bus.released)
	for want := range uint64(1001) {
		if x := receiveWithin(t, got); x != want {
			t.Fatalf("got %d, want %d", x, want)
		}
	}
	bus.mu.Lock()
	defer bus.mu.Unlock()
	// 1000 x ~111 bytes in batches of 8 KiB.
	if bus.batches < 10 || bus.batches > 20 {
		t.Errorf("%d batches for 1 + 1000 messages", bus.batches)
	}
	for _, n := range bus.sizes {
		if n > 8<<10+64 {
			t.Errorf("a batch of %d bytes", n)
		}
	}
}

// TestBounds: outbox and table of requests are bounded, and full is an error at once.
func TestBounds(t *testing.T) {
	t.Parallel()
	bus := newGateBus(membus.New().Bus())
	a := startOn(t, bus, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.OutboxMessages, c.MaxRequests, c.OutboxBytes = 20, 5, 10_000 })
	to := zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}
	o := newOutcomes(10)
	for i := range 5 {
		if err := a.Send(to, message("x"), o, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Send(to, message("x"), o, 9); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("request above the bound: %v, want ErrBusy", err)
	}
	if err := a.Send(to, message(strings.Repeat("x", 20_000)), nil, 0); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("bytes above the bound: %v, want ErrBusy", err)
	}
	for range 15 {
		if err := a.Send(to, message("x"), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"message": a.Send(to, message("x"), nil, 0), "session": a.SendSession(to.Node, &zmsg.Envelope{}),
		"group": a.PublishGroup(&zmsg.Envelope{Group: "g"}),
	} {
		if !errors.Is(err, zmsg.ErrBusy) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%s above the bound: %v, want ErrBusy", what, err)
		}
	}
	close(bus.released)
	for range 5 {
		if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
			t.Errorf("outcome %+v", x)
		}
	}
	eventually(t, "there is room again", func() bool { return a.Send(to, message("x"), nil, 0) == nil })
}

// TestRefusedByBus: what the bus refuses did not run.
func TestRefusedByBus(t *testing.T) {
	t.Parallel()
	for code, err := range map[zmsg.Code]error{
		zmsg.CodeUnavailable: zbus.ErrDown, zmsg.CodeBusy: zbus.ErrFull, zmsg.CodeTooLarge: zbus.ErrTooLarge,
	} {
		bus := newGateBus(membus.New().Bus())
		bus.err = err
		close(bus.released)
		a := startOn(t, bus, "a", zbus.Handlers{})
		to := zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}
		if err := a.Send(to, message("x"), nil, 0); err != nil {
			t.Fatal(err)
		}
		if x := a.request(t, to, "x", time.Hour); x.code != code || x.out != zmsg.NotExecuted || x.undelivered != (code == zmsg.CodeUnavailable) {
			t.Errorf("%v: outcome %+v", err, x)
		}
		want := 1
		if errors.Is(err, zbus.ErrDown) {
			want = 0 // it is kept
		}
		if n := a.count(t, "dropped_total"); n != want {
			t.Errorf("%v: %d one-way drops counted, want %d", err, n, want)
		}
	}
}

// TestDeadlines runs on virtual time: a request ends at its deadline, or at the default one.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		var kept []*zmsg.Message
		b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { kept = append(kept, m) }})
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.DefaultTimeout = 3 * time.Second })
		to := zmsg.Address{Node: b.ref, Actor: 1}
		start := time.Now()
		o := newOutcomes(10)
		for i, d := range []time.Duration{time.Hour, 0, time.Second, 500 * time.Millisecond} {
			m := message("x")
			if d > 0 {
				m.Deadline = start.Add(d)
			}
			if err := a.Send(to, m, o, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		m := message("x")
		m.Deadline = start
		if err := a.Send(to, m, o, 9); !errors.Is(err, zmsg.ErrTimeout) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("expired before: %v", err)
		}
		for _, want := range []struct {
			token uint64
			after time.Duration
		}{{3, 500 * time.Millisecond}, {2, time.Second}, {1, 3 * time.Second}, {0, time.Hour}} {
			x := <-o.ch
			if x.token != want.token || x.code != zmsg.CodeTimeout || x.out != zmsg.Unknown {
				t.Errorf("outcome %+v, want token %d", x, want.token)
			}
			if late := time.Since(start) - want.after; late < 0 || late > 10*time.Millisecond {
				t.Errorf("token %d ended %v after its deadline", want.token, late)
			}
		}
		synctest.Wait()
		// Replies that come now are late: counted, given to nobody.
		for _, m := range kept {
			m.Reply(&zmsg.Reply{ID: 1})
		}
		synctest.Wait()
		if n := a.count(t, "late_replies_total"); n != 4 || len(o.ch) != 0 {
			t.Errorf("%d late replies counted, want 4; %d outcomes", n, len(o.ch))
		}
	})
}

// TestExpiredIsNotSent: a request whose deadline passes while it waits for the bus is not sent.
func TestExpiredIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) {
			if string(m.Body()) != "first" {
				t.Errorf("%q arrived", m.Body())
			}
			m.Release()
		}})
		bus := newGateBus(hub.Bus())
		a := startOn(t, bus, "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 1}
		if err := a.Send(to, message("first"), nil, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the outbox is inside Publish
		o := newOutcomes(1)
		m := message("second")
		m.Deadline = time.Now().Add(time.Second)
		if err := a.Send(to, m, o, 1); err != nil {
			t.Fatal(err)
		}
		if x := <-o.ch; x.code != zmsg.CodeTimeout || x.out != zmsg.NotExecuted || x.undelivered {
			t.Errorf("outcome %+v, want Timeout, NotExecuted: it was never sent", x)
		}
		close(bus.released)
		synctest.Wait()
	})
}

// TestLost: what waits for a node that discovery lost ends.
func TestLost(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	release := make(chan *zmsg.Message, 1)
	b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { release <- m }})
	c := startOn(t, hub.Bus(), "c", zbus.Handlers{Actor: echo})
	a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
	o := newOutcomes(2)
	if err := a.Send(zmsg.Address{Node: b.ref, Actor: 1}, message("x"), o, 1); err != nil {
		t.Fatal(err)
	}
	m := receiveWithin(t, release)
	a.Lost(b.ref)
	if x := o.next(t); x.code != zmsg.CodeNodeLost || x.out != zmsg.Unknown || x.undelivered {
		t.Errorf("outcome %+v, want NodeLost, Unknown", x)
	}
	m.Reply(&zmsg.Reply{}) // late
	b.Lost(a.ref)
	if x := a.request(t, zmsg.Address{Node: c.ref, Actor: 1}, "x", within); x.body != "x" {
		t.Errorf("another node: %+v", x)
	}
	// The same node again, as when discovery was wrong: a new lane.
	if err := a.Send(zmsg.Address{Node: b.ref, Actor: 1}, message("y"), o, 2); err != nil {
		t.Fatal(err)
	}
	m = receiveWithin(t, release)
	m.Reply(&zmsg.Reply{Body: []byte("y")})
	if x := o.next(t); x.body != "y" {
		t.Errorf("outcome %+v", x)
	}
	a.Lost(zmsg.NodeRef{ID: "never"})
}

// forged publishes one envelope in the name of a node.
func forged(t *testing.T, bus zbus.Bus, subject string, h zmsg.BatchHead, e *zmsg.Envelope) {
	t.Helper()
	if err := bus.Publish(subject, "", zmsg.AppendBatchEnvelope(zmsg.AppendBatchHead(nil, h), e)); err != nil {
		t.Fatal(err)
	}
}

// TestRepliesMeetTheirRequestOnly is fault N10: double, late and foreign replies are counted and given to nobody.
func TestRepliesMeetTheirRequestOnly(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
	bus := hub.Bus()
	ref := zmsg.NodeRef{ID: "b", Epoch: 1}
	requests := make(chan uint64, 10)
	r, err := bus.Receive(func(m zbus.Msg) {
		_, rest, err := zmsg.DecodeBatchHead(m.Data)
		for e := (zmsg.Envelope{}); err == nil && len(rest) > 0; {
			if rest, err = zmsg.NextEnvelope(rest, &e); err == nil && e.Request != 0 {
				requests <- e.Request
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close(context.Background()) }()
	if err := r.Subscribe(t.Context(), "zgame.n.b.1"); err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	reply := func(from zmsg.NodeRef, request uint64, body string) {
		number++
		forged(t, bus, "zgame.n.a.7", zmsg.BatchHead{From: from, Number: number},
			&zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY, Request: request, Body: []byte(body)})
	}
	o := newOutcomes(2)
	to := zmsg.Address{Node: ref, Actor: 1}
	if err := a.Send(to, message("1"), o, 1); err != nil {
		t.Fatal(err)
	}
	first := receiveWithin(t, requests)
	reply(zmsg.NodeRef{ID: "evil", Epoch: 1}, first, "not yours")
	reply(ref, first+1, "wrong slot")
	reply(ref, 1<<63, "wild")
	reply(ref, first, "right")
	reply(ref, first, "double")
	if x := o.next(t); x.body != "right" || x.token != 1 {
		t.Errorf("outcome %+v", x)
	}
	if err := a.Send(to, message("2"), o, 2); err != nil {
		t.Fatal(err)
	}
	second := receiveWithin(t, requests)
	reply(ref, first, "late") // same slot, older generation
	reply(ref, second, "right too")
	if x := o.next(t); x.body != "right too" || x.token != 2 {
		t.Errorf("outcome %+v", x)
	}
	if n := a.count(t, "late_replies_total"); n != 5 {
		t.Errorf("%d late replies counted, want 5", n)
	}
}

// TestGapsAreFlagged: lost, double and late batches are counted; the last two are not delivered.
func TestGapsAreFlagged(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	got := make(chan uint64, 10)
	a := startOn(t, hub.Bus(), "a", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { got <- m.Seq; m.Release() }})
	bus := hub.Bus()
	defer func() { _ = bus.Close(context.Background()) }()
	from := zmsg.NodeRef{ID: "b", Epoch: 1}
	const series = 1 << 40
	for _, n := range []uint64{1, 2, 5, 5, 3, 6, series + 1, series + 2, 7} {
		forged(t, bus, "zgame.n.a.7", zmsg.BatchHead{From: from, Number: n},
			&zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, Seq: n})
	}
	for _, want := range []uint64{1, 2, 5, 6, series + 1, series + 2} {
		if x := receiveWithin(t, got); x != want {
			t.Errorf("got batch %d, want %d", x, want)
		}
	}
	eventually(t, "the last one is counted", func() bool { return a.count(t, "batch_gaps_total") >= 5 })
	for kind, want := range map[string]int{"lost": 2, "double": 1, "swapped": 2} {
		if n := a.count(t, "batch_gaps_total", kind); n != want {
			t.Errorf("%s: counted %d, want %d", kind, n, want)
		}
	}
}

// TestMissedBatchIsAnswered is fault N2: requests in a batch that the receiver's driver dropped end, NotExecuted, as
// soon as the next batch shows the gap.
func TestMissedBatchIsAnswered(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: echo})
	a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
	to := zmsg.Address{Node: b.ref, Actor: 1}
	if x := a.request(t, to, "before", within); x.body != "before" {
		t.Fatalf("%+v", x)
	}
	lost := make(chan struct{}, 1)
	hub.Lose(func(subject string, _ []byte) bool {
		if subject != "zgame.n.b.7" {
			return false
		}
		lost <- struct{}{}
		return true
	})
	o := newOutcomes(1)
	m := message("swallowed")
	m.Deadline = time.Now().Add(time.Hour)
	if err := a.Send(to, m, o, 1); err != nil {
		t.Fatal(err)
	}
	receiveWithin(t, lost)
	hub.Lose(nil)
	if x := a.request(t, to, "after", within); x.body != "after" {
		t.Errorf("%+v", x)
	}
	if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted || !x.undelivered {
		t.Errorf("outcome %+v, want Unavailable, NotExecuted, undelivered", x)
	}
}

func TestLinkConfigFaultsTogether(t *testing.T) {
	t.Parallel()
	_, err := zbus.NewLink(zbus.LinkConfig{Prefix: "a..b", DefaultTimeout: -1, MaxRequests: 1 << 30, BatchBytes: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Self", "Bus is nil", "Prefix", "DefaultTimeout", "MaxRequests", "BatchBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
}

func TestStartWithBusDown(t *testing.T) {
	t.Parallel()
	bus := membus.New().Bus()
	bus.SetUp(false)
	l, err := zbus.NewLink(zbus.LinkConfig{Self: zmsg.NodeRef{ID: "a"}, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Send(zmsg.Address{Node: zmsg.NodeRef{ID: "b"}}, message("x"), nil, 0); !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("send before start: %v", err)
	}
	if err := l.Start(t.Context()); !errors.Is(err, zbus.ErrDown) {
		t.Errorf("start: %v, want ErrDown", err)
	}
	if err := errors.Join(l.Close(t.Context()), bus.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for in, want := range map[string]string{
		"": "_", "node-1": "node-1", "a.b": "a_2eb", "a_2eb": "a_5f2eb", "*": "_2a", "ü": "_c3_bc", "A": "A",
	} {
		got := zbus.Token(in)
		if got != want {
			t.Errorf("Token(%q) = %q, want %q", in, got, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have one token", in, other)
		}
		seen[got] = in
	}
}
