package zactor

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The plan of a loop against counting the steps one by one.
func TestLoopPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &loop{
			hz:      uint64(rapid.IntRange(1, maxHz).Draw(t, "hz")),
			catchUp: uint64(rapid.IntRange(1, 10).Draw(t, "catchUp")),
		}
		l.done = rapid.Uint64Range(0, l.hz<<32).Draw(t, "done")
		elapsed := l.due(l.done) + time.Duration(rapid.Int64Range(-int64(time.Second), int64(time.Second)).Draw(t, "elapsed"))
		if rapid.Bool().Draw(t, "exact") {
			elapsed = l.due(l.done + uint64(rapid.IntRange(0, 100).Draw(t, "steps")))
		}
		due := uint64(0)
		for l.due(l.done+due+1) <= elapsed {
			due++
		}
		skip, run := l.plan(elapsed)
		if run != min(due, l.catchUp) || skip != due-run {
			t.Fatalf("%d due: %d left out and %d run", due, skip, run)
		}
	})
}

// The grid of Every against stepping through it.
func TestNextDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.Int64Range(1, 1000).Draw(t, "period")
		due := rapid.Int64Range(0, 1<<50).Draw(t, "due")
		now := due + rapid.Int64Range(-1000, 1<<16).Draw(t, "late")
		next, skipped := due+period, uint64(0)
		for next <= now {
			next += period
			skipped++
		}
		if got, n := nextDue(now, due, time.Duration(period)), missed(now-due, time.Duration(period)); got != next || n != skipped {
			t.Fatalf("next %d after %d missed, want %d after %d", got, n, next, skipped)
		}
	})
}
