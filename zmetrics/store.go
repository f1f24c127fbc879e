package zmetrics

// Store is what a driver of zstore counts.
type Store struct {
	// Ops counts calls by method and by result: ok, conflict, not_found, unknown, too_large, unavailable, invalid,
	// cancelled, failed.
	Ops     CounterVec
	Seconds HistogramVec // duration of calls, by method
	Large   Counter      // writes of a state above half of the store's limit
	Tokens  CounterVec   // kvstore: writes by whether the compare-and-set token was remembered (hit) or read first (miss), or was out of date (stale)
}

// NewStore makes the set; reg may be nil.
func NewStore(reg Registerer) *Store {
	m := maker{reg, "store"}
	return &Store{
		Ops:     m.counterVec("ops_total", "Calls of the store, by method and result.", "op", "result"),
		Seconds: m.durationVec("op_seconds", "Duration of calls of the store.", "op"),
		Large:   m.counter("large_states_total", "Writes of a state above half of the store's limit."),
		Tokens:  m.counterVec("tokens_total", "Writes to JetStream by how the compare-and-set token was found.", "result"),
	}
}
