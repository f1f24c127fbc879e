package zactor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
)

// Topics carries topics between nodes; znode makes it of the Link and discovery. Its methods but Await do not block, and do not call the group,
// but for Publish, which may call Group.QueueMessage.
type Topics interface {
	// Publish sends m to the other nodes that have a subscriber of the topic, and to one member of each of the topic's queues,
	// here or there. It does not keep m. On an error nobody gets it.
	Publish(topic string, m *zmsg.Message) error
	// Subscribe says that this node has a subscriber of the topic from now on, Unsubscribe that it has none any more. Which
	// of both was called last counts. What arrives goes to Group.TopicMessage.
	Subscribe(topic string)
	Unsubscribe(topic string)
	// SubscribeQueue says that this node has a member of the queue from now on, UnsubscribeQueue that it has none any more.
	// What is for the queue goes to Group.QueueMessage.
	SubscribeQueue(topic, queue string)
	UnsubscribeQueue(topic, queue string)
	// Await waits until what other nodes publish on the topic arrives, after Subscribe.
	Await(ctx context.Context, topic string) error
}

// topicKey names what an actor subscribes to. Without a queue it is every message of the topic.
type topicKey struct{ topic, queue string }

// subscription is one actor's subscription.
type subscription struct {
	// Set at construction.
	key topicKey
	c   *cell

	epoch uint32 // the instance that made it, or made it again; owned by the turn
	at    int    // index in its members; guarded by the shard
}

const topicShards = 64

// topics is the table of the actors that subscribe.
//
// Order of locks: shard, then what Topics has.
type topics struct {
	g      *Group
	count  atomic.Int64 // topics with a subscriber that is in no queue
	queues atomic.Int64 // queues with a member
	shards [topicShards]topicShard
}

type topicShard struct {
	mu sync.RWMutex
	m  map[string]*topic // guarded by mu: with a subscriber; made when needed
	_  [32]byte
}

// topic is guarded by its shard.
type topic struct {
	all    members
	queues []*queue
}

type queue struct {
	name string
	members
	turn atomic.Uint32 // whose turn it is among the members of this group
}

// members is a list of subscriptions. A change takes O(1); the list for readers is made when it is asked for.
type members struct {
	list []*subscription
	snap []*cell // never changed once made; nil: to be made anew
}

func (m *members) add(s *subscription) {
	s.at = len(m.list)
	m.list = append(m.list, s)
	m.snap = nil
}

func (m *members) remove(s *subscription) {
	last := len(m.list) - 1
	m.list[s.at] = m.list[last]
	m.list[s.at].at = s.at
	m.list[last] = nil
	m.list = m.list[:last]
	m.snap = nil
}

func (m *members) cells() []*cell {
	if m.snap == nil && len(m.list) > 0 {
		m.snap = make([]*cell, len(m.list))
		for i, s := range m.list {
			m.snap[i] = s.c
		}
	}
	return m.snap
}

func (t *topics) shard(name string) *topicShard {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return &t.shards[h%topicShards]
}

// below adds one to n if it is below limit.
func below(n *atomic.Int64, limit int) bool {
	if n.Add(1) > int64(limit) {
		n.Add(-1)
		return false
	}
	return true
}

// add makes s known. Errors: ErrTooManyTopics.
func (t *topics) add(s *subscription) error {
	sh := t.shard(s.key.topic)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.m[s.key.topic]
	if e == nil {
		e = &topic{}
	}
	remote := t.g.cfg.Topics
	if s.key.queue == "" {
		if len(e.all.list) == 0 {
			if !below(&t.count, t.g.cfg.MaxTopics) {
				return ErrTooManyTopics
			}
			t.g.cfg.Metrics.Topics.Topics.Inc()
			if remote != nil {
				remote.Subscribe(s.key.topic)
			}
		}
		e.all.add(s)
	} else {
		q := e.queue(s.key.queue)
		if q == nil {
			if !below(&t.queues, t.g.cfg.MaxQueues) {
				return ErrTooManyTopics
			}
			t.g.cfg.Metrics.Topics.Queues.Inc()
			q = &queue{name: s.key.queue}
			e.queues = append(slices.Clip(e.queues), q) // readers share the old slice
			if remote != nil {
				remote.SubscribeQueue(s.key.topic, s.key.queue)
			}
		}
		q.add(s)
	}
	if sh.m == nil {
		sh.m = make(map[string]*topic)
	}
	sh.m[s.key.topic] = e
	t.g.cfg.Metrics.Topics.Subscriptions.Inc()
	return nil
}

// remove ends s.
func (t *topics) remove(s *subscription) {
	sh := t.shard(s.key.topic)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.m[s.key.topic]
	remote := t.g.cfg.Topics
	if s.key.queue == "" {
		if e.all.remove(s); len(e.all.list) == 0 {
			t.count.Add(-1)
			t.g.cfg.Metrics.Topics.Topics.Dec()
			if remote != nil {
				remote.Unsubscribe(s.key.topic)
			}
		}
	} else {
		q := e.queue(s.key.queue)
		if q.remove(s); len(q.list) == 0 {
			e.queues = slices.DeleteFunc(slices.Clone(e.queues), func(o *queue) bool { return o == q })
			t.queues.Add(-1)
			t.g.cfg.Metrics.Topics.Queues.Dec()
			if remote != nil {
				remote.UnsubscribeQueue(s.key.topic, s.key.queue)
			}
		}
	}
	if len(e.all.list) == 0 && len(e.queues) == 0 {
		delete(sh.m, s.key.topic)
	}
	t.g.cfg.Metrics.Topics.Subscriptions.Dec()
}

func (e *topic) queue(name string) *queue {
	for _, q := range e.queues {
		if q.name == name {
			return q
		}
	}
	return nil
}

// subscribers returns the actors that subscribe to the topic without a queue, and its queues. Neither is changed afterwards.
func (t *topics) subscribers(name string) ([]*cell, []*queue) {
	sh := t.shard(name)
	sh.mu.RLock()
	e := sh.m[name]
	if e == nil {
		sh.mu.RUnlock()
		return nil, nil
	}
	cells, queues := e.all.snap, e.queues
	stale := cells == nil && len(e.all.list) > 0
	sh.mu.RUnlock()
	if stale {
		sh.mu.Lock()
		cells = e.all.cells() // of a topic that nobody has any more it is none
		sh.mu.Unlock()
	}
	return cells, queues
}

// queue returns the actors of a queue, and the place of the one whose turn it is.
func (t *topics) queue(topic, name string) (cells []*cell, first int) {
	sh := t.shard(topic)
	sh.mu.RLock()
	var q *queue
	if e := sh.m[topic]; e != nil {
		q = e.queue(name)
	}
	if q == nil {
		sh.mu.RUnlock()
		return nil, 0
	}
	cells = q.snap
	stale := cells == nil
	sh.mu.RUnlock()
	if stale {
		sh.mu.Lock()
		cells = q.cells()
		sh.mu.Unlock()
	}
	if len(cells) == 0 {
		return nil, 0
	}
	return cells, int((q.turn.Add(1) - 1) % uint32(len(cells)))
}
