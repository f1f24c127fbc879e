package zrouter

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
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
	refusesParked   bool // what waited for a move is refused as well as sent on
	sendsParked     bool // what waits for a move is sent on as well
	routesEarly     bool // a move changes the route in memory before it is committed
	moveIsFailed    bool // a move whose write has no answer counts as failed
	noFence         bool // a fence counts as passed at once
	forgetsClosing  bool // a node that closes goes on to claim, and to agree
}

var simMutants = []*simMutant{
	{id: "D1", name: "requests that waited for a move are refused as well as sent on", refusesParked: true},
	{id: "D2", name: "a request that waits for a move is sent on as well", sendsParked: true},
	{id: "D7", name: "a move changes the route in memory before it is committed", routesEarly: true},
	{id: "D8", name: "a move whose write has no answer counts as failed", moveIsFailed: true},
	{id: "I12", name: "a node takes a new route before what it sent by the old one has arrived", noFence: true},
	{id: "D32", name: "a node that closes goes on to claim, and to agree to take over", forgetsClosing: true},
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

// sendParked is of the mutant that sends what waits for a move on as well.
func (p *simProc) sendParked(e *zmsg.Envelope, m *zmsg.Message) {
	sh := p.set.shard(e.Key)
	sh.mu.Lock()
	var to zmsg.NodeRef
	if o := sh.objects[e.Key]; o != nil && (o.entry.Phase == entry.Freezing || o.entry.Phase == entry.Moving) {
		to = o.entry.Target
	}
	sh.mu.Unlock()
	q := p.w.byRef[to]
	if q == nil {
		return
	}
	c := zmsg.NewMessage(m.ID)
	c.CopyHead(m)
	c.SetBody(bytes.Clone(m.Body()))
	c.Hops++
	sent := *e
	p.w.after(p.w.between(time.Millisecond, 20*time.Millisecond), q, func() { q.set.Receive(&sent, c) })
}

// routeEarly is of the mutant that changes the route before the write that does.
func (p *simProc) routeEarly(c *zstore.Change) {
	sh := p.set.shard(c.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.objects[c.Key]; o != nil && o.entry.Phase == entry.Moving {
		o.entry.Route = Route{Owner: c.Node, Version: c.Own.Version + 1}
	}
}
