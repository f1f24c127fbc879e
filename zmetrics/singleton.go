package zmetrics

// Singletons is what a node counts of the actors that run once in the cluster.
type Singletons struct {
	Leading GaugeVec // by name: 1 while it runs on this node
	// Changes counts, by name, what happened on this node: started, and how that ended: stopped, failed, lost, expired.
	Changes CounterVec
}

// NewSingletons makes the set; reg may be nil.
func NewSingletons(reg Registerer) *Singletons {
	m := maker{reg, "singleton"}
	return &Singletons{
		Leading: m.gaugeVec("leading", "1 while the singleton runs on this node.", "name"),
		Changes: m.counterVec("changes_total", "Starts of the singleton on this node, and how they ended: stopped, failed, lost, expired.", "name", "change"),
	}
}
