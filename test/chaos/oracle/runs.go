package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Run is one execution of an append, as its handler wrote it down.
type Run struct {
	Proc       string // the process
	Key        string
	Op         uint64
	Version    uint64 // of the ownership
	Begin, End int64  // End is 0 where the process ended before
	Had        bool   // the entry was in the list already
}

// Span is from one time to another.
type Span struct{ From, To int64 }

// Proc is what was done to a process, as far as it may change what it does.
type Proc struct {
	Died   int64  // 0: it did not, or ended in order
	Pauses []Span // it was stopped
	// Peace is that nothing else was done to it, to the servers or to the network, either.
	Peace bool
}

// troubled reports whether something was done to the process between from and to.
func (p *Proc) troubled(from, to int64) bool {
	for _, s := range p.Pauses {
		if s.From < to && s.To > from {
			return true
		}
	}
	return !p.Peace || p.Died != 0 && p.Died <= to
}

// late is how long after a pause an execution may begin that was admitted before it: between the look at the lease and the first
// line of the handler the process may be stopped.
const late = int64(time.Second)

// cut returns until when r counts, and whether it began in the wake of a pause. Nobody can keep a process that is stopped in a
// handler from ending the handler later; what it does then must not count.
func (p *Proc) cut(r Run) (end int64, wake bool) {
	end = cmp.Or(r.End, p.Died, r.Begin)
	for _, s := range p.Pauses {
		if r.Begin <= s.From && s.From < end {
			end = s.From
		}
		if s.From < r.Begin && r.Begin < s.To+late {
			wake = true
		}
	}
	return end, wake
}

// Runs checks that the executions of a list do not overlap, those of a later ownership begin when those of all earlier ones have
// ended, and none ran again under its request: not where its effect was there, not when it had been acknowledged, not within one ownership,
// and not for nothing (the process that ran it first was left in peace). An execution that began in the wake of a pause of its process,
// which may have been admitted before, need not come before those of a later ownership, as long as it was not acknowledged.
func Runs(runs []Run, procs map[string]*Proc, ops []Op) (faults []string) {
	fault := func(r Run, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("runs: list %s, entry %x in %s at version %d: ", r.Key, r.Op, r.Proc, r.Version)+fmt.Sprintf(format, args...))
	}
	acked := map[uint64]Op{}
	for _, o := range ops {
		if o.Append != 0 && o.Outcome == OK {
			acked[o.Append] = o
		}
	}
	lists := map[string][]Run{}
	for _, r := range runs {
		lists[r.Key] = append(lists[r.Key], r)
	}
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		list := lists[key]
		slices.SortFunc(list, func(a, b Run) int { return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Begin, b.Begin)) })
		var busy int64 // until when those before were running
		var by Run
		first := map[uint64]Run{}
		for _, r := range list {
			p := procs[r.Proc]
			end, wake := p.cut(r)
			if o := acked[r.Op]; wake && o.Version != r.Version {
				continue
			}
			if r.Begin < busy {
				fault(r, "it began %v before entry %x in %s at version %d had ended", time.Duration(busy-r.Begin), by.Op, by.Proc, by.Version)
			}
			if end > busy {
				busy, by = end, r
			}
			was, again := first[r.Op]
			first[r.Op] = r
			switch o, told := acked[r.Op]; {
			case r.Had:
				fault(r, "it was in the list already")
			case told && r.Begin > o.Return:
				fault(r, "it began %v after it was acknowledged", time.Duration(r.Begin-o.Return))
			case told && r.Version > o.Version:
				fault(r, "it ran again after version %d, which acknowledged it", o.Version)
			case again && was.Version == r.Version:
				fault(r, "it ran twice")
			case again && !procs[was.Proc].troubled(was.Begin, r.Begin):
				fault(r, "it ran again, and nothing had happened to %s, which ran it at version %d", was.Proc, was.Version)
			}
		}
	}
	return faults
}
