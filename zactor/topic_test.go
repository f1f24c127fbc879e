package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// listener is an actor that does jobs in its turns and hands on the numbers of the Pongs that come to it.
type listener struct {
	*puppet
	heard chan int64
}

func spawnListener(tb testing.TB, g *zactor.Group, start func(*zactor.Context) error, opts ...zactor.SpawnOption) *listener {
	tb.Helper()
	l := &listener{puppet: newPuppet(tb), heard: make(chan int64, 1<<12)}
	l.Ref = spawn(tb, g, "", func() zactor.Actor {
		return &actor{start: start, handlers: []zactor.Handler{
			zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { (<-l.jobs)(c); return nil }),
			zactor.HandleTell(func(_ *zactor.Context, s *testpb.Pong) error { l.heard <- s.GetN(); return nil }),
		}}
	}, opts...)
	return l
}

func subscribeTo(names ...string) func(*zactor.Context) error {
	return func(c *zactor.Context) error {
		for _, name := range names {
			if err := c.Subscribe(name); err != nil {
				return err
			}
		}
		return nil
	}
}

// hears waits for the numbers, in order, and that nothing else has come by then.
func (l *listener) hears(want ...int64) {
	l.tb.Helper()
	for _, n := range want {
		if got := receive(l.tb, l.heard); got != n {
			l.tb.Fatalf("heard %d, want %d of %v", got, n, want)
		}
	}
	l.do(func(*zactor.Context) {}) // what has been sent before has been handled
	select {
	case n := <-l.heard:
		l.tb.Fatalf("heard %d as well, want %v", n, want)
	default:
	}
}

func say(n int64) *testpb.Pong { return &testpb.Pong{N: n} }

// wires is a zactor.Topics that notes what it is told.
type wires struct {
	mu        sync.Mutex
	calls     []string
	wanted    map[string]bool
	published []string
	err       error
	await     func(context.Context) error
}

func newWires() *wires { return &wires{wanted: map[string]bool{}} }

func (w *wires) call(what, name string, wanted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what+" "+name)
	if w.wanted[name] == wanted {
		w.calls = append(w.calls, "again")
	}
	w.wanted[name] = wanted
	if !wanted {
		delete(w.wanted, name)
	}
}

func (w *wires) Subscribe(topic string)               { w.call("subscribe", topic, true) }
func (w *wires) Unsubscribe(topic string)             { w.call("unsubscribe", topic, false) }
func (w *wires) SubscribeQueue(topic, queue string)   { w.call("join", topic+" "+queue, true) }
func (w *wires) UnsubscribeQueue(topic, queue string) { w.call("leave", topic+" "+queue, false) }

func (w *wires) Await(ctx context.Context, _ string) error { return w.await(ctx) }

func (w *wires) Publish(topic string, m *zmsg.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.published = append(w.published, fmt.Sprint(topic, " ", m.ID, " ", m.Value.(*testpb.Pong).GetN(), " ", m.From.Actor))
	return nil
}

func (w *wires) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func TestTopic(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	a, b := spawnListener(t, g, subscribeTo("news", "sport", "news")), spawnListener(t, g, subscribeTo("news"))
	other := spawnListener(t, g, nil)
	publisher := spawnListener(t, g, subscribeTo("news"))
	publisher.do(func(c *zactor.Context) {
		for n := range int64(50) {
			if err := errors.Join(c.Tell(a.Ref, say(2*n)), c.PublishTopic("news", say(2*n+1))); err != nil {
				t.Error(err)
			}
		}
	})
	var all, odd []int64
	for n := range int64(100) {
		all = append(all, n)
		if n%2 == 1 {
			odd = append(odd, n)
		}
	}
	a.hears(all...)
	b.hears(odd...)
	publisher.hears(odd...)
	other.hears()
	b.do(func(c *zactor.Context) { c.Unsubscribe("news"); c.Unsubscribe("news"); c.Unsubscribe("nothing") })
	if err := errors.Join(g.PublishTopic("news", say(100)), g.PublishTopic("sport", say(101)), g.PublishTopic("nobody", say(1)),
		g.PublishTopicLocal("sport", say(102))); err != nil {
		t.Fatal(err)
	}
	a.hears(100, 101, 102)
	b.hears()
	for _, name := range []string{"", strings.Repeat("x", 257), "\xff"} {
		if err := g.PublishTopic(name, say(1)); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
			t.Errorf("publish on %q: %v", name, err)
		}
		a.do(func(c *zactor.Context) {
			for _, err := range []error{c.Subscribe(name), c.SubscribeQueue("t", name), c.SubscribeQueue(name, "q")} {
				if zmsg.CodeOf(err) != zmsg.CodeBadRequest {
					t.Errorf("subscribe to %q: %v", name, err)
				}
			}
		})
	}
	if err := g.PublishTopic("news", &testpb.Plain{}); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("a message without an id: %v", err)
	}
}

// What a subscriber misses is a dead letter with the reason, and nobody waits for it.
func TestTopicDeadLetters(t *testing.T) {
	t.Parallel()
	dead := make(chan zactor.DeadLetter, 10)
	g := newGroup(t, func(c *zactor.Config) { c.OnDeadLetter = func(d zactor.DeadLetter) { dead <- d } })
	deaf := spawn(t, g, "deaf", func() zactor.Actor { return &actor{start: subscribeTo("t")} })
	full := spawnListener(t, g, subscribeTo("t"), zactor.WithMailbox(1), zactor.WithOverflow(zactor.Wait(bound)))
	ok := spawnListener(t, g, subscribeTo("t"))
	entered, leave := make(chan struct{}), make(chan struct{})
	full.later(func(*zactor.Context) { close(entered); <-leave })
	receive(t, entered)
	for n := range int64(2) {
		if err := g.PublishTopic("t", say(n)); err != nil {
			t.Fatal(err)
		}
	}
	ok.hears(0, 1)
	reasons := map[string]int{}
	for range 3 {
		d := receive(t, dead)
		reasons[d.Reason]++
		if want := map[string]zmsg.Address{"no_handler": deaf.Address(), "topic_full": full.Address()}[d.Reason]; d.Actor != want || d.ID == 0 {
			t.Errorf("%+v, want of %v", d, want)
		}
	}
	if reasons["no_handler"] != 2 || reasons["topic_full"] != 1 {
		t.Errorf("dead letters %v", reasons)
	}
	close(leave)
	full.hears(0)
	if err := g.StopWait(testContext(t), deaf); err != nil {
		t.Fatal(err)
	}
	if err := g.PublishTopic("t", say(2)); err != nil {
		t.Fatal(err)
	}
	ok.hears(2)
	full.hears(2)
	if len(dead) > 0 {
		t.Errorf("a dead letter of one that has ended: %+v", <-dead)
	}
}

// Over a restart a subscription goes on where OnStart makes it again: what comes meanwhile waits. Others end.
func TestTopicRestart(t *testing.T) {
	t.Parallel()
	w := newWires()
	g := newGroup(t, func(c *zactor.Config) { c.Topics = w })
	starting, again := make(chan struct{}, 2), make(chan struct{})
	instances := 0
	l := spawnListener(t, g, func(c *zactor.Context) error {
		if instances++; instances > 1 {
			starting <- struct{}{}
			<-again
		}
		return subscribeTo("kept")(c)
	}, zactor.WithPolicy(zactor.Policy{MinBackoff: -1}))
	l.do(func(c *zactor.Context) {
		if err := subscribeTo("lost")(c); err != nil {
			t.Error(err)
		}
	})
	l.later(func(*zactor.Context) { panic("on purpose") })
	receive(t, starting)
	for _, topic := range []string{"kept", "lost"} { // both come: the old subscriptions are there
		if err := g.PublishTopicLocal(topic, say(int64(len(topic)))); err != nil {
			t.Fatal(err)
		}
	}
	close(again)
	l.hears(4, 4)
	_ = g.PublishTopicLocal("lost", say(1))
	_ = g.PublishTopicLocal("kept", say(2))
	l.hears(2)
	if got, want := w.take(), []string{"subscribe kept", "subscribe lost", "unsubscribe lost"}; !slices.Equal(got, want) {
		t.Errorf("the other nodes were told %q, want %q", got, want)
	}
	if err := g.StopWait(testContext(t), l.Ref); err != nil {
		t.Fatal(err)
	}
	if got := w.take(); !slices.Equal(got, []string{"unsubscribe kept"}) {
		t.Errorf("at the end: %q", got)
	}
}

// An actor that does not start, or that is about to stop, has no subscription.
func TestTopicEnds(t *testing.T) {
	t.Parallel()
	w := newWires()
	g := newGroup(t, func(c *zactor.Config) { c.Topics = w })
	failed := errors.New("on purpose")
	if _, err := g.Spawn("", func() zactor.Actor {
		return &actor{start: func(c *zactor.Context) error {
			return errors.Join(c.Subscribe("t"), c.SubscribeQueue("t", "q"), failed)
		}}
	}); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	var inStop error
	l := &actor{stop: func(c *zactor.Context, _ zactor.Reason) { inStop = c.Subscribe("t") }}
	ref := spawn(t, g, "", func() zactor.Actor { return l })
	if err := g.StopWait(testContext(t), ref); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(inStop, zmsg.ErrStopped) {
		t.Errorf("in OnStop: %v", inStop)
	}
	if got, want := w.take(), []string{"subscribe t", "join t q", "unsubscribe t", "leave t q"}; !sameSet(got, want) {
		t.Errorf("the other nodes were told %q, want %q", got, want)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestTopicLimits(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.MaxTopics, c.MaxQueues, c.ActorTopics = 3, 2, 4 })
	a, b := spawnListener(t, g, nil), spawnListener(t, g, nil)
	a.do(func(c *zactor.Context) {
		if err := errors.Join(c.Subscribe("1"), c.Subscribe("2"), c.Subscribe("3"), c.Subscribe("3"), c.SubscribeQueue("3", "q")); err != nil {
			t.Error(err)
		}
		if err := c.SubscribeQueue("3", "r"); !errors.Is(err, zactor.ErrTooManyTopics) {
			t.Errorf("an actor's fifth subscription: %v", err)
		}
	})
	b.do(func(c *zactor.Context) {
		if err := c.Subscribe("4"); !errors.Is(err, zactor.ErrTooManyTopics) {
			t.Errorf("the group's fourth topic: %v", err)
		}
		if err := errors.Join(c.Subscribe("3"), c.SubscribeQueue("4", "q")); err != nil {
			t.Error(err)
		}
		if err := c.SubscribeQueue("5", "q"); !errors.Is(err, zactor.ErrTooManyTopics) {
			t.Errorf("the group's third queue: %v", err)
		}
		c.UnsubscribeQueue("4", "q")
		if err := c.SubscribeQueue("5", "q"); err != nil {
			t.Error(err)
		}
	})
	a.do(func(c *zactor.Context) { c.Unsubscribe("1") })
	b.do(func(c *zactor.Context) {
		if err := c.Subscribe("4"); err != nil {
			t.Errorf("when there is room again: %v", err)
		}
	})
	for _, change := range []func(*zactor.Config){
		func(c *zactor.Config) { c.MaxTopics = -1 }, func(c *zactor.Config) { c.MaxQueues = -1 }, func(c *zactor.Config) { c.ActorTopics = -1 },
	} {
		var c zactor.Config
		change(&c)
		if _, err := zactor.NewGroup(c); err == nil {
			t.Error("a negative bound was taken")
		}
	}
}

// Members of a queue take turns; one without room, or at its end, is passed over.
func TestTopicQueue(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	g := newGroup(t, func(c *zactor.Config) { c.Metrics = zmetrics.NewActor(reg) })
	join := func(c *zactor.Context) error { return c.SubscribeQueue("work", "q") }
	a, b, full := spawnListener(t, g, join), spawnListener(t, g, join), spawnListener(t, g, join, zactor.WithMailbox(1))
	both := spawnListener(t, g, func(c *zactor.Context) error { return errors.Join(c.Subscribe("work"), c.SubscribeQueue("work", "r")) })
	entered, leave := make(chan struct{}), make(chan struct{})
	full.later(func(*zactor.Context) { close(entered); <-leave })
	receive(t, entered)
	got := map[int64]int{}
	for n := range int64(30) {
		if err := g.PublishTopic("work", say(n)); err != nil {
			t.Fatal(err)
		}
	}
	close(leave)
	eventually(t, func() bool { return full.Load() == 0 })
	for _, l := range []*listener{a, b, full} {
		l.do(func(*zactor.Context) {})
		if l != full && len(l.heard) < 10 || l == full && len(l.heard) != 1 {
			t.Errorf("%d messages, want a fair part; one for the full", len(l.heard))
		}
		last := int64(-1)
		for len(l.heard) > 0 {
			n := <-l.heard
			if got[n]++; n < last {
				t.Errorf("%d after %d", n, last)
			}
			last = n
		}
	}
	for n := range int64(30) {
		if got[n] != 1 {
			t.Errorf("message %d: %d times", n, got[n])
		}
	}
	var twice []int64
	for n := range int64(30) {
		twice = append(twice, n, n)
	}
	both.hears(twice...)
	for _, l := range []*listener{a, b, full} {
		if err := g.StopWait(testContext(t), l.Ref); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.QueueMessage("work", "q", zmsg.NewMessage(1)); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("without a member: %v", err)
	}
	for name, want := range map[string]float64{"topics": 1, "queues": 1, "subscriptions": 2} {
		if got := count(t, reg, "zgame_topics_"+name, ""); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if n := count(t, reg, "zgame_topics_delivered_total", "queue"); n != 60 {
		t.Errorf("%v delivered to queues, want 60", n)
	}
}

// Other nodes are told of the first and of the last subscriber, and get what is published once; an error means that nobody got it.
func TestTopicRemote(t *testing.T) {
	t.Parallel()
	w := newWires()
	g := newGroup(t, func(c *zactor.Config) { c.Topics = w })
	a, b := spawnListener(t, g, subscribeTo("t")), spawnListener(t, g, subscribeTo("t"))
	for _, l := range []*listener{a, b} {
		l.do(func(c *zactor.Context) { _ = c.SubscribeQueue("t", "q") })
	}
	a.do(func(c *zactor.Context) {
		_ = c.PublishTopic("t", say(1))
		_ = c.PublishTopicLocal("t", say(2))
	})
	if err := g.PublishTopic("t", say(3)); err != nil {
		t.Fatal(err)
	}
	id, _ := zmsg.IDOf(say(0))
	if want := []string{fmt.Sprint("t ", id, " 1 ", a.Address().Actor), fmt.Sprint("t ", id, " 3 0")}; !slices.Equal(w.published, want) {
		t.Errorf("published %q, want %q", w.published, want)
	}
	w.err = zmsg.ErrUnavailable
	if err := g.PublishTopic("t", say(4)); !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("without the bus: %v", err)
	}
	if err := g.PublishTopicLocal("t", say(5)); err != nil {
		t.Errorf("this node alone, without the bus: %v", err)
	}
	heard := []int{0, 0}
	for i, l := range []*listener{a, b} {
		l.do(func(*zactor.Context) {})
		heard[i] = len(l.heard)
		for len(l.heard) > 0 {
			if n := <-l.heard; n == 4 {
				t.Error("heard what was refused")
			}
		}
	}
	if heard[0]+heard[1] != 2*4+2 { // four for each, and two local ones for the queue
		t.Errorf("heard %v", heard)
	}
	// What comes from elsewhere: encoded, for each.
	m := zmsg.NewMessage(id)
	m.SetBody([]byte{8, 7})
	m.From = zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 1}, Actor: 9}
	g.TopicMessage("t", m)
	a.do(func(*zactor.Context) {})
	b.do(func(*zactor.Context) {})
	if len(a.heard) != 1 || len(b.heard) != 1 {
		t.Errorf("a message of another node: heard %d and %d times", len(a.heard), len(b.heard))
	}
	w.await = func(context.Context) error { return nil }
	if err := errors.Join(g.AwaitTopic(testContext(t), "t"), g.StopWait(testContext(t), a.Ref), g.StopWait(testContext(t), b.Ref)); err != nil {
		t.Error(err)
	}
	if err := g.AwaitTopic(testContext(t), "t"); zmsg.CodeOf(err) != zmsg.CodeNotFound {
		t.Errorf("waiting for a topic that nobody subscribes to: %v", err)
	}
	if got, want := w.take(), []string{"subscribe t", "join t q", "unsubscribe t", "leave t q"}; !sameSet(got, want) {
		t.Errorf("the other nodes were told %q, want %q", got, want)
	}
}

// In a group that drains actors publish to each other, and nobody else does.
func TestTopicDraining(t *testing.T) {
	t.Parallel()
	dead := make(chan zactor.DeadLetter, 10)
	g := newGroup(t, func(c *zactor.Config) { c.OnDeadLetter = func(d zactor.DeadLetter) { dead <- d } })
	l := spawnListener(t, g, func(c *zactor.Context) error { return errors.Join(c.Subscribe("t"), c.SubscribeQueue("t", "q")) })
	entered, leave := make(chan struct{}), make(chan struct{})
	var inside error
	l.later(func(c *zactor.Context) { close(entered); <-leave; inside = c.PublishTopic("t", say(1)) })
	receive(t, entered)
	ended := make(chan error, 1)
	go func() { ended <- g.Shutdown(testContext(t)) }() // ends with the actor
	eventually(t, func() bool { return errors.Is(g.PublishTopic("other", say(2)), zmsg.ErrDraining) })
	id, _ := zmsg.IDOf(say(0))
	g.TopicMessage("t", zmsg.NewMessage(id))
	if d := receive(t, dead); d.Reason != "topic_draining" {
		t.Errorf("a message of another node: %+v", d)
	}
	if err := g.QueueMessage("t", "q", zmsg.NewMessage(id)); !errors.Is(err, zmsg.ErrDraining) {
		t.Errorf("a message for a queue: %v", err)
	}
	close(leave)
	if err := errors.Join(receive(t, ended), inside); err != nil {
		t.Error(err)
	}
	for range 2 {
		if n := <-l.heard; n != 1 {
			t.Errorf("heard %d", n)
		}
	}
}

// Everybody subscribes, publishes and ends at once: nothing is left, and each subscriber gets each message at most once.
func TestTopicRaces(t *testing.T) {
	t.Parallel()
	w := newWires()
	reg := prometheus.NewRegistry()
	g := newGroup(t, func(c *zactor.Config) { c.Topics, c.Metrics = w, zmetrics.NewActor(reg) })
	var next atomic.Int64
	steady := spawnListener(t, g, subscribeTo("t0"), zactor.WithMailbox(1<<16))
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for round := range 40 {
				seen := map[int64]bool{}
				start := subscribeTo(fmt.Sprint("t", k%2), "t0")
				ref, err := g.Spawn("", func() zactor.Actor {
					return &actor{start: start, handlers: []zactor.Handler{
						zactor.HandleTell(func(c *zactor.Context, s *testpb.Pong) error {
							if seen[s.GetN()] {
								t.Errorf("message %d came twice", s.GetN())
							}
							seen[s.GetN()] = true
							if len(seen)%5 == 0 {
								c.Unsubscribe("t0")
								return errors.Join(c.Subscribe("t2"), c.SubscribeQueue("t1", "q"))
							}
							return nil
						}),
					}}
				})
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					if err := g.PublishTopicLocal("t0", say(next.Add(1))); err != nil {
						t.Error(err)
					}
				}
				stop := g.Stop
				if round%2 == 0 {
					stop = g.StopDrained
				}
				if err := stop(ref); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool { return g.Len() == 1 })
	steady.do(func(*zactor.Context) {})
	if n := len(steady.heard); n != 4*40*20 {
		t.Errorf("the one that stayed heard %d of %d", n, 4*40*20)
	}
	if err := g.StopWait(testContext(t), steady.Ref); err != nil {
		t.Fatal(err)
	}
	if len(w.wanted) != 0 || slices.Contains(w.calls, "again") {
		t.Errorf("left %v; told twice: %v", w.wanted, slices.Contains(w.calls, "again"))
	}
	for _, name := range []string{"topics", "queues", "subscriptions"} {
		if got := count(t, reg, "zgame_topics_"+name, ""); got != 0 {
			t.Errorf("%v %s left", got, name)
		}
	}
}

// A message carries who published it, and the trace of what made him, here and to other nodes.
func TestTopicHead(t *testing.T) {
	t.Parallel()
	w := newWires()
	heads := make(chan string, 10)
	g := newGroup(t, func(c *zactor.Config) { c.Topics = w })
	spawn(t, g, "", func() zactor.Actor {
		return &actor{start: subscribeTo("t"), handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Pong) error {
			heads <- fmt.Sprint(c.Sender().Address(), c.Trace()[0], c.Session().IsZero(), c.MessageID() != 0)
			return nil
		})}}
	})
	publisher := spawnListener(t, g, nil)
	publisher.jobs <- func(c *zactor.Context) {
		if err := c.PublishTopic("t", say(1)); err != nil {
			t.Error(err)
		}
	}
	id, _ := zmsg.IDOf(&testpb.Note{})
	m := zmsg.NewMessage(id)
	m.Value, m.Trace.ID, m.Session = &testpb.Note{}, zmsg.TraceID{7}, zmsg.SessionRef{ID: 5}
	if err := publisher.Deliver(m); err != nil {
		t.Fatal(err)
	}
	if got, want := receive(t, heads), fmt.Sprint(publisher.Address(), 7, true, true); got != want {
		t.Errorf("head %s, want %s", got, want)
	}
	pong, _ := zmsg.IDOf(say(0))
	far := zmsg.NewMessage(pong)
	far.From, far.Trace.ID = zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 3}, Actor: 4}, zmsg.TraceID{8}
	from := far.From
	g.TopicMessage("t", far)
	if got, want := receive(t, heads), fmt.Sprint(from, 8, true, true); got != want {
		t.Errorf("head of another node's %s, want %s", got, want)
	}
}
