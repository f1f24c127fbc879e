package entry

import (
	"slices"
	"strings"
	"testing"
)

// run explores all worlds from w on, breadth first, and returns how many there are.
func (s *search) run(first *world, most int) (states int) {
	type item struct {
		w    *world
		path *trail
	}
	seen := map[[2]uint64]struct{}{first.key(): {}}
	queue := []item{{first, nil}}
	for len(queue) > 0 {
		it := queue[0]
		queue[0] = item{}
		queue = queue[1:]
		s.w = it.w
		normal, faults := s.choices()
		if len(normal) == 0 {
			s.path = it.path.list()
			for r := range s.reqs {
				if it.w.fates[r] == open {
					s.fail("I6: nothing can happen any more, and request %d has not ended", r)
				}
			}
			if s.then && it.w.asked[readOnly] && it.w.fates[readOnly] == open {
				s.fail("I6: nothing can happen any more, and what was to run behind a save has not ended")
			}
			for n := range s.nodes {
				if x := &it.w.nodes[n]; x.transfers != 0 {
					s.fail("nothing can happen any more, and %s has not ended a transfer", refNames[n])
				} else if x.e.Phase.Resident() && x.memory != it.w.rec.state {
					s.fail("I10: nothing can happen any more, and the memory %03b of %s is not saved", x.memory, refNames[n])
				}
			}
			if s.broken != "" {
				return len(seen)
			}
		}
		for _, c := range append(normal, faults...) {
			s.w = it.w.clone()
			p := &trail{it.path, c.name}
			s.path = []string{c.name}
			c.do(s)
			if s.broken != "" {
				s.broken = strings.SplitN(s.broken, "\n", 2)[0] + "\n  " + strings.Join(p.list(), "\n  ")
				return len(seen)
			}
			k := s.w.key()
			if _, ok := seen[k]; ok {
				continue
			}
			seen[k] = struct{}{}
			if len(seen) >= most {
				s.t.Fatalf("more than %d states: the bounds of the search are too wide", most)
			}
			queue = append(queue, item{s.w, p})
		}
	}
	return len(seen)
}

// trail is how a world was reached.
type trail struct {
	before *trail
	name   string
}

func (t *trail) list() []string {
	var l []string
	for ; t != nil; t = t.before {
		l = append(l, t.name)
	}
	slices.Reverse(l)
	return l
}

func newWorld(nodes int, b budget) *world {
	w := &world{budget: b}
	for n := range nodes {
		w.nodes[n] = wnode{up: true, epoch: 1}
	}
	return w
}

// scope is how large a searched world is.
type scope struct {
	nodes, reqs int
	faults      uint8
	onDemand    bool
	skew        bool
	own         bool // request 0 asks that the object be owned where it arrives
	shy         bool // request 0 is for an object that is in memory
	then        bool // see search
	order       bool // likewise
}

func (c scope) search(t *testing.T, m mutant) (*search, int) {
	t.Helper()
	s := &search{t: t, nodes: c.nodes, reqs: c.reqs, onDemand: c.onDemand, skew: c.skew, own: c.own, shy: c.shy, mutant: m, faults: c.faults, then: c.then, order: c.order}
	w := newWorld(c.nodes, budget{
		faults: c.faults, crash: 1, lapse: 1, unknown: 1, fail: 1, readFail: 1, leave: 1, panics: 1, expire: 1, told: 1, drain: 1,
		move: 1, unquiet: 1, loss: 1, unexpect: 1,
	})
	return s, s.run(w, 4_000_000)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	all := 0
	for _, c := range []scope{
		{nodes: 2, reqs: 2, faults: 2, onDemand: true},
		{nodes: 3, reqs: 2, faults: 1, onDemand: true, skew: true},
		{nodes: 2, reqs: 3, faults: 1, onDemand: true, order: true},
		{nodes: 2, reqs: 3, faults: 2, own: true},
		{nodes: 3, reqs: 2, faults: 1, own: true, skew: true},
		{nodes: 3, reqs: 3, faults: 1, onDemand: true},
		{nodes: 2, reqs: 1, faults: 2, onDemand: true, shy: true},
		{nodes: 2, reqs: 2, faults: 1, onDemand: true, shy: true},
		{nodes: 2, reqs: 1, faults: 2, onDemand: true, then: true},
		{nodes: 2, reqs: 2, faults: 2, onDemand: true, then: true},
		{nodes: 2, reqs: 1, faults: 3, onDemand: true, then: true},
	} {
		if raceEnabled && (c.nodes+c.reqs+int(c.faults) > 6 || c.then && c.reqs+int(c.faults) > 3) {
			continue // one goroutine: the race detector only makes it slow
		}
		s, n := c.search(t, mutant{})
		if s.broken != "" {
			t.Fatalf("%+v: %s", c, s.broken)
		}
		all += n
		t.Logf("%+v: %d states", c, n)
	}
	t.Logf("%d states", all)
}
