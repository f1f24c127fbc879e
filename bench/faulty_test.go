package bench_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"zgame/bench"
)

// faulty is a baseline with one fault, under its name.
type faulty struct {
	bench.RawSwap
	change func(rt bench.Runtime) bench.Runtime
}

func (f faulty) Open(queue int) (bench.Runtime, error) {
	rt, err := f.RawSwap.Open(queue)
	return f.change(rt), err
}

// thrice handles each message three times, two of them at once.
type thrice struct{ bench.Runtime }

func (t thrice) Sinks(n int, handled *atomic.Int64) bench.Sinks {
	s := t.Runtime.Sinks(n, handled)
	tell := s.Tell
	s.Tell = func(i int) { handled.Add(2); tell(i) }
	return s
}

// stale restarts nothing.
type stale struct{ bench.Runtime }

func (s stale) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	_, ask, err = s.Runtime.Phoenix()
	return func() error { return nil }, ask, err
}

// short plays ping-pong with one hit less than it was told.
type short struct{ bench.Runtime }

func (s short) PingPong() (func(n int) int, error) {
	play, err := s.Runtime.PingPong()
	return func(n int) int { return play(n - 1) }, err
}

// A check that cannot fail is none.
func TestWorkloadsSeeFaults(t *testing.T) {
	for _, c := range []struct {
		row, want string
		change    func(rt bench.Runtime) bench.Runtime
	}{
		{"tell", "handled", func(rt bench.Runtime) bench.Runtime { return thrice{rt} }},
		{"tell-8", "handled", func(rt bench.Runtime) bench.Runtime { return thrice{rt} }},
		{"tell-1000", "handled", func(rt bench.Runtime) bench.Runtime { return thrice{rt} }},
		{"flood", "handled", func(rt bench.Runtime) bench.Runtime { return thrice{rt} }},
		{"bytes", "handled", func(rt bench.Runtime) bench.Runtime { return thrice{rt} }},
		{"restart", "not fresh", func(rt bench.Runtime) bench.Runtime { return stale{rt} }},
		{"ping-pong", "was hit", func(rt bench.Runtime) bench.Runtime { return short{rt} }},
	} {
		t.Run(c.row, func(t *testing.T) {
			var rows []bench.Row
			for _, r := range bench.Rows() {
				if r.Key == c.row {
					rows = append(rows, r)
				}
			}
			_, err := bench.Run(bench.Shortest(), rows, []bench.System{faulty{change: c.change}}, 1, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
