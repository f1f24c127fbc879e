package drain

import (
	"cmp"
	"container/heap"
	"time"

	"zgame/zmsg"
)

// Limits bound a drain. All are above 0.
type Limits struct {
	InFlight  int // moves that run at once
	PerTarget int // of them to one node
	Tries     int // how often an object is tried that cannot be moved for a reason of its own

	// PerSecond is how many moves begin in a second, evenly, as long as what is left is moved in time like that; 0: as many as the targets take.
	PerSecond int

	// Until is when everything is to be moved; zero: no matter when. As long as that seems to work, a target has only as many moves at once as
	// it carries out about as fast as a single one: more would make all wait for each other, and everybody else.
	Until time.Time

	FirstPause time.Duration // of a target that is busy, of an object that cannot be moved: doubled each time
	LongPause  time.Duration // up to this, with which one that refuses everything begins
}

// Standing says what a target is good for now.
type Standing uint8

// The standings, the better first.
const (
	Open   Standing = iota // it takes objects
	Paused                 // it was busy: it will soon
	Away                   // it refused, or did not answer: perhaps later
)

// Pick says where an object is to live: the best of those with the best standing. It returns the zero NodeRef where no node can have it.
type Pick func(k zmsg.Key, standing func(zmsg.NodeRef) Standing) zmsg.NodeRef

// Result is how a move ended.
type Result uint8

// The results.
const (
	Moved   Result = iota // the target owns it
	Gone                  // there was nothing to move: it has left memory by itself, or is another's
	Busy                  // the target has no room now; the object serves on
	Refused               // the target takes nothing: it drains, does not host the kind, or does not answer; likewise
	Failed                // the object cannot be moved now, whoever the target is; likewise
)

// Object is one that is to be moved.
type Object struct {
	Key  zmsg.Key
	Used time.Time // when something came for it last
}

// Move is a move that is to begin.
type Move struct {
	Key zmsg.Key
	To  zmsg.NodeRef
}

// Plan is one drain. It is not safe for concurrent use.
type Plan struct {
	limits Limits

	objects map[zmsg.Key]*item
	cold    coldest // have no target yet
	later   latest  // failed, and are tried again
	targets map[zmsg.NodeRef]*target
	order   []*target // as they were met: what is decided does not depend on the order of a map
	running int
	given   int       // given up
	moved   int       // and how many were by now, since
	since   time.Time // the first call of Next
	next    time.Time // when the next move may begin, but for slack
}

type place uint8

const (
	isCold    place = iota
	isLater         // in Plan.later
	isWaiting       // in the list of a target
	isRunning
	isGiven
)

type item struct {
	Object
	place place
	tries int
	at    time.Time // isLater: when it is tried again; isRunning: when the move began
	to    *target   // isRunning
}

// target is a node that was picked once.
type target struct {
	ref     zmsg.NodeRef
	waiting []*item // the coldest first
	head    int     // of waiting
	running int
	window  int           // how many may run at once
	score   int           // of the moves that ended since window was set: those that were fast less those that were slow
	least   time.Duration // that one took
	fails   int           // pauses in a row
	until   time.Time
	away    bool // until then: Away, not only Paused
}

// New begins a plan of nothing.
func New(l Limits) *Plan {
	return &Plan{limits: l, objects: make(map[zmsg.Key]*item), targets: make(map[zmsg.NodeRef]*target)}
}

// Add has an object moved. One that is in the plan already is not added again.
func (p *Plan) Add(o Object) {
	if p.objects[o.Key] != nil {
		return
	}
	it := &item{Object: o}
	p.objects[o.Key] = it
	p.chill(it)
}

// Left is how many objects are still to be moved, those that are being moved included, those given up not.
func (p *Plan) Left() int { return len(p.objects) - p.given }

// Running is how many moves run.
func (p *Plan) Running() int { return p.running }

// Next returns the moves that are to begin now. Where it returns none it is to be called again when one has ended, or at wake, unless that
// is zero.
func (p *Plan) Next(now time.Time, pick Pick) (moves []Move, wake time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	for len(p.later) > 0 && !p.later[0].at.After(now) {
		p.chill(heap.Pop(&p.later).(*item))
	}
	standing := func(n zmsg.NodeRef) Standing {
		if t := p.targets[n]; t != nil {
			return t.standing(now)
		}
		return Open
	}
	stuck := make(map[*target]bool) // nobody else can have what waits for it
	for p.running < p.limits.InFlight && p.paced(now) {
		from := p.ready(now)
		if from == nil && len(p.cold) == 0 {
			if from = p.stalled(now, stuck); from == nil {
				break
			}
		}
		var it *item
		if from != nil {
			it = from.pop()
		} else {
			it = heap.Pop(&p.cold).(*item)
		}
		ref := pick(it.Key, standing) // again: the list of nodes may be another by now
		if ref.IsZero() {
			p.giveUp(it)
			continue
		}
		to := p.target(ref)
		switch {
		case from != nil && from.standing(now) != Open && !to.room(now): // it stays: others have enough for now
			stuck[from] = true
			from.push(it, true)
		case to == from: // which ready has found to have room
			p.start(it, to, now)
			p.next = p.after(now)
			moves = append(moves, Move{it.Key, ref})
		default:
			to.push(it, false)
		}
	}
	return moves, p.wake(now)
}

// Ended tells how the move of an object has ended.
func (p *Plan) Ended(k zmsg.Key, r Result, now time.Time) {
	it := p.objects[k]
	if it == nil || it.place != isRunning {
		return
	}
	t := it.to
	it.to = nil
	t.running--
	p.running--
	switch r {
	case Moved:
		p.moved++
		t.wentWell(now.Sub(it.at), p.limits.PerTarget, p.late(now))
		delete(p.objects, k)
	case Gone:
		delete(p.objects, k)
	case Busy:
		t.pause(now, false, p.limits)
		p.chill(it)
	case Refused:
		t.pause(now, true, p.limits)
		p.chill(it)
	case Failed:
		if it.tries++; it.tries >= p.limits.Tries {
			p.giveUp(it)
			return
		}
		it.place, it.at = isLater, now.Add(backoff(it.tries, p.limits.FirstPause, p.limits.LongPause))
		heap.Push(&p.later, it)
	}
}

// chill puts an object to those that have no target.
func (p *Plan) chill(it *item) {
	it.place = isCold
	heap.Push(&p.cold, it)
}

func (p *Plan) giveUp(it *item) {
	it.place = isGiven
	p.given++
}

func (p *Plan) start(it *item, t *target, now time.Time) {
	it.place, it.to, it.at = isRunning, t, now
	t.running++
	p.running++
}

func (p *Plan) target(n zmsg.NodeRef) *target {
	t := p.targets[n]
	if t == nil {
		t = &target{ref: n, window: min(firstWindow, p.limits.PerTarget)}
		p.targets[n] = t
		p.order = append(p.order, t)
	}
	return t
}

// ready returns the target with room whose first object is the coldest, or nil.
func (p *Plan) ready(now time.Time) (best *target) {
	for _, t := range p.order {
		if t.empty() || !t.room(now) {
			continue
		}
		if best == nil || colder(t.first(), best.first()) {
			best = t
		}
	}
	return best
}

// stalled returns a target that takes nothing now, for which objects wait that others may take, or nil.
func (p *Plan) stalled(now time.Time, stuck map[*target]bool) *target {
	for _, t := range p.order {
		if !t.empty() && !stuck[t] && t.standing(now) != Open {
			return t
		}
	}
	return nil
}

// wake is when something can begin that cannot now, though no move ends before.
func (p *Plan) wake(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(p.later) > 0 {
		sooner(p.later[0].at)
	}
	if !p.paced(now) {
		sooner(p.next.Add(-slack))
	}
	for _, t := range p.order {
		if !t.empty() && t.standing(now) != Open {
			sooner(t.until)
		}
	}
	return at
}

func (t *target) standing(now time.Time) Standing {
	switch {
	case !now.Before(t.until):
		return Open
	case t.away:
		return Away
	default:
		return Paused
	}
}

// room reports that it takes one more now.
func (t *target) room(now time.Time) bool { return t.running < t.window && t.standing(now) == Open }

// slack is how much may be made up for after a wait: whoever calls Next at wake is never quite in time.
const slack = 2 * time.Millisecond

// paced reports that a move may begin now.
func (p *Plan) paced(now time.Time) bool { return !now.Before(p.next.Add(-slack)) }

// after is when the next move may begin, after one that begins now: 1/Limits.PerSecond later, or sooner where the time is short. An eighth
// of it is kept for what goes wrong.
func (p *Plan) after(now time.Time) time.Time {
	if p.limits.PerSecond == 0 {
		return time.Time{}
	}
	gap := time.Second / time.Duration(p.limits.PerSecond)
	if !p.limits.Until.IsZero() {
		gap = min(gap, max(0, p.limits.Until.Sub(now)*7/8)/time.Duration(max(1, p.Left())))
	}
	if p.next.Before(now.Add(-slack)) {
		return now.Add(gap)
	}
	return p.next.Add(gap)
}

// late reports that what is left is not moved by Limits.Until, at the speed that there was so far.
func (p *Plan) late(now time.Time) bool {
	if p.limits.Until.IsZero() {
		return false
	}
	left, past := p.limits.Until.Sub(now), now.Sub(p.since)
	return float64(p.Left())*float64(past) > float64(p.moved)*float64(left)
}

// Of windows. A move that took up to fast times as long as the quickest one has not had to wait; one that took more than slow times as long
// has. The quickest one is not forgotten: a window that grows makes all of them slower, and would then look right.
const (
	firstWindow = 4
	leastWindow = 2
	fast        = 3
	slow        = 6
)

// wentWell takes how long a move took: the target has more at once when moves are fast, and less when they wait for each other, unless time
// is short.
func (t *target) wentWell(took time.Duration, most int, late bool) {
	t.fails = 0
	if t.least == 0 || took < t.least {
		t.least = max(took, 1)
	}
	switch {
	case late, took <= fast*t.least:
		t.score++
	case took > slow*t.least:
		t.score--
	}
	switch {
	case t.score >= t.window && t.window < most:
		t.window++
		t.score = 0
	case t.score <= -t.window && t.window > leastWindow:
		t.window--
		t.score = 0
	default:
		t.score = min(max(t.score, -t.window), t.window)
	}
}

// pause leaves the target alone for a while, from the last that it did not take. Those of one pause count once.
func (t *target) pause(now time.Time, away bool, l Limits) {
	if now.Before(t.until) {
		t.away = t.away || away
	} else {
		t.fails++
		t.window, t.score, t.away = max(1, t.window/2), 0, away
	}
	d := backoff(t.fails, l.FirstPause, l.LongPause)
	if away {
		d = l.LongPause
	}
	if until := now.Add(d); until.After(t.until) {
		t.until = until
	}
}

func (t *target) empty() bool { return t.head == len(t.waiting) }

func (t *target) first() *item { return t.waiting[t.head] }

func (t *target) pop() *item {
	it := t.waiting[t.head]
	t.waiting[t.head] = nil
	if t.head++; t.empty() {
		t.waiting, t.head = t.waiting[:0], 0
	}
	return it
}

// push has an object wait for the target: behind the others, or in front, where it was.
func (t *target) push(it *item, front bool) {
	it.place = isWaiting
	switch {
	case !front:
		t.waiting = append(t.waiting, it)
	case t.head > 0:
		t.head--
		t.waiting[t.head] = it
	default: // it was the only one
		t.waiting = append(t.waiting, nil)
		copy(t.waiting[1:], t.waiting)
		t.waiting[0] = it
	}
}

// backoff is first, doubled with each try, up to most.
func backoff(try int, first, most time.Duration) time.Duration {
	for ; try > 1 && first < most; try-- {
		first *= 2
	}
	return min(first, most)
}

func colder(a, b *item) bool {
	if c := a.Used.Compare(b.Used); c != 0 {
		return c < 0
	}
	return cmp.Or(cmp.Compare(a.Key.Type, b.Key.Type), cmp.Compare(a.Key.Zone, b.Key.Zone), cmp.Compare(a.Key.ID, b.Key.ID)) < 0
}

// coldest is a heap of objects, that for which nothing came for the longest time on top.
type coldest []*item

func (h coldest) Len() int           { return len(h) }
func (h coldest) Less(i, j int) bool { return colder(h[i], h[j]) }
func (h coldest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *coldest) Push(x any) { *h = append(*h, x.(*item)) }

// Pop implements heap.Interface.
func (h *coldest) Pop() any { return pop((*[]*item)(h)) }

// latest is a heap of objects by when they are tried again.
type latest []*item

func (h latest) Len() int           { return len(h) }
func (h latest) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h latest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *latest) Push(x any) { *h = append(*h, x.(*item)) }

// Pop implements heap.Interface.
func (h *latest) Pop() any { return pop((*[]*item)(h)) }

func pop(h *[]*item) *item {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}
