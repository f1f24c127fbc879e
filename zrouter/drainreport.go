package zrouter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zgame/zmsg"
)

// DrainReport says how far a drain is, or what it has come to.
type DrainReport struct {
	Phase DrainPhase    `json:"phase"`
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took_ns"` // until now, or its end

	Objects  int `json:"objects"`  // that were in memory when it began, or came since
	Moved    int `json:"moved"`    // to another node, that owns them now
	Released int `json:"released"` // saved and given up
	Gone     int `json:"gone"`     // left memory by themselves meanwhile
	Left     int `json:"left"`     // in memory here
	Moving   int `json:"moving"`   // of them: moves that run

	// Retries are moves that came to nothing; the object was tried again, or released. Why has them by the cause.
	Retries int            `json:"retries"`
	Why     map[string]int `json:"why,omitempty"`
	To      map[string]int `json:"to,omitempty"` // objects moved, by the id of the node that has them
	Pause   Pauses         `json:"pause"`        // for how long the moved objects took no requests

	LeftKeys []string `json:"left_keys,omitempty"` // at its end: keys of what is left, at most 100
}

// DrainPhase is how far a drain is.
type DrainPhase string

// The phases.
const (
	DrainMoving    DrainPhase = "moving"    // objects go to other nodes
	DrainReleasing DrainPhase = "releasing" // what is left is saved and given up
	DrainDone      DrainPhase = "done"
)

// Pauses counts spans of time. The zero Pauses has none.
type Pauses struct {
	Count  int           `json:"count"`
	Max    time.Duration `json:"max_ns"`
	MaxKey string        `json:"max_key,omitempty"` // whose it was
	// UpTo[i] counts those up to PauseBounds[i], and above the one before; its last those above all.
	UpTo [len(pauseBounds) + 1]int `json:"up_to"`
}

var pauseBounds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
}

// PauseBounds are the upper ends of Pauses.UpTo.
func PauseBounds() []time.Duration { return slices.Clone(pauseBounds[:]) }

func (p *Pauses) add(k zmsg.Key, d time.Duration) {
	p.Count++
	if d > p.Max || p.MaxKey == "" {
		p.Max, p.MaxKey = d, k.String()
	}
	i, _ := slices.BinarySearch(pauseBounds[:], d)
	p.UpTo[i]++
}

// Quantile returns an upper end of the share q of the spans: the bound of the bucket, or Max where that is less.
func (p *Pauses) Quantile(q float64) time.Duration {
	rank := int(q*float64(p.Count) + 0.5)
	for i, n := range p.UpTo[:len(pauseBounds)] {
		if rank -= n; rank <= 0 {
			return min(pauseBounds[i], p.Max)
		}
	}
	return p.Max
}

// String is the report for people, in a line for what there is always and one for each of the rest.
func (r DrainReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d objects moved, %d released, %d gone by themselves, %d left; took %s\n",
		r.Phase, r.Moved, r.Objects, r.Released, r.Gone, r.Left, r.Took.Round(time.Millisecond))
	if r.Pause.Count > 0 {
		const unit = 10 * time.Microsecond
		fmt.Fprintf(&b, "pause of a move: half within %s, 99 of 100 within %s, longest %s (%s)\n",
			r.Pause.Quantile(0.5).Round(unit), r.Pause.Quantile(0.99).Round(unit), r.Pause.Max.Round(unit), r.Pause.MaxKey)
	}
	list := func(what string, m map[string]int) {
		if len(m) == 0 {
			return
		}
		b.WriteString(what)
		for i, k := range slices.Sorted(maps.Keys(m)) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, " %s %d", k, m[k])
		}
		b.WriteByte('\n')
	}
	list("moved to:", r.To)
	for _, why := range slices.Sorted(maps.Keys(r.Why)) {
		fmt.Fprintf(&b, "moves that came to nothing: %d, %s\n", r.Why[why], why)
	}
	if len(r.LeftKeys) > 0 {
		fmt.Fprintf(&b, "left in memory: %s\n", strings.Join(r.LeftKeys, " "))
	}
	return b.String()
}

// clone is a copy that changes no more.
func (r *DrainReport) clone() DrainReport {
	c := *r
	c.Why, c.To, c.LeftKeys = maps.Clone(r.Why), maps.Clone(r.To), slices.Clone(r.LeftKeys)
	return c
}
