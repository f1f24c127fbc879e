package zgate

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	wheelTick  = 50 * time.Millisecond
	wheelSlots = 1024 // 51 s; what is due later comes around once more
)

// wheel is the clock of all connections of a gate: each has one entry, which fires when it is due and says when it
// wants to be called again. There is no timer and no ticker per connection. The one goroutine sleeps until the next
// slot with something in it, and for good while there are no connections.
//
// Times are nanoseconds since the gate was made, by the monotonic clock.
type wheel struct {
	// Set at construction.
	now  func() int64
	fire func(c *conn, now int64) (next int64) // 0: not again
	wake chan struct{}

	mu    sync.Mutex
	slots [wheelSlots]*wheelEntry
	done  int64 // the last tick that has been handled
	until int64 // the tick that the goroutine sleeps until, 0 while it is at work
	count int   // entries in slots
}

// wheelEntry is a connection's place in the wheel. Guarded by wheel.mu, but for due.
type wheelEntry struct {
	conn       *conn
	prev, next *wheelEntry
	tick       int64
	linked     bool
	removed    bool
	due        atomic.Int64 // when it fires, at the latest; for a look without the lock
}

const never = int64(1) << 62

func newWheel(now func() int64, fire func(*conn, int64) int64) *wheel {
	return &wheel{now: now, fire: fire, wake: make(chan struct{}, 1), until: never}
}

// schedule makes e fire at the time at, unless it does so earlier anyway.
func (w *wheel) schedule(e *wheelEntry, at int64) {
	if e.due.Load() <= at && e.due.Load() != 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduleLocked(e, at)
}

func (w *wheel) scheduleLocked(e *wheelEntry, at int64) {
	if due := e.due.Load(); e.removed || due != 0 && due <= at {
		return
	}
	if e.linked {
		w.unlinkLocked(e)
	}
	e.due.Store(at)
	tick := (at + int64(wheelTick) - 1) / int64(wheelTick) // never early
	tick = min(max(tick, w.done+1), w.done+wheelSlots-1)
	e.tick = tick
	head := &w.slots[tick%wheelSlots]
	e.prev, e.next = nil, *head
	if *head != nil {
		(*head).prev = e
	}
	*head = e
	e.linked = true
	w.count++
	if tick < w.until {
		w.until = tick
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *wheel) unlinkLocked(e *wheelEntry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		w.slots[e.tick%wheelSlots] = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next, e.linked = nil, nil, false
	w.count--
}

// remove takes e out for good.
func (w *wheel) remove(e *wheelEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.removed = true
	if e.linked {
		w.unlinkLocked(e)
	}
}

// run fires entries until stop is closed.
func (w *wheel) run(stop <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var batch []*wheelEntry
	for {
		w.mu.Lock()
		w.until = w.nextLocked()
		sleep := time.Hour
		if w.until != never {
			sleep = time.Duration(w.until*int64(wheelTick) - w.now())
		}
		w.mu.Unlock()
		timer.Reset(max(sleep, 0))
		select {
		case <-stop:
			return
		case <-w.wake:
		case <-timer.C:
		}
		now := w.now()
		batch = w.take(batch[:0], now/int64(wheelTick))
		for i, e := range batch {
			batch[i] = nil
			if next := w.fire(e.conn, now); next > 0 {
				w.schedule(e, next)
			}
		}
	}
}

// nextLocked returns the next tick with something in its slot.
func (w *wheel) nextLocked() int64 {
	if w.count == 0 {
		return never
	}
	for tick := w.done + 1; ; tick++ {
		if w.slots[tick%wheelSlots] != nil {
			return tick
		}
	}
}

// take unlinks what is due up to tick.
func (w *wheel) take(batch []*wheelEntry, tick int64) []*wheelEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = 0
	from := max(w.done+1, tick-wheelSlots+1)
	for t := from; t <= tick && w.count > 0; t++ {
		for e := w.slots[t%wheelSlots]; e != nil; e = w.slots[t%wheelSlots] {
			w.unlinkLocked(e)
			e.due.Store(0)
			batch = append(batch, e)
		}
	}
	w.done = max(w.done, tick)
	return batch
}
