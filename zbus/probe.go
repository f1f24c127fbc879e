package zbus

import (
	"time"

	"zgame/zmsg"
)

// The link's own control envelopes by which nodes find out what was lost on the way, where nothing else follows in the
// lanes that would show it: a probe is answered, and both have numbers as all batches have.
const (
	controlProbe = 3 // answer with controlHere
	controlHere  = 4
)

const (
	// probeAfter is how long a request waits before its node is probed; then twice as long each time, up to probeMost.
	probeAfter = 500 * time.Millisecond
	probeMost  = 4 * time.Second
	// peersAfter is the least time between two probes of all senders, which follow what this node's driver says it lost.
	peersAfter = 50 * time.Millisecond
)

// probed is what is known of the probes of a lane. It is guarded by Link.mu.
type probed struct {
	seen   uint64        // the lane's requests up to here were there at the last look
	oldest uint64        // the request that waited longest then
	next   time.Duration // when to probe if it still waits
	wait   time.Duration // between the last probe and that
}

// probesLocked returns the nodes to probe now: those that have a request for some time, and all from whom something may have
// been lost here. Link.mu is held.
func (l *Link) probesLocked(now time.Duration) (nodes []zmsg.NodeRef) {
	if l.peersAt != 0 && now >= l.peersAt {
		l.peersAt = 0
		nodes = l.in.senders()
	}
	if now < l.lookAt {
		return nodes
	}
	l.lookAt = now + probeAfter
	for _, ln := range l.lanes {
		if ln.head < 0 {
			continue
		}
		p := &ln.probed
		switch oldest := l.requests.slots[ln.head].seq; {
		case oldest > p.seen: // not old enough
		case oldest != p.oldest:
			p.oldest, p.wait, p.next = oldest, probeAfter, now+probeAfter
			nodes = append(nodes, ln.node)
		case now >= p.next:
			p.wait = min(2*p.wait, probeMost)
			p.next = now + p.wait
			nodes = append(nodes, ln.node)
		}
		p.seen = ln.seq
	}
	return nodes
}

// probe sends what probesLocked decided.
func (l *Link) probe(nodes []zmsg.NodeRef) {
	for _, node := range nodes {
		_ = l.SendControl(node, &zmsg.Envelope{ID: controlProbe}) // refused: what is in the way shows it too, or the next probe
	}
}

// askSenders has all nodes from which this one has heard probed, after some time: what they sent may have been lost here, and
// they cannot know.
func (l *Link) askSenders(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peersAt == 0 && l.state != linkClosed {
		l.peersAt = max(time.Since(l.base)+after, 1)
		l.dueLocked(l.peersAt)
	}
}
