package zmetrics

// Actor is what a group of actors counts.
type Actor struct {
	Actors   Gauge   // alive now
	Spawned  Counter // actors started
	Stopped  CounterVec
	Handled  Counter // messages handled, counted once a batch
	Refused  CounterVec
	Errors   CounterVec // requests that a handler ended with an error, by code
	Panics   Counter    // panics of handlers, hooks, timers and continuations
	Restarts Counter
	// DeadLetters counts messages that no handler ran for, by reason: stopped, no_handler, expired, cancelled,
	// client_mark, stale, dropped_oldest, dropped_newest, topic_full, topic_draining.
	DeadLetters   CounterVec
	Asks          CounterVec // requests asked, by how they ended: ok or the code
	LateReplies   Counter    // outcomes of requests that had ended before
	TimerSkips    Counter    // ticks left out because the one before was still waiting
	AsyncJobs     Gauge      // jobs running or waiting off the actors
	SlowHandlers  Counter    // handlers that ran over the limit
	FullMailboxes Counter    // reports of mailboxes that stayed over their mark
	OverMark      Gauge      // actors whose mailbox is over its mark
	// AsyncRefused counts jobs that a full queue did not take (busy), or that made way for newer ones (dropped).
	AsyncRefused CounterVec
	Records      CounterVec // records of actors that failed, by what became of them: written, failed, skipped
	Topics       *Topics
}

// NewActor makes the set; reg may be nil.
func NewActor(reg Registerer) *Actor {
	m := maker{reg, "actor"}
	return &Actor{
		Actors:        m.gauge("actors", "Actors alive now."),
		Spawned:       m.counter("spawned_total", "Actors started."),
		Stopped:       m.counterVec("stopped_total", "Actors gone, by reason.", "reason"),
		Handled:       m.counter("handled_total", "Messages handled."),
		Refused:       m.counterVec("refused_total", "Messages refused at the mailbox, by reason.", "reason"),
		Errors:        m.counterVec("errors_total", "Errors of handlers, by code.", "code"),
		Panics:        m.counter("panics_total", "Panics in actors."),
		Restarts:      m.counter("restarts_total", "Actors restarted after a panic."),
		DeadLetters:   m.counterVec("dead_letters_total", "Messages that no handler ran for, by reason.", "reason"),
		Asks:          m.counterVec("asks_total", "Requests by how they ended.", "result"),
		LateReplies:   m.counter("late_replies_total", "Outcomes of requests that had ended before."),
		TimerSkips:    m.counter("timer_skips_total", "Ticks left out because the one before was still waiting."),
		SlowHandlers:  m.counter("slow_handlers_total", "Handlers that ran over the limit."),
		FullMailboxes: m.counter("full_mailboxes_total", "Reports of mailboxes that stayed over their mark."),
		OverMark:      m.gauge("actors_over_mark", "Actors whose mailbox is over its mark."),
		AsyncJobs:     m.gauge("async_jobs", "Jobs off the actors, running or waiting."),
		AsyncRefused:  m.counterVec("async_refused_total", "Jobs off the actors that a full queue turned down, by reason.", "reason"),
		Records:       m.counterVec("records_total", "Records of actors that failed: written, failed, skipped.", "result"),
		Topics:        newTopics(reg),
	}
}
