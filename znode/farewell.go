package znode

import (
	"context"
	"strings"
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

// What a node that drains has come to; Request of both envelopes.
const (
	drainBegins = 0 // nothing new is to come by message id
	drainedOut  = 1 // nor for objects: others have all that it had
)

// farewellRepeat is how often a node that drains asks the others that have not said that they know: the bus may lose it.
const farewellRepeat = 200 * time.Millisecond

// farewell lets a node that drains wait until the others send it nothing new: by message id, each says so as soon as its routes are
// made from a list that has the drain; then for objects, when these are elsewhere. Behind that nothing is on its way to the node: whoever
// hears that it has left need not ask himself what became of a request that it has not answered. It does both sides.
type farewell struct {
	// Set while the node is wired.
	link  controlLink
	drain func(zmsg.NodeRef) bool // the list has the node as draining, or not at all
	empty func(zmsg.NodeRef)      // the node has no objects any more: no route leads there

	mu    sync.Mutex
	owed  map[zmsg.NodeRef]uint64   // guarded by mu: who asked before our list had his drain, and what; at most the nodes of the list
	round uint64                    // guarded by mu: what we ask
	asked map[zmsg.NodeRef]struct{} // guarded by mu: who has not answered us
	all   chan struct{}             // guarded by mu: closed when asked becomes empty; nil: we do not drain
}

func newFarewell(link controlLink, drain func(zmsg.NodeRef) bool, empty func(zmsg.NodeRef)) *farewell {
	return &farewell{link: link, drain: drain, empty: empty, owed: map[zmsg.NodeRef]uint64{}}
}

// wait asks the nodes, and waits until all have answered or are off the list. It returns how many have not when ctx ends.
func (f *farewell) wait(ctx context.Context, round uint64, nodes []zmsg.NodeRef) (missing int) {
	f.mu.Lock()
	f.round = round
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
			_ = f.link.SendControl(n, &zmsg.Envelope{ID: controlDrains, Request: round}) // the bus is down: nobody can send us anything either
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
		if e.Request == f.round { // else it is about what we asked before
			delete(f.asked, from)
			f.settleLocked()
		}
		f.mu.Unlock()
		return
	}
	from = zmsg.NodeRef{ID: strings.Clone(from.ID), Epoch: from.Epoch}
	if e.Request == drainedOut {
		f.empty(from)
	}
	f.mu.Lock()
	f.owed[from] = e.Request
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
	known := map[zmsg.NodeRef]uint64{}
	for n, round := range f.owed {
		if f.drain(n) {
			delete(f.owed, n)
			known[n] = round
		}
	}
	f.mu.Unlock()
	for n, round := range known {
		_ = f.link.SendControl(n, &zmsg.Envelope{ID: controlKnown, Request: round}) // lost: it asks again
	}
}

// bidFarewell waits until the others know how far this node's drain is, at most drain.announce.
func (n *Node) bidFarewell(ctx context.Context, round uint64) {
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
	if missing := n.farewell.wait(ctx, round, others); missing > 0 {
		n.log.Warn("not all nodes said that they know of the drain: what they still send is refused, and goes elsewhere", "missing", missing, "waited", limit)
	}
}
