package znode

// GatherSums is what a point of the charts costs.
func (n *Node) GatherSums() (map[string]float64, error) { return n.gatherSums() }
