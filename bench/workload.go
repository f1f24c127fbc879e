package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// window is how many messages may be unhandled where the table says <= 1,024: a sender that meets it waits, yielding,
// until half of them are handled. All systems pay for the counting alike.
const window = 1000

// flow counts what is unhandled.
type flow struct {
	window int64
	_      [56]byte
	open   atomic.Int64
	_      [56]byte // senders and handlers count in cache lines of their own
	done   atomic.Int64
	_      [56]byte
}

func (f *flow) take() {
	if n := f.open.Add(1); n-f.done.Load() >= f.window {
		for n-f.done.Load() >= f.window/2 {
			runtime.Gosched()
		}
	}
}

// drained waits until all that was taken is handled, and returns an error if more was: at once, or the next time.
func (f *flow) drained() error {
	want := f.open.Load()
	if err := await(&f.done, want); err != nil {
		return err
	}
	if n := f.done.Load(); n != want {
		return fmt.Errorf("bench: %d messages were sent and %d handled", want, n)
	}
	return nil
}

// job is a workload that is ready: it does n of what is measured, all of them through to the end.
type job func(n int) error

// tell has senders goroutines tell actors in turn, at most most unhandled.
func tell(senders, actors, most int) func(rt Runtime) (job, error) {
	return func(rt Runtime) (job, error) {
		f := &flow{window: int64(most)}
		s := rt.Sinks(actors, &f.done)
		if err := s.spawnAll(actors); err != nil {
			return nil, err
		}
		send := func(n int) {
			for i := range n {
				f.take()
				s.Tell(i % actors)
			}
		}
		return func(n int) error {
			if senders == 1 {
				send(n)
				return f.drained()
			}
			var wg sync.WaitGroup
			for i := range senders {
				wg.Go(func() { send((n + i) / senders) }) // ends when its share is sent
			}
			wg.Wait()
			return f.drained()
		}, nil
	}
}

// flood has one sender tell one actor without a limit, most at once, and waits until all are handled.
func flood(most int) func(rt Runtime) (job, error) {
	return func(rt Runtime) (job, error) {
		f := new(flow)
		s := rt.Sinks(1, &f.done)
		if err := s.spawnAll(1); err != nil {
			return nil, err
		}
		return func(n int) error {
			for n > 0 {
				k := min(n, most)
				f.open.Add(int64(k))
				for range k {
					s.Tell(0)
				}
				if err := f.drained(); err != nil {
					return err
				}
				n -= k
			}
			return nil
		}, nil
	}
}

// pingPong has two actors send one message to and fro.
func pingPong(rt Runtime) (job, error) {
	play, err := rt.PingPong()
	return func(n int) error {
		if hits := play(n); hits != n {
			return fmt.Errorf("bench: the ball was hit %d times, want %d", hits, n)
		}
		return nil
	}, err
}

// ask has callers goroutines ask one actor.
func ask(callers int) func(rt Runtime) (job, error) {
	return func(rt Runtime) (job, error) {
		ask, err := rt.Echo()
		if err != nil {
			return nil, err
		}
		call := func(n int) error {
			for range n {
				if err := ask(); err != nil {
					return err
				}
			}
			return nil
		}
		return func(n int) error {
			if callers == 1 {
				return call(n)
			}
			errs := make([]error, callers)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() { errs[i] = call((n + i) / callers) }) // ends when its share is answered
			}
			wg.Wait()
			return errors.Join(errs...)
		}, nil
	}
}

// restart makes an actor panic and asks the instance that follows.
func restart(rt Runtime) (job, error) {
	crash, ask, err := rt.Phoenix()
	if err != nil {
		return nil, err
	}
	_, before, err := ask()
	return func(n int) error {
		for range n {
			if err := crash(); err != nil {
				return err
			}
			requests, instances, err := ask()
			if err != nil {
				return err
			}
			if requests != 1 || instances != before+1 {
				return fmt.Errorf("bench: request %d of instance %d, want 1 of %d: the state is not fresh", requests, instances, before+1)
			}
			before = instances
		}
		return nil
	}, err
}

// latencies asks for d and returns how long the asks took, in rising order, without the reading of the clock.
func latencies(ask func() error, d time.Duration) ([]time.Duration, error) {
	clock := clockCost()
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < d; {
		start := time.Now()
		if err := ask(); err != nil {
			return nil, err
		}
		took = append(took, max(time.Since(start)-clock, 0))
	}
	slices.Sort(took)
	return took, nil
}

// clockCost is how long it takes to find out how long nothing takes.
func clockCost() time.Duration {
	took := make([]time.Duration, 1001)
	for i := range took {
		start := time.Now()
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// at returns the quantile q of values in rising order.
func at(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	return float64(took[int(q*float64(len(took)-1))])
}
