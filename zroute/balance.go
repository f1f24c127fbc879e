package zroute

import (
	"math/rand/v2"

	"zgame/zmsg"
)

// Weighted picks at random, each candidate as often as its node's weight says.
func Weighted() RemoteStrategy { return weighted{} }

type weighted struct{}

func (w weighted) Pick(m *zmsg.Message, c []RemoteCandidate) int { return w.pickAmong(m, c, nil) }

func (weighted) pickAmong(_ *zmsg.Message, c []RemoteCandidate, at []int) int {
	n, total := countOf(c, at), uint64(0)
	for j := range n {
		total += uint64(c[placeOf(at, j)].weight())
	}
	drawn := rand.Uint64N(total)
	for j := range n {
		i := placeOf(at, j)
		w := uint64(c[i].weight())
		if drawn < w {
			return i
		}
		drawn -= w
	}
	return placeOf(at, 0)
}

// LeastLoaded draws two candidates at random, which may be the same, and picks the one whose node is less busy; of two equal
// ones the first drawn.
//
// It is not the least loaded of all, on purpose: loads are seconds old, and the same on all nodes, so all would send everything to one
// node until its next record says that it is overrun. With two draws the least busy of n gets less than 2/n of the messages and
// the busiest 1/n^2, however old the loads are; with loads that nobody reports every candidate gets the same.
func LeastLoaded() RemoteStrategy { return leastLoaded{} }

type leastLoaded struct{}

func (l leastLoaded) Pick(m *zmsg.Message, c []RemoteCandidate) int { return l.pickAmong(m, c, nil) }

func (leastLoaded) pickAmong(_ *zmsg.Message, c []RemoteCandidate, at []int) int {
	n := countOf(c, at)
	i, j := placeOf(at, rand.IntN(n)), placeOf(at, rand.IntN(n))
	if c[j].Load < c[i].Load {
		return j
	}
	return i
}
