package zroute

import (
	"math"

	"zgame/zmsg"
)

// Rendezvous picks by key (nil: DefaultKey), so that a key stays with its candidate while that is there, whoever joins or
// leaves. A message without a key gets index 0. Equal scores go to the lower index.
func Rendezvous(key KeyFunc) RemoteStrategy {
	if key == nil {
		key = DefaultKey
	}
	return &rendezvous{key}
}

type rendezvous struct{ key KeyFunc }

func (r *rendezvous) Pick(m *zmsg.Message, c []RemoteCandidate) int { return r.pickAmong(m, c, nil) }

func (r *rendezvous) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	best, top := placeOf(at, 0), uint64(0)
	k, ok := r.key(m)
	if !ok {
		return best
	}
	for j := range countOf(c, at) {
		i := placeOf(at, j)
		if s := score(k, c[i].scoreSeed()); s > top {
			best, top = i, s
		}
	}
	return best
}

// WeightedRendezvous is Rendezvous where each candidate gets keys by its node's weight. When a weight changes, keys move only
// from or to the candidates of that node. Where all weights are equal it picks as Rendezvous does.
func WeightedRendezvous(key KeyFunc) RemoteStrategy {
	if key == nil {
		key = DefaultKey
	}
	return &weightedRendezvous{key}
}

type weightedRendezvous struct{ key KeyFunc }

func (r *weightedRendezvous) Pick(m *zmsg.Message, c []RemoteCandidate) int {
	return r.pickAmong(m, c, nil)
}

func (r *weightedRendezvous) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	best, top := placeOf(at, 0), 0.0
	k, ok := r.key(m)
	if !ok {
		return best
	}
	for j := range countOf(c, at) {
		i := placeOf(at, j)
		v, w := weightedBound(k, &c[i])
		if w <= top*v {
			continue
		}
		if s := weightedScore(v, w); s > top {
			best, top = i, s
		}
	}
	return best
}

// weightedScore is weight / -ln(u) with u in (0, 1): the greatest of exponential clocks, whose shares are the weights.
//
// With v = 1 - u it is below weight / v, and close to it for scores that may win: that bound saves nearly all logarithms. Their
// last bit may differ from one kind of processor to the other; then two nodes may disagree about a key whose two best scores agree
// in all other bits.
func weightedScore(v, weight float64) float64 { return weight / -math.Log1p(-v) }

// weightedBound returns v and the weight. 53 bits fit a float64; int64 because that conversion is one instruction.
func weightedBound(key uint64, c *RemoteCandidate) (v, weight float64) {
	return (float64(int64(^score(key, c.scoreSeed())>>11)) + 0.5) * 0x1p-53, float64(int64(c.weight()))
}

// KeepDraining lets s, a strategy by key, see the candidates of draining nodes as well, so that their keys stay with them until
// they move. The actor there decides: it takes messages for keys that it has, and answers zactor.NotRun(zmsg.ErrDraining) for new keys
// and those that have moved. Then s picks again among those that are ready, and finds who has the key from now on. It is for
// requests: a one-way message that the actor turns down is lost. It counts only as Config.Strategy and in Strategies, not
// inside other strategies. A nil s is Rendezvous(nil).
func KeepDraining(s RemoteStrategy) RemoteStrategy {
	if s == nil {
		s = Rendezvous(nil)
	}
	return keepDraining{s}
}

type keepDraining struct{ RemoteStrategy }

func (k keepDraining) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	return pickAmong(m, c, at, k.RemoteStrategy)
}
