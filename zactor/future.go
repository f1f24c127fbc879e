package zactor

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmsg"
)

// future takes the one outcome of a request: of an Ask, where a goroutine waits for it, or of a Then or Async, where it
// goes to the actor's mailbox.
//
// Futures are pooled. state holds the generation, which is the token, and whether the outcome is still open; whoever
// turns that bit off owns the fields until the future is armed again. A late or doubled outcome has another
// generation, or finds the bit off, and is counted.
type future struct {
	table *futures
	shard *futureShard  // nil once it is trimmed
	wake  chan struct{} // of capacity 1: the outcome of an Ask is there

	state    atomic.Uint64 // generation << 1 | open
	deadline atomic.Int64  // in nanoseconds of the table's clock

	// Guarded by shard.mu: who is told when the request of the token is given up, nil for nobody.
	giveUp      zmsg.GiveUp
	giveUpArg   uint64
	giveUpToken uint64
	gaveUp      uint64 // the last token that was given up

	// Owned by the one who closed the state.
	reply zmsg.Reply
	buf   []byte // memory of reply.Body

	// Set before the future is armed; nil for an Ask.
	cell  *cell
	epoch uint32                          // the instance of the actor that waits
	head  *zmsg.Message                   // what the handler was about, nil if nothing; goes into the item
	from  *cell                           // its sender
	then  func(c *Context, r *zmsg.Reply) // runs in the actor's turn; nil for a Call of a reentrant actor
	op    opID                            // the tap's name for it
	susp  *suspension                     // the handler that waits there; owned by the actor's turn
}

// futureShards spreads the free lists, so that askers do not queue for one mutex.
const futureShards = 8

// sweepEvery is how late a time-out may be, and idleSweeps how many rounds with nothing to time end the sweeper.
const (
	sweepEvery = 10 * time.Millisecond
	idleSweeps = 5
)

// futures is the table of open requests of a group. One call of the clock sweeps it for deadlines, asked for again as
// long as something is open: an ask costs no timer, an idle group no CPU.
type futures struct {
	// Set at construction.
	clock  Clock
	base   time.Time // clock zero
	late   func()
	manual *Manual // of the group

	coarse   atomic.Int64 // the clock at the last sweep
	sweeping atomic.Bool  // a sweep will come, or runs; written under mu

	mu    sync.Mutex // held through a sweep, so that end returns after the last one
	ended bool       // guarded by mu
	idle  int        // guarded by mu: sweeps in a row that found nothing open
	round int        // guarded by mu: sweeps
	tick  ClockTimer // guarded by mu; nil before the first sweep

	shards [futureShards]futureShard
}

type futureShard struct {
	mu   sync.Mutex
	free []*future // guarded by mu
	all  []*future // guarded by mu; as many as were open at once of late, see trim
	_    [64]byte  // a cache line of its own
}

func newFutures(clock Clock, late func()) *futures {
	return &futures{clock: clock, base: clock.Now(), late: late}
}

// now is the table's clock.
func (t *futures) now() int64 { return int64(t.clock.Now().Sub(t.base)) }

// get returns a future that is not armed yet.
func (t *futures) get() *future {
	s := &t.shards[rand.Uint32()%futureShards]
	s.mu.Lock()
	var f *future
	if n := len(s.free); n > 0 {
		f = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		f = &future{table: t, shard: s, wake: make(chan struct{}, 1)}
		s.all = append(s.all, f)
	}
	s.mu.Unlock()
	if !t.sweeping.Load() {
		t.startSweep()
	}
	return f
}

// arm opens f until deadline and returns the token.
func (f *future) arm(deadline int64) uint64 {
	gen := f.state.Load()>>1 + 1
	f.deadline.Store(deadline)
	f.state.Store(gen<<1 | 1)
	return gen
}

// until is the deadline of a request that may take d from now, or from the last sweep: a few milliseconds do not
// matter, reading the clock for each ask would.
func (t *futures) until(d time.Duration) int64 { return t.coarse.Load() + int64(d+sweepEvery) }

// open reports whether the request with the token still waits.
func (f *future) open(token uint64) bool { return f.state.Load() == token<<1|1 }

// await waits for the outcome of an Ask or Call. With a Manual the actors go on meanwhile; when there is nothing left to do,
// nobody will answer.
func (f *future) await(token uint64) {
	m := f.table.manual
	if m == nil {
		<-f.wake
		return
	}
	for len(f.wake) == 0 {
		if !m.Next() && f.close(token) {
			f.reply = zmsg.Reply{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown, Text: "no answer, and no actor of the Manual has anything to do"}
			f.done()
		}
	}
	<-f.wake
}

// close takes the right to give the outcome; false when it was given, or taken, before.
func (f *future) close(token uint64) bool { return f.state.CompareAndSwap(token<<1|1, token<<1) }

// OnGiveUp is of zmsg.Waiter.
func (f *future) OnGiveUp(token uint64, w zmsg.GiveUp, arg uint64) bool {
	f.shard.mu.Lock()
	open, given := f.open(token), f.state.Load() == token<<1 && f.gaveUp == token
	if open {
		f.giveUp, f.giveUpArg, f.giveUpToken = w, arg, token
	}
	f.shard.mu.Unlock()
	if given {
		w.GaveUp(arg)
	}
	return open || given
}

// Forget is of zmsg.Waiter.
func (f *future) Forget(token uint64, w zmsg.GiveUp) {
	f.shard.mu.Lock()
	if f.giveUpToken == token && f.giveUp == w {
		f.giveUp = nil
	}
	f.shard.mu.Unlock()
}

// abandon closes f because the one who asked waits no longer, and has whoever works on the request told. It reports false
// when the outcome is there.
func (f *future) abandon(token uint64) bool {
	f.shard.mu.Lock()
	if !f.close(token) {
		f.shard.mu.Unlock()
		return false
	}
	f.gaveUp = token
	w, arg := f.giveUp, f.giveUpArg
	if f.giveUpToken != token {
		w = nil
	}
	f.giveUp = nil
	f.shard.mu.Unlock()
	if w != nil {
		w.GaveUp(arg)
	}
	return true
}

// Reply gives the outcome. It is a zmsg.Replier.
func (f *future) Reply(token uint64, r *zmsg.Reply) {
	if !f.close(token) {
		f.table.late()
		return
	}
	f.reply = *r
	if r.Body != nil {
		f.buf = append(f.buf[:0], r.Body...)
		f.reply.Body = f.buf
	}
	f.done()
}

// done hands the outcome on; the caller has closed f and filled reply.
func (f *future) done() {
	if f.cell == nil {
		f.wake <- struct{}{} // never blocks: capacity 1, one outcome for each arm
		return
	}
	it := item{kind: itemDone, value: f, msg: f.head, from: f.from}
	if f.cell.pushControl(&it) != nil { // the actor is gone, and its continuation with it
		if f.head != nil {
			f.head.Release()
		}
		f.put()
	}
}

// put gives f back; it must be closed, and its outcome used.
func (f *future) put() {
	f.reply = zmsg.Reply{}
	f.op = opID{}
	f.cell, f.then, f.head, f.from, f.susp = nil, nil, nil, nil, nil
	if cap(f.buf) > keptBody {
		f.buf = nil
	}
	s := f.shard
	s.mu.Lock()
	f.giveUp = nil
	s.free = append(s.free, f)
	s.mu.Unlock()
}

// keptBody is the largest answer, in bytes, whose memory a pooled future keeps.
const keptBody = 16 << 10

func (t *futures) startSweep() {
	t.coarse.Store(t.now())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || !t.sweeping.CompareAndSwap(false, true) {
		return
	}
	t.idle = 0
	if t.tick == nil {
		t.tick = t.clock.AfterFunc(sweepEvery, t.sweep)
	} else {
		t.tick.Reset(sweepEvery) // no call is outstanding: the last one turned sweeping off and asked for no other
	}
}

// end stops the sweeps for good; none runs when it returns.
func (t *futures) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.tick != nil {
		t.tick.Stop() // a call that was begun waits for mu, and sees ended
	}
}

// sweep is one call of the clock.
func (t *futures) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.coarse.Store(t.now())
	if t.round++; t.round%trimEvery == 0 {
		t.trim()
	}
	if t.expire() > 0 {
		t.idle = 0
	} else if t.idle++; t.idle >= idleSweeps {
		// Off first, then a last look: who opens a request after the look finds the sweeper off and starts it, once mu is
		// free; who opened one before and saw it on is seen by the look.
		t.sweeping.Store(false)
		if t.expire() == 0 {
			t.trim()
			return
		}
		t.sweeping.Store(true)
		t.idle = 0
	}
	t.tick.Reset(sweepEvery)
}

// After a peak of open requests most futures are free, and looking at each in every sweep costs time. trimEvery is after how many
// sweeps they are let go, and keptFutures how many a shard keeps.
const (
	trimEvery   = 512
	keptFutures = 128
)

// trim lets free futures go where they are most of many. Whoever replies late to one finds it closed, as in the pool.
func (t *futures) trim() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		if len(s.free) > 4*keptFutures && len(s.free) > len(s.all)/4*3 {
			for _, f := range s.free[keptFutures:] {
				f.shard = nil
			}
			s.free = slices.Clone(s.free[:keptFutures])
			s.all = slices.Clone(slices.DeleteFunc(s.all, func(f *future) bool { return f.shard == nil }))
		}
		s.mu.Unlock()
	}
}

// expire ends the requests whose deadline is over and returns how many are open.
func (t *futures) expire() (open int) {
	now := t.coarse.Load()
	var due []*future
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		open += len(s.all) - len(s.free)
		for _, f := range s.all {
			if f.state.Load()&1 == 1 && f.deadline.Load() <= now {
				due = append(due, f)
			}
		}
		s.mu.Unlock()
	}
	for _, f := range due {
		// The deadline read may belong to a later arming than the state; closing that generation then fails, or the
		// deadline is read again and is its own.
		s := f.state.Load()
		if s&1 == 1 && f.deadline.Load() <= now && f.state.CompareAndSwap(s, s&^1) {
			f.reply = zmsg.Reply{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown, Text: "no answer within the deadline"}
			f.done()
		}
	}
	return open
}
