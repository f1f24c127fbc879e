package znode

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// queues sends what is published on a topic to one member of each of its queues. The nodes that have members take turns: those of
// the others' records that are ready, and this one by what it knows of itself. A message goes as a request that the member's node
// answers as soon as it is in a mailbox; one that certainly is in none goes to the next node.
type queues struct {
	// Set at construction.
	t     *topics
	self  *zmsg.Self
	touch func() // the node's record has changed

	view atomic.Pointer[map[string][]*queueView] // by topic; never changed once stored

	mu     sync.Mutex
	own    map[zdiscovery.Queue]struct{} // guarded by mu: with a member here
	others []zdiscovery.Node             // guarded by mu: of the last list, that are ready and have queues
}

// queueView is where the members of a queue are. It is never changed but for turn.
type queueView struct {
	zdiscovery.Queue
	nodes []zmsg.NodeRef // by id; the zero one is this node
	turn  *atomic.Uint32 // stays over changes
}

func newQueues(t *topics, self *zmsg.Self, touch func()) *queues {
	return &queues{t: t, self: self, touch: touch, own: map[zdiscovery.Queue]struct{}{}}
}

// SubscribeQueue implements zactor.Topics.
func (q *queues) SubscribeQueue(topic, queue string) {
	q.set(zdiscovery.Queue{Topic: topic, Name: queue}, true)
}

// UnsubscribeQueue implements zactor.Topics.
func (q *queues) UnsubscribeQueue(topic, queue string) {
	q.set(zdiscovery.Queue{Topic: topic, Name: queue}, false)
}

func (q *queues) set(k zdiscovery.Queue, here bool) {
	q.mu.Lock()
	if here {
		q.own[k] = struct{}{}
	} else {
		delete(q.own, k)
	}
	q.makeLocked()
	q.mu.Unlock()
	q.touch()
}

// record is what the others read about this node's queues.
func (q *queues) record() []zdiscovery.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []zdiscovery.Queue
	for k := range q.own {
		list = append(list, k)
	}
	slices.SortFunc(list, compareQueues)
	return list
}

func compareQueues(a, b zdiscovery.Queue) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Name, b.Name))
}

// apply makes s the list of nodes.
func (q *queues) apply(s *zdiscovery.Snapshot, self zmsg.NodeRef) {
	var others []zdiscovery.Node
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Ref.ID != self.ID && n.State == zdiscovery.Ready && len(n.Queues) > 0 {
			others = append(others, zdiscovery.Node{Ref: n.Ref, Queues: n.Queues})
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.EqualFunc(others, q.others, func(a, b zdiscovery.Node) bool {
		return a.Ref == b.Ref && slices.Equal(a.Queues, b.Queues)
	}) {
		return
	}
	q.others = others
	q.makeLocked()
}

// makeLocked makes the view anew. q.mu is held.
func (q *queues) makeLocked() {
	turns := map[zdiscovery.Queue]*atomic.Uint32{}
	if old := q.view.Load(); old != nil {
		for _, list := range *old {
			for _, v := range list {
				turns[v.Queue] = v.turn
			}
		}
	}
	at := map[zdiscovery.Queue]*queueView{}
	add := func(k zdiscovery.Queue, node zmsg.NodeRef) {
		v := at[k]
		if v == nil {
			v = &queueView{Queue: k, turn: turns[k]}
			if v.turn == nil {
				v.turn = new(atomic.Uint32)
				v.turn.Store(rand.Uint32()) // else all nodes begin with the same one
			}
			at[k] = v
		}
		v.nodes = append(v.nodes, node)
	}
	for k := range q.own {
		add(k, zmsg.NodeRef{})
	}
	for i := range q.others {
		for _, k := range q.others[i].Queues {
			add(k, q.others[i].Ref)
		}
	}
	view := map[string][]*queueView{}
	for k, v := range at {
		view[k.Topic] = append(view[k.Topic], v)
	}
	q.view.Store(&view)
}

// toQueues sends a copy of m to each queue of the topic.
func (q *queues) toQueues(topic string, m *zmsg.Message) {
	view := q.view.Load()
	if view == nil {
		return
	}
	for _, v := range (*view)[topic] {
		d := queuedPool.Get().(*queued)
		d.q, d.view, d.start, d.tried, d.message = q, v, v.turn.Add(1), 0, copyOf(m)
		d.next(m)
	}
}

// copyOf returns a message with what travels of m. The value is shared: nobody changes it.
func copyOf(m *zmsg.Message) *zmsg.Message {
	c := zmsg.NewMessage(m.ID)
	c.From, c.Trace, c.Value = m.From, m.Trace, m.Value
	return c
}

// queued is one message on its way into a queue. It is a zmsg.Replier: each node that it is sent to says whether it took it.
type queued struct {
	q       *queues
	view    *queueView
	start   uint32
	tried   int
	message *zmsg.Message
}

var queuedPool = sync.Pool{New: func() any { return new(queued) }}

// next gives the message to the next node, and so on until one takes it, or it is on its way to one. From then on d is the outcome's.
// m is the message, encoded if it can be; it stays the caller's.
func (d *queued) next(m *zmsg.Message) {
	t, nodes := d.q.t, d.view.nodes
	last := zmsg.ErrUnknownActor
	for d.tried < len(nodes) {
		node := nodes[(int(d.start%uint32(len(nodes)))+d.tried)%len(nodes)]
		if d.tried > 0 {
			t.metrics.Fallbacks.Inc()
		}
		d.tried++
		if node.IsZero() {
			c := copyOf(d.message)
			if last = t.group.QueueMessage(d.view.Topic, d.view.Name, c); last == nil {
				d.end("")
				return
			}
			c.Release()
			continue
		}
		if last = t.link.SendQueue(node, d.view.Topic, d.view.Name, m, d, 0); last == nil {
			return
		}
	}
	d.end(zmsg.CodeOf(last).String())
}

// Reply implements zmsg.Replier.
func (d *queued) Reply(_ uint64, r *zmsg.Reply) {
	switch {
	case r.Code == zmsg.CodeOK:
		d.end("")
	case r.Outcome == zmsg.NotExecuted:
		if d.tried == len(d.view.nodes) {
			d.end(r.Code.String())
			return
		}
		d.next(d.message)
	default:
		d.end("unknown")
	}
}

// end counts a message that no member has for sure, and gives d back.
func (d *queued) end(reason string) {
	if reason != "" {
		d.q.t.metrics.Dropped.With("queue_" + reason).Inc()
	}
	d.message.Release()
	*d = queued{}
	queuedPool.Put(d)
}

// onQueue takes a message for one of this node's members of a queue: its sender learns at once whether a mailbox has it. It runs on the link's
// receiving goroutine.
func (t *topics) onQueue(topic, queue string, m *zmsg.Message) {
	to, token := m.TakeReplier()
	m.Deadline = time.Time{} // it was for this word
	var r zmsg.Reply
	if err := t.group.QueueMessage(topic, queue, m); err != nil {
		r = zmsg.ErrorReply(err)
		r.Outcome = zmsg.NotExecuted
		m.Release()
	}
	if to != nil {
		to.Reply(token, &r)
	}
}
