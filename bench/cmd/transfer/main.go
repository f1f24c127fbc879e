// Command transfer measures what becomes of requests while objects move, while a node drains and after one is killed, and prints one
// table.
//
// Usage: transfer [-moves N] [-pauses N] [-objects N] [-crash N] [-lease D] [-steady D] [-only REGEXP] [-json]
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

	"zgame/bench/transfer"
)

func main() {
	if was, err := transfer.Child(); was {
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
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

type rower interface{ Rows() []transfer.Row }

func run(args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("transfer", flag.ContinueOnError)
	flags.SetOutput(progress)
	moves := flags.Int("moves", 100_000, "moves under which no request is to be lost")
	pauses := flags.Int("pauses", 1000, "moves of one object of 4 KiB whose pauses are measured; a third, and a tenth, of that for 64 KiB and 1 MiB")
	objects := flags.Int("objects", 100_000, "objects of the node that drains")
	crash := flags.Int("crash", 200, "objects of the node that is killed")
	lease := flags.Duration("lease", 10*time.Second, "lease of the nodes in etcd")
	steady := flags.Duration("steady", 10*time.Second, "how long requests are measured before the drain")
	only := flags.String("only", "", "regular expression of what to measure: pause-4, pause-64, pause-1024, hops, storm, drain, crash")
	asJSON := flags.Bool("json", false, "print the rows as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *moves < 1 || *pauses < 10 || *objects < 1 || *crash < 1 || *lease < 2*time.Second || *steady <= 0 {
		return errors.New("expected at least 1 of -moves, -objects and -crash, 10 -pauses, a -lease of 2s, and a positive -steady")
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	c, err := transfer.Open(*lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	began := time.Now()
	var rows []transfer.Row
	var keys []string
	for _, part := range []struct {
		key string
		run func() (rower, error)
	}{
		{"pause-4", func() (rower, error) { return c.MeasurePauses(4<<10, *pauses) }},
		{"pause-64", func() (rower, error) { return c.MeasurePauses(64<<10, max(3, *pauses/3)) }},
		{"pause-1024", func() (rower, error) { return c.MeasurePauses(1<<20, max(3, *pauses/10)) }},
		{"hops", func() (rower, error) { return c.MeasureHops(max(3, *pauses/10)) }},
		{"storm", func() (rower, error) { return c.Storm(*moves) }},
		{"drain", func() (rower, error) { return c.MeasureDrain(*objects, *steady) }},
		{"crash", func() (rower, error) { return c.MeasureCrash(*crash) }},
	} {
		if keys = append(keys, part.key); !re.MatchString(part.key) {
			continue
		}
		fmt.Fprintf(progress, "%s\n", part.key)
		r, err := part.run()
		if err != nil {
			return fmt.Errorf("%s: %w", part.key, err)
		}
		rows = append(rows, r.Rows()...)
	}
	if len(rows) == 0 {
		return fmt.Errorf("-only %q matches nothing; there are %s", *only, strings.Join(keys, ", "))
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{
			"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "gomaxprocs": runtime.GOMAXPROCS(0),
			"date": time.Now().UTC().Format(time.RFC3339), "rows": rows,
		})
	}
	fmt.Fprintf(out, "%s, %s/%s, GOMAXPROCS %d, %s, took %v.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0),
		began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return transfer.Write(out, rows)
}
