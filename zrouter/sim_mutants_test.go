package zrouter

import (
	"strings"
	"testing"

	"zgame/zstore"
)

// simMutant brings a known fault of such systems back, where the shell meets what is around it.
type simMutant struct {
	id, name string

	serveOn         bool // the lease never ends, for its owner
	notFoundIsDead  bool // who is not on the list is dead, however old the list
	noHint          bool // what is forwarded does not say what its path has seen
	publishes       bool // a placement that nobody committed is remembered as a route
	unclearIsFailed bool // a write without an answer counts as failed
	forgetsFailed   bool // what a failed save had counts as saved
	waitsFailed     bool // a save that failed is tried again after a whole interval
	overwrites      func(p *simProc, cur *zstore.Record) bool
}

var simMutants = []*simMutant{
	{id: "D3", name: "who is not on the list counts as dead", notFoundIsDead: true},
	{id: "D7", name: "a placement that nobody committed is remembered as a route", publishes: true},
	{id: "D8", name: "a write without an answer counts as failed", unclearIsFailed: true},
	{id: "D13", name: "a wrong hop goes on by the route in memory", noHint: true},
	{id: "D23", name: "a conflict is overwritten where the owner is oneself, or nobody", overwrites: func(p *simProc, cur *zstore.Record) bool {
		return cur.Own.Node.IsZero() || cur.Own.Node.ID == p.id
	}},
	{id: "D24", name: "a conflict is retried with the version that the store has", overwrites: func(*simProc, *zstore.Record) bool { return true }},
	{id: "D27", name: "an owner does not look at its own lease", serveOn: true},
	{id: "D30", name: "what a failed save had counts as saved", forgetsFailed: true},
	{id: "D30", name: "a save that failed waits for the whole interval", waitsFailed: true},
}

// The simulation catches every one.
func TestSimulationMutants(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	for _, m := range simMutants {
		caught := false
		for seed := uint64(1); seed <= 2000 && !caught; seed++ {
			if broken, _ := simulate(seed, m, nil); broken != "" {
				caught = true
				t.Logf("%s caught by TestSimulation seed %d (%s): %s", m.id, seed, m.name, strings.SplitN(broken, "\n", 2)[0])
			}
		}
		if !caught {
			t.Errorf("%s (%s) is not caught", m.id, m.name)
		}
	}
}
