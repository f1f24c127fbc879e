package zbus

import (
	"strconv"
	"strings"
	"time"

	"zgame/zmsg"
)

// What discovery says may overtake what the bus brings: a node answers all that it was asked, sees its answers at the bus and
// leaves, and the one who asked hears of the leaving first. So requests that such a node may have answered are ended by a
// message of this node to itself: it arrives behind what the bus had for this node when it was sent. The outbox sends it, for it
// must come behind the requests that the outbox has taken and not yet published as well.
const (
	lostToken = "lost-" // with the lane's id the last token of the message's subject, beside those of notices
	// lostAfter ends them where the message does not arrive: dropped, as this node is too slow.
	lostAfter = time.Second
)

// Lost says that discovery saw the node go: requests to it end with zmsg.CodeNodeLost (Unknown where it may have had
// them), but for those whose answer is on its way, and what is kept for it is freed.
func (l *Link) Lost(node zmsg.NodeRef) {
	var list []ended
	l.mu.Lock()
	ln := l.lanes[node]
	waits := false
	if ln != nil {
		ln.gone.Store(true)
		l.series++
		delete(l.lanes, node)
		for slot := ln.head; slot >= 0; {
			q := &l.requests.slots[slot]
			next := q.next
			if q.sent {
				waits = true
			} else {
				list = append(list, l.requests.end(slot))
			}
			slot = next
		}
		if waits {
			ln.lostAt = time.Since(l.base)
			l.leaving[ln.id] = ln
			if !l.outEnded {
				l.behind = append(l.behind, ln.id)
				l.wakeLocked()
			}
		} else {
			delete(l.lanesByID, ln.id)
		}
		l.cfg.Metrics.Lanes.Set(float64(len(l.lanes)))
	}
	ended := l.outEnded
	l.mu.Unlock()
	l.endLost(list)
	switch {
	case !waits:
		l.in.forget(node)
	case ended:
		l.left(ln.id)
	}
}

// publishBehind sends what Lost put behind all that was published.
func (o *outbox) publishBehind(ids []uint64) {
	for _, id := range ids {
		subject := o.l.me.Load().notices + lostToken + strconv.FormatUint(id, 36)
		if o.l.cfg.Bus.Publish(subject, "", nil) != nil {
			o.l.left(id)
		}
	}
}

// Prune is Lost for the nodes that are gone and of which something is kept all the same: Lost was called before something was sent to them,
// by who had their address, or came from them.
func (l *Link) Prune(gone func(zmsg.NodeRef) bool) {
	nodes := l.in.senders()
	l.mu.Lock()
	for node := range l.lanes {
		nodes = append(nodes, node)
	}
	l.mu.Unlock()
	for _, node := range nodes {
		if gone(node) {
			l.Lost(node)
		}
	}
}

// leftNotice reports whether the last token of a notice's subject is that of Lost, and does what was put off.
func (l *Link) leftNotice(token string) bool {
	rest, ok := strings.CutPrefix(token, lostToken)
	if !ok {
		return false
	}
	id, err := strconv.ParseUint(rest, 36, 64)
	if err != nil {
		return false
	}
	l.left(id)
	return true
}

// left ends what waits for a node that is lost.
func (l *Link) left(id uint64) {
	var list []ended
	l.mu.Lock()
	ln := l.leaving[id]
	if ln != nil {
		delete(l.leaving, id)
		delete(l.lanesByID, id)
		for ln.head >= 0 {
			list = append(list, l.requests.end(ln.head))
		}
	}
	again := ln != nil && l.lanes[ln.node] != nil
	l.mu.Unlock()
	if ln != nil && !again {
		l.in.forget(ln.node)
	}
	l.endLost(list)
}

func (l *Link) endLost(list []ended) {
	for i := range list {
		l.finish(&list[i], zmsg.CodeNodeLost, "the node is gone")
	}
	l.counts.request("node_lost", len(list))
	l.poke()
}

// overdueLocked returns the lanes whose message from Lost does not come. Link.mu is held.
func (l *Link) overdueLocked(now time.Duration) (ids []uint64) {
	for id, ln := range l.leaving {
		if now-ln.lostAt >= lostAfter {
			ids = append(ids, id)
		}
	}
	return ids
}
