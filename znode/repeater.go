package znode

import (
	"sync"
	"time"

	"zgame/zmsg"
)

// A control envelope is sent again after repeatFirst, then after twice as long each time, until the other node says that it has got
// it; at least every repeatMost.
const (
	repeatFirst = 400 * time.Millisecond
	repeatMost  = 4 * time.Second
)

// repeater sends control envelopes until their nodes have noted them, or are gone: the bus may lose them. They go in the one ordered stream to each node.
type repeater struct {
	// Set at construction.
	link  controlLink
	state func(zmsg.NodeRef) nodeState
	prune func() // before what is due is sent again

	mu     sync.Mutex       // held while sending, so that nothing is sent again after what replaced it
	owed   map[debtor]*debt // guarded by mu: not confirmed yet
	timer  *time.Timer      // guarded by mu: runs while something is owed
	closed bool             // guarded by mu
}

// controlLink is the part of zbus.Link that a repeater needs.
type controlLink interface {
	SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error
}

// debtor is one thing that is told to a node. ours says that this node has given it its id, and not the other.
type debtor struct {
	node zmsg.NodeRef
	id   uint64
	ours bool
}

// debt is the newest that is to be said about it.
type debt struct {
	e    zmsg.Envelope
	due  time.Time     // when it is sent again
	wait time.Duration // until then
}

func newRepeater(link controlLink, state func(zmsg.NodeRef) nodeState) repeater {
	return repeater{link: link, state: state, owed: map[debtor]*debt{}}
}

// owe sends e now, and again until it is confirmed. Errors: errNodeGone.
func (r *repeater) owe(to debtor, e zmsg.Envelope) error {
	if r.state(to.node) == nodeGone {
		return errNodeGone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errNodeGone // this one is
	}
	if d := r.owed[to]; d != nil && d.e.ID == controlDown {
		return nil // the first reason is the right one: later ones find no actor
	}
	d := &debt{e: e, wait: repeatFirst}
	r.owed[to] = d
	r.sendLocked(to.node, d, time.Now())
	if r.timer == nil {
		r.timer = time.AfterFunc(repeatFirst, r.repeat)
	}
	return nil
}

func (r *repeater) sendLocked(node zmsg.NodeRef, d *debt, now time.Time) {
	err := r.link.SendControl(node, &d.e)
	d.due = now.Add(d.wait)
	if err == nil {
		d.wait = min(2*d.wait, repeatMost)
	} // else the bus is down or full: it takes no longer than that, once it is back
}

// repeat sends what is due. It runs on the timer's goroutine.
func (r *repeater) repeat() {
	r.prune()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.owed) == 0 {
		r.timer = nil
		return
	}
	now := time.Now()
	for to, d := range r.owed {
		if !d.due.After(now) {
			r.sendLocked(to.node, d, now)
		}
	}
	r.timer = time.AfterFunc(repeatFirst, r.repeat)
}

// pardon lets go what is owed to nodes that are gone.
func (r *repeater) pardon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for to := range r.owed {
		if r.state(to.node) == nodeGone {
			delete(r.owed, to)
		}
	}
}

// paid notes that the other node has got what was said to it, if that was id or id is 0.
func (r *repeater) paid(to debtor, id uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.owed[to]; d != nil && (id == 0 || d.e.ID == id) {
		delete(r.owed, to)
	}
}

// owes is how much is not confirmed.
func (r *repeater) owes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owed)
}

// stop ends the repeating. What is not confirmed then is made up for by the loss of this node.
func (r *repeater) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
