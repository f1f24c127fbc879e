package zrouter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/drain"
	"zgame/zrouter/internal/entry"
)

// How a node gives its objects to others: internal/drain decides what is moved when and where to, the drainer here carries that out.

// Waits of a drain.
const (
	drainFirstPause = 20 * time.Millisecond // of a target that is busy, of an object that cannot be moved now
	drainLongPause  = time.Second           // likewise, in the end; and of a target that takes nothing
	drainLook       = 2 * time.Millisecond  // between two looks at what is being loaded, or released
	drainTries      = 8                     // of one object, before it is released
)

// maxWhy is how many causes a report tells apart; their words may come from the application.
const maxWhy = 32

// maxRelease bounds how much of a drain's time is kept for releasing what could not be moved: a quarter of it.
const maxRelease = 10 * time.Second

// Drain moves the objects to other nodes: those that the hash names among the nodes that are ready and host the kind, of the key's zone
// first, those for which something came last at the end, many at once, and no more to a node than it takes. The set claims nothing from
// then on, takes nothing over, and goes on to send requests on to where the objects are, for those who still work here, until
// Close. What nobody can have is saved and given up, as is, when three quarters of the time until ctx's deadline are over, what is still here.
//
// A second call while one runs waits for that one's end, or for the end of its own ctx, which ends nothing. Afterwards no object is in
// memory here, unless there is an error.
// Errors: ctx's, with how much is left; that is served on.
func (s *ManagerSet) Drain(ctx context.Context) (DrainReport, error) {
	s.drains.mu.Lock()
	d := s.drains.last
	if d != nil && (!d.ended() || d.err == nil) {
		s.drains.mu.Unlock()
		select {
		case <-d.done:
			return d.progress(), d.err
		case <-ctx.Done():
			return d.progress(), fmt.Errorf("zrouter: waiting for the drain: %w", context.Cause(ctx))
		}
	}
	d = newDrainer(ctx, s)
	s.drains.last = d
	s.drains.mu.Unlock()
	d.run(ctx)
	return d.progress(), d.err
}

// DrainProgress says how far the last drain is; false where there was none.
func (s *ManagerSet) DrainProgress() (DrainReport, bool) {
	s.drains.mu.Lock()
	d := s.drains.last
	s.drains.mu.Unlock()
	if d == nil {
		return DrainReport{}, false
	}
	return d.progress(), true
}

// drains is what a set knows of its drains.
type drains struct {
	mu   sync.Mutex
	last *drainer
}

// drainer is one drain.
type drainer struct {
	s         *ManagerSet
	move      func(k zmsg.Key, to zmsg.NodeRef, then func(moveEnd)) // begins one; then is called once, without locks
	releaseAt time.Time                                             // when what is left is released; zero: when nothing can be moved any more
	kick      chan struct{}                                         // holds one token when step may have something to do
	done      chan struct{}                                         // closed at the end
	err       error                                                 // set before done is closed
	releasing bool                                                  // nothing is moved any more; as the next two of the goroutine of run alone
	releases  Report                                                // of releaseSome
	seen      map[*residence]bool

	mu     sync.Mutex
	plan   *drain.Plan           // guarded by mu
	known  map[zmsg.Key]struct{} // guarded by mu: what was seen in memory
	report DrainReport           // guarded by mu
}

// newDrainer has the set claim nothing any more.
func newDrainer(ctx context.Context, s *ManagerSet) *drainer {
	s.closing.Store(true)
	set := &s.settings
	d := &drainer{
		s: s, kick: make(chan struct{}, 1), done: make(chan struct{}), seen: make(map[*residence]bool), known: make(map[zmsg.Key]struct{}),
	}
	d.move = d.transfer
	now := s.clock.Now()
	d.report = DrainReport{Phase: DrainMoving, Began: now, Why: make(map[string]int), To: make(map[string]int)}
	if end, ok := ctx.Deadline(); ok {
		left := end.Sub(now)
		d.releaseAt = end.Add(-min(left/4, maxRelease))
	}
	d.plan = drain.New(drain.Limits{
		InFlight: set.DrainMoves, PerTarget: set.DrainMovesPerNode, Tries: drainTries, FirstPause: drainFirstPause, LongPause: drainLongPause,
		Until: d.releaseAt, PerSecond: set.DrainRate,
	})
	d.look()
	return d
}

func (d *drainer) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// progress is the report as it is.
func (d *drainer) progress() DrainReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.report.clone()
	if r.Phase == DrainDone {
		return r
	}
	r.Took = d.s.clock.Now().Sub(r.Began)
	r.Moving, r.Left = d.plan.Running(), int(d.s.residents.Load())
	return r
}

// run carries the drain out, until nothing is in memory, or ctx or the set's life ends. Moves that run then end by themselves.
func (d *drainer) run(ctx context.Context) {
	defer close(d.done)
	for {
		wait, over := d.step()
		if over {
			break
		}
		t := d.s.clock.AfterFunc(max(wait, 0), d.wake)
		select {
		case <-d.kick:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			d.err = context.Cause(ctx)
		case <-d.s.ctx.Done():
			t.Stop()
			d.err = ErrClosing
		}
		if d.err != nil {
			break
		}
	}
	d.finish()
}

func (d *drainer) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// longStep is how long a step may not be called while nothing happens; the list of nodes changes without a word.
const longStep = time.Second

// step does what there is to do now, and says how long it may be until the next.
func (d *drainer) step() (wait time.Duration, over bool) {
	moves, wait, over := d.decide()
	if d.releasing { // without mu: a move that ends by it calls over
		return drainLook, d.s.releaseSome(d.seen, &d.releases) == 0
	}
	for _, m := range moves {
		d.move(m.Key, m.To, func(e moveEnd) {
			d.over(m, &e)
			d.wake()
		})
	}
	return wait, over
}

func (d *drainer) decide() (moves []drain.Move, wait time.Duration, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.s.clock.Now()
	if d.report.Phase == DrainMoving && !d.releaseAt.IsZero() && !now.Before(d.releaseAt) {
		d.lookLocked() // counts what came
		d.report.Phase = DrainReleasing
	}
	if d.releasing = d.report.Phase == DrainReleasing; d.releasing {
		return nil, 0, false
	}
	if d.plan.Left() == 0 { // at the end, and for what was being loaded
		loading := d.lookLocked()
		if d.plan.Left() == 0 {
			if !loading {
				d.report.Phase = DrainReleasing
				return nil, 0, false
			}
			return nil, drainLook, false
		}
	}
	moves, at := d.plan.Next(now, func(k zmsg.Key, standing func(zmsg.NodeRef) drain.Standing) zmsg.NodeRef {
		return d.s.placement(k.Type).target(k, d.s.kinds[k.Type].version, standing)
	})
	wait = longStep
	sooner := func(t time.Time) {
		if !t.IsZero() {
			wait = min(wait, t.Sub(now))
		}
	}
	sooner(at)
	sooner(d.releaseAt)
	if d.plan.Left() == 0 { // all was given up
		wait = 0
	}
	return moves, wait, false
}

func (d *drainer) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookLocked()
}

// lookLocked adds what is in memory to the plan, and reports whether something is on its way there.
func (d *drainer) lookLocked() (loading bool) {
	for i := range d.s.shards {
		t := d.s.shards[i].lock()
		for _, o := range t.sh.objects {
			switch phase := o.entry.Phase; {
			case phase == entry.Claiming || phase == entry.Loading:
				loading = true
			case o.res == nil, phase == entry.Releasing, o.entry.Leaving: // it goes by itself
			default:
				d.plan.Add(drain.Object{Key: o.key, Used: o.used})
				if _, there := d.known[o.key]; !there {
					d.known[o.key] = struct{}{}
					d.report.Objects++
				}
			}
		}
		t.end()
	}
	return loading
}

// over takes how a move has ended.
func (d *drainer) over(m drain.Move, e *moveEnd) {
	how, why := e.result()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan.Ended(m.Key, how, d.s.clock.Now())
	switch how {
	case drain.Moved:
		d.report.Moved++
		d.report.To[m.To.ID]++
		d.report.Pause.add(m.Key, e.pause)
	case drain.Gone:
	default:
		d.report.Retries++
		if _, known := d.report.Why[why]; !known && len(d.report.Why) >= maxWhy {
			why = "other"
		}
		d.report.Why[why]++
	}
}

// finish makes the last report.
func (d *drainer) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.report
	r.Phase, r.Took, r.Moving = DrainDone, d.s.clock.Now().Sub(r.Began), 0
	var left Report
	for i := range d.s.shards {
		t := d.s.shards[i].lock()
		for _, o := range t.all() {
			if o.res != nil {
				left.left(o.key)
			}
		}
		t.end()
	}
	r.Left = left.Lost
	for _, k := range left.Left {
		r.LeftKeys = append(r.LeftKeys, k.String())
	}
	// A move that was under way when the releases began may have won.
	r.Released = max(0, min(d.releases.Released, r.Objects-r.Moved-r.Left))
	if d.err != nil {
		d.err = fmt.Errorf("zrouter: draining: %d objects were moved, %d given up, %d are left: %w", r.Moved, r.Released, r.Left, d.err)
	}
	r.Gone = max(0, r.Objects-r.Moved-r.Released-r.Left)
}

// transfer begins a move. Its steps have deadlines of their own.
func (d *drainer) transfer(k zmsg.Key, to zmsg.NodeRef, then func(moveEnd)) {
	m := &move{to: to}
	m.then = func(r Route, err error) {
		e := moveEnd{err: err, code: m.code}
		switch {
		case err != nil:
		case r.Owner != to:
			e.err = ErrMoved
		case !m.frozen.IsZero():
			e.pause = d.s.clock.Now().Sub(m.frozen)
		}
		then(e)
	}
	d.s.startMove(k, m)
}

// moveEnd is how a move has ended.
type moveEnd struct {
	err   error
	code  zmsg.Code     // of the target's refusal; OK: it said nothing
	pause time.Duration // for how long the object took no requests, until the new owner was told that it is its
}

// result says what the plan makes of it, and, where that is not the wished end, why. What is still here though it seems gone is seen by the
// next look.
func (e *moveEnd) result() (how drain.Result, why string) {
	switch {
	case e.err == nil:
		return drain.Moved, ""
	case errors.Is(e.err, errLookAgain), errors.Is(e.err, ErrMoved), errors.Is(e.err, ErrNotFound), errors.Is(e.err, ErrNotInServer):
		return drain.Gone, ""
	case !errors.Is(e.err, ErrRefused), e.code == zmsg.CodeConflict:
		how = drain.Failed
	case e.code == zmsg.CodeBusy:
		how = drain.Busy
	default:
		how = drain.Refused
	}
	told := zmsg.ErrorReply(e.err)
	return how, told.Code.String() + ": " + told.Text
}
