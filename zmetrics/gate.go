package zmetrics

// Gate is what a gate counts.
type Gate struct {
	Sessions Gauge // open now
	// Messages from clients by what became of them: gate, local, remote, busy, no_route, no_route_hook, silenced, rejected.
	Messages CounterVec
	Closes   CounterVec // connections closed, by reason
	Refused  CounterVec // connections refused before a session began, by reason
	Drops    CounterVec // frames for clients that were dropped, by reason
}

// NewGate makes the set; reg may be nil.
func NewGate(reg Registerer) *Gate {
	m := maker{reg, "gate"}
	return &Gate{
		Sessions: m.gauge("sessions", "Sessions open now."),
		Messages: m.counterVec("messages_total", "Messages from clients by what became of them.", "outcome"),
		Closes:   m.counterVec("closes_total", "Connections closed, by reason.", "reason"),
		Refused:  m.counterVec("refused_total", "Connections refused before a session began, by reason.", "reason"),
		Drops:    m.counterVec("drops_total", "Frames for clients that were dropped, by reason.", "reason"),
	}
}
