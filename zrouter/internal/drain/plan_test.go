package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zrouter/internal/drain"
)

var limits = drain.Limits{InFlight: 8, PerTarget: 3, Tries: 4, FirstPause: 50 * time.Millisecond, LongPause: time.Second}

var start = time.Unix(1000, 0)

func object(n, used int) drain.Object {
	return drain.Object{Key: zmsg.Key{Type: 1, ID: fmt.Sprintf("k%03d", n)}, Used: start.Add(-time.Duration(used) * time.Second)}
}

func node(n int) zmsg.NodeRef { return zmsg.NodeRef{ID: fmt.Sprintf("n%d", n), Epoch: 1} }

// pickOf is a placement: the nodes of up, ranked for each key; those with the best standing go before.
func pickOf(up func() []zmsg.NodeRef) drain.Pick {
	return func(k zmsg.Key, standing func(zmsg.NodeRef) drain.Standing) (best zmsg.NodeRef) {
		top, how := uint64(0), drain.Away+1
		for _, n := range up() {
			score, s := zmsg.Mix(zmsg.HashBytes(k.ID)^zmsg.HashBytes(n.ID))|1, standing(n)
			if s < how || s == how && score > top {
				best, top, how = n, score, s
			}
		}
		return best
	}
}

// model is what a drain may not do, whatever happens to it.
type model struct {
	t       *rapid.T
	plan    *drain.Plan
	now     time.Time
	up      []zmsg.NodeRef
	left    map[zmsg.Key]bool // added, and neither moved nor gone
	running map[zmsg.Key]zmsg.NodeRef
	failed  map[zmsg.Key]int
	busy    map[zmsg.NodeRef]time.Time // until when nothing may begin there
	added   int
	wake    time.Time
}

func (m *model) next() {
	moves, wake := m.plan.Next(m.now, pickOf(func() []zmsg.NodeRef { return m.up }))
	m.wake = wake
	for _, mv := range moves {
		if !m.left[mv.Key] {
			m.t.Fatalf("%v is moved, and is not there", mv.Key)
		}
		if to, twice := m.running[mv.Key]; twice {
			m.t.Fatalf("%v is moved to %v, and to %v already", mv.Key, mv.To, to)
		}
		if !slices.Contains(m.up, mv.To) {
			m.t.Fatalf("%v is moved to %v, which is not there", mv.Key, mv.To)
		}
		if m.now.Before(m.busy[mv.To]) {
			m.t.Fatalf("%v is moved to %v, which has said that it takes nothing", mv.Key, mv.To)
		}
		if m.failed[mv.Key] >= limits.Tries {
			m.t.Fatalf("%v is moved after %d failures", mv.Key, m.failed[mv.Key])
		}
		m.running[mv.Key] = mv.To
	}
	if len(m.running) > limits.InFlight || m.plan.Running() != len(m.running) {
		m.t.Fatalf("%d moves run, the plan says %d", len(m.running), m.plan.Running())
	}
	for _, n := range m.up {
		at := 0
		for _, to := range m.running {
			if to == n {
				at++
			}
		}
		if at > limits.PerTarget {
			m.t.Fatalf("%d moves run to %v", at, n)
		}
	}
	if m.plan.Left() > 0 && len(m.running) == 0 && !wake.After(m.now) {
		m.t.Fatalf("%d are left, nothing runs, and it is to be asked again at %v, at %v", m.plan.Left(), wake, m.now)
	}
}

func (m *model) end(k zmsg.Key, r drain.Result) {
	to := m.running[k]
	delete(m.running, k)
	switch r {
	case drain.Moved, drain.Gone:
		delete(m.left, k)
	case drain.Busy, drain.Refused:
		pause := limits.FirstPause
		if r == drain.Refused {
			pause = limits.LongPause
		}
		if until := m.now.Add(pause); until.After(m.busy[to]) {
			m.busy[to] = until
		}
	case drain.Failed:
		m.failed[k]++
	}
	m.plan.Ended(k, r, m.now)
}

func (m *model) keys() []zmsg.Key {
	var keys []zmsg.Key
	for k := range m.running {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b zmsg.Key) int { return strings.Compare(a.ID, b.ID) })
	return keys
}

// Whatever nodes come, go and answer, the limits hold; and as soon as they take what they are given everything is moved, but what was
// given up.
func TestPlanModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		paced := limits
		paced.PerSecond = rapid.SampledFrom([]int{0, 0, 1, 30, 1000}).Draw(t, "per second")
		m := &model{
			t: t, plan: drain.New(paced), now: start, left: map[zmsg.Key]bool{}, running: map[zmsg.Key]zmsg.NodeRef{},
			failed: map[zmsg.Key]int{}, busy: map[zmsg.NodeRef]time.Time{},
		}
		for n := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			m.up = append(m.up, node(n))
		}
		most := len(m.up)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "objects") {
					o := object(m.added, rapid.IntRange(0, 50).Draw(t, "used"))
					m.added++
					m.left[o.Key] = true
					m.plan.Add(o)
					m.plan.Add(o)
				}
				m.next()
			},
			"end": func(t *rapid.T) {
				if len(m.running) == 0 {
					t.Skip()
				}
				m.end(rapid.SampledFrom(m.keys()).Draw(t, "key"),
					rapid.SampledFrom([]drain.Result{drain.Moved, drain.Moved, drain.Gone, drain.Busy, drain.Refused, drain.Failed}).Draw(t, "result"))
				m.next()
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
				m.next()
			},
			"nodes": func(t *rapid.T) {
				m.up = m.up[:0:0]
				for n := range most { // one at least: where nobody is, all is given up
					if n == 0 || rapid.Bool().Draw(t, "up") {
						m.up = append(m.up, node(n))
					}
				}
				m.next()
			},
		})
		for rounds := 0; m.plan.Left() > 0; rounds++ {
			if rounds > 10_000 {
				t.Fatalf("%d are left for ever", m.plan.Left())
			}
			m.next()
			if len(m.running) == 0 && m.plan.Left() > 0 {
				m.now = m.wake
			}
			for _, k := range m.keys() {
				m.end(k, drain.Moved)
			}
		}
		for k := range m.left {
			if m.failed[k] < limits.Tries {
				t.Fatalf("%v is left, and was not given up for its failures", k)
			}
		}
	})
}

// run has every move that begins end well, until nothing is left; it returns them in order.
func run(t *testing.T, p *drain.Plan, pick drain.Pick, now time.Time) (moves []drain.Move) {
	t.Helper()
	for range 10_000 {
		next, wake := p.Next(now, pick)
		moves = append(moves, next...)
		for _, m := range next {
			p.Ended(m.Key, drain.Moved, now)
		}
		if len(next) == 0 {
			if p.Left() == 0 {
				return moves
			}
			now = wake
		}
	}
	t.Fatal("it does not end")
	return nil
}

// Objects for which nothing came for long go first, and each where the placement says.
func TestColdestFirst(t *testing.T) {
	t.Parallel()
	p := drain.New(limits)
	const n = 200
	used := make(map[zmsg.Key]time.Time)
	for i := range n {
		o := object(i, i*7919%n)
		used[o.Key] = o.Used
		p.Add(o)
	}
	up := []zmsg.NodeRef{node(0), node(1), node(2)}
	pick := pickOf(func() []zmsg.NodeRef { return up })
	last := map[zmsg.NodeRef]time.Time{}
	moves := run(t, p, pick, start)
	for _, m := range moves {
		if home := pick(m.Key, func(zmsg.NodeRef) drain.Standing { return drain.Open }); home != m.To {
			t.Fatalf("%v goes to %v, want %v", m.Key, m.To, home)
		}
		if used[m.Key].Before(last[m.To]) {
			t.Fatalf("%v goes to %v behind one for which something came later", m.Key, m.To)
		}
		last[m.To] = used[m.Key]
	}
	if len(moves) != n || len(last) != 3 {
		t.Errorf("%d moves to %d nodes", len(moves), len(last))
	}
}

// What a busy node does not take goes to another that has room, and no more of it than that one takes; the rest waits.
func TestBusyTarget(t *testing.T) {
	t.Parallel()
	p := drain.New(limits)
	for i := range 100 {
		p.Add(object(i, i))
	}
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0), node(1)} })
	moves, _ := p.Next(start, pick)
	if len(moves) != 2*limits.PerTarget {
		t.Fatalf("%d moves begin", len(moves))
	}
	refused := 0
	for _, m := range moves {
		if m.To == node(0) {
			refused++
			p.Ended(m.Key, drain.Busy, start)
		}
	}
	if moves, wake := p.Next(start, pick); len(moves) != 0 || !wake.Equal(start.Add(limits.FirstPause)) {
		t.Fatalf("after %d refusals: %v, asked again at %v", refused, moves, wake)
	}
	for _, m := range moves {
		if m.To == node(1) {
			p.Ended(m.Key, drain.Moved, start)
		}
	}
	if moves, _ = p.Next(start, pick); len(moves) != limits.PerTarget || slices.ContainsFunc(moves, func(m drain.Move) bool { return m.To != node(1) }) {
		t.Fatalf("to the other one: %v", moves)
	}
	moves, _ = p.Next(start.Add(limits.FirstPause), pick)
	if len(moves) != 1 || moves[0].To != node(0) {
		t.Fatalf("to the one that was busy, with fewer at once: %v", moves)
	}
}

// A node that does not answer is left alone for long, and all that waits for it goes elsewhere meanwhile.
func TestTargetIsAway(t *testing.T) {
	t.Parallel()
	p := drain.New(limits)
	for i := range 100 {
		p.Add(object(i, i))
	}
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0), node(1)} })
	moves, _ := p.Next(start, pick)
	for _, m := range moves {
		if m.To == node(0) {
			p.Ended(m.Key, drain.Refused, start)
		} else {
			p.Ended(m.Key, drain.Moved, start)
		}
	}
	for _, m := range run(t, p, pick, start) {
		if m.To != node(1) {
			t.Fatalf("%v goes to %v", m.Key, m.To)
		}
	}
}

// Where nobody can have the objects they are given up at once, as are those that fail too often; the others go on.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	p := drain.New(limits)
	p.Add(object(0, 0))
	if moves, wake := p.Next(start, pickOf(func() []zmsg.NodeRef { return nil })); len(moves) != 0 || !wake.IsZero() || p.Left() != 0 {
		t.Fatalf("an only node: %v, %v, %d left", moves, wake, p.Left())
	}
	p.Add(object(0, 0)) // seen in memory still
	p.Add(object(1, 1))
	p.Add(object(2, 2))
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0)} })
	now, tries := start, 0
	for range 100 {
		moves, wake := p.Next(now, pick)
		for _, m := range moves {
			switch m.Key.ID {
			case "k001":
				tries++
				p.Ended(m.Key, drain.Failed, now)
			case "k002":
				p.Ended(m.Key, drain.Moved, now)
			default:
				t.Fatalf("%v is moved after it was given up", m.Key)
			}
		}
		if len(moves) == 0 {
			if p.Left() == 0 {
				break
			}
			now = wake
		}
	}
	if tries != limits.Tries || p.Left() != 0 {
		t.Errorf("%d tries, %d left", tries, p.Left())
	}
	if took := now.Sub(start); took < 3*limits.FirstPause {
		t.Errorf("%d tries within %v", tries, took)
	}
}

// The end of a move that does not run changes nothing.
func TestEndedTwice(t *testing.T) {
	t.Parallel()
	p := drain.New(limits)
	p.Add(object(0, 0))
	p.Add(object(1, 0))
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0)} })
	moves, _ := p.Next(start, pick)
	p.Ended(moves[0].Key, drain.Moved, start)
	p.Ended(moves[0].Key, drain.Moved, start)
	p.Ended(zmsg.Key{Type: 9, ID: "x"}, drain.Busy, start)
	if p.Left() != 1 || p.Running() != 1 {
		t.Errorf("%d left, %d run", p.Left(), p.Running())
	}
}

// carry has moves of a plan to one node take as long as took says of how many run, until nothing is left. It returns how many ran at most
// in the end, and the time that all took.
func carry(t *testing.T, l drain.Limits, objects int, took func(running int) time.Duration) (window int, total time.Duration) {
	t.Helper()
	p := drain.New(l)
	for i := range objects {
		p.Add(object(i, i))
	}
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0)} })
	ends := map[zmsg.Key]time.Time{}
	now := start
	for range 100 * objects {
		moves, _ := p.Next(now, pick)
		for _, m := range moves {
			ends[m.Key] = now.Add(took(len(ends) + 1))
		}
		if p.Left() == 0 {
			return window, now.Sub(start)
		}
		if p.Left() < objects/2 {
			window = max(window, len(ends))
		}
		var first zmsg.Key
		for k, at := range ends {
			if first.ID == "" || at.Before(ends[first]) || at.Equal(ends[first]) && k.ID < first.ID {
				first = k
			}
		}
		now = ends[first]
		delete(ends, first)
		p.Ended(first, drain.Moved, now)
	}
	t.Fatal("it does not end")
	return 0, 0
}

// A target has as many moves at once as it carries out about as fast as one: more only make each other wait; but all that it may have where
// the time is short.
func TestWindow(t *testing.T) {
	t.Parallel()
	l := drain.Limits{InFlight: 64, PerTarget: 16, Tries: 4, FirstPause: 50 * time.Millisecond, LongPause: time.Second}
	const ms = time.Millisecond
	idle := func(int) time.Duration { return 5 * ms }                                // far away, and never busy
	serves := func(running int) time.Duration { return time.Duration(running) * ms } // one after the other
	for _, c := range []struct {
		name     string
		until    time.Duration
		took     func(int) time.Duration
		from, to int
	}{
		{"one that has room for all", 0, idle, 16, 16},
		{"one that carries them out one after the other", 0, serves, 3, 7},
		{"the same, with time enough", 30 * time.Second, serves, 3, 7},
		{"the same, without", 400 * ms, serves, 16, 16},
	} {
		l := l
		if c.until > 0 {
			l.Until = start.Add(c.until)
		}
		if got, total := carry(t, l, 2000, c.took); got < c.from || got > c.to {
			t.Errorf("%s: %d at once, want %d to %d; it took %v", c.name, got, c.from, c.to, total)
		}
	}
}

// Moves begin evenly, no more in a second than they may, what a late caller has missed included up to a point; and faster than that only
// where the time is short, so that all are moved in it.
func TestPace(t *testing.T) {
	t.Parallel()
	const objects = 1000
	pick := pickOf(func() []zmsg.NodeRef { return []zmsg.NodeRef{node(0)} })
	for _, c := range []struct {
		name  string
		until time.Duration
		late  time.Duration // by so much Next is called after the time that it named
		took  [2]time.Duration
	}{
		{"without an end", 0, 0, [2]time.Duration{9950 * time.Millisecond, 10 * time.Second}},
		{"with time enough", time.Minute, 0, [2]time.Duration{9950 * time.Millisecond, 10 * time.Second}},
		{"by one who is a little late", 0, time.Millisecond, [2]time.Duration{9950 * time.Millisecond, 10 * time.Second}},
		{"by one who is late", 0, 10 * time.Millisecond, [2]time.Duration{15 * time.Second, 20 * time.Second}},
		{"where time is short", 4 * time.Second, 0, [2]time.Duration{3 * time.Second, 4 * time.Second}},
		{"where there is none", time.Nanosecond, 0, [2]time.Duration{0, 0}},
	} {
		l := limits
		l.PerSecond = 100
		if c.until > 0 {
			l.Until = start.Add(c.until)
		}
		p := drain.New(l)
		for i := range objects {
			p.Add(object(i, i))
		}
		now := start
		var last []time.Time
		for range 10 * objects {
			moves, wake := p.Next(now, pick)
			for _, m := range moves {
				p.Ended(m.Key, drain.Moved, now)
				last = append(last, now)
				if n := len(last); c.until == 0 && n > 10 && now.Sub(last[n-11]) < 95*time.Millisecond {
					t.Fatalf("%s: ten moves within %v", c.name, now.Sub(last[n-11]))
				}
			}
			if p.Left() == 0 {
				break
			}
			if len(moves) == 0 {
				now = wake.Add(c.late)
			}
		}
		if took := now.Sub(start); p.Left() > 0 || took < c.took[0] || took > c.took[1] {
			t.Errorf("%s: %d are left, it took %v, want %v to %v", c.name, p.Left(), took, c.took[0], c.took[1])
		}
	}
}
