package zactor

import (
	"slices"
	"sync"

	"zgame/zmsg"
)

// Manual runs the actors of a Group on its caller's goroutine, one message at a time, in an order that the caller picks:
// for tests, replay and simulation. Its methods are called by one goroutine; it is one of the group's handlers' as well, so
// that a handler that waits (Call, Ask, the end of a child) lets the other actors go on, in order. A wait
// that nothing can end any more panics.
type Manual struct {
	g *Group

	mu    sync.Mutex
	ready []*cell      // guarded by mu: have something to do, in the order in which they got it
	jobs  []waitingJob // guarded by mu: of Async
}

// NewManual makes a Group whose actors have no goroutines: they do something when the Manual is told. Reentrant actors
// wait with their mailbox here.
func NewManual(cfg Config) (*Group, *Manual, error) {
	m := new(Manual)
	g, err := newGroup(cfg, m)
	m.g = g
	return g, m, err
}

// Manual returns what steps the group's actors; nil if they have goroutines.
func (g *Group) Manual() *Manual { return g.manual }

func (m *Manual) add(c *cell) {
	m.mu.Lock()
	m.ready = append(m.ready, c)
	m.mu.Unlock()
}

// waitingJob is work of Async that Next runs.
type waitingJob struct {
	job
	pool *jobs
}

// addJob lets next be run, within the bound of its pool.
func (m *Manual) addJob(next job, pool *jobs) error {
	m.mu.Lock()
	oldest, n := -1, 0
	for i, w := range m.jobs {
		if w.pool == pool {
			if oldest < 0 {
				oldest = i
			}
			n++
		}
	}
	var dropped job
	if n >= pool.Queue {
		if pool.Full != AsyncDropOldest {
			m.mu.Unlock()
			pool.busy.Inc()
			return zmsg.ErrBusy
		}
		dropped = m.jobs[oldest].job
		m.jobs = slices.Delete(m.jobs, oldest, oldest+1)
		pool.dropped.Inc()
	}
	m.jobs = append(m.jobs, waitingJob{next, pool})
	m.mu.Unlock()
	if dropped != nil {
		dropped.drop(errDropped)
	}
	return nil
}

// Ready returns the actors that have something to do, in the order in which they got it.
func (m *Manual) Ready() []Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Ref, 0, len(m.ready))
	for _, c := range m.ready {
		out = append(out, Ref{cell: c})
	}
	return out
}

// Jobs returns how many pieces of work of Async wait to be run.
func (m *Manual) Jobs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.jobs)
}

// Step lets the actor handle one thing: a message, a timer, a continuation, or what its lifecycle lane holds. It reports false when
// the actor has nothing to do.
func (m *Manual) Step(ref Ref) bool {
	m.mu.Lock()
	i := slices.Index(m.ready, ref.cell)
	if i < 0 {
		m.mu.Unlock()
		return false
	}
	m.ready = slices.Delete(m.ready, i, i+1)
	m.mu.Unlock()
	ref.cell.step(m)
	return true
}

// Next steps the actor that has waited longest, or runs the oldest work of Async where no actor is ready. It reports
// false when there is nothing to do.
func (m *Manual) Next() bool {
	m.mu.Lock()
	if len(m.ready) > 0 {
		c := m.ready[0]
		m.ready = slices.Delete(m.ready, 0, 1)
		m.mu.Unlock()
		c.step(m)
		return true
	}
	if len(m.jobs) == 0 {
		m.mu.Unlock()
		return false
	}
	job := m.jobs[0]
	m.jobs = slices.Delete(m.jobs, 0, 1)
	m.mu.Unlock()
	job.run()
	return true
}

// Run steps until nothing is left to do, at most max times, and returns how often.
func (m *Manual) Run(max int) (steps int) {
	for steps < max && m.Next() {
		steps++
	}
	return steps
}

// step is a turn of one item.
func (c *cell) step(m *Manual) {
	x := c.g.context(c)
	if c.takeHeld() && !c.restart(x) {
		return
	}
	c.mu.Lock()
	if c.reason() != 0 {
		c.mu.Unlock()
		c.terminate(x, nil)
		return
	}
	x.batch, x.next = nil, 0
	if !c.wanted() {
		x.batch = c.stepLocked(&x.taken, &c.g.buffers)
	}
	c.mu.Unlock()
	if !c.work(x) {
		return
	}
	c.mu.Lock()
	c.ahead, c.taken = 0, nil
	c.worked += x.worked
	more := len(c.in) > 0 || c.wanted()
	if !more {
		c.idleLocked(&c.g.buffers)
	}
	c.mu.Unlock()
	c.g.contexts.Put(x.clean())
	if more {
		m.add(c)
	}
}

// await waits for ch; with a Manual the other actors go on meanwhile.
func (g *Group) await(ch <-chan struct{}) {
	if g.manual == nil {
		<-ch
		return
	}
	if !g.awaitOr(ch, nil) {
		panic("zactor: a handler waits for what no actor of the Manual is going to do")
	}
}

// awaitOr waits for ch, or reports false when stop comes first; with a Manual the actors go on meanwhile, and stop is when they
// have nothing to do.
func (g *Group) awaitOr(ch, stop <-chan struct{}) bool {
	come := func() bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if g.manual != nil {
		for !come() && g.manual.Next() {
		}
		return come()
	}
	select {
	case <-ch:
		return true
	case <-stop:
		return come() // it may be there as well
	}
}
