// Command bus measures messages between two nodes next to the bare NATS client, in three processes, and prints one table.
//
// Usage: bus [-rounds N] [-time D] [-only REGEXP] [-measure both|bare|link] [-profiles DIR] [-json]
package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"zgame/bench/bus"
	"zgame/bench/internal/child"
	"zgame/bench/internal/command"
)

func main() { command.Main("bus", bus.Child, run) }

func run(args []string, out, progress io.Writer) (err error) {
	flags := command.Flags("bus", progress)
	rounds := flags.Int("rounds", 9, "how often everything is measured; the median counts")
	d := flags.Duration("time", 500*time.Millisecond, "length of one measurement")
	only := flags.String("only", "", "regular expression of the rows to measure, by key")
	measure := flags.String("measure", "both", "both, bare or link: one alone has no ratio, but a profile of its own")
	profiles := flags.String("profiles", "", "directory for a CPU profile of each process")
	asJSON := flags.Bool("json", false, "print all values of all rounds as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *d <= 0 {
		return fmt.Errorf("-rounds %d -time %v: want at least 1, and a positive duration", *rounds, *d)
	}
	which, ok := map[string]int{"both": bus.Both, "bare": bus.Bare, "link": bus.Link}[*measure]
	if !ok {
		return fmt.Errorf("-measure %q: want both, bare or link", *measure)
	}
	rows, err := command.Pick(*only, bus.Rows(), func(r bus.Row) string { return r.Key })
	if err != nil {
		return err
	}
	c, err := bus.Open(*profiles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stop, err := child.Profile(*profiles, "measuring")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	results, err := bus.Run(c, rows, which, *rounds, *d, func(round int) { fmt.Fprintf(progress, "round %d of %d\n", round+1, *rounds) })
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, results)
	}
	fmt.Fprintf(out, "%s, %d rounds of %v, %s, took %v. Ratios within a round; medians.\n\n", command.Machine(), *rounds, *d,
		began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return bus.WriteTable(out, results)
}

// jsonRow is a row as a program reads it.
type jsonRow struct {
	Key     string    `json:"key"`
	Work    string    `json:"work"`
	Unit    string    `json:"unit"`
	Aim     float64   `json:"aim"`
	Bare    []float64 `json:"bare"` // of each round
	Link    []float64 `json:"link"`
	BareCPU []float64 `json:"bare_cpu"`
	LinkCPU []float64 `json:"link_cpu"`
	Ratio   float64   `json:"ratio"` // median of the rounds
	Verdict string    `json:"verdict"`
}

func writeJSON(w io.Writer, results []bus.Result) error {
	rows := make([]jsonRow, len(results))
	for i, r := range results {
		rows[i] = jsonRow{r.Row.Key, r.Row.Work, r.Row.Unit, r.Row.Aim, r.Bare, r.Link, r.BareCPU, r.LinkCPU, bus.Median(r.Ratios()), r.Verdict()}
	}
	return command.WriteJSON(w, rows)
}
