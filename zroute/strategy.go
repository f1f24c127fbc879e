package zroute

import (
	"maps"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
)

// LocalRouter picks one of the local candidates of a message: an index (out of range counts as 0), or ErrNotFound,
// which sends the message on to the remote candidates. Any other error ends the message. It is called from many
// goroutines and must not change or keep c.
type LocalRouter interface {
	Pick(m *zmsg.Message, c []LocalCandidate) (int, error)
}

// RemoteStrategy picks one of the remote candidates of a message: an index, -1 for none; out of range counts as 0. It
// is called from many goroutines and must not change or keep c, which is not empty.
type RemoteStrategy interface {
	Pick(m *zmsg.Message, c []RemoteCandidate) int
}

// LocalRouterFunc makes a function a LocalRouter.
type LocalRouterFunc func(m *zmsg.Message, c []LocalCandidate) (int, error)

// Pick calls f.
func (f LocalRouterFunc) Pick(m *zmsg.Message, c []LocalCandidate) (int, error) { return f(m, c) }

// RemoteStrategyFunc makes a function a RemoteStrategy.
type RemoteStrategyFunc func(m *zmsg.Message, c []RemoteCandidate) int

// Pick calls f.
func (f RemoteStrategyFunc) Pick(m *zmsg.Message, c []RemoteCandidate) int { return f(m, c) }

// LocalFirst picks the candidate that registered first. It is the default.
func LocalFirst() LocalRouter { return localFirst{} }

type localFirst struct{}

func (localFirst) Pick(_ *zmsg.Message, c []LocalCandidate) (int, error) {
	if len(c) == 0 {
		return 0, ErrNotFound
	}
	return 0, nil
}

// LocalRendezvous picks by key (nil: DefaultKey), so that a key stays with its candidate while that is there. A message
// without a key gets the first.
func LocalRendezvous(key KeyFunc) LocalRouter {
	if key == nil {
		key = DefaultKey
	}
	return &localRendezvous{key}
}

type localRendezvous struct{ key KeyFunc }

func (r *localRendezvous) Pick(m *zmsg.Message, c []LocalCandidate) (int, error) {
	if len(c) == 0 {
		return 0, ErrNotFound
	}
	k, ok := r.key(m)
	if !ok {
		return 0, nil
	}
	best, top := 0, uint64(0)
	for i := range c {
		if s := score(k, scoreSeed("", c[i].Actor)); s > top {
			best, top = i, s
		}
	}
	return best, nil
}

// LocalLeastLoad picks the candidate with the fewest waiting messages, the first of several.
func LocalLeastLoad() LocalRouter {
	return LocalRouterFunc(func(_ *zmsg.Message, c []LocalCandidate) (int, error) {
		if len(c) == 0 {
			return 0, ErrNotFound
		}
		best, least := 0, c[0].Target.Load()
		for i := 1; i < len(c) && least > 0; i++ {
			if n := c[i].Target.Load(); n < least {
				best, least = i, n
			}
		}
		return best, nil
	})
}

// LocalRoundRobin picks one after the other, for each message id on its own.
func LocalRoundRobin() LocalRouter {
	var turn turns
	return LocalRouterFunc(func(m *zmsg.Message, c []LocalCandidate) (int, error) {
		if len(c) == 0 {
			return 0, ErrNotFound
		}
		return turn.next(m.ID, len(c)), nil
	})
}

// First picks the first candidate. It is the default.
func First() RemoteStrategy { return first{} }

type first struct{}

func (first) Pick(*zmsg.Message, []RemoteCandidate) int { return 0 }

func (first) pickAmong(_ *zmsg.Message, _ []RemoteCandidate, at []int) int { return placeOf(at, 0) }

// RoundRobin picks one after the other, for each message id on its own.
func RoundRobin() RemoteStrategy { return new(roundRobin) }

type roundRobin struct{ turn turns }

func (r *roundRobin) Pick(m *zmsg.Message, c []RemoteCandidate) int { return r.turn.next(m.ID, len(c)) }

func (r *roundRobin) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	return placeOf(at, r.turn.next(m.ID, countOf(c, at)))
}

// turns counts for each message id on its own: with one counter for all, two ids in alternation would each always
// meet the same candidate.
type turns struct {
	counters atomic.Pointer[map[uint32]*atomic.Uint64] // the map is never changed once stored
	mu       sync.Mutex
}

func (t *turns) next(id uint32, n int) int {
	if n == 0 {
		return -1
	}
	var c *atomic.Uint64
	if p := t.counters.Load(); p != nil {
		c = (*p)[id]
	}
	if c == nil {
		c = t.add(id)
	}
	return int((c.Add(1) - 1) % uint64(n))
}

func (t *turns) add(id uint32) *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counters := make(map[uint32]*atomic.Uint64)
	if p := t.counters.Load(); p != nil {
		if c := (*p)[id]; c != nil {
			return c
		}
		counters = maps.Clone(*p)
	}
	c := new(atomic.Uint64)
	counters[id] = c
	t.counters.Store(&counters)
	return c
}
