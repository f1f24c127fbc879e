package zbots

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what came of a run, or of a part of it. Its JSON has times in nanoseconds.
type Report struct {
	Script     string         `json:"script"`
	Bots       int            `json:"bots"`
	Began      time.Time      `json:"began"`
	Took       time.Duration  `json:"took"`
	Operations []Operation    `json:"operations"`
	Online     int            `json:"online"`  // bots that came online
	Lost       int64          `json:"lost"`    // connections
	Resumed    int64          `json:"resumed"` // of them: the session went on
	Anew       int64          `json:"anew"`    // and where it did not
	Gaps       int64          `json:"gaps"`    // told by gates
	Came       uint64         `json:"came"`    // numbered messages
	Numbered   Numbered       `json:"numbered"`
	Ended      map[string]int `json:"ended"` // bots that ended by an error, by what it was
	// Words is what the first error of each reason said.
	Words   map[string]string `json:"words"`
	Seconds []Second          `json:"seconds"`
}

// Operation is one kind of request.
type Operation struct {
	Name      string         `json:"name"`
	Count     int64          `json:"count"` // that succeeded
	PerSecond float64        `json:"per_second"`
	Times     Times          `json:"times"` // of those
	Errors    map[string]int `json:"errors"`
}

// Second is one second of a run.
type Second struct {
	Count  int64 `json:"count"`
	Failed int   `json:"failed"`
	Online int64 `json:"online"`
	Times  Times `json:"times"`
}

// Faulty reports whether a numbered message was lost, doubled or swapped.
func (r *Report) Faulty() bool { return r.Numbered != Numbered{} }

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bots, %s\n\n", r.Script, r.Bots, r.Took.Round(100*time.Millisecond))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "request\tcount\ta second\tp50\tp90\tp99\tp99.9\tlongest\tfailed\t")
	for _, o := range r.Operations {
		failed := 0
		for _, n := range o.Errors {
			failed += n
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%s\t%s\t%s\t%s\t%s\t%d\t\n", o.Name, o.Count, o.PerSecond,
			short(o.Times.P50), short(o.Times.P90), short(o.Times.P99), short(o.Times.P999), short(o.Times.Max), failed)
	}
	_ = t.Flush() // of a strings.Builder
	for _, o := range r.Operations {
		for _, why := range slices.Sorted(maps.Keys(o.Errors)) {
			fmt.Fprintf(&b, "%s failed %d times: %s%s\n", o.Name, o.Errors[why], why, r.said(why))
		}
	}
	fmt.Fprintf(&b, "\nnumbered messages: %d came; %d lost, %d doubled, %d swapped\n", r.Came, r.Numbered.Lost, r.Numbered.Doubled, r.Numbered.Swapped)
	fmt.Fprintf(&b, "connections: %d of %d bots came online; %d connections lost, %d sessions went on, %d began anew, %d gaps were told\n",
		r.Online, r.Bots, r.Lost, r.Resumed, r.Anew, r.Gaps)
	for _, why := range slices.Sorted(maps.Keys(r.Ended)) {
		fmt.Fprintf(&b, "%d bots ended by: %s%s\n", r.Ended[why], why, r.said(why))
	}
	return b.String()
}

// said is what the first error of a reason said, where that is more than the reason.
func (r *Report) said(why string) string {
	if w := r.Words[why]; w != "" && w != why {
		return fmt.Sprintf(" (%.200s)", w)
	}
	return ""
}

// Failed is how many bots ended by an error.
func (r *Report) Failed() (n int) {
	for _, of := range r.Ended {
		n += of
	}
	return n
}

// short is a latency to three figures.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}
