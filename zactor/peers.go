package zactor

import (
	"sync"

	"zgame/zmsg"
)

// peers is the table of watches that cross nodes.
type peers struct {
	g *Group

	mu     sync.Mutex
	last   uint64                             // guarded by mu: number of the newest watch of ours
	ours   map[zmsg.NodeRef]map[uint64]*watch // guarded by mu: on actors of the node
	theirs map[zmsg.NodeRef]map[uint64]*watch // guarded by mu: of the node on actors of ours
}

func newPeers(g *Group) *peers {
	return &peers{g: g, ours: map[zmsg.NodeRef]map[uint64]*watch{}, theirs: map[zmsg.NodeRef]map[uint64]*watch{}}
}

func put(m map[zmsg.NodeRef]map[uint64]*watch, node zmsg.NodeRef, id uint64, w *watch) {
	if m[node] == nil {
		m[node] = map[uint64]*watch{}
	}
	m[node][id] = w
}

func take(m map[zmsg.NodeRef]map[uint64]*watch, node zmsg.NodeRef, id uint64) *watch {
	w := m[node][id]
	delete(m[node], id)
	if len(m[node]) == 0 {
		delete(m, node)
	}
	return w
}

// watch begins a watch of an actor of another node.
func (p *peers) watch(w *watch) {
	addr := w.of.Address()
	switch {
	case p.g.self.Is(addr.Node):
		w.down(UnknownActor) // Group.Ref has not found it
		return
	case p.g.cfg.Watches == nil:
		w.down(LostNode)
		return
	}
	p.mu.Lock()
	p.last++
	w.id = p.last
	put(p.ours, addr.Node, w.id, w)
	p.mu.Unlock()
	if p.g.cfg.Watches.Watch(addr, w.id) != nil {
		p.down(addr.Node, w.id, LostNode)
	}
}

// unwatch takes back a watch of an actor of another node.
func (p *peers) unwatch(w *watch) {
	addr := w.of.Address()
	p.mu.Lock()
	there := take(p.ours, addr.Node, w.id) != nil
	p.mu.Unlock()
	if there {
		_ = p.g.cfg.Watches.Unwatch(addr, w.id) // fails for a node that is gone: it has forgotten the watch
	}
}

func (p *peers) down(node zmsg.NodeRef, id uint64, why Reason) {
	p.mu.Lock()
	w := take(p.ours, node, id)
	p.mu.Unlock()
	if w != nil {
		w.down(why)
	}
}

// forget drops a watch of another node whose actor has ended.
func (p *peers) forget(w *watch) {
	p.mu.Lock()
	if p.theirs[w.peer][w.id] == w {
		take(p.theirs, w.peer, w.id)
	}
	p.mu.Unlock()
}

// PeerWatch takes a watch of another node: its Group.PeerDown is to be called with id when the actor ends, at once if it is
// not there. The same id again is the same watch, asked for once more.
func (g *Group) PeerWatch(from zmsg.NodeRef, id, actor uint64) {
	if g.cfg.Watches == nil {
		return
	}
	c := g.table.get(actor)
	if c == nil {
		_ = g.cfg.Watches.Down(from, id, UnknownActor) // fails for a node that is gone: it has forgotten the watch
		return
	}
	p := g.peers
	p.mu.Lock()
	if p.theirs[from][id] != nil {
		p.mu.Unlock()
		return
	}
	w := &watch{peer: from, id: id, of: Ref{cell: c}}
	put(p.theirs, from, id, w)
	p.mu.Unlock()
	c.watchedBy(w)
}

// PeerUnwatch takes back a watch of another node.
func (g *Group) PeerUnwatch(from zmsg.NodeRef, id uint64) {
	g.peers.mu.Lock()
	w := take(g.peers.theirs, from, id)
	g.peers.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// PeerDown tells that an actor of another node has ended, which this node watches under id.
func (g *Group) PeerDown(from zmsg.NodeRef, id uint64, why Reason) { g.peers.down(from, id, why) }

// PeerLost tells that a node is gone for good: whoever watches an actor of it gets Down with LostNode, and its own watches
// are forgotten.
func (g *Group) PeerLost(node zmsg.NodeRef) {
	p := g.peers
	p.mu.Lock()
	ours, theirs := p.ours[node], p.theirs[node]
	delete(p.ours, node)
	delete(p.theirs, node)
	p.mu.Unlock()
	for _, w := range ours {
		w.down(LostNode)
	}
	for _, w := range theirs {
		w.end()
	}
}

// PeersWatched returns the nodes with which there are watches, either way: those of which PeerLost must tell.
func (g *Group) PeersWatched() []zmsg.NodeRef {
	p := g.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]zmsg.NodeRef, 0, len(p.ours)+len(p.theirs))
	for node := range p.ours {
		out = append(out, node)
	}
	for node := range p.theirs {
		if p.ours[node] == nil {
			out = append(out, node)
		}
	}
	return out
}

// Rejoin makes the group that of node, whose epoch is greater than the one before: the node lost its place in the cluster and
// joined again. Its actors live on, under addresses of the new epoch; addresses of the old one mean the same actors here, and
// nobody on other nodes. The others have ended their watches of this node's actors (LostNode), and have forgotten the
// watches that this node has of theirs: those are asked for again.
func (g *Group) Rejoin(node zmsg.NodeRef) {
	g.self.Set(node)
	p := g.peers
	p.mu.Lock()
	theirs := p.theirs
	p.theirs = map[zmsg.NodeRef]map[uint64]*watch{}
	var ours []*watch
	for _, at := range p.ours {
		for _, w := range at {
			ours = append(ours, w)
		}
	}
	p.mu.Unlock()
	for _, at := range theirs {
		for _, w := range at {
			w.end()
		}
	}
	for _, w := range ours {
		addr := w.of.Address()
		if g.cfg.Watches.Watch(addr, w.id) != nil {
			p.down(addr.Node, w.id, LostNode)
		}
	}
}
