// Command transfer measures what becomes of requests while objects move, while a node drains and after one is killed, and prints one
// table.
//
// Usage: transfer [-moves N] [-pauses N] [-objects N] [-crash N] [-lease D] [-steady D] [-only REGEXP] [-json]
package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"zgame/bench/internal/command"
	"zgame/bench/transfer"
)

func main() { command.Main("transfer", transfer.Child, run) }

type rower interface{ Rows() []transfer.Row }

// sizes is how much is measured.
type sizes struct {
	moves, pauses, objects, crash int
	steady                        time.Duration
}

// part is one thing that is measured.
type part struct {
	key string
	run func(c *transfer.Cluster, n sizes) (rower, error)
}

var parts = []part{
	{"pause-4", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasurePauses(4<<10, n.pauses) }},
	{"pause-64", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasurePauses(64<<10, max(3, n.pauses/3)) }},
	{"pause-1024", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasurePauses(1<<20, max(3, n.pauses/10)) }},
	{"hops", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasureHops(max(3, n.pauses/10)) }},
	{"storm", func(c *transfer.Cluster, n sizes) (rower, error) { return c.Storm(n.moves) }},
	{"drain", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasureDrain(n.objects, n.steady, true) }},
	{"paced", func(c *transfer.Cluster, n sizes) (rower, error) {
		return c.MeasureDrain(max(1, n.objects/3), n.steady, false)
	}},
	{"crash", func(c *transfer.Cluster, n sizes) (rower, error) { return c.MeasureCrash(n.crash) }},
}

func run(args []string, out, progress io.Writer) (err error) {
	flags := command.Flags("transfer", progress)
	moves := flags.Int("moves", 100_000, "moves under which no request is to be lost")
	pauses := flags.Int("pauses", 1000, "moves of one object of 4 KiB whose pauses are measured; a third, and a tenth, of that for 64 KiB and 1 MiB")
	objects := flags.Int("objects", 100_000, "objects of the node that drains in a hurry; a third of them for one that takes its time")
	crash := flags.Int("crash", 200, "objects of the node that is killed")
	lease := flags.Duration("lease", 10*time.Second, "lease of the nodes in etcd")
	steady := flags.Duration("steady", 10*time.Second, "how long requests are measured before the drain")
	only := flags.String("only", "", "regular expression of what to measure: pause-4, pause-64, pause-1024, hops, storm, drain, paced, crash")
	asJSON := flags.Bool("json", false, "print the rows as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *moves < 1 || *pauses < 10 || *objects < 1 || *crash < 1 || *lease < 2*time.Second || *steady <= 0 {
		return errors.New("expected at least 1 of -moves, -objects and -crash, 10 -pauses, a -lease of 2s, and a positive -steady")
	}
	parts, err := command.Pick(*only, parts, func(p part) string { return p.key })
	if err != nil {
		return err
	}
	c, err := transfer.Open(*lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	began := time.Now()
	var rows []transfer.Row
	for _, p := range parts {
		fmt.Fprintf(progress, "%s\n", p.key)
		r, err := p.run(c, sizes{*moves, *pauses, *objects, *crash, *steady})
		if err != nil {
			return fmt.Errorf("%s: %w", p.key, err)
		}
		rows = append(rows, r.Rows()...)
	}
	if *asJSON {
		return command.WriteJSON(out, rows)
	}
	fmt.Fprintf(out, "%s, %s, took %v.\n\n", command.Machine(), began.Format(time.DateOnly), time.Since(began).Round(time.Second))
	return transfer.Write(out, rows)
}
