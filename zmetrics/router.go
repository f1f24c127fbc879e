package zmetrics

// Router is what a node counts of stateful actors. The label kind is the kind's name, "" where the node hosts no such kind.
type Router struct {
	Residents   GaugeVec   // objects in memory, by kind
	Routes      Gauge      // routes to objects of other nodes that are remembered, when it was last swept
	Evictions   Counter    // routes that went because there were as many as may be
	Waiting     Gauge      // requests that wait for an object to be found, loaded or saved
	Suspended   Gauge      // 1 while the node's lease is not valid
	Activations CounterVec // objects loaded into memory, by kind and result: ok, failed
	Revived     CounterVec // objects of dead nodes that were brought into memory without a request, by kind and result: ok, failed
	Drops       CounterVec // objects that left memory, by kind and reason: released, fenced, panicked, moved
	// Writes of records by kind, what they were (create, claim, save, release, move) and how they ended: ok, conflict, failed,
	// unknown (counted as soon as that is so, and again when it is known).
	Writes   CounterVec
	Resolved CounterVec // writes of unknown outcome, by what became of them: landed, not
	// Refused are requests that were not run, or of which it is not known, by kind and cause: busy, unavailable, contended, hops,
	// not_found, not_in_server, moved, unusable, lost, panicked, unsavable, ...
	Refused     CounterVec
	Forwards    CounterVec // requests and one-way messages sent on to another node, by hops so far with this one: 1, 2, 3, more
	RouteHits   Counter    // requests of this node whose object's owner was known, and another
	RouteMisses Counter    // requests of this node of whose object nothing was known, or only what is too old
	UnsavedAge  GaugeVec   // the longest time for which an object in memory has what no write has taken, in seconds, by kind; looked for now and then
	Corrections Counter    // route updates sent to where one-way messages came from
	LostOneWay  Counter    // one-way messages that no handler ran for
	DedupHits   Counter    // requests that had run before, and were answered as then
	Resent      CounterVec // requests that clients sent again whose gate was gone, by result: ran (they had not), answered (as then, or with who runs it), unknown (not run)
	Forgotten   Counter    // sessions whose requests an object has forgotten before their time, for want of room
	Late        Counter    // outcomes of requests that had ended already
	Overdue     CounterVec // objects that refused requests because they could not be saved for too long, by kind
	// Handoffs are transfers by kind and how they ended: ok, refused, unended, vetoed, too_large, unavailable, moved, unconfirmed.
	Handoffs       CounterVec
	HandoffSeconds HistogramVec // parts of transfers: prepare (served meanwhile), freeze, commit; adopt is the target's
}

// NewRouter makes the set; reg may be nil.
func NewRouter(reg Registerer) *Router {
	m := maker{reg, "router"}
	return &Router{
		Residents:      m.gaugeVec("residents", "Objects in memory, by kind.", "kind"),
		Routes:         m.gauge("routes", "Routes to objects of other nodes that are remembered, when it was last swept."),
		Evictions:      m.counter("route_evictions_total", "Routes that went because there were as many as may be."),
		Waiting:        m.gauge("waiting", "Requests that wait for an object to be found, loaded or saved."),
		Suspended:      m.gauge("suspended", "1 while the node's lease is not valid, so that its objects do not serve."),
		Activations:    m.counterVec("activations_total", "Objects loaded into memory, by kind and result.", "kind", "result"),
		Revived:        m.counterVec("revived_total", "Objects of dead nodes that were brought into memory without a request, by kind and result.", "kind", "result"),
		Drops:          m.counterVec("drops_total", "Objects that left memory, by kind and reason: released, fenced, panicked, moved.", "kind", "reason"),
		Writes:         m.counterVec("writes_total", "Writes of records, by kind, operation and result.", "kind", "op", "result"),
		Resolved:       m.counterVec("unknown_resolved_total", "Writes of unknown outcome, by what became of them: landed, not.", "result"),
		Refused:        m.counterVec("refused_total", "Requests that were not run, or of which that is not known, by kind and cause.", "kind", "cause"),
		Forwards:       m.counterVec("forwards_total", "Requests and one-way messages sent on to another node, by hops so far.", "hops"),
		RouteHits:      m.counter("route_hits_total", "Requests whose object's owner was known, and another node."),
		RouteMisses:    m.counter("route_misses_total", "Requests of whose object nothing was known, or only what is too old."),
		UnsavedAge:     m.gaugeVec("unsaved_age_max_seconds", "The longest time for which an object has what no write has taken, when that was last looked for.", "kind"),
		Corrections:    m.counter("corrections_total", "Route updates sent to where one-way messages came from."),
		LostOneWay:     m.counter("lost_one_way_total", "One-way messages for objects that no handler ran for."),
		DedupHits:      m.counter("dedup_hits_total", "Requests that had run before, and were answered as then."),
		Resent:         m.counterVec("resent_total", "Requests that clients sent again whose gate was gone, by what became of them: ran (they had not), answered (they had, or ran), unknown (not run).", "result"),
		Forgotten:      m.counter("forgotten_sessions_total", "Sessions whose requests an object has forgotten before their time, for want of room (client_dedup)."),
		Late:           m.counter("late_total", "Outcomes of requests that had ended already."),
		Handoffs:       m.counterVec("handoffs_total", "Transfers of objects to other nodes, by kind and result.", "kind", "result"),
		HandoffSeconds: m.durationVec("handoff_seconds", "Parts of transfers: prepare (requests are served), freeze, commit, and at the target adopt.", "phase"),
		Overdue:        m.counterVec("overdue_total", "Objects that refused requests because they could not be saved for too long, by kind.", "kind"),
	}
}
