package znode

import (
	"errors"
	"sync"
	"time"

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

// A control envelope is sent again after repeatFirst, then after twice as long each time, until the other node says that it has got
// it; at least every repeatMost.
const (
	repeatFirst = time.Second
	repeatMost  = 4 * time.Second
)

// watches carries watches of actors between nodes, as control envelopes in the one ordered stream to each node. The bus may
// lose them: each is sent again until it is confirmed, or its node is gone. It satisfies zactor.Watches.
type watches struct {
	// Set while the node is wired.
	link  controlLink
	state func(zmsg.NodeRef) nodeState
	group watchers

	mu     sync.Mutex       // held while sending, so that nothing is sent again after what replaced it
	owed   map[debtor]*debt // guarded by mu: not confirmed yet
	timer  *time.Timer      // guarded by mu: runs while something is owed
	closed bool             // guarded by mu
}

// controlLink is the part of zbus.Link that watches needs.
type controlLink interface {
	SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error
}

// watchers is the part of zactor.Group that watches needs.
type watchers interface {
	PeerWatch(from zmsg.NodeRef, id, actor uint64)
	PeerUnwatch(from zmsg.NodeRef, id uint64)
	PeerDown(from zmsg.NodeRef, id uint64, why zactor.Reason)
	PeerLost(node zmsg.NodeRef)
	PeersWatched() []zmsg.NodeRef
}

// debtor is one watch between this node and another; ours says that this node watches.
type debtor struct {
	node zmsg.NodeRef
	id   uint64
	ours bool
}

// debt is the newest that is to be said about a watch.
type debt struct {
	e    zmsg.Envelope
	due  time.Time     // when it is sent again
	wait time.Duration // until then
}

func newWatches(link controlLink, state func(zmsg.NodeRef) nodeState) *watches {
	return &watches{link: link, state: state, owed: map[debtor]*debt{}}
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

// owe sends e now, and again until it is confirmed.
func (w *watches) owe(to debtor, e zmsg.Envelope) error {
	if w.state(to.node) == nodeGone {
		return errNodeGone
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errNodeGone // this one is
	}
	if d := w.owed[to]; d != nil && d.e.ID == controlDown {
		return nil // the first reason is the right one: later ones find no actor
	}
	d := &debt{e: e, wait: repeatFirst}
	w.owed[to] = d
	w.sendLocked(to.node, d, time.Now())
	if w.timer == nil {
		w.timer = time.AfterFunc(repeatFirst, w.repeat)
	}
	return nil
}

func (w *watches) sendLocked(node zmsg.NodeRef, d *debt, now time.Time) {
	err := w.link.SendControl(node, &d.e)
	d.due = now.Add(d.wait)
	if err == nil {
		d.wait = min(2*d.wait, repeatMost)
	} // else the bus is down or full: it takes no longer than that, once it is back
}

// repeat sends what is due. It runs on the timer's goroutine.
func (w *watches) repeat() {
	w.prune()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.owed) == 0 {
		w.timer = nil
		return
	}
	now := time.Now()
	for to, d := range w.owed {
		if !d.due.After(now) {
			w.sendLocked(to.node, d, now)
		}
	}
	w.timer = time.AfterFunc(repeatFirst, w.repeat)
}

// prune ends the watches with nodes that are gone. It is called for each new list of nodes.
func (w *watches) prune() {
	w.mu.Lock()
	for to := range w.owed {
		if w.state(to.node) == nodeGone {
			delete(w.owed, to)
		}
	}
	w.mu.Unlock()
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

// paid notes that the other node has got what was said about the watch, if that was id or id is 0.
func (w *watches) paid(to debtor, id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.owed[to]; d != nil && (id == 0 || d.e.ID == id) {
		delete(w.owed, to)
	}
}

// close ends the repeating. What is not confirmed then is made up for by the loss of this node. It may be called on nil: of a node
// that did not come as far.
func (w *watches) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
