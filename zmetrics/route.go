package zmetrics

// Route is what a dispatcher counts.
type Route struct {
	// Messages by what became of them: local, remote, busy, no_route, failed, parked, object.
	Messages CounterVec
	// Fallbacks counts tries of a further remote candidate, by how the one before failed: sync (the link refused to
	// send), reply (it answered that the request did not run).
	Fallbacks CounterVec
	// LateReplies counts outcomes of requests that had ended before.
	LateReplies Counter
	Exhausted   Counter // requests for which every remote candidate failed after the first was sent

	// Moves counts how it ended that a key waited for the actor that it moved from: passed (it has handled what it got), gone,
	// unavailable (the bus), expired.
	Moves CounterVec
	// MoveDrops counts messages of such keys that did not go on: requests were answered, NotExecuted, one-way messages are lost. By
	// cause: full, unavailable, expired, no_route (when they went on).
	MoveDrops CounterVec
	Parked    Gauge // messages that wait so now
}

// NewRoute makes the set; reg may be nil.
func NewRoute(reg Registerer) *Route {
	m := maker{reg, "route"}
	return &Route{
		Messages:    m.counterVec("messages_total", "Messages by what the dispatcher did with them.", "outcome"),
		Fallbacks:   m.counterVec("fallbacks_total", "Further remote candidates tried, by how the one before failed.", "cause"),
		LateReplies: m.counter("late_replies_total", "Outcomes of requests that had ended before."),
		Exhausted:   m.counter("exhausted_total", "Requests that every remote candidate failed."),
		Moves:       m.counterVec("moves_total", "Keys that moved in order, by how the wait for the actor before ended.", "outcome"),
		MoveDrops:   m.counterVec("move_drops_total", "Messages of moving keys that did not go on, by cause.", "cause"),
		Parked:      m.gauge("parked", "Messages of moving keys that wait now."),
	}
}
