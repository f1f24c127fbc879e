package zmetrics

// Node is what a node counts of itself.
type Node struct {
	Rejoins Counter // times it lost its place in the cluster and joined again, with a new epoch
}

// NewNode makes the set; reg may be nil.
func NewNode(reg Registerer) *Node {
	m := maker{reg, "node"}
	return &Node{
		Rejoins: m.counter("rejoins_total", "Times the node lost its place in the cluster and joined again, with a new epoch."),
	}
}
