package bus

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Row is one line of the table.
type Row struct {
	Key  string  // names it on the command line and in JSON
	Work string  // what is done
	Unit string  // of the values
	Aim  float64 // what the ratio should not exceed

	unit       time.Duration
	bare, link func(c *Cluster) job
}

// Rows returns the table.
func Rows() []Row {
	requests := func(key, work string, aim float64, callers int) Row {
		return Row{
			Key: key, Work: work, Unit: "us", Aim: aim, unit: time.Microsecond,
			bare: func(c *Cluster) job { return c.bareRequests(callers) },
			link: func(c *Cluster) job { return c.linkRequests(callers) },
		}
	}
	return []Row{
		requests("request-1", "requests, 1 caller", 1.15, 1),
		requests("request-64", "requests, 64 callers", 0.8, 64),
		requests("request-512", "requests, 512 callers", 0.6, 512),
		{
			Key: "one-way", Work: "one-way", Unit: "ns", Aim: 0.5, unit: time.Nanosecond,
			bare: func(c *Cluster) job { return bursts(c.bareOneWay) },
			link: func(c *Cluster) job { return bursts(c.linkOneWay) },
		},
	}
}

// Result is a row and what was measured: for one operation, one value for each round.
type Result struct {
	Row              Row
	Bare, Link       []float64 // wall time
	BareCPU, LinkCPU []float64 // CPU time of the three processes together; 0 where the system does not tell
}

// Which systems are measured.
const (
	Bare = 1 << iota
	Link
	Both = Bare | Link
)

// Run measures rows in rounds rounds, each measurement for about the time d. log is told of each round that begins.
func Run(c *Cluster, rows []Row, which, rounds int, d time.Duration, log func(round int)) ([]Result, error) {
	results := make([]Result, len(rows))
	counts := make(map[string]int) // how many operations fill d
	for round := range rounds {
		log(round)
		for i, row := range rows {
			results[i].Row = row
			for k := range 2 {
				bare := (k+round)%2 == 0 // nobody is always the first
				r := &results[i]
				wall, cpu, do, name := &r.Link, &r.LinkCPU, row.link(c), row.Key+" over the link"
				if bare {
					wall, cpu, do, name = &r.Bare, &r.BareCPU, row.bare(c), row.Key+" bare"
				}
				if bare && which&Bare == 0 || !bare && which&Link == 0 {
					continue
				}
				w, used, err := perOp(c, counts, name, d, do)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				*wall = append(*wall, w/float64(row.unit))
				*cpu = append(*cpu, used/float64(row.unit))
			}
		}
	}
	return results, nil
}

// perOp measures nanoseconds of wall time, and of CPU time, for one operation.
func perOp(c *Cluster, counts map[string]int, key string, d time.Duration, do job) (wall, cpu float64, err error) {
	n := counts[key]
	if n == 0 {
		n = 100
	} else if err := do(min(n, 1000)); err != nil { // warm
		return 0, 0, err
	}
	for {
		start, before := time.Now(), c.cpu()
		if err := do(n); err != nil {
			return 0, 0, err
		}
		took := max(time.Since(start), time.Microsecond)
		fill := int(float64(n) * float64(d) / float64(took))
		if took > d/2 {
			counts[key] = max(fill, 1)
			return float64(took) / float64(n), float64(c.cpu()-before) / float64(n), nil
		}
		n = min(max(fill, n+1), 100*n)
	}
}

// Ratios returns link / bare of the wall times of each round, sorted; nil where one was not measured.
func (r Result) Ratios() []float64 { return ratios(r.Link, r.Bare) }

// CPURatios is Ratios of the CPU times.
func (r Result) CPURatios() []float64 { return ratios(r.LinkCPU, r.BareCPU) }

func ratios(of, to []float64) []float64 {
	if len(of) != len(to) {
		return nil
	}
	var ratios []float64
	for i, v := range to {
		if v > 0 {
			ratios = append(ratios, of[i]/v)
		}
	}
	slices.Sort(ratios)
	return ratios
}

// Median returns the median, 0 of none.
func Median(vs []float64) float64 {
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

// Verdict says how the median of the ratios stands to the aim; "" where there is none.
func (r Result) Verdict() string {
	m := Median(r.Ratios())
	switch {
	case m == 0:
		return ""
	case m <= r.Row.Aim:
		return "aim"
	default:
		return fmt.Sprintf("missed by %.0f %%", 100*(m/r.Row.Aim-1))
	}
}

// WriteTable writes the results as a Markdown table.
func WriteTable(w io.Writer, results []Result) error {
	var b strings.Builder
	line := func(cells ...string) {
		fmt.Fprintf(&b, "| %-21s | %-8s | %-8s | %-5s | %-12s | %-4s | %-15s | %-9s |\n",
			cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7])
	}
	line("work", "bare", "zgame", "ratio", "of rounds", "aim", "", "CPU ratio")
	fmt.Fprintf(&b, "|%s|%s|%s|%s|%s|%s|%s|%s|\n", dashes(23), dashes(10), dashes(10), dashes(7), dashes(14), dashes(6), dashes(17), dashes(11))
	for _, r := range results {
		value := func(vs []float64) string {
			if len(vs) == 0 {
				return ""
			}
			v, digits := Median(vs), 0
			if v < 100 {
				digits = 1
			}
			return fmt.Sprintf("%.*f %s", digits, v, r.Row.Unit)
		}
		ratio, rounds, cpu := "", "", ""
		if all := r.Ratios(); len(all) > 0 {
			ratio, rounds = fmt.Sprintf("%.2f", Median(all)), fmt.Sprintf("%.2f to %.2f", all[0], all[len(all)-1])
		}
		if all := r.CPURatios(); len(all) > 0 {
			cpu = fmt.Sprintf("%.2f", Median(all))
		}
		line(r.Row.Work, value(r.Bare), value(r.Link), ratio, rounds, fmt.Sprintf("%.2f", r.Row.Aim), r.Verdict(), cpu)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func dashes(n int) string { return strings.Repeat("-", n) }
