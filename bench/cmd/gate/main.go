//go:build linux

// Command gate measures a gate next to a bare TCP echo, each in a process of its own on one core, and prints one table.
//
// Usage: gate [-rounds N] [-time D] [-idle D] [-scale N] [-only REGEXP] [-measure both|tcp|gate] [-profiles DIR] [-json]
package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"zgame/bench/gate"
	"zgame/bench/internal/command"
)

func main() { command.Main("gate", gate.Child, run) }

func run(args []string, out, progress io.Writer) (err error) {
	cfg := gate.Full()
	flags := command.Flags("gate", progress)
	rounds := flags.Int("rounds", 5, "how often everything is measured (what takes long: once); the median counts")
	flags.DurationVar(&cfg.Time, "time", cfg.Time, "length of one timed measurement")
	flags.DurationVar(&cfg.Idle, "idle", cfg.Idle, "how long idle clients are watched")
	flags.IntVar(&cfg.Stream, "stream", cfg.Stream, "messages of 1 KiB that are published to clients of which some are slow, 50 a second")
	flags.IntVar(&cfg.Scale, "scale", cfg.Scale, "numbers of clients are divided by this")
	flags.StringVar(&cfg.Profiles, "profiles", "", "directory for a CPU profile of each server")
	only := flags.String("only", "", "regular expression of the rows to measure, by key")
	measure := flags.String("measure", "both", "both, tcp or gate: one alone has no ratio")
	asJSON := flags.Bool("json", false, "print all values of all rounds as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || cfg.Time <= 0 || cfg.Idle <= 0 || cfg.Scale < 1 || cfg.Stream < 1 {
		return errors.New("expected at least 1 of -rounds, -scale and -stream, and positive durations")
	}
	which, ok := map[string]int{"both": gate.Both, "tcp": gate.TCP, "gate": gate.Gate}[*measure]
	if !ok {
		return fmt.Errorf("-measure %q: want both, tcp or gate", *measure)
	}
	rows, err := command.Pick(*only, gate.Rows(), func(r gate.Row) string { return r.Key })
	if err != nil {
		return err
	}
	b, err := gate.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	began := time.Now()
	results, err := b.Run(rows, which, *rounds, func(round int, row string) {
		fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, *rounds, row)
	})
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, results)
	}
	fmt.Fprintf(out, "%s, each server on one core, %d rounds of %v, %s, took %v. x: by the bare echo's value of the same round; medians.\n\n",
		command.Machine(), *rounds, cfg.Time, began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return gate.WriteTable(out, results)
}

// jsonRow is a row as a program reads it.
type jsonRow struct {
	Key     string    `json:"key"`
	Work    string    `json:"work"`
	Unit    string    `json:"unit"`
	TCP     []float64 `json:"tcp"` // of each round
	Gate    []float64 `json:"gate"`
	Figure  float64   `json:"figure"` // median of the rounds
	Must    float64   `json:"must"`
	Aim     float64   `json:"aim"`
	Verdict string    `json:"verdict"`
}

func writeJSON(w io.Writer, results []gate.Result) error {
	rows := make([]jsonRow, len(results))
	for i, r := range results {
		figure, _ := r.Figure()
		rows[i] = jsonRow{r.Row.Key, r.Row.Work, r.Row.Unit, r.TCP, r.Gate, figure, r.Row.Must, r.Row.Aim, r.Verdict()}
	}
	return command.WriteJSON(w, rows)
}
