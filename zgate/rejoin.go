package zgate

import "zgame/zmsg"

const rejoined = "the gate's node was out of the cluster"

// Rejoin makes the gate that of node, whose epoch is greater than the one before: the node lost its place in the cluster and
// joined again. The other nodes have told their actors that this gate's sessions are closed, so they are: with code 3006 and
// a delay of each client's own when to connect again. The gate goes on accepting. It does not wait for the closing.
func (g *Gate) Rejoin(node zmsg.NodeRef) {
	g.self.Set(node)
	g.mu.Lock()
	conns := g.snapshotLocked()
	g.mu.Unlock()
	for _, c := range conns {
		if s := c.session.Load(); s != nil && s.ref.Gate != node {
			c.close(CloseRejoined, rejoined, closing{delay: g.spread()})
		}
	}
	for _, s := range g.sessions.all() {
		if s.ref.Gate != node {
			s.closeAway(CloseRejoined, rejoined)
		}
	}
}
