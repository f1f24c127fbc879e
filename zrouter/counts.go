package zrouter

import (
	"sync/atomic"
	"time"

	"zgame/zrouter/internal/entry"
)

type counter struct{ n atomic.Int64 }

func (c *counter) Inc()          { c.n.Add(1) }
func (c *counter) Set(v float64) { c.n.Store(int64(v)) }

type counts struct {
	late, forwards, dedup, lostOneWay, corrections, suspended counter
	logged                                                    atomic.Int64
}

type kindCounts struct{}

func newCounts(any) *counts                         { return &counts{} }
func (c *counts) kind(string) kindCounts            { return kindCounts{} }
func (c *counts) refused(*kind, entry.Cause)        {}
func (c *counts) activations(*kind, bool)           {}
func (c *counts) fenced(*kind)                      {}
func (c *counts) overdue(*kind)                     {}
func (c *counts) resolved(bool)                     {}
func (c *counts) write(*kind, entry.Op, entry.Kind) {}
func (c *counts) seldom() bool {
	now, last := time.Now().Unix(), c.logged.Load()
	return now-last >= 1 && c.logged.CompareAndSwap(last, now)
}
