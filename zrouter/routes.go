package zrouter

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"

	"zgame/zmsg"
)

// routes remembers which node owns objects of others. It holds at most limit routes: one more takes the place of an old one, which
// is picked by chance among those that were not used for long. Times are whole seconds since its owner's start.
//
// It is not safe for concurrent use: its owner's lock guards it, also in get.
type routes struct {
	limit int
	n     int
	parts []routePart // 2^k of them: each is swept, and shrinks, by itself, so that no step takes long
	next  int         // the part to sweep next
	seed  maphash.Seed
	nodes nodeTable
}

// routePart has the routes of some keys. The map never gets a caller's key for an entry that is there: Go's maps take over the key of
// each assignment, and ids may alias the buffer of a message. So what changes lies in slots.
type routePart struct {
	at    map[zmsg.Key]uint32 // index in slots; the ids are own copies
	slots []routeSlot
	free  uint32 // first of the unused slots plus one, each has the next in owner; 0: none
}

// routeSlot has no pointers, so that the garbage collector does not look at it.
type routeSlot struct {
	version zmsg.RouteVersion
	owner   uint32 // in nodes
	at      uint32 // when it was last known to be right
	used    uint32 // when it was last asked for
}

const (
	manyParts = 64
	manyFrom  = 1 << 14 // limits from here on have manyParts
	samples   = 8       // routes that one to be evicted is picked from
	rarely    = 4       // a part shrinks when fewer than one of so many slots is in use
	smallPart = 256     // slots below which that is not worth it
)

// newRoutes makes an empty one; with a limit below 1 it remembers nothing.
func newRoutes(limit int) *routes {
	r := &routes{limit: limit, parts: make([]routePart, 1), seed: maphash.MakeSeed()}
	if limit >= manyFrom {
		r.parts = make([]routePart, manyParts)
	}
	return r
}

func (r *routes) part(k zmsg.Key) *routePart {
	if len(r.parts) == 1 {
		return &r.parts[0]
	}
	return &r.parts[maphash.String(r.seed, k.ID)%uint64(len(r.parts))]
}

func (r *routes) find(k zmsg.Key) *routeSlot {
	p := r.part(k)
	if i, ok := p.at[k]; ok {
		return &p.slots[i]
	}
	return nil
}

// get returns the route of k, and when it was last known to be right. The route counts as used now.
func (r *routes) get(k zmsg.Key, now uint32) (route Route, at uint32, ok bool) {
	s := r.find(k)
	if s == nil {
		return Route{}, 0, false
	}
	s.used = now
	return Route{Owner: r.nodes.ref(s.owner), Version: s.version}, s.at, true
}

// put remembers a route that was found to be right now. One that is there with a smaller version is replaced, one with the same only
// confirmed, and one with a greater version stays as it is. It reports whether another route had to go for it.
func (r *routes) put(k zmsg.Key, route Route, now uint32) (evicted bool) {
	if s := r.find(k); s != nil {
		if route.Version >= s.version {
			r.replace(s, route)
			s.at = now
		}
		return false
	}
	if r.limit < 1 {
		return false
	}
	if r.n >= r.limit {
		r.evict()
		evicted = true
	}
	k.ID = strings.Clone(k.ID)
	r.part(k).insert(k, routeSlot{version: route.Version, owner: r.nodes.take(route.Owner), at: now, used: now})
	r.n++
	return evicted
}

// update replaces the route of k if there is one and it is older. It reports whether it did.
func (r *routes) update(k zmsg.Key, route Route) bool {
	s := r.find(k)
	if s == nil || route.Version <= s.version {
		return false
	}
	r.replace(s, route)
	return true
}

// replace makes route, which is not older, that of s.
func (r *routes) replace(s *routeSlot, route Route) {
	if route.Version == s.version {
		return // a version has one owner
	}
	old := s.owner
	s.version, s.owner = route.Version, r.nodes.take(route.Owner)
	r.nodes.drop(old)
}

// drop forgets the route of k.
func (r *routes) drop(k zmsg.Key) {
	p := r.part(k)
	if i, ok := p.at[k]; ok {
		r.remove(p, k, i)
	}
}

// dropOwner forgets all routes to n, and returns how many. It looks at every route, unless there is none to n.
func (r *routes) dropOwner(n zmsg.NodeRef) int {
	owner, ok := r.nodes.index[n]
	if !ok {
		return 0
	}
	before := r.n
	for i := range r.parts {
		p := &r.parts[i]
		for k, at := range p.at {
			if p.slots[at].owner == owner {
				r.remove(p, k, at)
			}
		}
		p.shrink()
	}
	return before - r.n
}

// sweep forgets what was not used for free seconds, and returns how many. It looks at every route.
func (r *routes) sweep(now, free uint32) int {
	n := 0
	for range r.parts {
		n += r.sweepPart(now, free)
	}
	return n
}

// sweepPart is sweep for one part, another one with each call: for owners whose lock is not to be held for long.
func (r *routes) sweepPart(now, free uint32) int {
	p := &r.parts[r.next]
	r.next = (r.next + 1) % len(r.parts)
	before := r.n
	for k, i := range p.at {
		if s := &p.slots[i]; now > s.used && now-s.used >= free {
			r.remove(p, k, i)
		}
	}
	p.shrink()
	return before - r.n
}

// len returns how many routes there are.
func (r *routes) len() int { return r.n }

// evict removes the one that was not used for the longest time, of a few.
func (r *routes) evict() {
	p := &r.parts[rand.IntN(len(r.parts))]
	for len(p.at) == 0 { // there is one that is not empty
		p = &r.parts[rand.IntN(len(r.parts))]
	}
	var oldest zmsg.Key
	var at uint32
	n := 0
	for k, i := range p.at { // begins anywhere
		if n == 0 || p.slots[i].used < p.slots[at].used {
			oldest, at = k, i
		}
		if n++; n == samples {
			break
		}
	}
	r.remove(p, oldest, at)
}

func (r *routes) remove(p *routePart, k zmsg.Key, i uint32) {
	r.nodes.drop(p.slots[i].owner)
	delete(p.at, k)
	p.slots[i] = routeSlot{owner: p.free}
	p.free = i + 1
	r.n--
}

func (p *routePart) insert(k zmsg.Key, s routeSlot) {
	if p.at == nil {
		p.at = map[zmsg.Key]uint32{}
	}
	i := p.free
	if i > 0 {
		i--
		p.free = p.slots[i].owner
		p.slots[i] = s
	} else {
		i = uint32(len(p.slots))
		p.slots = append(p.slots, s)
	}
	p.at[k] = i
}

// shrink gives memory back that is hardly used: maps do not by themselves.
func (p *routePart) shrink() {
	if len(p.slots) < smallPart || len(p.at) > len(p.slots)/rarely {
		return
	}
	q := routePart{at: make(map[zmsg.Key]uint32, len(p.at)), slots: make([]routeSlot, 0, len(p.at))}
	for k, i := range p.at {
		q.insert(k, p.slots[i])
	}
	*p = q
}

// nodeTable gives each node that is in use a small number. Nobody is number 0.
type nodeTable struct {
	nodes []tableNode
	index map[zmsg.NodeRef]uint32
	free  []uint32
}

type tableNode struct {
	ref  zmsg.NodeRef
	uses int
}

func (t *nodeTable) ref(i uint32) zmsg.NodeRef {
	if i == 0 {
		return zmsg.NodeRef{}
	}
	return t.nodes[i].ref
}

// take returns the number of n, for one more use.
func (t *nodeTable) take(n zmsg.NodeRef) uint32 {
	if n.IsZero() {
		return 0
	}
	i, ok := t.index[n]
	if !ok {
		if t.index == nil {
			t.index, t.nodes = map[zmsg.NodeRef]uint32{}, make([]tableNode, 1)
		}
		n.ID = strings.Clone(n.ID)
		if last := len(t.free) - 1; last >= 0 {
			i, t.free = t.free[last], t.free[:last]
			t.nodes[i].ref = n
		} else {
			i = uint32(len(t.nodes))
			t.nodes = append(t.nodes, tableNode{ref: n})
		}
		t.index[n] = i
	}
	t.nodes[i].uses++
	return i
}

// drop ends one use of i.
func (t *nodeTable) drop(i uint32) {
	if i == 0 {
		return
	}
	n := &t.nodes[i]
	if n.uses--; n.uses == 0 {
		delete(t.index, n.ref)
		n.ref = zmsg.NodeRef{}
		t.free = append(t.free, i)
	}
}
