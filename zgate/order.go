package zgate

import "zgame/zmsg"

// order is how far the pushes of one object to this gate have come. An object counts its pushes to a gate from 1, and goes on counting where it
// moves to another node: what the old owner has sent and what the new one sends come in different lanes, and the numbers say in
// which order they belong to the clients. It is a pure decision; object carries it out.
//
//	owner 1    1 2 3 4 |                   the move: 4 is the last, and is told to owner 2
//	owner 2            | bind(last 4) 5 6
//	the gate   1 2, bind, 5: held, 3, 4, 5, 6
type order struct {
	version zmsg.RouteVersion // of the newest owner that was heard
	since   zmsg.RouteVersion // of the owner that the count began with: what is older has no number in it
	from    uint64            // the last number of the owner before
	have    uint64            // the last that has gone to the clients, or was given up
}

// verdict is what becomes of a push.
type verdict uint8

const (
	pass    verdict = iota // to the clients, now
	wait                   // until those before it have come
	stale                  // of an owner that is none any more, behind what it has handed over
	doubled                // it has come before, or was given up
)

// waits reports whether something of an owner before is still to come.
func (o *order) waits() bool { return o.have < o.from }

// hole is what is missing, if something is.
type hole struct {
	is     bool
	missed uint64 // 0: nobody knows how much
	anew   bool   // numbers begin anew: those that wait are none any more
}

// newOrder is the order of an object that the gate has heard nothing of.
func newOrder(b *zmsg.Binding) order {
	o := order{version: b.Version, since: b.Since, from: b.Last, have: min(b.Base, b.Last)}
	if b.Since >= b.Version {
		o.have = b.Last
	}
	return o
}

// bind says what follows when an owner tells its version, its last number, and since which owner the count goes; again: it has told so
// before, and the number is of then. ok is false for an owner that is none any more.
func (o *order) bind(version zmsg.RouteVersion, last uint64, since zmsg.RouteVersion, again bool) (ok bool, h hole) {
	switch {
	case version < o.version:
		return false, h
	case version == o.version:
		switch {
		case !again && last < max(o.have, o.from): // it has forgotten how far it was
			h = hole{is: true, anew: true}
			o.since, o.from, o.have = version, last, last
		case since > o.since: // its bind was lost, and a push has told of it
			h = hole{is: true}
			o.since = since
		case !o.waits() && last > o.have:
			h = hole{is: true, missed: last - o.have} // lost on the bus: what comes in one lane comes in order
			o.have = last
		}
		return true, h
	}
	switch {
	case since >= version || since == o.since && last < max(o.have, o.from):
		h = hole{is: true, anew: true}
		o.since, o.have = version, last
	case since > o.since:
		h = hole{is: true, anew: true}
		o.since, o.have = since, 0
	}
	o.version, o.from = version, last
	return true, h
}

// push says what becomes of a push, and takes note of one that passes.
func (o *order) push(version zmsg.RouteVersion, n uint64) (v verdict, h hole) {
	if version > o.version { // its bind was lost, and with it what is to be waited for
		_, h = o.bind(version, n-1, version, false)
	}
	switch {
	case version < o.since, version < o.version && (!o.waits() || n > o.from):
		return stale, h
	case n <= o.have:
		return doubled, h
	case n == o.have+1:
		o.have = n
		return pass, h
	case o.waits():
		return wait, h
	}
	h = hole{is: true, missed: n - o.have - 1}
	o.have = n
	return pass, h
}

// next reports whether what waits with number n has its turn, and takes note that it passes.
func (o *order) next(n uint64) bool {
	if n != o.have+1 {
		return false
	}
	o.have = n
	return true
}
