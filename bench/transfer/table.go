package transfer

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Row is a line of the table.
type Row struct {
	Work    string `json:"work"`
	Figure  string `json:"figure"`
	Aim     string `json:"aim"`
	Verdict string `json:"verdict"` // "aim", "missed", or nothing where there is no aim
}

func verdict(ok bool) string {
	if ok {
		return "aim"
	}
	return "missed"
}

func ms(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
}

func failures(n int, why error) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; **%d requests failed**, the first: %v", n, why)
}

// Rows of the pauses. Only those of 4 KiB have an aim.
func (p Pauses) Rows() []Row {
	work := fmt.Sprintf("pause of a move under load, state of %d KiB, p50 / p99", p.Size>>10)
	p50, p99 := quantile(p.Pause, 0.5), quantile(p.Pause, 0.99)
	r := Row{Work: work, Figure: fmt.Sprintf("%s / %s, longest %s, of %d moves (the move itself %s / %s; a request while it stands still %s)%s",
		ms(p50), ms(p99), ms(quantile(p.Pause, 1)), p.Moves, ms(quantile(p.Transfer, 0.5)), ms(quantile(p.Transfer, 0.99)), ms(p.Steady), failures(p.Failed, p.Why))}
	if p.Size == 4096 {
		r.Aim, r.Verdict = "5 ms / 30 ms", verdict(p50 <= 5*time.Millisecond && p99 <= 30*time.Millisecond && p.Failed == 0)
	}
	return []Row{r}
}

// Rows of a storm.
func (s Storm) Rows() []Row {
	return []Row{{
		Work: fmt.Sprintf("requests lost, doubled, reordered in %d moves", s.Moves),
		Figure: fmt.Sprintf("%d, %d, %d of %d requests; without one outcome: %d; %.0f moves/s and %.0f requests/s with it; %d moves refused and asked for again%s",
			s.Lost, s.Doubled, s.Reordered, s.Requests, s.Unanswered, float64(s.Moves)/s.Took.Seconds(), float64(s.Requests)/s.Took.Seconds(), s.Refused, failures(s.Failed, s.Why)),
		Aim: "0, 0, 0", Verdict: verdict(s.Lost+s.Doubled+s.Reordered+s.Unanswered+s.Failed == 0),
	}}
}

// Rows of a drain.
func (d Drain) Rows() []Row {
	r := d.Report
	rate := d.PerSecond()
	full := time.Duration(float64(100_000) / rate * float64(time.Second))
	ratio := float64(d.During) / float64(max(d.Steady, 1))
	pace := "at the pace that it takes"
	if d.Hurried {
		pace = "in a hurry"
	}
	return []Row{
		{
			Work: "moves per second and node, while it drains " + pace, Figure: fmt.Sprintf("%.0f (%d moved, %d released, %d left, %d to be tried again; at the old owner an object stood still for %s / %s, longest %s)",
				rate, r.Moved, r.Released, r.Left, r.Retries, ms(r.Pause.Quantile(0.5)), ms(r.Pause.Quantile(0.99)), ms(r.Pause.Max)),
			Aim: aimIf(d.Hurried, "2,000"), Verdict: verdictIf(d.Hurried, rate >= 2000 && r.Moved >= d.Objects && r.Released+r.Left == 0),
		},
		{
			Work: fmt.Sprintf("time to drain %d objects", d.Objects), Figure: fmt.Sprintf("%s (100,000 at that rate: %s)", ms(r.Took), ms(full)),
			Aim: aimIf(d.Hurried, "60 s for 100,000"), Verdict: verdictIf(d.Hurried, full <= time.Minute),
		},
		{
			Work: "p99 of requests to other objects meanwhile", Figure: fmt.Sprintf("%s, %.1f x the %s before; %d requests%s", ms(d.During), ratio, ms(d.Steady), d.Requests, failures(d.Failed, d.Why)),
			Aim: aimIf(!d.Hurried, "2 x"), Verdict: verdictIf(!d.Hurried, ratio <= 2 && d.Failed == 0),
		},
	}
}

// aimIf and verdictIf are those of a row that has one only where it is so.
func aimIf(is bool, aim string) string {
	if is {
		return aim
	}
	return ""
}

func verdictIf(is, ok bool) string {
	if is {
		return verdict(ok)
	}
	return ""
}

// Rows of the hops.
func (h Hops) Rows() []Row {
	return []Row{{
		Work:   "hops of the first, and of the second, request after a move, from a node that knew where it was",
		Figure: fmt.Sprintf("%.2f, %.2f (%.2f before the move; %d moves)", h.First, h.Second, h.Before, h.Moves),
		Aim:    "1 extra, once", Verdict: verdict(h.First <= h.Before+1 && h.Second <= h.Before),
	}}
}

// Rows of a crash.
func (c Crash) Rows() []Row {
	p99 := quantile(c.Away, 0.99)
	return []Row{{
		Work: fmt.Sprintf("crash: time to the first success for each object, p50 / p99 (lease %v)", c.Lease),
		Figure: fmt.Sprintf("%s / %s, longest %s, %d objects, asked every %v%s", ms(quantile(c.Away, 0.5)), ms(p99), ms(quantile(c.Away, 1)), len(c.Away), crashPoll,
			failures(c.Wrong, c.Why)),
		Aim: fmt.Sprintf("lease + 2 s = %v", c.Lease+2*time.Second), Verdict: verdict(p99 <= c.Lease+2*time.Second && c.Wrong == 0),
	}}
}

// Write writes a Markdown table.
func Write(w io.Writer, rows []Row) error {
	var b strings.Builder
	b.WriteString("| work | figure | aim | |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Work, r.Figure, r.Aim, r.Verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
