package znode

import (
	"context"
	"sync"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Ids of the control envelopes by which a node that drains learns that the others know; docs/wire.md describes them.
const (
	controlDrains = 24 // I drain: say so when your list has it
	controlKnown  = 25 // it has, and what I sent to you before stands before this in our lane
)

// farewellRepeat is how often a node that drains asks the others that have not said that they know: the bus may lose it.
const farewellRepeat = 200 * time.Millisecond

// farewell lets a node that drains wait until the others send it nothing new, by message id: each says so as soon as its
// routes are made from a list that has the drain. It does both sides.
type farewell struct {
	// Set while the node is wired.
	link  controlLink
	drain func(zmsg.NodeRef) bool // the list has the node as draining, or not at all

	mu    sync.Mutex
	owed  map[zmsg.NodeRef]struct{} // guarded by mu: who asked before our list had his drain; at most the nodes of the list
	asked map[zmsg.NodeRef]struct{} // guarded by mu: who has not answered us
	all   chan struct{}             // guarded by mu: closed when asked becomes empty; nil: we do not drain
}

func newFarewell(link controlLink, drain func(zmsg.NodeRef) bool) *farewell {
	return &farewell{link: link, drain: drain, owed: map[zmsg.NodeRef]struct{}{}}
}

// wait asks the nodes, and waits until all have answered or are off the list. It returns how many have not when ctx ends.
func (f *farewell) wait(ctx context.Context, nodes []zmsg.NodeRef) (missing int) {
	f.mu.Lock()
	f.asked, f.all = make(map[zmsg.NodeRef]struct{}, len(nodes)), make(chan struct{})
	for _, n := range nodes {
		f.asked[n] = struct{}{}
	}
	all := f.all
	f.settleLocked()
	f.mu.Unlock()
	again := time.NewTicker(farewellRepeat)
	defer again.Stop()
	for {
		f.mu.Lock()
		left := make([]zmsg.NodeRef, 0, len(f.asked))
		for n := range f.asked {
			left = append(left, n)
		}
		f.mu.Unlock()
		for _, n := range left {
			_ = f.link.SendControl(n, &zmsg.Envelope{ID: controlDrains}) // the bus is down: nobody can send us anything either
		}
		select {
		case <-all:
			return 0
		case <-ctx.Done():
			return len(left)
		case <-again.C:
		}
	}
}

func (f *farewell) settleLocked() {
	if f.all != nil && len(f.asked) == 0 {
		close(f.all)
		f.all = nil
	}
}

// control takes the control envelopes of both sides.
func (f *farewell) control(e *zmsg.Envelope, from zmsg.NodeRef) {
	if e.ID == controlKnown {
		f.mu.Lock()
		delete(f.asked, from)
		f.settleLocked()
		f.mu.Unlock()
		return
	}
	f.mu.Lock()
	f.owed[zmsg.NodeRef{ID: from.ID, Epoch: from.Epoch}] = struct{}{}
	f.mu.Unlock()
	f.tell() // looked at after it is noted: a list that comes in between finds it
}

// listed is called after a new list of nodes has become the routes; left are those that it has no more.
func (f *farewell) listed(left []zdiscovery.Node) {
	f.mu.Lock()
	for i := range left {
		delete(f.asked, left[i].Ref)
	}
	f.settleLocked()
	f.mu.Unlock()
	f.tell()
}

// tell answers whose drain the list has.
func (f *farewell) tell() {
	f.mu.Lock()
	var known []zmsg.NodeRef
	for n := range f.owed {
		if f.drain(n) {
			delete(f.owed, n)
			known = append(known, n)
		}
	}
	f.mu.Unlock()
	for _, n := range known {
		_ = f.link.SendControl(n, &zmsg.Envelope{ID: controlKnown}) // lost: it asks again
	}
}

// bidFarewell waits until the others know that this node drains, at most drain.announce.
func (n *Node) bidFarewell(ctx context.Context) {
	limit := n.cfg.Settings.Drain.Announce
	if limit <= 0 || n.farewell == nil || !n.link.Up() {
		return
	}
	var others []zmsg.NodeRef
	for _, o := range n.Nodes() {
		if !n.self.Is(o.Ref) && (o.State == zdiscovery.Ready || o.State == zdiscovery.Draining) {
			others = append(others, o.Ref)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if missing := n.farewell.wait(ctx, others); missing > 0 {
		n.log.Warn("not all nodes said that they know of the drain: what they still send is refused, and goes elsewhere", "missing", missing, "waited", limit)
	}
}
