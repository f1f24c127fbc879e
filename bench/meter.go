package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"zgame/internal/cputime"
)

// Meter says how long and how much is measured.
type Meter struct {
	Time       time.Duration // of one timed measurement
	Idle       time.Duration // how long idle actors are watched
	Population int           // how many actors there are where the table says 100,000
	Flood      int           // how many messages wait at most where there is no limit

	counts map[string]int // how many operations fill Time, learned in the first round, by row and system
}

// Full is the measure of the table.
func Full() *Meter {
	return &Meter{Time: 300 * time.Millisecond, Idle: 5 * time.Second, Population: 100_000, Flood: 1 << 20}
}

// defaultQueue is the bound of mailboxes where a row does not say another.
const defaultQueue = 1024

// with opens a runtime of s, lets use work with it, and closes it.
func with(s System, queue int, use func(rt Runtime) (float64, error)) (v float64, err error) {
	rt, err := s.Open(queue)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	runtime.GC() // what the one before left is not this one's to clean up
	return use(rt)
}

// perOp measures nanoseconds of wall time for one operation of a job.
func (m *Meter) perOp(key string, s System, queue int, prepare func(rt Runtime) (job, error)) (float64, error) {
	key += " " + s.Name()
	return with(s, queue, func(rt Runtime) (float64, error) {
		do, err := prepare(rt)
		if err != nil {
			return 0, err
		}
		n := m.counts[key]
		if n == 0 {
			n = 1000
		} else if err := do(min(n, 1000)); err != nil { // warm
			return 0, err
		}
		for {
			start := time.Now()
			if err := do(n); err != nil {
				return 0, err
			}
			took := max(time.Since(start), time.Microsecond)
			fill := int(float64(n) * float64(m.Time) / float64(took))
			if took > m.Time/2 {
				if m.counts == nil {
					m.counts = make(map[string]int)
				}
				m.counts[key] = max(fill, 1)
				return float64(took) / float64(n), nil
			}
			n = min(max(fill, n+1), 100*n)
		}
	})
}

// mallocs measures heap allocations of one operation of a job, of which the process does nothing else meanwhile.
func (m *Meter) mallocs(s System, prepare func(rt Runtime) (job, error)) (float64, error) {
	return with(s, defaultQueue, func(rt Runtime) (float64, error) {
		do, err := prepare(rt)
		if err != nil {
			return 0, err
		}
		const n = 20_000
		if err := do(n); err != nil {
			return 0, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := do(n); err != nil {
			return 0, err
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / n, nil
	})
}

// quantile measures the quantile q of the time of single asks, in nanoseconds.
func (m *Meter) quantile(s System, q float64) (float64, error) {
	return with(s, defaultQueue, func(rt Runtime) (float64, error) {
		ask, err := rt.Echo()
		if err != nil {
			return 0, err
		}
		took, err := latencies(ask, m.Time)
		return at(took, q), err
	})
}

// fairness measures how much the p99 of asks grows when 2 x GOMAXPROCS other actors block in their handlers.
func (m *Meter) fairness(s System) (float64, error) {
	return with(s, defaultQueue, func(rt Runtime) (float64, error) {
		ask, err := rt.Echo()
		if err != nil {
			return 0, err
		}
		without, err := latencies(ask, m.Time)
		if err != nil {
			return 0, err
		}
		until := make(chan struct{})
		defer close(until)
		if err := rt.Blocked(2*runtime.GOMAXPROCS(0), until); err != nil {
			return 0, err
		}
		blocked, err := latencies(ask, m.Time)
		return at(blocked, 0.99) / max(at(without, 0.99), 1), err
	})
}

// population lets use look at many actors; make spawns them, touch has each handle one message.
func (m *Meter) population(s System, use func(create, touch func() error) (float64, error)) (float64, error) {
	return with(s, defaultQueue, func(rt Runtime) (float64, error) {
		var handled atomic.Int64
		sinks := rt.Sinks(m.Population, &handled)
		v, err := use(
			func() error { return sinks.spawnAll(m.Population) },
			func() error {
				for i := range m.Population {
					sinks.Tell(i)
				}
				if err := await(&handled, int64(m.Population)); err != nil {
					return err
				}
				wait(100 * time.Millisecond) // for goroutines that are about to end
				if n := handled.Load(); n != int64(m.Population) {
					return fmt.Errorf("bench: %d messages were sent and %d handled", m.Population, n)
				}
				return nil
			})
		runtime.KeepAlive(sinks)
		return v, err
	})
}

// spawn measures microseconds to make one of many actors.
func (m *Meter) spawn(s System) (float64, error) {
	return m.population(s, func(create, _ func() error) (float64, error) {
		start := time.Now()
		err := create()
		return float64(time.Since(start)) / float64(time.Microsecond) / float64(m.Population), err
	})
}

// bytes measures what one of many idle actors holds, heap and stacks, as it was made or after its first message.
func (m *Meter) bytes(s System, used bool) (float64, error) {
	return m.population(s, func(create, touch func() error) (float64, error) {
		before := memory()
		if err := create(); err != nil {
			return 0, err
		}
		if used {
			if err := touch(); err != nil {
				return 0, err
			}
		}
		return float64(max(memory()-before, 0)) / float64(m.Population), nil
	})
}

// idle measures the CPU time that many idle actors use, in percent of one core.
func (m *Meter) idle(s System) (float64, error) {
	return m.population(s, func(create, touch func() error) (float64, error) {
		if err := errors.Join(create(), touch()); err != nil {
			return 0, err
		}
		runtime.GC()
		wait(100 * time.Millisecond)
		before, start := cputime.Used(), time.Now()
		wait(m.Idle)
		return 100 * float64(cputime.Used()-before) / float64(time.Since(start)), nil
	})
}

// memory returns the bytes that live objects and stacks hold.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
