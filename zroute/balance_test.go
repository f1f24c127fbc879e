package zroute_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// fleet makes a candidate on each of n nodes, with the weights in turn.
func fleet(tb rapid.TB, r *zroute.Remote, names []string, weights ...uint32) []zroute.RemoteCandidate {
	tb.Helper()
	var s zdiscovery.Snapshot
	for i, name := range names {
		n := node(name, remoteActor(1, zmsg.Advert{ID: 5}))
		if len(weights) > 0 {
			n.Weight = weights[i%len(weights)]
		}
		s.Nodes = append(s.Nodes, n)
	}
	r.Apply(&s, self)
	cs := r.ByID(5)
	if len(cs) != len(names) {
		tb.Fatalf("%d candidates of %d", len(cs), len(names))
	}
	return cs
}

var nodeNames = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}(-[0-9a-f]{5})?`).Filter(func(s string) bool { return s != self.ID }), 2, 10, rapid.ID[string])

// near fails where got is further from want than the part of it, and further than chance explains (sigmas of it).
func near(tb rapid.TB, what string, got int, want, part, sigmas float64) {
	tb.Helper()
	if d := math.Abs(float64(got) - want); d > part*want+sigmas*math.Sqrt(want) {
		tb.Fatalf("%s: %d, want %.0f: %.2f %% off", what, got, want, 100*d/want)
	}
}

// With names and keys that are always the same, chance is no excuse: 100,000 keys on 2 to 10 nodes, within 2 % of even.
func TestRendezvousIsEven(t *testing.T) {
	t.Parallel()
	keys := 100_000 / slower
	m := message(5)
	for n := 2; n <= 10; n++ {
		var r zroute.Remote
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("node-%d", i+1))
		}
		cs := fleet(t, &r, names)
		s := zroute.Rendezvous(nil)
		counts := make([]int, n)
		for k := range uint64(keys) {
			m.Session.ID = k + 1
			counts[s.Pick(m, cs)]++
		}
		for i, got := range counts {
			near(t, fmt.Sprintf("%d nodes, node %d", n, i+1), got, float64(keys)/float64(n), 0.02, slack)
		}
	}
}

// 100,000 keys over any 2 to 10 nodes: even within 2 % and chance; one more node takes 1/(n+1) of them, and none moves between
// the old ones.
func TestRendezvousBalance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := 100_000 / slower
		names := nodeNames.Draw(t, "nodes")
		start, step := rapid.Uint64().Draw(t, "first key"), rapid.Uint64().Draw(t, "step")|1
		n := len(names)
		var r zroute.Remote
		before := slices.Clone(fleet(t, &r, names))
		after := fleet(t, &r, append(slices.Clone(names), "the-new-one"))
		s := zroute.Rendezvous(nil)
		m := message(5)
		counts := make([]int, n)
		moved := 0
		for k := range uint64(keys) {
			m.Session.ID = start + k*step
			if m.Session.ID == 0 {
				continue
			}
			i, j := s.Pick(m, before), s.Pick(m, after)
			counts[i]++
			if before[i].Node == after[j].Node {
				continue
			}
			moved++
			if after[j].Node.ID != "the-new-one" {
				t.Fatalf("key %d moved from %v to %v", m.Session.ID, before[i].Node, after[j].Node)
			}
		}
		for i, got := range counts {
			near(t, before[i].Node.ID, got, float64(keys)/float64(n), 0.02, 4)
		}
		near(t, "moved", moved, float64(keys)/float64(n+1), 0.02, 4)
	})
}

// Shares follow weights within 3 % and chance; when a weight changes, keys move only from or to that node; with equal weights it
// is Rendezvous.
func TestWeightedRendezvousBalance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := 100_000 / slower
		names := nodeNames.Draw(t, "nodes")
		n := len(names)
		weights := rapid.SliceOfN(rapid.Uint32Range(20, 500), n, n).Draw(t, "weights")
		start := rapid.Uint64Range(1, math.MaxUint64/2).Draw(t, "first key")
		slices.Sort(names) // candidates are sorted: weights[i] is that of candidate i
		var r zroute.Remote
		before := slices.Clone(fleet(t, &r, names, weights...))
		changed := rapid.IntRange(0, n-1).Draw(t, "changed")
		other := slices.Clone(weights)
		other[changed] = rapid.Uint32Range(20, 500).Draw(t, "new weight")
		after := slices.Clone(fleet(t, &r, names, other...))
		even := fleet(t, &r, names, 0, 100) // 0 counts as 100
		s, plain := zroute.WeightedRendezvous(nil), zroute.Rendezvous(nil)
		m := message(5)
		counts := make([]int, n)
		for k := range uint64(keys) {
			m.Session.ID = start + k
			i, j := s.Pick(m, before), s.Pick(m, after)
			counts[i]++
			if i != j && i != changed && j != changed {
				t.Fatalf("key %d moved from %d to %d, the weight of %d changed", m.Session.ID, i, j, changed)
			}
			if k < 1000 && s.Pick(m, even) != plain.Pick(m, even) {
				t.Fatalf("key %d: equal weights differ from Rendezvous", m.Session.ID)
			}
		}
		total := uint32(0)
		for _, w := range weights {
			total += w
		}
		for i, got := range counts {
			near(t, names[i], got, float64(keys)*float64(weights[i])/float64(total), 0.03, 4)
		}
	})
}

// Every node that sees the same records has the same list and picks the same, whatever order they came in.
func TestListsAndPicksAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := nodeNames.Draw(t, "nodes")
		var s zdiscovery.Snapshot
		for i, name := range names {
			n := node(name, remoteActor(2, zmsg.Advert{ID: 5}), remoteActor(1, zmsg.Advert{ID: 5}))
			n.Weight = rapid.Uint32Range(0, 200).Draw(t, "weight")
			n.Version, n.Zone = fmt.Sprint("v", i%2), fmt.Sprint("z", i%3)
			n.State = rapid.SampledFrom([]zdiscovery.State{zdiscovery.Ready, zdiscovery.Draining}).Draw(t, "state")
			s.Nodes = append(s.Nodes, n)
		}
		var a, b zroute.Remote
		a.Apply(&s, zmsg.NodeRef{ID: "gate-1"})
		b.Apply(&zdiscovery.Snapshot{Nodes: rapid.Permutation(s.Nodes).Draw(t, "seen by the other")}, zmsg.NodeRef{ID: "gate-2"})
		x, y := a.EveryByID(5, false), b.EveryByID(5, false)
		if !slices.Equal(places(x), places(y)) {
			t.Fatalf("%v and %v", places(x), places(y))
		}
		m := message(5)
		for _, s := range []zroute.RemoteStrategy{
			zroute.First(), zroute.Rendezvous(nil), zroute.WeightedRendezvous(zroute.UserKey), zroute.ZoneFirst("z1", zroute.Rendezvous(nil)),
			zroute.NewCanary("v1", 0.3, zroute.WeightedRendezvous(nil)),
		} {
			for k := range uint64(50) {
				m.Session.ID, m.User = k+1, fmt.Sprint("user", k%7)
				if i, j := s.Pick(m, x), s.Pick(m, y); i != j {
					t.Fatalf("%T: %d and %d", s, i, j)
				}
			}
		}
	})
}

func TestWeighted(t *testing.T) {
	t.Parallel()
	var r zroute.Remote
	weights := []uint32{100, 0, 50, 250} // 0 counts as 100
	cs := fleet(t, &r, []string{"a", "b", "c", "d"}, weights...)
	const picks = 100_000
	counts := make([]int, 4)
	s := zroute.Weighted()
	for range picks {
		counts[s.Pick(message(5), cs)]++
	}
	for i, share := range []float64{0.2, 0.2, 0.1, 0.5} {
		near(t, cs[i].Node.ID, counts[i], picks*share, 0, 6)
	}
}

// Stale or not: the least busy of n gets (2n-1)/n^2 of the messages, the busiest 1/n^2, equally busy ones the same.
func TestLeastLoaded(t *testing.T) {
	t.Parallel()
	const picks = 100_000
	s := zroute.LeastLoaded()
	for _, loads := range [][]uint32{{10}, {900, 100}, {0, 0, 0, 0}, {50, 400, 300, 1000, 0}} {
		cs := make([]zroute.RemoteCandidate, len(loads))
		for i, l := range loads {
			cs[i] = zroute.RemoteCandidate{Node: zmsg.NodeRef{ID: fmt.Sprint(i)}, Load: l}
		}
		counts := make([]int, len(cs))
		for range picks {
			counts[s.Pick(message(5), cs)]++
		}
		n := float64(len(loads))
		for i, l := range loads {
			busier, same := 0.0, 0.0
			for _, o := range loads {
				if o > l {
					busier++
				}
				if o == l {
					same++
				}
			}
			near(t, fmt.Sprint(loads, i), counts[i], picks*(2*busier+same)/(n*n), 0, 6)
		}
	}
}
