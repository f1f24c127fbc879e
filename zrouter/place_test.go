package zrouter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

const placeType = 7

// hosts makes n ready nodes that host placeType.
func hosts(n int) []zdiscovery.Node {
	nodes := make([]zdiscovery.Node, n)
	for i := range nodes {
		nodes[i] = zdiscovery.Node{
			Ref: zmsg.NodeRef{ID: fmt.Sprintf("node-%d", i+1), Epoch: uint64(100 + i)}, State: zdiscovery.Ready,
			Kinds: []zdiscovery.Kind{{Type: 3}, {Type: placeType}},
		}
	}
	return nodes
}

func placed(nodes []zdiscovery.Node) *placement {
	return newPlacement(&zdiscovery.Snapshot{Nodes: nodes}, placeType, "")
}

// Ids as programs have them: numbers in a row, names with a number, random ones.
var placeIDs = map[string]func(i int) string{
	"numbers": strconv.Itoa,
	"names":   func(i int) string { return fmt.Sprintf("user-%06d", i) },
	"random":  func(int) string { return strconv.FormatUint(rand.Uint64(), 36) },
}

// Each node gets its share: within 2 % of it or, with few keys for each, within what chance does to a fair hash.
func TestPlacementIsBalanced(t *testing.T) {
	t.Parallel()
	for name, id := range placeIDs {
		for n := 2; n <= 10; n++ {
			if raceEnabled && n%4 != 2 {
				continue
			}
			keys := 100_000
			if name == "numbers" && n == 10 && !raceEnabled {
				keys = 1_000_000 // enough to hold it to 2 %, which are more than 6 sigma of the binomial distribution
			}
			p, got := placed(hosts(n)), map[zmsg.NodeRef]int{}
			for i := range keys {
				got[p.home(zmsg.Key{Type: placeType, ID: id(i)}, 0)]++
			}
			share := 1 / float64(n)
			want := float64(keys) * share
			most := 0.02 * want
			if keys == 100_000 {
				most = max(most, 5*math.Sqrt(want*(1-share)))
			}
			for _, h := range hosts(n) {
				if off := math.Abs(float64(got[h.Ref]) - want); off > most {
					t.Errorf("%s: %s of %d has %d of %d keys, %.1f %% off", name, h.Ref.ID, n, got[h.Ref], keys, 100*off/want)
				}
			}
		}
	}
}

// A node that joins takes its share from each of the others; nothing moves between them.
func TestPlacementMovesLittle(t *testing.T) {
	t.Parallel()
	const keys = 50_000
	for n := 1; n <= 10; n++ {
		if raceEnabled && n%4 != 2 {
			continue
		}
		before, after := placed(hosts(n)), placed(hosts(n+1))
		joined := fmt.Sprintf("node-%d", n+1)
		moved := 0
		for i := range keys {
			k := zmsg.NumKey(placeType, 0, uint64(i))
			a, b := before.home(k, 0), after.home(k, 0)
			if a == b {
				continue
			}
			if moved++; b.ID != joined {
				t.Fatalf("%s moved from %s to %s when %s joined", k, a, b, joined)
			}
		}
		want := float64(keys) / float64(n+1)
		if off := math.Abs(float64(moved) - want); off > 5*math.Sqrt(want) {
			t.Errorf("%d nodes: %d keys moved, want about %.0f", n, moved, want)
		}
	}
}

func TestPlacementByWeight(t *testing.T) {
	t.Parallel()
	nodes := hosts(3)
	nodes[1].Weight, nodes[2].Weight = 2*zdiscovery.DefaultWeight, zdiscovery.DefaultWeight // the first has none: the default
	p, got := placed(nodes), map[string]float64{}
	for i := range 100_000 {
		got[p.home(zmsg.NumKey(placeType, 0, uint64(i)), 0).ID]++
	}
	for id, want := range map[string]float64{"node-1": 25_000, "node-2": 50_000, "node-3": 25_000} {
		if math.Abs(got[id]-want) > 1000 {
			t.Errorf("%s has %v keys, want about %v", id, got[id], want)
		}
	}
}

// Against the rules one by one, for any list of nodes in any order.
func TestPlacementModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := hosts(rapid.IntRange(0, 8).Draw(t, "nodes"))
		for i := range nodes {
			n := &nodes[i]
			n.State = rapid.SampledFrom([]zdiscovery.State{zdiscovery.Ready, zdiscovery.Ready, zdiscovery.Starting, zdiscovery.Draining, "newer"}).Draw(t, "state")
			n.Zone = rapid.SampledFrom([]string{"", "0", "1", "2", "01", "+1", "1 ", "west", "4294967296"}).Draw(t, "zone")
			n.Weight = rapid.SampledFrom([]uint32{0, 1, 100, 10_000}).Draw(t, "weight")
			if rapid.IntRange(0, 3).Draw(t, "hosts") == 0 {
				n.Kinds = n.Kinds[:1]
			}
		}
		p := placed(nodes)
		mixed := slices.Clone(nodes)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		for i := range mixed { // started again meanwhile
			mixed[i].Ref.Epoch += 7
		}
		q := placed(mixed)
		for i := range 50 {
			k := zmsg.NumKey(placeType, uint32(i%4), uint64(i))
			home, again := p.home(k, 0), q.home(k, 0)
			if home.ID != again.ID {
				t.Fatalf("%s lives on %s, and in another order on %s", k, home, again)
			}
			able := func(n zdiscovery.Node) bool { return n.State == zdiscovery.Ready && len(n.Kinds) == 2 }
			near := func(n zdiscovery.Node) bool { return able(n) && k.Zone != 0 && n.Zone == fmt.Sprint(k.Zone) }
			may := able
			if slices.ContainsFunc(nodes, near) {
				may = near
			}
			at := slices.IndexFunc(nodes, func(n zdiscovery.Node) bool { return n.Ref == home })
			switch {
			case home.IsZero():
				if slices.ContainsFunc(nodes, may) {
					t.Fatalf("%s has no home", k)
				}
			case at < 0 || !may(nodes[at]):
				t.Fatalf("%s lives on %s, which may not have it", k, home)
			}
		}
	})
}

func TestPlacementOfNobody(t *testing.T) {
	t.Parallel()
	k := zmsg.Key{Type: placeType, Zone: 1, ID: "a"}
	for _, p := range []*placement{newPlacement(nil, placeType, ""), placed(nil), newPlacement(&zdiscovery.Snapshot{Nodes: hosts(3)}, 99, "")} {
		if h := p.home(k, 0); !h.IsZero() {
			t.Errorf("%s", h)
		}
	}
}

// Nodes of two versions have to agree, so what is chosen is fixed.
func TestPlacementIsFixed(t *testing.T) {
	t.Parallel()
	p, got := placed(hosts(5)), ""
	for i := range 20 {
		got += p.home(zmsg.NumKey(placeType, uint32(i%3), uint64(i)), 0).ID[5:]
	}
	if want := "22545335123515315433"; got != want {
		t.Errorf("homes %s, want %s", got, want)
	}
}

func TestHomeDoesNotAllocate(t *testing.T) {
	nodes := hosts(10)
	nodes[3].Zone = "5"
	p, k, near := placed(nodes), zmsg.NumKey(placeType, 0, 12345), zmsg.NumKey(placeType, 5, 12345)
	if n := testing.AllocsPerRun(100, func() { _, _ = p.home(k, 0), p.home(near, 0) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHome(b *testing.B) {
	for _, n := range []int{3, 10, 100} {
		p, k := placed(hosts(n)), zmsg.NumKey(placeType, 0, 1<<40)
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.home(k, 0)
			}
		})
	}
}
