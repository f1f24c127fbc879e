package zactor

import (
	"context"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// ErrTooManyTopics says that the actor, or the group, has as many subscriptions as Config allows.
var ErrTooManyTopics = errors.New("zactor: too many topics: see Config.ActorTopics, MaxTopics and MaxQueues")

var (
	errTopic error = &zmsg.Error{
		Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the name of a topic, or of a queue, is text of 1 to 256 bytes",
	}
	errNotSubscribed error = &zmsg.Error{Code: zmsg.CodeNotFound, Outcome: zmsg.NotExecuted, Text: "no actor of this node subscribes to the topic"}
)

func topicName(s string) bool { return s != "" && len(s) <= 256 && utf8.ValidString(s) }

// Subscribe has what is published on the topic, on any node, come to this actor as a one-way message: to the handler of its
// message id; without one it is a dead letter. Subscribing twice is subscribing once. Topics are names as they are: there are no
// wildcards.
//
// It does not wait. What this node publishes comes from now on; what others do, from when the bus has confirmed, which
// Group.AwaitTopic waits for. A bus that is down is tried again, and a subscription outlives its absence; what others publish
// meanwhile is lost.
//
// A subscription ends with Unsubscribe and with the actor. Over a restart it goes on, and what comes waits in the mailbox, if OnStart
// subscribes again; else it ends when the new instance has started.
//
// Errors: ErrBadRequest for a name that is no text of 1 to 256 bytes, ErrTooManyTopics, ErrStopped when the actor is about to end.
func (c *Context) Subscribe(topic string) error {
	if !topicName(topic) {
		return errTopic
	}
	return c.subscribe(topicKey{topic: topic})
}

// SubscribeQueue makes this actor a member of the topic's queue: of what is published on the topic each queue gets one copy, at one of
// its members, on whatever node that is. Members take turns: the nodes that have some, and on a node its members. One that does
// not take the message (its mailbox is full, it has ended, its node is gone or draining) is passed over for the next; once it is in a mailbox
// it stays there.
//
// A member takes part in what this node publishes from now on, and for others as soon as discovery has told them. The rest is
// as with Subscribe. An actor that subscribes to the topic as well gets it twice.
func (c *Context) SubscribeQueue(topic, queue string) error {
	if !topicName(topic) || !topicName(queue) {
		return errTopic
	}
	return c.subscribe(topicKey{topic, queue})
}

// Unsubscribe takes Subscribe back. What has come already waits in the mailbox.
func (c *Context) Unsubscribe(topic string) { c.unsubscribe(topicKey{topic: topic}) }

// UnsubscribeQueue takes SubscribeQueue back. What has come already waits in the mailbox.
func (c *Context) UnsubscribeQueue(topic, queue string) { c.unsubscribe(topicKey{topic, queue}) }

func (k topicKey) String() string {
	if k.queue == "" {
		return k.topic
	}
	return k.topic + " queue " + k.queue
}

func (c *Context) subscribe(k topicKey) error {
	if c.tap != nil {
		return c.tap.effect(c, opSubscribe, effect{text: k.String()}, func() error { return c.cell.subscribe(k) })
	}
	return c.cell.subscribe(k)
}

func (c *Context) unsubscribe(k topicKey) {
	if c.tap != nil {
		_ = c.tap.effect(c, opUnsubscribe, effect{text: k.String()}, func() error { c.cell.unsubscribe(k); return nil })
		return
	}
	c.cell.unsubscribe(k)
}

func (c *cell) subscribe(k topicKey) error {
	if c.reason() != 0 {
		return zmsg.ErrStopped
	}
	x := c.more()
	if s := x.topics[k]; s != nil {
		s.epoch = c.epoch.Load()
		return nil
	}
	if len(x.topics) >= c.g.cfg.ActorTopics {
		return ErrTooManyTopics
	}
	s := &subscription{key: k, c: c, epoch: c.epoch.Load()}
	if err := c.g.topics.add(s); err != nil {
		return err
	}
	if x.topics == nil {
		x.topics = make(map[topicKey]*subscription)
	}
	x.topics[k] = s
	return nil
}

func (c *cell) unsubscribe(k topicKey) {
	x := c.extra.Load()
	if x == nil || x.topics[k] == nil {
		return
	}
	c.g.topics.remove(x.topics[k])
	if delete(x.topics, k); len(x.topics) == 0 {
		x.topics = nil // a map does not shrink
	}
}

// endTopics ends the subscriptions: all, or those that the present instance has not made again.
func (c *cell) endTopics(all bool) {
	x := c.extra.Load()
	if x == nil {
		return
	}
	for k, s := range x.topics {
		if all || s.epoch != c.epoch.Load() {
			c.unsubscribe(k)
		}
	}
}

// PublishTopic sends msg to each actor, on any node, that subscribes to the topic, this one too if it does, once, and to one member of each
// of the topic's queues, as a one-way message: in the order of what this actor sends each of them, also by Tell. (Groups of
// sessions are another thing: see Publish.) msg must not be changed afterwards, by nobody: subscribers in this process get
// it as it is; for others it is encoded once.
//
// It does not wait for anybody. A subscriber whose mailbox is full misses the message, as WithOverflow says (one that lets senders
// wait rejects it): that is a dead letter with the reason topic_full.
//
// On an error nobody gets it: ErrUnavailable (the bus is down), ErrBusy (too much waits to be sent), ErrTooLarge, ErrBadRequest (the
// name, or the message has no id or does not encode). No error says only that the bus has it: nobody may subscribe.
func (c *Context) PublishTopic(topic string, msg proto.Message) error {
	return c.publishTopic(opPublishTopic, topic, msg, true)
}

// PublishTopicLocal is PublishTopic to the actors of this node alone, and to its members of the topic's queues. It needs no bus.
func (c *Context) PublishTopicLocal(topic string, msg proto.Message) error {
	return c.publishTopic(opPublishTopicLocal, topic, msg, false)
}

func (c *Context) publishTopic(op opKind, topic string, msg proto.Message, everywhere bool) error {
	if c.tap != nil {
		return c.tap.effect(c, op, effect{text: topic, msg: msg}, func() error {
			return c.cell.g.publish(topic, msg, c.cell, c.SendTrace(), everywhere)
		})
	}
	return c.cell.g.publish(topic, msg, c.cell, c.SendTrace(), everywhere)
}

// PublishTopic is Context.PublishTopic for who is no actor. While the group drains it is refused with ErrDraining.
func (g *Group) PublishTopic(topic string, msg proto.Message) error {
	return g.publishOutside(topic, msg, true)
}

// PublishTopicLocal is Context.PublishTopicLocal for who is no actor. While the group drains it is refused with ErrDraining.
func (g *Group) PublishTopicLocal(topic string, msg proto.Message) error {
	return g.publishOutside(topic, msg, false)
}

func (g *Group) publishOutside(topic string, msg proto.Message, everywhere bool) error {
	switch {
	case g.replay != nil:
		g.replay.note("publish on topic %s %s", topic, messageText(msg))
		return nil
	case g.draining.Load():
		return zmsg.ErrDraining
	default:
		return g.publish(topic, msg, nil, zmsg.Trace{}, everywhere)
	}
}

// AwaitTopic waits until what any node publishes on the topic from now on reaches the actors of this node that subscribe to
// it. A busy actor waits in Async. Errors: ErrNotFound when no actor of this node subscribes, ErrUnavailable when the node stops, ctx's.
func (g *Group) AwaitTopic(ctx context.Context, topic string) error {
	if cells, _ := g.topics.subscribers(topic); len(cells) == 0 {
		return errNotSubscribed
	}
	if g.cfg.Topics == nil {
		return nil
	}
	return g.cfg.Topics.Await(ctx, topic)
}

// publish sends msg to who subscribes: everywhere, or of this group.
func (g *Group) publish(topic string, msg proto.Message, from *cell, trace zmsg.Trace, everywhere bool) error {
	if !topicName(topic) {
		return errTopic
	}
	id, ok := zmsg.IDOf(msg)
	if !ok {
		return errNoID
	}
	cells, queues := g.topics.subscribers(topic)
	there := everywhere && g.cfg.Topics != nil
	if there {
		m := topicMessage(id, msg, from, trace)
		err := g.cfg.Topics.Publish(topic, m)
		m.Release()
		if err != nil {
			return err
		}
		g.cfg.Metrics.Topics.Published.Inc()
		queues = nil // served by Topics
	} else {
		g.cfg.Metrics.Topics.PublishedLocal.Inc()
	}
	delivered := 0
	for _, c := range cells {
		it := item{value: msg, from: from}
		if !trace.IsZero() {
			it.msg, it.id = topicMessage(id, msg, from, trace), id
		}
		if c.take(&it) {
			delivered++
		}
	}
	g.topicCounts.local.Add(float64(delivered))
	for _, q := range queues {
		m := topicMessage(id, msg, from, trace)
		if err := g.queueMessage(topic, q.name, m); err != nil {
			g.cfg.Metrics.Topics.Dropped.With("queue_" + zmsg.CodeOf(err).String()).Inc()
			m.Release()
		}
	}
	return nil
}

func topicMessage(id uint32, msg proto.Message, from *cell, trace zmsg.Trace) *zmsg.Message {
	m := zmsg.NewMessage(id)
	m.Value, m.Trace = msg, trace
	queued(m)
	if from != nil {
		m.From = from.address()
	}
	return m
}

// take puts a topic's message into the mailbox, or drops it: nobody can be told. It reports whether it is in. The item's message, if it has
// one, is given away.
func (c *cell) take(it *item) bool {
	err := c.pushUser(it)
	if err != nil {
		err = c.overflow(it, err, patience{})
	}
	if err == nil {
		return true
	}
	if zmsg.CodeOf(err) == zmsg.CodeBusy {
		c.g.deadLetter(c, it, deadTopicFull)
	} // else the actor has ended, and its subscription with it
	if it.msg != nil {
		it.msg.Release()
		it.msg = nil
	}
	return false
}

// TopicMessage takes what another node published on the topic, and owns it: for each actor of this group that subscribes.
func (g *Group) TopicMessage(topic string, m *zmsg.Message) {
	cells, _ := g.topics.subscribers(topic)
	draining, delivered := g.draining.Load(), 0
	var body []byte
	if len(cells) > 1 {
		body = m.ShareBody()
	}
	for i, c := range cells {
		own := m
		if i < len(cells)-1 { // the body is shared: nobody changes it
			own = zmsg.NewMessage(m.ID)
			own.CopyHead(m)
			own.Value = m.Value
			own.BorrowBody(body)
		} else {
			m = nil
		}
		it := item{msg: own, id: own.ID}
		if own.Value != nil {
			it.value = own.Value
		}
		switch {
		case draining:
			g.refused(zmsg.ErrDraining)
			c.drop(&it, deadTopicDraining, nil)
		case c.take(&it):
			delivered++
		}
	}
	g.topicCounts.remote.Add(float64(delivered))
	if m != nil {
		m.Release()
	}
}

// QueueMessage gives m to one of this group's members of a topic's queue: whose turn it is, or the next that has room. A nil error means
// that it took m over. Errors: ErrUnknownActor when there is no member, ErrBusy when none has room, ErrDraining.
func (g *Group) QueueMessage(topic, queue string, m *zmsg.Message) error {
	if g.draining.Load() {
		return zmsg.ErrDraining
	}
	return g.queueMessage(topic, queue, m)
}

func (g *Group) queueMessage(topic, queue string, m *zmsg.Message) error {
	cells, first := g.topics.queue(topic, queue)
	err := zmsg.ErrUnknownActor
	for i := range cells {
		c := cells[(first+i)%len(cells)]
		it := item{msg: m, id: m.ID}
		if m.Value != nil {
			it.value = m.Value
		}
		e := c.pushUser(&it)
		if e != nil {
			e = c.overflow(&it, e, patience{})
		}
		if e == nil {
			g.topicCounts.queue.Inc()
			return nil
		}
		if zmsg.CodeOf(e) == zmsg.CodeBusy {
			err = zmsg.ErrBusy
		}
	}
	return err
}
