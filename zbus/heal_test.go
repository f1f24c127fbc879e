package zbus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zmsg"
)

// holder keeps the requests that arrive.
func holder(room int) (chan *zmsg.Message, zbus.Handlers) {
	held := make(chan *zmsg.Message, room)
	return held, zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { held <- m }}
}

// ask sends a request with that deadline and does not wait.
func (n *node) ask(t *testing.T, to zmsg.NodeRef, o *outcomes, token uint64, timeout time.Duration) {
	t.Helper()
	m := message(fmt.Sprint(token))
	defer m.Release()
	m.Deadline = time.Now().Add(timeout)
	if err := n.Send(zmsg.Address{Node: to, Actor: 1}, m, o, token); err != nil {
		t.Fatal(err)
	}
}

// TestRepliesWaitForTheBus: what is answered while the replier's connection is down is sent when it is back, in order, but
// for what nobody waits for any more.
func TestRepliesWaitForTheBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		const calls = 100
		held, h := holder(calls)
		bus := hub.Bus()
		b := startOn(t, bus, "b", h)
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		o := newOutcomes(calls)
		for i := range uint64(calls) {
			timeout := time.Hour
			if i%10 == 9 {
				timeout = 5 * time.Second
			}
			a.ask(t, b.ref, o, i, timeout)
		}
		synctest.Wait()
		bus.SetUp(false)
		for range calls {
			m := <-held
			m.Reply(&zmsg.Reply{Body: m.Body()})
			m.Release()
		}
		for i := range uint64(calls) {
			if i%10 == 9 {
				if x := o.next(t); x.token != i || x.code != zmsg.CodeTimeout {
					t.Errorf("outcome %+v, want the time-out of %d", x, i)
				}
			}
		}
		time.Sleep(time.Second) // deadlines of others are known roughly
		bus.SetUp(true)
		for i := range uint64(calls) {
			if i%10 == 9 {
				continue
			}
			if x := o.next(t); x.token != i || x.code != zmsg.CodeOK || x.body != fmt.Sprint(i) {
				t.Errorf("outcome %+v, want the answer to %d", x, i)
			}
		}
		synctest.Wait()
		if n := b.count(t, "dropped_total", "expired"); n != calls/10 {
			t.Errorf("%d replies counted as expired, want %d", n, calls/10)
		}
		if n := a.count(t, "late_replies_total"); n != 0 {
			t.Errorf("%d late replies", n)
		}
		if n := a.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
	})
}

// TestKeptRepliesAreBounded: by number, by bytes, and in time: they share the bounds of the outbox, of which they may take twice
// as much. What is dropped is counted by its reason.
func TestKeptRepliesAreBounded(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(c *zbus.LinkConfig){
		"number": func(c *zbus.LinkConfig) { c.OutboxMessages = 10 },
		"bytes":  func(c *zbus.LinkConfig) { c.OutboxBytes = 20 * 1050 / 2 },
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := membus.New()
			const calls, kept = 50, 20
			held, h := holder(calls)
			bus := hub.Bus()
			b := startOn(t, bus, "b", h, set)
			a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
			o := newOutcomes(calls)
			for i := range uint64(calls) {
				a.ask(t, b.ref, o, i, 20*time.Second)
			}
			synctest.Wait()
			bus.SetUp(false)
			body := make([]byte, 1000)
			for i := range calls {
				m := <-held
				if i < calls-kept {
					m.Reply(&zmsg.Reply{Body: body})
				} // else it is never answered
				m.Release()
			}
			synctest.Wait()
			if n := b.count(t, "dropped_total", "full"); n != calls-2*kept {
				t.Errorf("%s: %d replies counted as too many, want %d", name, n, calls-2*kept)
			}
			for range calls {
				if x := o.next(t); x.code != zmsg.CodeTimeout || x.out != zmsg.Unknown {
					t.Errorf("%s: outcome %+v", name, x)
				}
			}
			time.Sleep(2 * time.Second) // a look every second
			if n := b.count(t, "dropped_total", "expired"); n != kept {
				t.Errorf("%s: %d replies counted as expired while the bus is down, want %d", name, n, kept)
			}
			bus.SetUp(true)
			synctest.Wait()
			if n := a.count(t, "late_replies_total"); n != 0 {
				t.Errorf("%s: %d late replies", name, n)
			}
		})
	}
}

// TestAcceptedIsKept: what was accepted before the loss was noticed is sent afterwards, in the order of sending over lanes and groups,
// and for a while only; requests end at once, and are not sent.
func TestAcceptedIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		got := make(chan string, 100)
		h := zbus.Handlers{
			Actor:   func(_ uint64, m *zmsg.Message) { got <- string(m.Body()); m.Release() },
			Session: func(e *zmsg.Envelope, _ zmsg.NodeRef) { got <- string(e.Body) },
		}
		b := startOn(t, hub.Bus(), "b", h)
		bus := newGateBus(hub.Bus())
		a := startOn(t, bus, "a", zbus.Handlers{})
		if err := b.JoinGroup(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		to := zmsg.Address{Node: b.ref, Actor: 1}
		send := func(body string) {
			if err := a.Send(to, message(body), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		down := bus.Bus.(*membus.Bus)
		for round := range 2 {
			send("first")
			synctest.Wait() // the outbox is inside Publish
			o := newOutcomes(1)
			send("1")
			a.ask(t, b.ref, o, 7, time.Hour)
			if err := a.PublishGroup(&zmsg.Envelope{Group: "g", Body: []byte("2")}); err != nil {
				t.Fatal(err)
			}
			send("3")
			down.SetUp(false)
			if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
				t.Errorf("outcome %+v, want Unavailable, NotExecuted", x)
			}
			if err := a.Send(to, message("x"), nil, 0); !errors.Is(err, zmsg.ErrUnavailable) {
				t.Errorf("send while down: %v", err)
			}
			close(bus.released)
			time.Sleep([]time.Duration{time.Second, time.Minute}[round])
			down.SetUp(true)
			time.Sleep(time.Second)
			want := []string{"first", "1", "2", "3"}
			if round == 1 {
				want = nil
				if n := a.count(t, "dropped_total", "expired"); n != 4 {
					t.Errorf("%d counted as expired, want 4", n)
				}
			}
			for _, w := range want {
				if x := <-got; x != w {
					t.Errorf("got %q, want %q", x, w)
				}
			}
			if len(got) != 0 {
				t.Errorf("round %d: too much came: %q", round, <-got)
			}
			bus.released = make(chan struct{})
		}
		close(bus.released)
		for _, n := range []*node{a, b} {
			if g := n.count(t, "batch_gaps_total"); g != 0 {
				t.Errorf("%d gaps", g)
			}
		}
	})
}

// TestKeptRepliesOfTheLost: a node that is gone gets no reply, and a link that closes says what it could not send.
func TestKeptRepliesOfTheLost(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	held, h := holder(2)
	bus := hub.Bus()
	b := startOn(t, bus, "b", h)
	a, c := startOn(t, hub.Bus(), "a", zbus.Handlers{}), startOn(t, hub.Bus(), "c", zbus.Handlers{})
	o := newOutcomes(2)
	a.ask(t, b.ref, o, 1, time.Hour)
	c.ask(t, b.ref, o, 2, time.Hour)
	one, two := receiveWithin(t, held), receiveWithin(t, held)
	bus.SetUp(false)
	one.Reply(&zmsg.Reply{})
	two.Reply(&zmsg.Reply{})
	b.Lost(a.ref)
	eventually(t, "what waits for a is dropped", func() bool {
		bus.SetUp(true)
		return b.count(t, "dropped_total", "node_lost") == 1
	})
	if x := o.next(t); x.token != 2 || x.code != zmsg.CodeOK {
		t.Errorf("outcome %+v", x)
	}
	c.ask(t, b.ref, o, 3, time.Hour)
	three := receiveWithin(t, held)
	bus.SetUp(false)
	three.Reply(&zmsg.Reply{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain while a reply waits: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
	if n := b.count(t, "dropped_total", "closed"); n != 1 {
		t.Errorf("%d replies counted as not sent at the end, want 1", n)
	}
}

// TestRefusingBus: a bus that refuses while it says that it is up loses no reply, and swaps none.
func TestRefusingBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		held, h := holder(10)
		bus := newGateBus(hub.Bus())
		close(bus.released)
		b := startOn(t, bus, "b", h)
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		o := newOutcomes(10)
		for i := range uint64(10) {
			a.ask(t, b.ref, o, i, time.Hour)
		}
		refuse := func(err error) {
			bus.mu.Lock()
			defer bus.mu.Unlock()
			bus.err = err
		}
		answer := func() {
			m := <-held
			m.Reply(&zmsg.Reply{})
			m.Release()
			synctest.Wait()
		}
		refuse(zbus.ErrDown)
		for range 5 {
			answer()
		}
		refuse(nil)
		for range 5 {
			answer() // while those before wait
		}
		for i := range uint64(10) {
			if x := o.next(t); x.token != i || x.code != zmsg.CodeOK {
				t.Errorf("outcome %+v, want the answer to %d", x, i)
			}
		}
	})
}

// TestLostInAnIdleLane: a request that was lost on the way, with nothing behind it, ends soon: its node is probed. Batches that come
// first are no exception, nor are more than anybody would keep a list of.
func TestLostInAnIdleLane(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2000} {
		for _, before := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				hub := membus.New()
				b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: echo})
				a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
				o := newOutcomes(lost)
				if before {
					a.request(t, zmsg.Address{Node: b.ref}, "x", time.Hour)
				}
				hub.Lose(func(subject string, _ []byte) bool { return subject == "zgame.n.b.7" })
				for i := range lost {
					a.ask(t, b.ref, o, uint64(i), time.Hour)
					synctest.Wait() // each in a batch of its own
				}
				begin := time.Now()
				time.Sleep(3 * time.Second) // probes are lost too
				hub.Lose(nil)
				for range lost {
					if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
						t.Errorf("outcome %+v, want Unavailable, NotExecuted", x)
					}
				}
				if took := time.Since(begin); took > 3*time.Second+4*time.Second {
					t.Errorf("ended after %v", took)
				}
			})
		}
	}
}

// TestReconnectedNodeAsks: what was sent to a node while its connection was cut, and nobody knew, ends as soon as it is back.
func TestReconnectedNodeAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		bus := hub.Bus()
		b := startOn(t, bus, "b", zbus.Handlers{Actor: echo})
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 1}
		a.request(t, to, "x", time.Hour)
		hub.Lose(func(subject string, _ []byte) bool { return subject == "zgame.n.b.7" })
		o := newOutcomes(1)
		a.ask(t, b.ref, o, 1, time.Hour)
		synctest.Wait()
		hub.Lose(nil)
		begin := time.Now()
		bus.SetUp(false)
		bus.SetUp(true)
		if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
			t.Errorf("outcome %+v, want Unavailable, NotExecuted", x)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("ended after %v: only the next probe of the sender helped", took)
		}
	})
}

// TestLostAnswersAreSentAgain: answers that are lost on the way, with nothing behind them, come soon; each once.
func TestLostAnswersAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		held, h := holder(100)
		bus := hub.Bus()
		b := startOn(t, bus, "b", h)
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		o := newOutcomes(100)
		for i := range uint64(100) {
			a.ask(t, b.ref, o, i, time.Hour)
		}
		synctest.Wait()
		hub.Lose(func(subject string, _ []byte) bool { return subject == "zgame.n.a.7" })
		for range 100 {
			m := <-held
			m.Reply(&zmsg.Reply{Body: m.Body()})
			synctest.Wait() // each in a batch of its own
		}
		time.Sleep(100 * time.Millisecond)
		hub.Lose(nil)
		begin := time.Now()
		for i := range uint64(100) {
			if x := o.next(t); x.token != i || x.code != zmsg.CodeOK || x.body != fmt.Sprint(i) {
				t.Errorf("outcome %+v, want the answer to %d", x, i)
			}
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("they came after %v", took)
		}
		synctest.Wait()
		if n := a.count(t, "late_replies_total"); n != 0 {
			t.Errorf("%d replies came twice", n)
		}
	})
}

// TestLongRequestsAreProbedRarely: a request that takes its time costs a batch each way now and then.
func TestLongRequestsAreProbedRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		held, h := holder(1000)
		b := startOn(t, hub.Bus(), "b", h)
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		o := newOutcomes(1000)
		for i := range 1000 {
			a.ask(t, b.ref, o, uint64(i), time.Hour)
		}
		time.Sleep(time.Minute)
		if n := a.count(t, "envelopes_sent_total", "control"); n < 10 || n > 20 {
			t.Errorf("%d probes in a minute", n)
		}
		for range 1000 {
			(<-held).Reply(&zmsg.Reply{})
			if x := o.next(t); x.code != zmsg.CodeOK {
				t.Errorf("outcome %+v", x)
			}
		}
		probes := a.count(t, "envelopes_sent_total", "control")
		time.Sleep(time.Hour)
		if n := a.count(t, "envelopes_sent_total", "control") - probes; n != 0 {
			t.Errorf("%d probes while nothing waits", n)
		}
	})
}

// TestLostNodeThatIsThere: discovery was wrong about a node. What it sends afterwards is still judged by what came before.
func TestLostNodeThatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: echo})
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 1}
		for range 3 {
			b.Lost(a.ref)
			if x := a.request(t, to, "x", time.Hour); x.body != "x" {
				t.Errorf("outcome %+v", x)
			}
		}
		if n := b.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
		hub.Lose(func(subject string, _ []byte) bool { return subject == "zgame.n.b.7" })
		o := newOutcomes(1)
		a.ask(t, b.ref, o, 1, time.Hour)
		synctest.Wait()
		hub.Lose(nil)
		b.Lost(a.ref)
		if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
			t.Errorf("outcome %+v, want Unavailable, NotExecuted", x)
		}
	})
}

// TestAnswerOvertakenByTheLeave: a node answers, leaves, and discovery is faster than the bus: the answers count. What it has not
// answered ends as lost.
func TestAnswerOvertakenByTheLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		entered, release := make(chan struct{}), make(chan struct{})
		a := c.start(t, "a", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) {
			m.Release()
			close(entered)
			<-release
		}})
		var open []*zmsg.Message
		all := make(chan struct{})
		b := c.start(t, "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) {
			if open = append(open, m); len(open) == 100 {
				close(all)
			}
		}})
		o := newOutcomes(100)
		for i := range uint64(100) {
			a.ask(t, b.ref, o, i, time.Hour)
		}
		receiveWithin(t, all)
		if err := b.send(zmsg.Address{Node: a.ref, Actor: 1}); err != nil {
			t.Fatal(err)
		}
		receiveWithin(t, entered) // a does not take what comes now
		for _, m := range open[:50] {
			m.Reply(&zmsg.Reply{Body: m.Body()})
		}
		eventually(t, "the answers are sent", func() bool { return b.count(t, "envelopes_sent_total", "reply") == 50 })
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if err := b.bus.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		a.Lost(b.ref)
		close(release)
		for i := range uint64(100) {
			want := zmsg.CodeOK
			if i >= 50 {
				want = zmsg.CodeNodeLost
			}
			if x := o.next(t); x.token != i || x.code != want {
				t.Errorf("outcome %+v, want %v of %d", x, want, i)
			}
		}
	})
}

// TestPrune: what is sent to a node after it was lost, and what comes from it, leaves nothing, however many come and go.
func TestPrune(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	b := startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: echo})
	stays := startOn(t, hub.Bus(), "stays", zbus.Handlers{Actor: echo})
	gone := func(n zmsg.NodeRef) bool { return n != stays.ref && n != b.ref }
	for i := range uint64(20) {
		a := startOn(t, hub.Bus(), "a", zbus.Handlers{Actor: echo}, func(c *zbus.LinkConfig) { c.Self.Epoch = i + 1 })
		ref := zmsg.NodeRef{ID: "a", Epoch: i + 1}
		b.Lost(ref)
		for _, from := range []*node{a, stays} {
			if x := from.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "x", within); x.body != "x" {
				t.Fatalf("got %+v", x)
			}
		}
		if x := b.request(t, zmsg.Address{Node: ref, Actor: 1}, "x", within); x.body != "x" {
			t.Fatalf("got %+v", x)
		}
	}
	if n := b.count(t, "lanes"); n != 21 {
		t.Errorf("%d lanes, want one to each: this shows nothing", n)
	}
	b.Prune(gone)
	if n := b.count(t, "lanes"); n != 1 {
		t.Errorf("%d lanes, want that to the node that stays", n)
	}
	if x := b.request(t, zmsg.Address{Node: stays.ref, Actor: 1}, "x", within); x.body != "x" {
		t.Errorf("got %+v", x)
	}
}
