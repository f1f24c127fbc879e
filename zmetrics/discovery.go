package zmetrics

// Discovery is what a discovery driver counts.
type Discovery struct {
	Up       Gauge      // 1 while the service answers
	Nodes    Gauge      // nodes on the list, as last seen
	Renewals CounterVec // renewals of the own lease by outcome: ok, failed, lost
	Relists  CounterVec // full reads of the list by reason: first, compacted, ended, silent
	Changes  Counter    // lists sent to watchers
	// Elections counts leaderships of this process, by what became of them: won, resigned, lost (not with the membership).
	Elections CounterVec
}

// NewDiscovery makes the set; reg may be nil.
func NewDiscovery(reg Registerer) *Discovery {
	m := maker{reg, "discovery"}
	return &Discovery{
		Up:        m.gauge("up", "1 while the discovery service answers."),
		Nodes:     m.gauge("nodes", "Nodes on the list, as last seen."),
		Renewals:  m.counterVec("renewals_total", "Renewals of the node's lease, by outcome.", "outcome"),
		Relists:   m.counterVec("relists_total", "Full reads of the list of nodes, by reason.", "reason"),
		Changes:   m.counter("changes_total", "Lists of nodes sent to watchers."),
		Elections: m.counterVec("elections_total", "Leaderships of this process: won, resigned, lost.", "result"),
	}
}
