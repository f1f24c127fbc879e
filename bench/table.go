package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Verdict says how the subject's figure stands to the row's limits; "" where there is none to judge.
func (r Result) Verdict() string {
	v, ok := r.Figure(r.Row.Subject)
	must, aim := r.Row.Must, r.Row.Aim
	if r.Row.Unit == allocations {
		v = float64(int(v*10+0.5)) / 10 // what the runtime and the garbage collector allocate now and then is nobody's
	}
	switch {
	case !ok || !must.Set:
		return ""
	case v > must.Value && must.Value == 0:
		return fmt.Sprintf("must missed by %s", figure(v))
	case v > must.Value:
		return fmt.Sprintf("must missed by %.0f %%", 100*(v/must.Value-1))
	case aim.Set && v <= aim.Value:
		return "ok, aim"
	default:
		return "ok"
	}
}

// WriteTable writes the results as a Markdown table that reads well as plain text. Columns are the systems, the subject
// last; rows with a base hold ratios to it.
func WriteTable(w io.Writer, results []Result) error {
	last := Zactor{}.Name()
	var columns []string
	for _, s := range Systems() {
		for _, r := range results {
			if _, there := r.Values[s.Name()]; there && s.Name() != last && r.Row.Others {
				columns = append(columns, s.Name())
				break
			}
		}
	}
	header := append([]string{"work", "1.0 is"}, columns...)
	lines := [][]string{append(header, last, "must", "aim", "")}
	for _, r := range results {
		line := []string{r.Row.Work, r.one()}
		for _, c := range append(columns, r.Row.Subject) {
			cell := ""
			if v, ok := r.Figure(c); ok && (r.Row.Others || c == r.Row.Subject) {
				cell = figure(v) + r.unit()
			} else if v, ok := r.Absolute(c); ok && r.Row.Others {
				cell = figure(v) + " " + r.Row.Unit // without its base
			}
			line = append(line, cell)
		}
		lines = append(lines, append(line, r.Row.Must.String(), r.Row.Aim.String(), r.Verdict()))
	}
	return writeAligned(w, lines)
}

// one says what the row's 1.0 is.
func (r Result) one() string {
	v, ok := r.Absolute(r.Row.Base)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s %s %s", r.Row.Base, figure(v), r.Row.Unit)
}

// unit is what follows a figure of the row.
func (r Result) unit() string {
	if r.Row.Base != "" || r.Row.Unit == times || r.Row.Unit == allocations {
		return ""
	}
	return " " + r.Row.Unit
}

// String is what stands in the table.
func (l Limit) String() string {
	if !l.Set {
		return ""
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", l.Value), "0"), ".")
}

// figure writes v with as many digits as mean something.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func writeAligned(w io.Writer, lines [][]string) error {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			fmt.Fprintf(&b, "| %-*s ", width[i], cell)
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for _, k := range width {
			b.WriteString("|" + strings.Repeat("-", k+2))
		}
		b.WriteString("|\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
