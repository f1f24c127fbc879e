package zactor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// AsyncPool is workers for Async, and a queue of work that waits for them.
type AsyncPool struct {
	// Workers is how many jobs run at once. Defaults to 64.
	Workers int
	// Queue is how many further jobs wait. Defaults to 1,024.
	Queue int
	// Full says what happens to a job above that.
	Full AsyncPolicy
}

// AsyncPolicy says what happens when the queue of a pool is full. It never waits for a place: the handler would hold up its
// mailbox for as long as the work of others takes, and for ever where that work waits for the actor.
type AsyncPolicy uint8

// The policies.
const (
	// AsyncReject lets Async return ErrBusy.
	AsyncReject AsyncPolicy = iota
	// AsyncDropOldest takes the job that has waited longest out of the queue: its fn gets ErrBusy, not executed. For work
	// of which the newest counts.
	AsyncDropOldest
)

func (p AsyncPool) withDefaults() AsyncPool {
	if p.Workers == 0 {
		p.Workers = 64
	}
	if p.Queue == 0 {
		p.Queue = 1024
	}
	return p
}

func (p AsyncPool) validate(workers, queue, full string) error {
	var errs []error
	if p.Workers < 0 {
		errs = append(errs, fmt.Errorf("zactor: %s is %d: want a positive number", workers, p.Workers))
	}
	if p.Queue < 0 {
		errs = append(errs, fmt.Errorf("zactor: %s is %d: want a positive number", queue, p.Queue))
	}
	if p.Full > AsyncDropOldest {
		errs = append(errs, fmt.Errorf("zactor: %s is %d: want AsyncReject or AsyncDropOldest", full, p.Full))
	}
	return errors.Join(errs...)
}

// pools is all pools of a group by their names; "" is the one that work runs on that names none.
type pools map[string]*jobs

func newPools(cfg *Config, wg *sync.WaitGroup) pools {
	ps := pools{"": newJobs(cfg.asyncPool(), cfg.Metrics, wg)}
	for name, p := range cfg.AsyncPools {
		ps[name] = newJobs(p, cfg.Metrics, wg)
	}
	return ps
}

func (ps pools) pool(name string) (*jobs, error) {
	if j, ok := ps[name]; ok {
		return j, nil
	}
	names := slices.Sorted(maps.Keys(ps))[1:]
	return nil, fmt.Errorf("zactor: no pool %q in Config.AsyncPools (of a node: App.AsyncPools), which has [%s]", name, strings.Join(names, " "))
}

// end refuses further jobs.
func (ps pools) end() {
	for _, j := range ps {
		j.end()
	}
}

// job is what a pool runs: exactly one of its methods is called, once.
type job interface {
	run()           // on a worker; may call runtime.Goexit, does not panic
	drop(err error) // in place of run
}

// jobs is a bounded pool. Workers exist only while there is work.
type jobs struct {
	// Set at construction.
	AsyncPool
	wg            *sync.WaitGroup // of the group: ends when the workers have
	gauge         zmetrics.Gauge
	busy, dropped zmetrics.Counter

	mu      sync.Mutex
	running int      // guarded by mu
	queue   jobQueue // guarded by mu
	ended   bool     // guarded by mu
}

func newJobs(p AsyncPool, m *zmetrics.Actor, wg *sync.WaitGroup) *jobs {
	return &jobs{
		AsyncPool: p.withDefaults(), wg: wg, gauge: m.AsyncJobs,
		busy: m.AsyncRefused.With("busy"), dropped: m.AsyncRefused.With("dropped"),
	}
}

// errDropped is what the job learns that had to make way for a newer one.
var errDropped error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "newer work took the place in the queue"}

// add runs a job soon. With an error it does not.
func (j *jobs) add(next job) error {
	oldest, err := j.put(next)
	if oldest != nil {
		oldest.drop(errDropped) // not under mu: it goes to a mailbox
	}
	return err
}

// put gives a job to a new worker or to the queue. oldest is a job that made way for it.
func (j *jobs) put(next job) (oldest job, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.ended:
		return nil, zmsg.ErrStopped
	case j.running < j.Workers:
		j.running++
		j.gauge.Inc()
		j.start(next)
		return nil, nil
	case j.queue.n < j.Queue:
		j.gauge.Inc()
	case j.Full == AsyncDropOldest:
		oldest = j.queue.pop()
		j.dropped.Inc()
	default:
		j.busy.Inc()
		return nil, zmsg.ErrBusy
	}
	j.queue.push(next)
	return oldest, nil
}

func (j *jobs) start(first job) {
	j.wg.Add(1)
	go j.work(first) // owned by the group; ends when no job waits; the group's shutdown waits for it
}

func (j *jobs) work(now job) {
	defer j.wg.Done()
	defer func() {
		if now == nil {
			return
		}
		if next := j.next(); next != nil { // the job called runtime.Goexit: another goroutine goes on
			j.start(next)
		}
	}()
	for now != nil {
		now.run()
		now = j.next()
	}
}

// next returns the next job, nil for none: then the worker is gone.
func (j *jobs) next() job {
	j.gauge.Dec()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.queue.n == 0 {
		j.running--
		return nil
	}
	return j.queue.pop()
}

// end refuses further jobs.
func (j *jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
}

// jobQueue is a ring of jobs: it allocates when it grows, not when it moves on, and keeps little when it is empty.
type jobQueue struct {
	ring    []job
	head, n int
}

const keptQueue = 64

func (q *jobQueue) push(j job) {
	if q.n == len(q.ring) {
		ring := make([]job, max(16, 2*q.n))
		copied := copy(ring, q.ring[q.head:])
		copy(ring[copied:], q.ring[:q.head])
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = j
	q.n++
}

// pop takes the oldest; there must be one.
func (q *jobQueue) pop() job {
	j := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	if q.n--; q.n == 0 && len(q.ring) > keptQueue {
		q.ring, q.head = nil, 0
	}
	return j
}
