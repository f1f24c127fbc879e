package zrouter

import (
	"time"

	"zgame/internal/lograte"
	"zgame/zmetrics"
	"zgame/zrouter/internal/entry"
)

// counts is the set's metrics, and how often it may log.
type counts struct {
	*zmetrics.Router

	forwards [5]zmetrics.Counter // by hops; those of 4 and more are one
	resents  [len(verdictNames)]zmetrics.Counter

	limits [rares]lograte.Limiter // of lines that clients, or a store that is away, could cause without bound
}

// rare is what a line tells of that is written now and then: each has a limit of its own, so that none hides another.
type rare uint8

const (
	rareOneWay rare = iota // a one-way message was not handled
	rareStore              // the store does not do what was asked
	rarePanic              // or panicked
	rareCreate             // an object cannot be created
	rareLoad               // or not be loaded
	rareSchema             // its state is of a newer version of the program
	rares
)

// kindCounts are those of one kind, resolved once.
type kindCounts struct {
	residents        zmetrics.Gauge
	unsaved          zmetrics.Gauge
	loaded, unloaded zmetrics.Counter
	drops            [len(reasonNames)]zmetrics.Counter
	overdue          zmetrics.Counter
	refused          func(entry.Cause) zmetrics.Counter
	writes           func(entry.Op, entry.Kind) zmetrics.Counter
	handoffs         func(result string) zmetrics.Counter
	revived          func(result string)
}

func newCounts(m *zmetrics.Router) *counts {
	if m == nil {
		m = zmetrics.NewRouter(nil)
	}
	c := &counts{Router: m}
	for v, name := range verdictNames {
		c.resents[v] = m.Resent.With(name)
	}
	for hops, name := range [...]string{"1", "1", "2", "3", "more"} {
		c.forwards[hops] = m.Forwards.With(name)
	}
	return c
}

func (c *counts) kind(name string) kindCounts {
	k := kindCounts{
		residents: c.Residents.With(name),
		unsaved:   c.UnsavedAge.With(name),
		loaded:    c.Activations.With(name, "ok"),
		unloaded:  c.Activations.With(name, "failed"),
		overdue:   c.Overdue.With(name),
		refused:   func(why entry.Cause) zmetrics.Counter { return c.Refused.With(name, why.String()) },
		handoffs:  func(result string) zmetrics.Counter { return c.Handoffs.With(name, result) },
		writes: func(op entry.Op, how entry.Kind) zmetrics.Counter {
			return c.Writes.With(name, op.String(), resultNames[how])
		},
	}
	k.revived = func(result string) {
		if result != "" {
			c.Revived.With(name, result).Inc()
		}
	}
	for r, reason := range reasonNames {
		k.drops[r] = c.Drops.With(name, reason)
	}
	return k
}

// resultNames are how writes end.
var resultNames = map[entry.Kind]string{entry.Wrote: "ok", entry.Conflicted: "conflict", entry.Failed: "failed", entry.Unclear: "unknown"}

// of returns the counters of an object's kind, those of no kind where this node does not host it.
func (s *ManagerSet) countsOf(o *object) *kindCounts {
	if o.kind != nil {
		return &o.kind.counts
	}
	return &s.foreign
}

// seldom reports whether something may be logged that happens as often as somebody else wants, and how much was not since.
func (c *counts) seldom(r rare) (suppressed uint64, ok bool) {
	return c.limits[r].Allow(time.Now())
}

// resent counts what became of a request that its client has sent before.
func (c *counts) resent(v verdict) { c.resents[v].Inc() }
