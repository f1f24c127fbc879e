// Command bus measures messages between two nodes next to the bare NATS client, in three processes, and prints one table.
//
// Usage: bus [-rounds N] [-time D] [-only REGEXP] [-measure both|bare|link] [-profiles DIR] [-json]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"zgame/bench/bus"
)

func main() {
	if was, err := bus.Child(); was {
		exit(err)
		return
	}
	exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bus:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bus", flag.ContinueOnError)
	flags.SetOutput(progress)
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
	rows, err := rowsOf(*only)
	if err != nil {
		return err
	}
	c, err := bus.Open(*profiles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stop, err := bus.Profile(*profiles, "measuring")
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
	fmt.Fprintf(out, "%s, %s/%s, GOMAXPROCS %d, %d rounds of %v, %s, took %v. Ratios within a round; medians.\n\n", runtime.Version(),
		runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *rounds, *d, began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return bus.WriteTable(out, results)
}

func rowsOf(only string) ([]bus.Row, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var rows []bus.Row
	var keys []string
	for _, r := range bus.Rows() {
		keys = append(keys, r.Key)
		if re.MatchString(r.Key) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("-only %q matches no row; there are %s", only, strings.Join(keys, ", "))
	}
	return rows, nil
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
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "gomaxprocs": runtime.GOMAXPROCS(0),
		"date": time.Now().UTC().Format(time.RFC3339), "rows": rows,
	})
}
