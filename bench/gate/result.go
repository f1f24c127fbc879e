//go:build linux

package gate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"zgame/bench/benchpb"
	"zgame/zmsg"
)

// parcel is the message that the typed actor takes.
func parcel() (id uint32, body []byte) {
	id, _ = zmsg.IDOf(&benchpb.Parcel{})
	return id, typedBody()
}

// Result is a row and what was measured, one value for each round.
type Result struct {
	Row       Row
	TCP, Gate []float64
}

// Which servers are measured.
const (
	TCP = 1 << iota
	Gate
	Both = TCP | Gate
)

// Run measures rows in rounds rounds. log is told of each measurement that begins.
func (b *Bench) Run(rows []Row, which, rounds int, log func(round int, row string)) ([]Result, error) {
	results := make([]Result, len(rows))
	for round := range rounds {
		for i, row := range rows {
			r := &results[i]
			r.Row = row
			if row.Once && round > 0 {
				continue
			}
			log(round, row.Key)
			for k := range 2 {
				h, values, mask := b.gate, &r.Gate, Gate
				if (k+round)%2 == 0 { // nobody is always the first
					h, values, mask = b.tcp, &r.TCP, TCP
				}
				if which&mask == 0 || mask == TCP && !row.TCP && !row.Also {
					continue
				}
				v, err := row.measure(b, h)
				if err != nil {
					return nil, fmt.Errorf("%s at %s: %w", row.Key, h.role, err)
				}
				*values = append(*values, v)
			}
		}
	}
	return results, nil
}

// Figures returns the figure of each round, sorted: a ratio to the bare echo, or a value.
func (r Result) Figures() (fs []float64) {
	for i, v := range r.Gate {
		switch {
		case !r.Row.TCP:
			fs = append(fs, v)
		case len(r.TCP) == len(r.Gate) && r.TCP[i] > 0:
			fs = append(fs, v/r.TCP[i])
		}
	}
	slices.Sort(fs)
	return fs
}

// Figure returns the median, false where nothing was measured.
func (r Result) Figure() (float64, bool) {
	fs := r.Figures()
	if len(fs) == 0 {
		return 0, false
	}
	return middle(fs), true
}

// Verdict says how the figure stands to must and aim.
func (r Result) Verdict() string {
	v, ok := r.Figure()
	must, aim := r.Row.Must, r.Row.Aim
	if !ok || must == 0 && aim == 0 {
		return ""
	}
	if r.Row.Unit == allocations {
		v = float64(int(v*10+0.5)) / 10
	}
	if r.Row.Most {
		v, must, aim = -v, -must, -aim
	}
	switch {
	case v <= aim:
		return "aim"
	case v <= must:
		return "ok"
	default:
		return "**missed**"
	}
}

// WriteTable writes the results as a Markdown table.
func WriteTable(w io.Writer, results []Result) error {
	var b strings.Builder
	b.WriteString("| work | bare TCP | gate | figure | of rounds | must | aim | |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		value := func(vs []float64) string {
			if len(vs) == 0 {
				return ""
			}
			return strings.TrimSpace(digits(middle(slices.Sorted(slices.Values(vs)))) + " " + r.Row.Unit)
		}
		figure, spread := "", ""
		if fs := r.Figures(); len(fs) > 0 {
			figure = digits(middle(fs))
			if r.Row.TCP {
				figure = "x " + figure
			}
			if len(fs) > 1 {
				spread = digits(fs[0]) + " to " + digits(fs[len(fs)-1])
			}
		}
		limit := func(v float64) string {
			if r.Row.Must == 0 && r.Row.Aim == 0 {
				return ""
			}
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Row.Work, value(r.TCP), value(r.Gate), figure, spread,
			limit(r.Row.Must), limit(r.Row.Aim), r.Verdict())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// digits writes v with as many digits as mean something.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// middle is the median of what is sorted and not empty.
func middle(vs []float64) float64 {
	mid := len(vs) / 2
	if len(vs)%2 == 1 {
		return vs[mid]
	}
	return (vs[mid-1] + vs[mid]) / 2
}

func median(ds []time.Duration) time.Duration { return quantile(slices.Sorted(slices.Values(ds)), 0.5) }
