package zbus

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"zgame/zmsg"
)

// maxGroupLanes bounds the groups and topics whose batch numbers are remembered; above, all are forgotten and begin a new series.
const maxGroupLanes = 1 << 14

// A batch's number is its series and, in the lower seriesShift bits, its place in it, from 1. A link begins a new series
// where it has forgotten how far a subject was: after Lost, and after maxGroupLanes. So a receiver tells a new
// beginning from a batch that comes twice.
const seriesShift = 40

// lane is the ordered stream to one node, group or topic. It carries the replies to requests of the node back: see asker.
type lane struct {
	// Set at construction.
	link    *Link
	node    zmsg.NodeRef // zero for a group or topic
	id      uint64       // in the subject for "no responders"; 0 for a group or topic
	topic   bool
	subject string

	gone atomic.Bool // the node was lost: nothing is sent any more; set with Link.mu held

	giveUps giveUps // of requests of the node
	askers  askers  // owned by the receive goroutine

	// Guarded by Link.mu.
	seq        uint64 // requests so far
	head, tail int32  // list of waiting requests, -1: none
	probed     probed
	lostAt     time.Duration // when it was lost, since Link.base

	// Owned by the outbox.
	number uint64    // of the last batch
	me     *subjects // from whom it was; nil before the first
	batch  *batch    // the open one, nil if none
}

// laneLocked returns the lane to node, making it if need be. Link.mu is held.
func (l *Link) laneLocked(node zmsg.NodeRef) *lane {
	if ln := l.lastUsed; ln != nil && ln.node == node && !ln.gone.Load() {
		return ln
	}
	if ln := l.lanes[node]; ln != nil {
		l.lastUsed = ln
		return ln
	}
	l.lastLane++
	node.ID = strings.Clone(node.ID) // it may alias a batch
	ln := &lane{link: l, node: node, id: l.lastLane, subject: l.inboxOf(node), head: -1, tail: -1, number: l.series << seriesShift}
	l.lanes[node] = ln
	l.lanesByID[ln.id] = ln
	l.cfg.Metrics.Lanes.Set(float64(len(l.lanes)))
	return ln
}

// appendNotice appends the last token of the subject where "no responders" comes back for a batch of the lane: which
// requests it carried, and how many envelopes besides. So no table of batches is needed for it.
func (ln *lane) appendNotice(b []byte, first, last uint64, oneWay int) []byte {
	b = strconv.AppendUint(b, ln.id, 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, first, 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, last, 36)
	b = append(b, '-')
	return strconv.AppendUint(b, uint64(oneWay), 36)
}

func parseNotice(s string) (id, first, last, oneWay uint64, ok bool) {
	fields := strings.Split(s, "-")
	if len(fields) != 4 {
		return 0, 0, 0, 0, false
	}
	var n [4]uint64
	for i, f := range fields {
		var err error
		if n[i], err = strconv.ParseUint(f, 36, 64); err != nil {
			return 0, 0, 0, 0, false
		}
	}
	return n[0], n[1], n[2], n[3], true
}
