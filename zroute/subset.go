package zroute

import (
	"math"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
)

// ZoneFirst lets inner pick among the candidates of the zone, or among all when there is none. A node without a zone ("") is near
// nobody: inner picks among all. A nil inner is First.
func ZoneFirst(zone string, inner RemoteStrategy) RemoteStrategy {
	if inner == nil {
		inner = First()
	}
	if zone == "" {
		return inner
	}
	return &zoneFirst{zone, inner}
}

type zoneFirst struct {
	zone  string
	inner RemoteStrategy
}

func (z *zoneFirst) Pick(m *zmsg.Message, c []RemoteCandidate) int { return z.pickAmong(m, c, nil) }

func (z *zoneFirst) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	return pickWhere(m, c, at, z.inner, func(c *RemoteCandidate) bool { return c.Zone == z.zone })
}

// Canary sends a share of the users to the candidates of one version, and the others to those of all other versions; inner
// picks among them. Where one side has no candidates the other serves all.
//
// A user stays on his side while the share stands; when it grows, users move to the version only, when it shrinks, from it
// only. Each version has a share of its own choice of users. Users are known by their id, else by their session; messages
// without both go to the other versions.
type Canary struct {
	version string
	salt    uint64
	inner   RemoteStrategy
	limit   atomic.Uint64 // of 1<<53
}

// NewCanary makes a Canary; share is from 0 (nobody) to 1 (all). A nil inner is First.
func NewCanary(version string, share float64, inner RemoteStrategy) *Canary {
	if inner == nil {
		inner = First()
	}
	c := &Canary{version: version, salt: zmsg.HashBytes(version), inner: inner}
	c.SetShare(share)
	return c
}

// SetShare changes the share of users, 0 to 1. It may be called at any time, from any goroutine. All nodes should
// have the same share: one that differs sends some users elsewhere.
func (c *Canary) SetShare(share float64) {
	if math.IsNaN(share) {
		share = 0
	}
	c.limit.Store(uint64(min(max(share, 0), 1) * (1 << 53)))
}

// Pick implements RemoteStrategy.
func (c *Canary) Pick(m *zmsg.Message, all []RemoteCandidate) int { return c.pickAmong(m, all, nil) }

func (c *Canary) pickAmong(m *zmsg.Message, all []RemoteCandidate, at []int) int {
	chosen := c.chosen(m)
	return pickWhere(m, all, at, c.inner, func(r *RemoteCandidate) bool { return (r.Version == c.version) == chosen })
}

// chosen reports whether m is from a user who gets the version.
func (c *Canary) chosen(m *zmsg.Message) bool {
	user := m.Session.ID
	switch {
	case m.User != "":
		user = zmsg.HashBytes(m.User)
	case user == 0:
		return false
	}
	return zmsg.Mix(user^c.salt)>>11 < c.limit.Load()
}

// amongPicker is a strategy that can pick among some of the candidates: those at the places at; nil: among all. It returns a
// place in c, or -1. All of this package are amongPickers; what others wrote gets a copy of the candidates.
type amongPicker interface {
	pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int
}

// pickAmong lets s pick among those of c at the places at; nil: among all.
func pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int, s RemoteStrategy) int {
	if at == nil {
		return inRange(s.Pick(m, c), len(c))
	}
	if s, ok := s.(amongPicker); ok {
		return s.pickAmong(m, c, at)
	}
	room := copies.Get().(*[]RemoteCandidate)
	some := (*room)[:0]
	for _, i := range at {
		some = append(some, c[i])
	}
	i := inRange(s.Pick(m, some), len(some))
	*room = some
	copies.Put(room)
	if i < 0 {
		return -1
	}
	return at[i]
}

// countOf returns how many candidates there are to pick among, and placeOf which the j-th is.
func countOf(c []RemoteCandidate, at []int) int {
	if at == nil {
		return len(c)
	}
	return len(at)
}

func placeOf(at []int, j int) int {
	if at == nil {
		return j
	}
	return at[j]
}

// Room for lists while a strategy picks.
var (
	places = sync.Pool{New: func() any { return new([]int) }}
	copies = sync.Pool{New: func() any { return new([]RemoteCandidate) }}
)

// pickWhere lets inner pick among those at the places at (nil: all) that keep says, or, when there is none, among all at these
// places. They keep their order.
func pickWhere(m *zmsg.Message, c []RemoteCandidate, at []int, inner RemoteStrategy, keep func(*RemoteCandidate) bool) int {
	room := places.Get().(*[]int)
	kept := (*room)[:0]
	for j := range countOf(c, at) {
		if i := placeOf(at, j); keep(&c[i]) {
			kept = append(kept, i)
		}
	}
	among := kept
	if len(kept) == 0 || at == nil && len(kept) == len(c) {
		among = at
	}
	i := pickAmong(m, c, among, inner)
	*room = kept
	places.Put(room)
	return i
}
