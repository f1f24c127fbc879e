package zmetrics

// Bus is what a Link counts.
type Bus struct {
	Up       Gauge      // 1 while the bus is connected
	Sent     CounterVec // envelopes handed to the bus, by kind: actor, reply, session, group, topic, object, control
	Received CounterVec // envelopes received, by kind
	Batches  CounterVec // bus messages by direction: sent, received
	Bytes    CounterVec // bytes of them by direction: sent, received
	// Requests to other nodes by how they ended: reply, no_responders, timeout, node_lost, down, too_large, not_sent,
	// closed, busy, missed.
	Requests CounterVec
	Waiting  Gauge // requests that wait for their outcome now
	// Dropped envelopes of this node that nobody waits for, by reason: no_responders, down, full, node_lost, too_large, closed,
	// expired (replies that the bus was down for until their deadline), rejoined.
	Dropped CounterVec
	// LateReplies are replies that no request waited for: late, double, or from a node that was not asked.
	LateReplies Counter
	// Gaps are batches of other nodes by what was wrong with their number: lost (never came), double, swapped (late).
	Gaps CounterVec
	// SlowDrops are bus messages that the driver dropped because this node did not take them fast enough.
	SlowDrops Counter
	// Foreign are bus messages, or envelopes in them, that are not of this cluster's wire, by reason.
	Foreign CounterVec
	Lanes   Gauge // nodes that this node has sent to
	Groups  Gauge // groups that this node receives
	Topics  Gauge // topics that this node receives
}

// NewBus makes the set; reg may be nil.
func NewBus(reg Registerer) *Bus {
	m := maker{reg, "bus"}
	return &Bus{
		Up:          m.gauge("up", "1 while the bus is connected."),
		Sent:        m.counterVec("envelopes_sent_total", "Envelopes handed to the bus, by kind.", "kind"),
		Received:    m.counterVec("envelopes_received_total", "Envelopes received, by kind.", "kind"),
		Batches:     m.counterVec("batches_total", "Bus messages, by direction.", "direction"),
		Bytes:       m.counterVec("bytes_total", "Bytes of bus messages, by direction.", "direction"),
		Requests:    m.counterVec("requests_total", "Requests to other nodes, by how they ended.", "outcome"),
		Waiting:     m.gauge("requests_waiting", "Requests to other nodes that wait now."),
		Dropped:     m.counterVec("dropped_total", "One-way envelopes and replies that were not sent or not received, by reason.", "reason"),
		LateReplies: m.counter("late_replies_total", "Replies that no request waited for."),
		Gaps:        m.counterVec("batch_gaps_total", "Batches with a number that was not the next, by what was wrong.", "kind"),
		SlowDrops:   m.counter("slow_drops_total", "Received bus messages dropped because this node was too slow."),
		Foreign:     m.counterVec("foreign_total", "Bus messages that are not of this cluster's wire, by reason.", "reason"),
		Lanes:       m.gauge("lanes", "Nodes that this node sends to."),
		Groups:      m.gauge("groups", "Groups that this node receives."),
		Topics:      m.gauge("topics", "Topics that this node receives."),
	}
}
