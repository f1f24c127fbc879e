package zmetrics

// Gate is what a gate counts.
type Gate struct {
	Sessions    Gauge // there now, with a connection or suspended
	Suspended   Gauge // of those, without a connection
	Connections Gauge // open now, those that are no session yet included
	Groups      Gauge // groups with a member here
	// Messages from clients by what became of them: gate, local, remote, object, busy, no_route, no_route_hook, silenced,
	// rate_limited, own_route (of the session), draining, rejected (not routed for any other reason), failed (the dispatcher or a hook failed).
	Messages CounterVec
	// Responses to clients by result code: the codes' names.
	Responses CounterVec
	// Pushes that were accepted for a session.
	Pushes Counter
	// Encodes of pushes, by codec (pb, text): a broadcast is one for each codec, whatever the number of members.
	Encodes CounterVec
	// Compression are the bytes of messages that were compressed, by way (sent, received) and form: plain, and deflated, as they travel.
	Compression CounterVec
	Closes      CounterVec // sessions and logins ended, by reason
	Warnings    Counter    // told to clients that send too much
	Refused     CounterVec // connections refused before the websocket began, by reason
	// Drops of frames for clients, by reason: closed (the session has ended), late (a reply nobody waits for any
	// more), volatile, replaced (by a newer push of class latest), cut (still queued when the connection ended),
	// no_session, stale_session, wrong_gate, watcher, old_owner (of an object that has a newer one), doubled (of an object: it
	// has come before, or too late), kept (for the client of a suspended session, which is told of the gap), forward (late, for a session that
	// another gate has, and it could not be sent on), twice (published to a group, and it has come by the gate before already).
	Drops CounterVec
	Bound Gauge      // sessions that are bound to objects, once for each object
	Binds CounterVec // what owners of objects asked for, by result: ok, old_owner
	Held  Gauge      // pushes of objects that wait for those before them
	// PushWaits are the moves of objects whose last pushes were waited for, by how that ended: over (they came), time, full.
	PushWaits CounterVec
	Gaps      Counter // notices to clients that pushes of an object are missing, or may be
	// Suspends are sessions that began to wait for their clients, by how the connection ended; full: those that had to end instead.
	Suspends CounterVec
	Resumes  CounterVec // clients that wanted their session back, by result: ok, or why not: expired, invalid, user, off
	// Handovers are sessions that went from gate to gate, by what there was: given (to another gate), taken (from another one), late (something for a session that was given away came, and was
	// sent on), silent (a gate that was asked did not answer in time), left (Shutdown did not wait any longer for somebody to take it).
	Handovers CounterVec
	Replayed  Counter // pushes that were sent again to clients that came back
	// Repeats are requests that clients sent again after they came back, by what became of them: answered (the response as before),
	// in_flight, asked (an object knew whether it had run, or ran it), forgotten (nobody knows).
	Repeats CounterVec
	// Logins are what the directory of users said of sessions, by result: admitted, replaced, refused, lapsed (the session that it was to go on with is not known), again (a session was made known once
	// more), failed (it could not be asked).
	Logins CounterVec
	// SubscribeFailures are failed joins and leaves of groups at the bus; they are tried again.
	SubscribeFailures Counter
}

// NewGate makes the set; reg may be nil.
func NewGate(reg Registerer) *Gate {
	m := maker{reg, "gate"}
	return &Gate{
		Sessions:    m.gauge("sessions", "Sessions that there are now, with a connection or suspended."),
		Suspended:   m.gauge("suspended", "Sessions that wait for their clients to come back."),
		Suspends:    m.counterVec("suspends_total", "Sessions that began to wait for their clients, by how the connection ended.", "reason"),
		Resumes:     m.counterVec("resumes_total", "Clients that wanted their session back, by result.", "result"),
		Handovers:   m.counterVec("handovers_total", "Sessions that went from gate to gate, and what came late for them, by what there was.", "result"),
		Replayed:    m.counter("replayed_total", "Pushes sent again to clients that came back."),
		Repeats:     m.counterVec("repeats_total", "Requests that clients sent again after they came back, by what became of them.", "result"),
		Connections: m.gauge("connections", "Connections open now, with or without a session."),
		Groups:      m.gauge("groups", "Groups that have a member at this gate."),
		Messages:    m.counterVec("messages_total", "Messages from clients by what became of them.", "outcome"),
		Responses:   m.counterVec("responses_total", "Responses to clients by result code.", "code"),
		Pushes:      m.counter("pushes_total", "Pushes accepted for a session."),
		Encodes:     m.counterVec("push_encodes_total", "Pushes encoded, by codec.", "codec"),
		Compression: m.counterVec("compression_bytes_total", "Bytes of messages that were compressed, by way and form: as they are, and as they travel.", "way", "form"),
		Closes:      m.counterVec("closes_total", "Sessions and logins ended, by reason.", "reason"),
		Warnings:    m.counter("warnings_total", "Warnings to clients that send too much."),
		Refused:     m.counterVec("refused_total", "Connections refused before the websocket began, by reason.", "reason"),
		Drops:       m.counterVec("drops_total", "Frames for clients that were dropped, by reason.", "reason"),
		Bound:       m.gauge("bound", "Sessions that are bound to objects, once for each object."),
		Binds:       m.counterVec("binds_total", "Bindings of sessions that owners of objects asked for, by result.", "result"),
		Held:        m.gauge("pushes_held", "Pushes of objects that wait for those before them."),
		PushWaits:   m.counterVec("push_waits_total", "Moves of objects whose last pushes were waited for, by how that ended.", "result"),
		Logins:      m.counterVec("logins_total", "What the directory of users said of sessions, by result.", "result"),
		Gaps:        m.counter("gaps_total", "Notices to clients that pushes of an object are missing, or may be."),
		SubscribeFailures: m.counter("subscribe_failures_total",
			"Failed joins and leaves of groups at the bus, each tried again."),
	}
}

// Auth is what an authenticator of signed tokens counts.
type Auth struct {
	// Tokens by result: ok, expired, early, audience, issuer, subject, signature, algorithm, key (unknown), malformed.
	Tokens   CounterVec
	KeyLoads CounterVec // loads of keys from their source, by result: ok, failed
	Keys     Gauge      // as of the last load
}

// NewAuth makes the set; reg may be nil.
func NewAuth(reg Registerer) *Auth {
	m := maker{reg, "auth"}
	return &Auth{
		Tokens:   m.counterVec("tokens_total", "Tokens of logins by result.", "result"),
		KeyLoads: m.counterVec("key_loads_total", "Loads of the keys that tokens are signed with, by result.", "result"),
		Keys:     m.gauge("keys", "Keys that tokens may be signed with."),
	}
}
