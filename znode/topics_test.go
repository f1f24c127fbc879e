package znode

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// fakeTopicLink is a bus link whose calls take a while, and fail when they are told to.
type fakeTopicLink struct {
	t    *testing.T
	fail func() error

	mu     sync.Mutex
	joined map[string]bool
	inside map[string]bool // a call for the topic is under way
	calls  int
	sent   []sentQueue
	refuse map[string]error // by node
}

type sentQueue struct {
	node  string
	value uint64
	reply zmsg.Replier
	token uint64
}

func (l *fakeTopicLink) change(topic string, join bool) error {
	l.mu.Lock()
	if l.calls++; l.inside[topic] {
		l.t.Errorf("two calls for %s at once", topic)
	}
	l.inside[topic] = true
	l.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // in a bubble
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside[topic] = false
	if join && l.fail != nil {
		if err := l.fail(); err != nil {
			return err
		}
	}
	if l.joined[topic] == join {
		l.t.Errorf("%s: joined is %v already", topic, join)
	}
	l.joined[topic] = join
	return nil
}

func (l *fakeTopicLink) JoinTopic(ctx context.Context, topic string) error {
	return errors.Join(ctx.Err(), l.change(topic, true))
}

func (l *fakeTopicLink) LeaveTopic(topic string) error { return l.change(topic, false) }

func (l *fakeTopicLink) has(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joined[topic]
}

func (l *fakeTopicLink) PublishTopic(string, *zmsg.Message) error { return nil }

func (l *fakeTopicLink) SendQueue(to zmsg.NodeRef, _, _ string, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refuse[to.ID]; err != nil {
		return err
	}
	l.sent = append(l.sent, sentQueue{to.ID, m.Seq, r, token})
	return nil
}

func newFakeTopics(t *testing.T, touch func()) (*topics, *fakeTopicLink) {
	t.Helper()
	l := &fakeTopicLink{t: t, joined: map[string]bool{}, inside: map[string]bool{}, refuse: map[string]error{}}
	self := new(zmsg.Self)
	self.Set(zmsg.NodeRef{ID: "self", Epoch: 1})
	tp := newTopics(self, l, touch, slog.New(slog.DiscardHandler))
	tp.metrics = zmetrics.NewActor(nil).Topics
	t.Cleanup(tp.close)
	return tp, l
}

// However wishes and a flaky bus race, the subscription comes to what was wished last, with one call for a topic at a time, and
// nothing is kept of topics that nobody wants.
func TestTopicSubscriptionsFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp, l := newFakeTopics(t, func() {})
		l.fail = func() error {
			if rand.IntN(3) == 0 {
				return errors.New("the bus is moody")
			}
			return nil
		}
		names := []string{"a", "b", "c", "d", "e"}
		wished := map[string]bool{}
		for range 2000 {
			name := names[rand.IntN(len(names))]
			wished[name] = !wished[name]
			tp.want(name, wished[name])
			if rand.IntN(4) == 0 {
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			}
			if wished[name] && rand.IntN(20) == 0 {
				if err := tp.Await(t.Context(), name); err != nil || !l.has(name) {
					t.Fatalf("after waiting for %s: %v, joined %v", name, err, l.has(name))
				}
			}
		}
		time.Sleep(time.Minute)
		for _, name := range names {
			if l.has(name) != wished[name] {
				t.Errorf("%s: joined %v, wished %v", name, l.has(name), wished[name])
			}
			tp.want(name, false)
		}
		time.Sleep(time.Minute)
		tp.mu.Lock()
		defer tp.mu.Unlock()
		if len(tp.all) != 0 || len(tp.todo) != 0 || tp.workers != 0 {
			t.Errorf("left: %d topics, %d to do, %d workers", len(tp.all), len(tp.todo), tp.workers)
		}
	})
}

// Who waits for a subscription hears of its end, of the topic's, and of the node's.
func TestTopicAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp, l := newFakeTopics(t, func() {})
		l.fail = func() error { return errors.New("down") }
		if err := tp.Await(t.Context(), "t"); zmsg.CodeOf(err) != zmsg.CodeNotFound {
			t.Errorf("a topic that nobody wants: %v", err)
		}
		wait := func() <-chan error {
			done := make(chan error, 1)
			go func() { done <- tp.Await(t.Context(), "t") }() // ends as the test says
			synctest.Wait()
			return done
		}
		tp.Subscribe("t")
		gone := wait()
		tp.Unsubscribe("t")
		if err := <-gone; zmsg.CodeOf(err) != zmsg.CodeNotFound {
			t.Errorf("nobody wants it any more: %v", err)
		}
		tp.Subscribe("t")
		closed := wait()
		tp.close()
		if err := <-closed; zmsg.CodeOf(err) != zmsg.CodeUnavailable {
			t.Errorf("the node stops: %v", err)
		}
		if err := tp.Await(t.Context(), "t"); zmsg.CodeOf(err) != zmsg.CodeUnavailable {
			t.Errorf("the node has stopped: %v", err)
		}
	})
}

// counted reads a counter; label is the value of its one label, "" if it has none.
func counted(tb testing.TB, reg *prometheus.Registry, name, label string) float64 {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" && len(m.GetLabel()) == 0 || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// fakeTopicGroup has members of queues.
type fakeTopicGroup struct {
	err error
	got int
}

func (g *fakeTopicGroup) TopicMessage(string, *zmsg.Message) {}

func (g *fakeTopicGroup) QueueMessage(_, _ string, m *zmsg.Message) error {
	if g.err == nil {
		g.got++
		m.Release()
	}
	return g.err
}

// A queue's message goes to the next node only where it certainly is in no mailbox, and to each node at most once.
func TestQueueFallback(t *testing.T) {
	t.Parallel()
	touched := 0
	tp, l := newFakeTopics(t, func() { touched++ })
	reg := prometheus.NewRegistry()
	tp.metrics = zmetrics.NewActor(reg).Topics
	group := &fakeTopicGroup{}
	tp.group = group
	node := func(id string, state zdiscovery.State, queues ...zdiscovery.Queue) zdiscovery.Node {
		return zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: 1}, State: state, Queues: queues}
	}
	q, r := zdiscovery.Queue{Topic: "t", Name: "q"}, zdiscovery.Queue{Topic: "t", Name: "r"}
	s := &zdiscovery.Snapshot{Nodes: []zdiscovery.Node{
		node("a", zdiscovery.Ready, q), node("b", zdiscovery.Ready, q, r), node("draining", zdiscovery.Draining, q), node("self", zdiscovery.Ready, q),
		node("starting", zdiscovery.Starting, q),
	}}
	tp.apply(s, zmsg.NodeRef{ID: "self", Epoch: 1})
	publish := func() []sentQueue {
		t.Helper()
		m := zmsg.NewMessage(1)
		m.SetBody([]byte("x"))
		if err := tp.Publish("t", m); err != nil {
			t.Fatal(err)
		}
		m.Release()
		sent := l.sent
		l.sent = nil
		return sent
	}
	answer := func(s sentQueue, code zmsg.Code, out zmsg.Outcome) []sentQueue {
		s.reply.Reply(s.token, &zmsg.Reply{Code: code, Outcome: out})
		sent := l.sent
		l.sent = nil
		return sent
	}
	to := func(sent []sentQueue) (nodes []string) {
		for _, s := range sent {
			nodes = append(nodes, s.node)
		}
		slices.Sort(nodes)
		return nodes
	}
	seen := map[string]int{}
	for range 10 { // two queues: r is at b, q at a and b in turn
		sent := publish()
		if len(sent) != 2 {
			t.Fatalf("sent to %v, want two queues", to(sent))
		}
		for _, s := range sent {
			seen[s.node]++
			if more := answer(s, zmsg.CodeOK, zmsg.Executed); len(more) > 0 {
				t.Errorf("sent again to %v", to(more))
			}
		}
	}
	if seen["a"] != 5 || seen["b"] != 15 {
		t.Errorf("turns %v, want 5 and 10 + 5", seen)
	}

	// A member here: joins the turns at once, and the record says so.
	tp.SubscribeQueue("t", "q")
	if got := tp.record(); touched != 1 || !slices.Equal(got, []zdiscovery.Queue{q}) {
		t.Errorf("touched %d, record %v", touched, got)
	}
	tp.apply(&zdiscovery.Snapshot{Nodes: s.Nodes[:1]}, zmsg.NodeRef{ID: "self", Epoch: 1}) // q at a and here
	group.err = zmsg.ErrBusy
	for range 4 {
		sent := publish()
		if !slices.Equal(to(sent), []string{"a"}) {
			t.Fatalf("with no room here: sent to %v", to(sent))
		}
		if more := answer(sent[0], zmsg.CodeBusy, zmsg.NotExecuted); len(more) > 0 {
			t.Errorf("sent again to %v", to(more))
		}
	}
	group.err = nil
	before := group.got
	for range 4 {
		for _, s := range publish() {
			if more := answer(s, zmsg.CodeBusy, zmsg.NotExecuted); len(more) > 0 {
				t.Errorf("sent again to %v", to(more))
			}
		}
	}
	if group.got != before+4 {
		t.Errorf("the member here got %d of 4", group.got-before)
	}
	l.refuse["a"] = zmsg.ErrUnavailable
	if sent := publish(); len(sent) != 0 || group.got != before+5 {
		t.Errorf("with a out of reach: sent to %v, %d here", to(sent), group.got-before)
	}
	delete(l.refuse, "a")
	group.err = zmsg.ErrBusy
	sent := publish()
	if more := answer(sent[0], zmsg.CodeTimeout, zmsg.Unknown); len(more) > 0 {
		t.Errorf("nobody knows whether a has it: sent again to %v", to(more))
	}
	tp.UnsubscribeQueue("t", "q")
	tp.apply(&zdiscovery.Snapshot{}, zmsg.NodeRef{ID: "self", Epoch: 1})
	if sent := publish(); len(sent) != 0 || len(tp.record()) != 0 {
		t.Errorf("nobody is left: sent to %v, record %v", to(sent), tp.record())
	}
	for reason, want := range map[string]float64{"queue_busy": 4, "queue_unknown": 1} {
		if got := counted(t, reg, "zgame_topics_dropped_total", reason); got != want {
			t.Errorf("%v dropped with %s, want %v", got, reason, want)
		}
	}
	if got := counted(t, reg, "zgame_topics_fallbacks_total", ""); got < 6 {
		t.Errorf("%v fallbacks", got)
	}
}
