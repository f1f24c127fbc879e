package zactortest

import (
	"container/heap"
	"sync"
	"time"

	"zgame/zactor"
)

// Clock is a virtual clock: its time stands still until a test moves it. Give it to a group as Config.Clock; timers,
// time-outs and restarts of the group then wait for Advance.
//
// Its methods may be called from any goroutine. What falls due runs on the goroutine that calls Advance, in order of its
// time, and what has the same time in the order in which it was asked for. It puts work into mailboxes and does not wait for
// it: an actor handles its tick on its own goroutine, maybe after Advance has returned. Where each tick has to be handled at
// its own time, use Steps.
type Clock struct {
	advancing sync.Mutex // held by the one Advance that runs

	mu     sync.Mutex
	now    time.Time // guarded by mu
	asked  uint64    // guarded by mu: calls asked for, which orders those of one time
	timers clockHeap // guarded by mu
}

var _ zactor.Clock = (*Clock)(nil)

// NewClock returns a clock that stands at start.
func NewClock(start time.Time) *Clock { return &Clock{now: start.Round(0)} }

// Now returns where the clock stands.
func (k *Clock) Now() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// Pending returns how many calls the clock has been asked for that are still to come: 0 when nothing waits for the time.
func (k *Clock) Pending() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.timers)
}

// Next returns the time of the next call; ok is false when there is none.
func (k *Clock) Next() (at time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.timers) == 0 {
		return time.Time{}, false
	}
	return k.timers[0].at, true
}

// Advance moves the clock on by d and runs what falls due until then, each at its own time: Now says that meanwhile. What is
// asked for meanwhile and falls due too runs as well. Calls of two goroutines run one after the other. It must not be
// called from what it runs. A negative d panics.
func (k *Clock) Advance(d time.Duration) { k.Steps(d, nil) }

// Steps is Advance that calls settle at each time at which something fell due, when all of it has run, and once at the end.
// settle waits until what was put into mailboxes is handled: synctest.Wait does, and so does a group that is stepped by hand.
// So a test sees the same on each run.
func (k *Clock) Steps(d time.Duration, settle func()) {
	if d < 0 {
		panic("zactortest: a Clock does not go back")
	}
	k.advancing.Lock()
	defer k.advancing.Unlock()
	k.mu.Lock()
	end := k.now.Add(d)
	for len(k.timers) > 0 && !k.timers[0].at.After(end) {
		t := heap.Pop(&k.timers).(*clockTimer)
		if t.at.After(k.now) {
			k.now = t.at
		}
		k.mu.Unlock()
		t.f() // without mu: it may ask for more
		k.mu.Lock()
		if settle != nil && (len(k.timers) == 0 || k.timers[0].at.After(k.now)) {
			k.mu.Unlock()
			settle()
			k.mu.Lock()
		}
	}
	k.now = end
	k.mu.Unlock()
	if settle != nil {
		settle()
	}
}

// AfterFunc is of zactor.Clock. f runs in a later Advance, if only one of 0.
func (k *Clock) AfterFunc(d time.Duration, f func()) zactor.ClockTimer {
	t := &clockTimer{k: k, f: f, index: -1}
	t.Reset(d)
	return t
}

type clockTimer struct {
	k *Clock
	f func()

	// Guarded by k.mu.
	at    time.Time
	asked uint64
	index int // in the heap, -1 if not there
}

func (t *clockTimer) Stop() bool {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.k.timers, t.index)
	return true
}

func (t *clockTimer) Reset(d time.Duration) bool {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	there := t.index >= 0
	if there {
		heap.Remove(&t.k.timers, t.index)
	}
	t.at, t.asked = t.k.now.Add(max(0, d)), t.k.asked
	t.k.asked++
	heap.Push(&t.k.timers, t)
	return there
}

// clockHeap is a heap.Interface.
type clockHeap []*clockTimer

func (h clockHeap) Len() int { return len(h) }

func (h clockHeap) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].asked < h[j].asked
}

func (h clockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *clockHeap) Push(x any) {
	t := x.(*clockTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *clockHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
