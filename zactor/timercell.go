package zactor

import (
	"sync"
	"time"
)

// timer is one call of the group's clock, made once and used again by one actor's timer after the other: an After costs no
// allocation beyond the user's closure.
//
// Three parties meet at it. The actor's turn arms and ends it; the clock runs fire on a goroutine of its own; and ticks
// of it lie in a mailbox, handles of it in variables of the user, for as long as they like. What holds them apart:
//
//   - gen is counted up when a timer ends. Ticks and handles carry the generation that they are of, and do nothing when it
//     is over, whoever the timer belongs to by then.
//   - out says that a call of the clock is outstanding: one that Stop may take back, or a fire that has begun and waits for
//     mu. A fire has nothing to carry a generation in, so a timer is given to the pool only when none is out.
//
// The race of an end with a fire, of which there are these interleavings:
//
//	turn                               clock
//	end: Stop says true, out = false   no fire comes                             end gives it to the pool
//	                                   begins fire, which waits for mu
//	end: Stop says false, left = true
//	                                   fire: sees left                           fire gives it to the pool
//	                                   fire: out = false, takes gen
//	end: out is false, gen + 1                                                   end gives it to the pool
//	(another actor arms it, gen + 1)
//	                                   pushes a tick of the old gen to the old actor
//	turn: the tick's gen is over                                                 nothing
//
// Without left, the fire of the second case could meet the next owner's arming and be taken for its own: one timer's end
// would make another's fire early, or eat it.
type timer struct {
	// Set at construction.
	pool *timerPool

	mu   sync.Mutex
	gen  uint64     // guarded by mu
	cell *cell      // guarded by mu; nil in the pool
	call ClockTimer // guarded by mu; nil before the first arming
	out  bool       // guarded by mu
	left bool       // guarded by mu: ended, with a fire out that gives it to the pool
	wall time.Time  // guarded by mu; of a cron timer: when it is due, on the wall clock

	// Owned by the turn of the actor.
	fn         func(c *Context)
	period     time.Duration // of Every, else 0
	due        int64         // of Every, in nanoseconds of the group's clock
	loop       *loop         // of Loop, else nil
	cron       *cronTimer    // of Cron, else nil
	skipped    uint64
	op         opID  // the tap's name for it
	noted      int64 // the time at which a recorder has seen the tick, which is the tick's; else 0
	key        string
	keyed      bool
	prev, next *timer // in the actor's list
}

// timerPool holds timers that are in nobody's hands.
type timerPool struct {
	g    *Group
	pool sync.Pool // *timer
}

// get returns a timer of the cell, not armed.
func (p *timerPool) get(c *cell) *timer {
	t, _ := p.pool.Get().(*timer)
	if t == nil {
		t = &timer{pool: p}
	}
	t.mu.Lock()
	t.cell = c
	t.mu.Unlock()
	return t
}

// arm asks the clock for the first call and returns the handle.
func (t *timer) arm(d time.Duration) Timer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askLocked(d)
	return Timer{t, t.gen}
}

// again asks the clock for another call; the one before has come, for its tick is being handled.
func (t *timer) again(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askLocked(d)
}

func (t *timer) askLocked(d time.Duration) {
	t.out = true
	if t.call == nil {
		t.call = t.pool.g.clock.AfterFunc(d, t.fire)
	} else {
		t.call.Reset(d)
	}
}

// skip counts n ticks that are left out.
func (t *timer) skip(n uint64) {
	if n > 0 {
		t.skipped += n
		t.pool.g.cfg.Metrics.TimerSkips.Add(float64(n))
	}
}

// end ends the present generation; the actor has taken it out of its list.
func (t *timer) end() {
	t.mu.Lock()
	t.gen++
	t.cell, t.wall = nil, time.Time{}
	t.fn, t.period, t.due, t.loop, t.cron, t.skipped, t.key, t.keyed = nil, 0, 0, nil, nil, 0, "", false
	t.op, t.noted = opID{}, 0
	t.left = t.out && !t.call.Stop()
	free := !t.left
	if free {
		t.out = false
	}
	t.mu.Unlock()
	if free {
		t.pool.pool.Put(t)
	}
}

// fire is the call of the clock, on a goroutine of the clock: it puts a tick into the mailbox. The next call is asked for in
// the turn that handles the tick, so at most one tick waits.
func (t *timer) fire() {
	t.mu.Lock()
	if t.left {
		t.left, t.out = false, false
		t.mu.Unlock()
		t.pool.pool.Put(t)
		return
	}
	if !t.wall.IsZero() {
		if d := untilWall(t.wall, t.pool.g.clock.Now()); d > 0 {
			t.askLocked(d)
			t.mu.Unlock()
			return
		}
	}
	t.out = false
	c, gen := t.cell, t.gen
	t.mu.Unlock()
	if c.g.draining.Load() {
		return
	}
	_ = c.pushControl(&item{kind: itemTimer, value: t, token: gen}) // refused by an actor that has ended: so has the timer
}

// timerList is the timers of an actor's instance; owned by its turn.
type timerList struct {
	first *timer
	keys  map[string]*timer
}

// add puts t into the list; one that has the key ends.
func (l *timerList) add(t *timer, key string, keyed bool) {
	if keyed {
		if old := l.keys[key]; old != nil {
			l.end(old)
		}
		if l.keys == nil {
			l.keys = make(map[string]*timer)
		}
		l.keys[key] = t
		t.key, t.keyed = key, true
	}
	t.prev, t.next = nil, l.first
	if l.first != nil {
		l.first.prev = t
	}
	l.first = t
}

// end takes t out of the list and ends it.
func (l *timerList) end(t *timer) {
	if t.keyed {
		delete(l.keys, t.key)
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		l.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	t.end()
}

// endAll ends the timers of an instance that has ended.
func (l *timerList) endAll() {
	for l.first != nil {
		l.end(l.first)
	}
	l.keys = nil
}
