package zroute

import (
	"math/rand/v2"

	"zgame/zmsg"
)

// Weighted picks at random, each candidate as often as its node's weight says.
func Weighted() RemoteStrategy { return weighted{} }

type weighted struct{}

func (weighted) Pick(_ *zmsg.Message, c []RemoteCandidate) int {
	total := uint64(0)
	for i := range c {
		total += uint64(c[i].weight())
	}
	drawn := rand.Uint64N(total)
	for i := range c {
		w := uint64(c[i].weight())
		if drawn < w {
			return i
		}
		drawn -= w
	}
	return 0
}

func (weighted) pickAmong(_ *zmsg.Message, c []RemoteCandidate, at []int) int {
	total := uint64(0)
	for _, i := range at {
		total += uint64(c[i].weight())
	}
	drawn := rand.Uint64N(total)
	for _, i := range at {
		w := uint64(c[i].weight())
		if drawn < w {
			return i
		}
		drawn -= w
	}
	return at[0]
}

// LeastLoaded draws two candidates at random, which may be the same, and picks the one whose node is less busy; of two equal
// ones the first drawn.
//
// It is not the least loaded of all, on purpose: loads are seconds old, and the same on all nodes, so all would send everything to one
// node until its next record says that it is overrun. With two draws the least busy of n gets less than 2/n of the messages and
// the busiest 1/n^2, however old the loads are; with loads that nobody reports every candidate gets the same.
func LeastLoaded() RemoteStrategy { return leastLoaded{} }

type leastLoaded struct{}

func (leastLoaded) Pick(_ *zmsg.Message, c []RemoteCandidate) int {
	return lessLoaded(c, rand.IntN(len(c)), rand.IntN(len(c)))
}

func (leastLoaded) pickAmong(_ *zmsg.Message, c []RemoteCandidate, at []int) int {
	return lessLoaded(c, at[rand.IntN(len(at))], at[rand.IntN(len(at))])
}

func lessLoaded(c []RemoteCandidate, i, j int) int {
	if c[j].Load < c[i].Load {
		return j
	}
	return i
}
