package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// ear is an actor that subscribes when it starts, and keeps the lines that it hears: their numbers, by who said them.
type ear struct {
	topics, queues []string // queues of the first topic

	mu    sync.Mutex
	ref   zactor.Ref
	heard map[string][]uint64
	panic bool
}

func newEar(t *testing.T, n *znode.Node, e *ear, opts ...zactor.SpawnOption) *ear {
	t.Helper()
	e.heard = map[string][]uint64{}
	e.ref = spawn(t, n, actor{start: func(c *zactor.Context) error {
		for _, topic := range e.topics {
			if err := c.Subscribe(topic); err != nil {
				return err
			}
		}
		for _, q := range e.queues {
			if err := c.SubscribeQueue("news", q); err != nil {
				return err
			}
		}
		return nil
	}, handlers: []zactor.Handler{
		zactor.HandleTell(func(_ *zactor.Context, l *chatpb.Line) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.panic {
				e.panic = false
				panic("told to")
			}
			e.heard[l.GetFrom()] = append(e.heard[l.GetFrom()], l.GetSeq())
			return nil
		}),
		zactor.HandleTell(func(c *zactor.Context, l *chatpb.Leave) error { c.Unsubscribe(l.GetRoom()); return nil }),
	}}, append(opts, zactor.Private(), zactor.WithMailbox(1<<16))...)
	return e
}

func (e *ear) of(from string) []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard[from])
}

// hears waits until the ear has heard as many lines as those of from, and says how they differ.
func (e *ear) hears(t *testing.T, from string, want []uint64) {
	t.Helper()
	ztest.Eventually(t, fmt.Sprintf("%d lines of %s", len(want), from), func() bool { return len(e.of(from)) >= len(want) })
	if got := e.of(from); !slices.Equal(got, want) {
		t.Errorf("heard %d lines of %s, want %d, in order: got %v", len(got), from, len(want), got[:min(len(got), 30)])
	}
}

func upTo(n uint64) (list []uint64) {
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// awaits waits until what is published on the topic reaches n.
func awaits(t *testing.T, n *znode.Node, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.Group().AwaitTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, n *znode.Node, topic, from string, seq uint64) {
	t.Helper()
	if err := n.Group().PublishTopic(topic, &chatpb.Line{From: from, Seq: seq}); err != nil {
		t.Fatal(err)
	}
}

// queuesKnown waits until every node has as many nodes with queues in its list.
func queuesKnown(t *testing.T, want int, nodes ...*znode.Node) {
	t.Helper()
	for _, n := range nodes {
		ztest.Eventually(t, "queues are known", func() bool {
			got := 0
			for _, r := range n.Nodes() {
				if len(r.Queues) > 0 && r.State == zdiscovery.Ready {
					got++
				}
			}
			return got == want
		})
	}
}

// Each subscriber on each node hears each line once, in the order of its publisher, also of what he tells it; each queue has it at one of
// its members.
func TestTopics(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]ztest.Option{"memory": nil, "real servers": {ztest.RealServers()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ztest.Cluster(t, 3, none, append(opts, ztest.Settings(quick))...)
			const lines = 600
			var ears, members []*ear
			for k := range 3 {
				n := c.Node(k)
				ears = append(ears, newEar(t, n, &ear{topics: []string{"news", "end"}}), newEar(t, n, &ear{topics: []string{"news", "end"}}))
				members = append(members, newEar(t, n, &ear{queues: []string{"q"}}))
			}
			members = append(members, newEar(t, c.Node(0), &ear{queues: []string{"q"}}))
			for k := range 3 {
				awaits(t, c.Node(k), "news")
				awaits(t, c.Node(k), "end")
			}
			queuesKnown(t, 3, c.Node(0), c.Node(1), c.Node(2))
			for k := range 3 { // every third line is told to one ear of the next node, the others are published
				n, to := c.Node(k), c.Node(k).Group().Ref(ears[2*((k+1)%3)].ref.Address())
				speaker := spawn(t, n, actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *chatpb.Join) error {
					for i := range uint64(lines) {
						l := &chatpb.Line{From: n.Self().ID, Seq: i + 1}
						if i%3 == 0 {
							if err := c.Tell(to, l); err != nil {
								t.Error(err)
							}
						} else if err := c.PublishTopic("news", l); err != nil {
							t.Error(err)
						}
					}
					return nil
				})}}, zactor.Private())
				if err := speaker.Tell(&chatpb.Join{}); err != nil {
					t.Fatal(err)
				}
			}
			published := slices.DeleteFunc(upTo(lines), func(n uint64) bool { return n%3 == 1 })
			for k := range 3 {
				from := c.Node(k).Self().ID
				for i, e := range ears {
					want := published
					if i == 2*((k+1)%3) {
						want = upTo(lines)
					}
					e.hears(t, from, want)
				}
				var all []uint64
				ztest.Eventually(t, "the queue has had all", func() bool {
					all = nil
					for _, e := range members {
						all = append(all, e.of(from)...)
					}
					return len(all) >= len(published)
				})
				for i, e := range members {
					if part := e.of(from); len(part) < lines/20 || !slices.IsSorted(part) {
						t.Errorf("member %d has %d lines of %s, in order: %v; want a fair part, in order", i, len(part), from, slices.IsSorted(part))
					}
				}
				if slices.Sort(all); !slices.Equal(all, published) {
					t.Errorf("the queue has had %d lines of %s, want %d, each once", len(all), from, len(published))
				}
			}
		})
	}
}

// A subscriber that restarts misses nothing but the line that it failed at; a node that joins again, or comes anew, takes part again, and one that
// was killed leaves its queues to the others.
func TestTopicsOverFailures(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	var ears []*ear
	for k := range 3 {
		ears = append(ears, newEar(t, c.Node(k), &ear{topics: []string{"news"}, queues: []string{"q"}}, zactor.WithPolicy(zactor.Policy{MinBackoff: -1})))
		awaits(t, c.Node(k), "news")
	}
	queuesKnown(t, 3, a, b)

	ears[1].mu.Lock()
	ears[1].panic = true
	ears[1].mu.Unlock()
	for i := range uint64(100) {
		if err := a.Group().PublishTopic("end", &chatpb.Line{}); err != nil { // nobody listens: no fault
			t.Fatal(err)
		}
		publish(t, a, "news", "restart", i+1)
	}
	// With its part of the queue: two of three times.
	ztest.Eventually(t, "all but one", func() bool {
		n := 0
		for _, e := range ears {
			n += len(e.of("restart"))
		}
		return n >= 3*100+100-1
	})

	first := b.Self()
	c.Expire(1)
	ztest.Eventually(t, "b is somebody new", func() bool { return b.Self().Epoch > first.Epoch })
	c.Settle()
	ztest.Eventually(t, "a knows the new b", knowsAs(a, b))
	queuesKnown(t, 3, a, b)
	sum := func(from string, ears ...*ear) (n int) {
		for _, e := range ears {
			n += len(e.of(from))
		}
		return n
	}
	for i := range uint64(30) {
		publish(t, a, "news", "a", i+1)
		publish(t, b, "news", "b", i+1)
	}
	for _, from := range []string{"a", "b"} {
		ztest.Eventually(t, "after joining again", func() bool { return sum(from, ears...) >= 4*30 })
		for k, e := range ears {
			if n := len(e.of(from)); n != 30+10 {
				t.Errorf("after b joined again ear %d has %d lines of %s, want 30 and a third of the queue's", k, n, from)
			}
		}
	}

	c.Kill(2)
	for i := range uint64(30) { // some go to the killed node first, while a has it in its list or not
		publish(t, a, "news", "killed", i+1)
	}
	ztest.Eventually(t, "without the killed node", func() bool { return sum("killed", ears[:2]...) >= 3*30 })
	if n := sum("killed", ears[:2]...); n != 3*30 {
		t.Errorf("without the killed node: %d lines, want %d", n, 3*30)
	}
	d := c.Node(c.Add())
	ears[2] = newEar(t, d, &ear{topics: []string{"news"}, queues: []string{"q"}})
	awaits(t, d, "news")
	queuesKnown(t, 3, a, b)
	for i := range uint64(30) {
		publish(t, a, "news", "returned", i+1)
	}
	ztest.Eventually(t, "with the new node", func() bool { return sum("returned", ears...) >= 4*30 })
	if n := len(ears[2].of("returned")); n != 30+10 {
		t.Errorf("the new node's ear has %d lines", n)
	}
}

// While the bus is down publishing says so, and nobody hears it, but this node's by the local form; subscriptions made meanwhile come to be, and old
// ones are there again.
func TestTopicsBusDown(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	old := newEar(t, b, &ear{topics: []string{"old"}})
	here := newEar(t, a, &ear{topics: []string{"old"}})
	awaits(t, b, "old")
	awaits(t, a, "old")
	c.SetBus(false)
	if err := a.Group().PublishTopic("old", &chatpb.Line{From: "a", Seq: 1}); !errors.Is(err, zmsg.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("without the bus: %v", err)
	}
	if err := a.Group().PublishTopicLocal("old", &chatpb.Line{From: "a", Seq: 2}); err != nil {
		t.Errorf("the local form, without the bus: %v", err)
	}
	fresh := newEar(t, b, &ear{topics: []string{"new"}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Group().AwaitTopic(ctx, "new"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a subscription without the bus: %v", err)
	}
	c.SetBus(true)
	awaits(t, b, "new")
	publish(t, a, "old", "a", 3)
	publish(t, a, "new", "a", 4)
	old.hears(t, "a", []uint64{3})
	fresh.hears(t, "a", []uint64{4})
	here.hears(t, "a", []uint64{2, 3})
}

// The same over NATS, for a node whose connection is cut: its subscriptions are there again, also one that was made meanwhile, and its part of
// a queue is done by the other node.
func TestTopicsNATSCut(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Faulty(), ztest.Settings(quickMember))
	a, b, p := c.Node(0), c.Node(1), c.NATSProxy(1)
	old := newEar(t, b, &ear{topics: []string{"old"}, queues: []string{"q"}})
	here := newEar(t, a, &ear{queues: []string{"q"}})
	awaits(t, b, "old")
	queuesKnown(t, 2, a, b)
	with := c.Subscriptions()
	p.Cut()
	missing(t, b, "the bus is down")
	ztest.Eventually(t, "NATS knows that the node is cut off", func() bool { return c.Subscriptions() < with }) // what it takes before is lost on the way
	fresh := newEar(t, b, &ear{topics: []string{"new"}})
	sum := func() int { return len(old.of("a")) + len(here.of("a")) }
	for i := range uint64(20) {
		publish(t, a, "news", "a", i+1)
	}
	ztest.Eventually(t, "the other member does it", func() bool { return len(here.of("a")) == 20 })
	p.Heal()
	awaits(t, b, "new")
	heard := func(e *ear, topic string) {
		t.Helper()
		ztest.Eventually(t, topic+" is heard again", func() bool { publish(t, a, topic, topic, 1); return len(e.of(topic)) > 0 })
	}
	heard(fresh, "new")
	heard(old, "old")
	before := sum()
	for i := range uint64(20) {
		publish(t, a, "news", "a", 100+i)
	}
	ztest.Eventually(t, "both members take part", func() bool { return sum() >= before+20 && len(old.of("a")) >= 5 })
}

// N7: ten thousand topics come and go, and nothing of them is left at the bus.
func TestTopicsLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]ztest.Option{"memory": nil, "real servers": {ztest.RealServers()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const topics, each = 10_000, 500
			c := ztest.Cluster(t, 1, none, append(opts, ztest.Settings(quick))...)
			n := c.Node(0)
			before := c.Subscriptions()
			var refs []zactor.Ref
			for i := range topics / each {
				var names []string
				for k := range each {
					names = append(names, fmt.Sprint("topic ", i*each+k))
				}
				refs = append(refs, newEar(t, n, &ear{topics: names}).ref)
			}
			ztest.Eventually(t, "all topics are subscribed", func() bool { return c.Subscriptions() == before+topics })
			for i, ref := range refs {
				if i%2 == 0 {
					if err := n.Group().Stop(ref); err != nil {
						t.Fatal(err)
					}
					continue
				}
				for k := range each {
					if err := ref.Tell(&chatpb.Leave{Room: fmt.Sprint("topic ", i*each+k)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			ztest.Eventually(t, "no topic is subscribed", func() bool { return c.Subscriptions() == before })
		})
	}
}

// R10: subscribing and unsubscribing race with each other and with publishing; what is wanted last is what it comes to, and no line comes
// twice.
func TestTopicsRaces(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	before := c.Subscriptions()
	steady := newEar(t, b, &ear{topics: []string{"steady"}})
	awaits(t, b, "steady")
	stop := make(chan struct{})
	var publisher sync.WaitGroup
	sent := uint64(0)
	publisher.Go(func() { // ends with stop
		for {
			select {
			case <-stop:
				return
			default:
			}
			sent++
			for _, topic := range []string{"racy", "steady"} {
				for errors.Is(a.Group().PublishTopic(topic, &chatpb.Line{From: "a", Seq: sent}), zmsg.ErrBusy) {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(func() {
			for range 100 {
				e := newEar(t, b, &ear{topics: []string{"racy"}})
				if err := e.ref.Tell(&chatpb.Leave{Room: "racy"}); err != nil {
					t.Error(err)
				}
				if err := b.Group().StopDrained(e.ref); err != nil {
					t.Error(err)
				}
				if got := e.of("a"); !slices.IsSorted(got) || len(slices.Compact(got)) != len(e.of("a")) {
					t.Errorf("twice or out of order: %v", got)
				}
			}
		})
	}
	racers.Wait()
	last := newEar(t, b, &ear{topics: []string{"racy"}})
	awaits(t, b, "racy")
	ztest.Eventually(t, "the last one hears", func() bool { return len(last.of("a")) > 10 })
	close(stop)
	publisher.Wait()
	steady.hears(t, "a", upTo(sent))
	if err := errors.Join(b.Group().Stop(last.ref), b.Group().Stop(steady.ref)); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "nothing is left", func() bool { return c.Subscriptions() == before })
}
