package zmetrics

// Topics is what publish and subscribe between actors counts. What a subscriber missed because of its mailbox is among the actors' dead
// letters (topic_full, topic_draining).
type Topics struct {
	Topics         Gauge      // topics with a subscriber on this node
	Queues         Gauge      // queues of topics with a member on this node
	Subscriptions  Gauge      // of actors, in queues too
	Published      Counter    // messages published to all nodes
	PublishedLocal Counter    // messages published to this node alone
	Delivered      CounterVec // messages put into mailboxes, by where they came from: local, remote, queue
	// Dropped are messages that no member of a queue has for sure, by reason: queue_unknown_actor (no member was there), queue_busy (none had
	// room), queue_unavailable (none could be reached), queue_unknown (nobody knows).
	Dropped   CounterVec
	Fallbacks Counter // times that a queue's message went to the next node, because one did not take it
	Failures  Counter // subscriptions that the bus refused, to be tried again
}

func newTopics(reg Registerer) *Topics {
	m := maker{reg, "topics"}
	return &Topics{
		Topics:         m.gauge("topics", "Topics with a subscriber on this node."),
		Queues:         m.gauge("queues", "Queues of topics with a member on this node."),
		Subscriptions:  m.gauge("subscriptions", "Subscriptions of this node's actors."),
		Published:      m.counter("published_total", "Messages published to all nodes."),
		PublishedLocal: m.counter("published_local_total", "Messages published to this node alone."),
		Delivered:      m.counterVec("delivered_total", "Messages put into mailboxes, by where they came from.", "from"),
		Dropped:        m.counterVec("dropped_total", "Messages that no member of a queue has for sure, by reason.", "reason"),
		Fallbacks:      m.counter("fallbacks_total", "Times that a queue's message went to the next node."),
		Failures:       m.counter("subscribe_failures_total", "Subscriptions that the bus refused, to be tried again."),
	}
}
