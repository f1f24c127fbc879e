// Command peers measures zactor, the bare baselines and protoactor-go on the same workloads, and prints one table.
//
// Usage: peers [-rounds N] [-time D] [-only REGEXP] [-systems LIST] [-json]
package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"zgame/bench"
	"zgame/bench/internal/command"
)

func main() { command.Main("peers", nil, run) }

func run(args []string, out, progress io.Writer) error {
	m := bench.Full()
	flags := command.Flags("peers", progress)
	rounds := flags.Int("rounds", 5, "how often everything is measured; the median counts")
	flags.DurationVar(&m.Time, "time", m.Time, "length of one timed measurement")
	flags.DurationVar(&m.Idle, "idle", m.Idle, "how long idle actors are watched")
	only := flags.String("only", "", "regular expression of the rows to measure, by key")
	list := flags.String("systems", "", "systems to measure, separated by commas (default all: "+strings.Join(names(), ", ")+")")
	asJSON := flags.Bool("json", false, "print all values of all rounds as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || m.Time <= 0 || m.Idle <= 0 {
		return fmt.Errorf("-rounds %d -time %v -idle %v: want at least 1, and positive durations", *rounds, m.Time, m.Idle)
	}
	rows, err := command.Pick(*only, bench.Rows(), func(r bench.Row) string { return r.Key })
	if err != nil {
		return err
	}
	systems, err := systemsOf(*list)
	if err != nil {
		return err
	}
	log := func(round int) { fmt.Fprintf(progress, "round %d of %d\n", round+1, *rounds) }
	began := time.Now()
	results, err := bench.Run(m, rows, systems, *rounds, log)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, results)
	}
	fmt.Fprintf(out, "%s, %d rounds of %v, %s, took %v. Rows with \"1.0 is\": ratios within a round; "+
		"others: the value. Medians.\n\n", command.Machine(), *rounds, m.Time,
		began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return bench.WriteTable(out, results)
}

func names() []string {
	var names []string
	for _, s := range bench.Systems() {
		names = append(names, s.Name())
	}
	return names
}

func systemsOf(list string) ([]bench.System, error) {
	all := bench.Systems()
	if list == "" {
		return all, nil
	}
	want := strings.Split(list, ",")
	for _, name := range want {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-systems: there is no %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s bench.System) bool { return !slices.Contains(want, s.Name()) }), nil
}

// jsonRow is a row as a program reads it.
type jsonRow struct {
	Key     string               `json:"key"`
	Work    string               `json:"work"`
	Unit    string               `json:"unit"`
	Base    string               `json:"base,omitempty"`
	Subject string               `json:"subject"`
	Must    *float64             `json:"must,omitempty"`
	Aim     *float64             `json:"aim,omitempty"`
	Verdict string               `json:"verdict,omitempty"`
	Values  map[string][]float64 `json:"values"`  // of each round
	Figures map[string]float64   `json:"figures"` // medians: ratios to base, or values
}

func writeJSON(w io.Writer, results []bench.Result) error {
	rows := make([]jsonRow, len(results))
	for i, r := range results {
		row := jsonRow{
			Key: r.Row.Key, Work: r.Row.Work, Unit: r.Row.Unit, Base: r.Row.Base, Subject: r.Row.Subject,
			Verdict: r.Verdict(), Values: r.Values, Figures: make(map[string]float64),
		}
		if l := r.Row.Must; l.Set {
			row.Must = &l.Value
		}
		if l := r.Row.Aim; l.Set {
			row.Aim = &l.Value
		}
		for name := range r.Values {
			if v, ok := r.Figure(name); ok {
				row.Figures[name] = v
			}
		}
		rows[i] = row
	}
	return command.WriteJSON(w, rows)
}
