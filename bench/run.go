package bench

import (
	"fmt"
	"slices"
)

// Result is a row and what was measured, by system, one value for each round.
type Result struct {
	Row    Row
	Values map[string][]float64
}

// Run measures rows on those of systems that a row is about, in rounds rounds. log is told of each that begins; it may be nil.
func Run(m *Meter, rows []Row, systems []System, rounds int, log func(round int)) ([]Result, error) {
	results := make([]Result, len(rows))
	for i, row := range rows {
		results[i] = Result{Row: row, Values: make(map[string][]float64)}
	}
	for round := range rounds {
		if log != nil {
			log(round)
		}
		for i, row := range rows {
			if row.Once && round > 0 {
				continue
			}
			about := row.of(systems)
			for k := range about {
				s := about[(k+round)%len(about)] // nobody is always the first
				v, err := row.measure(m, s)
				if err != nil {
					return nil, fmt.Errorf("bench: %s of %s: %w", row.Key, s.Name(), err)
				}
				results[i].Values[s.Name()] = append(results[i].Values[s.Name()], v)
			}
		}
	}
	return results, nil
}

// of returns those of systems that the row is about.
func (r Row) of(systems []System) []System {
	var of []System
	for _, s := range systems {
		name := s.Name()
		if name == r.Base || name == r.Subject || r.Others && name != (Zactor{Observed: true}).Name() {
			of = append(of, s)
		}
	}
	return of
}

// Absolute returns the median of a system's values.
func (r Result) Absolute(system string) (v float64, ok bool) {
	vs := r.Values[system]
	return median(vs), len(vs) > 0
}

// Figure returns what stands in the table for a system: the median of its ratios to the base of the same round, or the
// median of its values where the row has no base.
func (r Result) Figure(system string) (v float64, ok bool) {
	if r.Row.Base == "" {
		return r.Absolute(system)
	}
	own, base := r.Values[system], r.Values[r.Row.Base]
	if len(own) == 0 || len(own) != len(base) {
		return 0, false
	}
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = own[i] / base[i]
	}
	return median(ratios), true
}

func median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	vs = slices.Sorted(slices.Values(vs))
	mid := len(vs) / 2
	if len(vs)%2 == 1 {
		return vs[mid]
	}
	return (vs[mid-1] + vs[mid]) / 2
}
