package zactor

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Async runs work off the actor, on a worker of the group, and then fn with its result in a turn of the actor; meanwhile the
// actor goes on with its messages. work must not touch the actor's state. Its context ends with the actor, and at the
// message's deadline if it has one. A panic in work reaches fn as an error that is zmsg.ErrPanicked.
//
// fn is called once, but not any more when the actor ends or restarts first. Errors: ErrBusy when Config.AsyncQueue is
// full; then nothing runs.
func Async[T any](c *Context, work func(ctx context.Context) (T, error), fn func(c *Context, result T, err error)) error {
	var result T
	err := errGoexit // unless work comes back
	f := c.promise(func(c *Context, _ *zmsg.Reply) { fn(c, result, err) })
	token := f.arm(1<<63 - 1) // ends with the work, which has the deadline
	ctx, cancel := c.workContext()
	job := func() {
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%w: %v\n%s", zmsg.ErrPanicked, v, debug.Stack())
			}
			f.Reply(token, &zmsg.Reply{})
		}()
		result, err = work(ctx)
	}
	if !c.cell.g.addJob(job) {
		cancel()
		f.close(token)
		if f.head != nil {
			f.head.Release()
		}
		f.put()
		c.cell.pending--
		return zmsg.ErrBusy
	}
	return nil
}

func (g *Group) addJob(job func()) bool {
	if g.manual != nil {
		return g.manual.addJob(job, g.cfg.AsyncQueue)
	}
	return g.jobs.add(job)
}

func (c *Context) workContext() (context.Context, context.CancelFunc) {
	if d, ok := c.Deadline(); ok {
		return c.cell.g.withDeadline(c.cell.life(), d)
	}
	return context.WithCancel(c.cell.life())
}

// jobs is the bounded pool behind Async. Workers exist only while there is work.
type jobs struct {
	workers, limit int
	wg             *sync.WaitGroup // of the group: ends when the workers have
	gauge          zmetrics.Gauge

	mu      sync.Mutex
	running int      // guarded by mu
	queue   []func() // guarded by mu
	ended   bool     // guarded by mu
}

func newJobs(workers, limit int, wg *sync.WaitGroup, gauge zmetrics.Gauge) *jobs {
	return &jobs{workers: workers, limit: limit, wg: wg, gauge: gauge}
}

// add runs job soon, or returns false when too many wait.
func (j *jobs) add(job func()) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.ended || j.running >= j.workers && len(j.queue) >= j.limit:
		return false
	case j.running >= j.workers:
		j.queue = append(j.queue, job)
	default:
		j.running++
		j.wg.Add(1)
		go j.work(job) // owned by the group; ends when no job waits; the group's shutdown waits for it
	}
	j.gauge.Inc()
	return true
}

func (j *jobs) work(job func()) {
	defer j.wg.Done()
	defer func() {
		if job != nil { // the job called runtime.Goexit
			j.next()
		}
	}()
	for job != nil {
		job()
		job = j.next()
	}
}

// next returns the next job, nil for none: then the worker is gone.
func (j *jobs) next() func() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gauge.Dec()
	if len(j.queue) == 0 {
		j.running--
		return nil
	}
	job := j.queue[0]
	j.queue[0] = nil
	j.queue = j.queue[1:]
	return job
}

// end refuses further jobs.
func (j *jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
}
