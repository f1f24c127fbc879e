package entry

import (
	"strings"
	"testing"
)

// mutant brings a known fault of such systems back. The zero mutant is Step as it is.
type mutant struct {
	id, name   string // as in the list of known faults
	event      func(ev *Event, f *Facts) (lost bool)
	before     func(e *Entry, ev *Event) []Effect // may change e, and do more
	after      func(e *Entry, ev *Event, out []Effect)
	overwrites bool // a conflict is answered by writing what the record was not to be
}

func (m *mutant) step(e *Entry, f *Facts, ev *Event) []Effect {
	if m.event != nil && m.event(ev, f) {
		return nil
	}
	var out []Effect
	if m.before != nil {
		out = m.before(e, ev)
	}
	out = e.Step(f, ev, out)
	if m.after != nil {
		m.after(e, ev, out)
	}
	return out
}

var mutants = []mutant{
	{id: "D1", name: "requests that waited for a transfer are refused as well as forwarded", before: func(e *Entry, ev *Event) (out []Effect) {
		if e.Phase == Moving && ev.Kind == Wrote {
			for _, r := range e.Queue {
				out = append(out, Effect{Op: Answer, Req: r, Cause: Unavailable})
			}
		}
		return out
	}},
	{id: "D2", name: "a request that waits for a transfer is sent as well", before: func(e *Entry, ev *Event) (out []Effect) {
		if e.Phase == Freezing && ev.Kind == Asked && !ev.Req.Own && !e.Target.IsZero() {
			r := ev.Req
			r.Hops++
			out = append(out, Effect{Op: Forward, Req: r, Route: Route{e.Target, e.Route.Version}})
		}
		return out
	}},
	{id: "D3", name: "a node that does not answer counts as dead", event: func(ev *Event, _ *Facts) bool {
		ev.OwnerDead = ev.Kind == HasRead && !ev.Route.Owner.IsZero()
		return false
	}},
	{id: "D5", name: "a transfer does not wait for what runs", before: func(e *Entry, ev *Event) []Effect {
		if ev.Kind == Prepared {
			e.Running = 0
		}
		return nil
	}},
	{id: "AfterSave", name: "what is to run behind a save is not waited for", before: func(e *Entry, ev *Event) []Effect {
		if e.Phase == Freezing && ev.Kind == Asked {
			ev.Req.Then = false
		}
		return nil
	}},
	{id: "AfterSave", name: "what is to run behind a save runs at once", event: func(ev *Event, _ *Facts) bool {
		if ev.Kind == Ran && ev.Req.Then {
			ev.Req.Durable = false
		}
		return false
	}},
	{id: "AfterSave", name: "a transfer's own write is the save that something is to run behind", before: func(e *Entry, ev *Event) []Effect {
		if e.Phase == Freezing && ev.Kind == Ran {
			ev.Req.Then = false
		}
		return nil
	}},
	{id: "D7", name: "a placement that nobody committed is remembered as a route", after: func(e *Entry, _ *Event, out []Effect) {
		for _, x := range out {
			if x.Op == Forward && x.Route != e.Route {
				e.Phase, e.Route = Cached, x.Route
			}
		}
	}},
	{id: "D7", name: "a transfer changes the route in memory before it is committed", after: func(e *Entry, _ *Event, out []Effect) {
		for _, x := range out {
			if x.Op == Move {
				e.Route = Route{e.Target, e.Route.Version + 1}
			}
		}
	}},
	{id: "D8", name: "a transfer whose write has no answer counts as failed", before: func(e *Entry, ev *Event) []Effect {
		if e.Phase == Moving && ev.Kind == Unclear {
			ev.Kind = Failed
		}
		return nil
	}},
	{id: "D8", name: "a write without an answer counts as failed", event: func(ev *Event, _ *Facts) bool {
		if ev.Kind == Unclear {
			ev.Kind = Failed
		}
		return false
	}},
	{id: "I12", name: "a node takes a new route before what it sent by the old one has arrived", before: func(e *Entry, _ *Event) []Effect {
		e.Lane = Route{}
		return nil
	}},
	{id: "D13", name: "a wrong hop goes on by the route in memory", event: func(ev *Event, _ *Facts) bool {
		if ev.Kind == Asked {
			ev.Req.Hint = 0
		}
		return false
	}},
	{id: "D16", name: "what is told replaces what is newer", after: func(e *Entry, ev *Event, _ []Effect) {
		if ev.Kind == Told && e.Phase == Cached {
			e.Route = ev.Route
		}
	}},
	{id: "D23, D24", name: "a conflict is overwritten", overwrites: true},
	{id: "D27", name: "an owner does not look at its own lease", event: func(ev *Event, _ *Facts) bool { return ev.Kind == Suspend }},
	{id: "D30", name: "what a failed save had counts as saved", after: func(e *Entry, ev *Event, _ []Effect) {
		if ev.Kind == Failed {
			e.Dirty = false
		}
	}},
	{id: "D32", name: "a node that drains agrees to take objects over", event: func(ev *Event, f *Facts) bool {
		f.CanOwn = f.CanOwn || ev.Kind == PrepareAsked
		return false
	}},
	{id: "D32", name: "a node that drains goes on to claim", event: func(_ *Event, f *Facts) bool {
		f.CanOwn = true
		return false
	}},
}

// The search catches every one.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		caught := ""
		for _, c := range []scope{
			{nodes: 2, reqs: 1, faults: 2, onDemand: true, then: true},
			{nodes: 2, reqs: 2, faults: 1, onDemand: true},
			{nodes: 2, reqs: 2, faults: 2, onDemand: true},
			{nodes: 2, reqs: 3, faults: 1, onDemand: true, order: true},
			{nodes: 3, reqs: 2, faults: 2, onDemand: true},
		} {
			if s, _ := c.search(t, m); s.broken != "" {
				caught = s.broken
				break
			}
		}
		if caught == "" {
			t.Errorf("%s (%s) is not caught", m.id, m.name)
			continue
		}
		t.Logf("%s (%s) caught by TestSearch: %s", m.id, m.name, strings.SplitN(caught, "\n", 2)[0])
	}
}
