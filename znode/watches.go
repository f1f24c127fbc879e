package znode

import (
	"errors"

	"zgame/zactor"
	"zgame/zmsg"
)

// Ids of the control envelopes by which watches of actors cross nodes; docs/wire.md describes them.
const (
	controlWatch   = 17
	controlUnwatch = 18
	controlDown    = 19
	controlNoted   = 20 // the other node has got it
)

// watches carries watches of actors between nodes, as control envelopes. It satisfies zactor.Watches.
type watches struct {
	repeater
	group watchers // set while the node is wired
}

// watchers is the part of zactor.Group that watches needs.
type watchers interface {
	PeerWatch(from zmsg.NodeRef, id, actor uint64)
	PeerUnwatch(from zmsg.NodeRef, id uint64)
	PeerDown(from zmsg.NodeRef, id uint64, why zactor.Reason)
	PeerLost(node zmsg.NodeRef)
	PeersWatched() []zmsg.NodeRef
}

func newWatches(link controlLink, state func(zmsg.NodeRef) nodeState) *watches {
	w := &watches{repeater: newRepeater(link, state)}
	w.repeater.prune = w.prune
	return w
}

var errNodeGone = errors.New("znode: the node is gone")

// Watch implements zactor.Watches. A node that is not on the list is gone if the list could have had it; one that is
// newer than the list is asked.
func (w *watches) Watch(target zmsg.Address, id uint64) error {
	return w.owe(debtor{target.Node, id, true}, zmsg.Envelope{ID: controlWatch, Request: id, To: target.Actor})
}

// Unwatch implements zactor.Watches.
func (w *watches) Unwatch(target zmsg.Address, id uint64) error {
	return w.owe(debtor{target.Node, id, true}, zmsg.Envelope{ID: controlUnwatch, Request: id})
}

// Down implements zactor.Watches.
func (w *watches) Down(to zmsg.NodeRef, id uint64, why zactor.Reason) error {
	return w.owe(debtor{to, id, false}, zmsg.Envelope{ID: controlDown, Request: id, Code: zmsg.Code(why)})
}

// prune ends the watches with nodes that are gone. It is called for each new list of nodes.
func (w *watches) prune() {
	w.pardon()
	for _, node := range w.group.PeersWatched() {
		if w.state(node) == nodeGone {
			w.group.PeerLost(node)
		}
	}
}

// control takes a control envelope. It returns false for one that makes no sense. It runs on the link's receiving
// goroutine.
func (w *watches) control(e *zmsg.Envelope, from zmsg.NodeRef) bool {
	if e.Request == 0 {
		return false
	}
	switch e.ID {
	case controlWatch:
		if e.To == 0 {
			return false
		}
		w.group.PeerWatch(from, e.Request, e.To)
		if w.state(from) == nodeGone { // it was in the bus when prune ran
			w.group.PeerLost(from)
			return true
		}
	case controlUnwatch:
		w.group.PeerUnwatch(from, e.Request)
	case controlDown:
		why := zactor.Reason(e.Code)
		if e.Code == 0 || e.Code > zmsg.Code(zactor.UnknownActor) || why == zactor.LostNode { // nobody says so of itself
			return false
		}
		w.paid(debtor{from, e.Request, true}, 0) // the other node has forgotten the watch
		w.group.PeerDown(from, e.Request, why)
	case controlNoted:
		switch e.Seq {
		case controlWatch, controlUnwatch, controlDown:
			w.paid(debtor{from, e.Request, e.Seq != controlDown}, uint32(e.Seq))
			return true
		}
		return false
	default:
		return false
	}
	// Lost: it comes again.
	_ = w.link.SendControl(from, &zmsg.Envelope{ID: controlNoted, Request: e.Request, Seq: uint64(e.ID)})
	return true
}

// close is stop. It may be called on nil: of a node that did not come as far.
func (w *watches) close() {
	if w != nil {
		w.stop()
	}
}
