package znode

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"zgame/internal/lograte"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// topics carries publish and subscribe between nodes. Each topic that has a subscriber here is one subscription at the bus;
// queues are in queues. It satisfies zactor.Topics.
//
// A topic becomes wanted, or not, at once; its subscription follows by workers that run while there is something to do. One works
// on a topic at a time, so that what was wanted last is what it comes to.
//
// Order of locks: what the caller has (a shard of the group), mu.
type topics struct {
	*queues

	// Set while the node is wired.
	link    topicLink
	group   topicGroup
	metrics *zmetrics.Topics
	log     *slog.Logger
	ctx     context.Context //nolint:containedctx // the workers' life; close cancels it
	cancel  context.CancelFunc
	wg      sync.WaitGroup // the workers
	failLog lograte.Limiter

	mu      sync.Mutex
	all     map[string]*joined // guarded by mu: wanted, or at the bus
	todo    []*joined          // guarded by mu: whose subscription is not what is wanted, and that no worker has
	workers int                // guarded by mu
	closed  bool               // guarded by mu
}

// topicLink is the part of zbus.Link that topics need.
type topicLink interface {
	JoinTopic(ctx context.Context, topic string) error
	LeaveTopic(topic string) error
	PublishTopic(topic string, m *zmsg.Message) error
	SendQueue(to zmsg.NodeRef, topic, queue string, m *zmsg.Message, r zmsg.Replier, token uint64) error
}

// topicGroup is the part of zactor.Group that topics need.
type topicGroup interface {
	TopicMessage(topic string, m *zmsg.Message)
	QueueMessage(topic, queue string, m *zmsg.Message) error
}

// joined is a topic's subscription at the bus, guarded by topics.mu.
type joined struct {
	topic  string
	wanted bool
	there  bool
	busy   bool          // a worker has it, or it is in todo
	ready  chan struct{} // closed when it is there; nil if nobody waits
}

// Bounds of the workers.
const (
	topicWorkers  = 16
	topicPatience = 5 * time.Second // for the bus to confirm
	topicFirst    = 50 * time.Millisecond
	topicMost     = 2 * time.Second // between two tries of a worker
)

func newTopics(self *zmsg.Self, link topicLink, touch func(), log *slog.Logger) *topics {
	t := &topics{link: link, log: log, all: map[string]*joined{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.queues = newQueues(t, self, touch)
	return t
}

// Publish implements zactor.Topics.
func (t *topics) Publish(topic string, m *zmsg.Message) error {
	if err := t.link.PublishTopic(topic, m); err != nil {
		return err
	}
	t.toQueues(topic, m)
	return nil
}

// Subscribe implements zactor.Topics.
func (t *topics) Subscribe(topic string) { t.want(topic, true) }

// Unsubscribe implements zactor.Topics.
func (t *topics) Unsubscribe(topic string) { t.want(topic, false) }

func (t *topics) want(topic string, wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.all[topic]
	if j == nil {
		if !wanted {
			return
		}
		j = &joined{topic: topic}
		t.all[topic] = j
	}
	j.wanted = wanted
	t.nextLocked(j)
}

// nextLocked sees that the subscription becomes what is wanted. t.mu is held, no worker has j.
func (t *topics) nextLocked(j *joined) {
	switch {
	case j.busy || t.closed:
		return
	case j.wanted == j.there:
		if !j.wanted {
			delete(t.all, j.topic)
		}
		if j.ready != nil {
			close(j.ready) // or nobody subscribes any more
			j.ready = nil
		}
		return
	}
	j.busy = true
	t.todo = append(t.todo, j)
	if t.workers < topicWorkers {
		t.workers++
		t.wg.Go(t.work) // owned by t; ends when there is nothing to do, or with close, which waits for it
	}
}

// work does what there is to do.
func (t *topics) work() {
	pause := topicFirst
	for {
		t.mu.Lock()
		if len(t.todo) == 0 || t.closed {
			t.workers--
			t.mu.Unlock()
			return
		}
		j := t.todo[0]
		t.todo[0] = nil
		t.todo = t.todo[1:]
		wanted := j.wanted
		t.mu.Unlock()

		var err error
		if wanted != j.there { // else it has changed its mind; only this worker writes there
			err = t.sync(j.topic, wanted)
		}

		t.mu.Lock()
		j.busy = false
		if err == nil {
			j.there = wanted
			pause = topicFirst
		}
		t.nextLocked(j)
		t.mu.Unlock()
		if err == nil || t.ctx.Err() != nil {
			continue
		}
		t.metrics.Failures.Inc()
		if suppressed, ok := t.failLog.Allow(time.Now()); ok {
			t.log.Warn("subscription of a topic failed, it is tried again", "topic", j.topic, "err", err, "suppressed", suppressed)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, topicMost)
	}
}

// sync makes the topic's subscription there, or not.
func (t *topics) sync(topic string, wanted bool) error {
	if !wanted {
		if err := t.link.LeaveTopic(topic); err != nil {
			t.log.Debug("leaving a topic", "topic", topic, "err", err) // it goes with the connection at the latest
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, topicPatience)
	defer cancel()
	return t.link.JoinTopic(ctx, topic)
}

var errTopicsClosed error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the node stops"}

var errNotJoined error = &zmsg.Error{Code: zmsg.CodeNotFound, Outcome: zmsg.NotExecuted, Text: "no actor of this node subscribes to the topic"}

// Await implements zactor.Topics.
func (t *topics) Await(ctx context.Context, topic string) error {
	for {
		t.mu.Lock()
		j := t.all[topic]
		switch {
		case t.closed:
			t.mu.Unlock()
			return errTopicsClosed
		case j == nil || !j.wanted:
			t.mu.Unlock()
			return errNotJoined
		case j.there && !j.busy:
			t.mu.Unlock()
			return nil
		}
		if j.ready == nil {
			j.ready = make(chan struct{})
		}
		ready := j.ready
		t.mu.Unlock()
		select {
		case <-ready: // look again: it may have gone meanwhile
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ctx.Done():
			return errTopicsClosed
		}
	}
}

// close ends the workers; what is still at the bus goes with the link. It may be called on nil: of a node that did not come as far.
func (t *topics) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}
