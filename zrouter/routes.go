package zrouter

import (
	"strings"

	"zgame/zmsg"
)

// routes remembers which node owns objects of others. It holds at most limit routes: one more takes the place of an old one, which
// is picked by chance among those that were not used for long. Times are whole seconds since its owner's start.
//
// It is not safe for concurrent use: its owner's lock guards it, also in get.
//
// The map never gets a caller's key for an entry that is there: Go's maps take over the key of each assignment, and ids may alias the
// buffer of a message. So what changes lies in slots.
type routes struct {
	limit int
	at    map[zmsg.Key]uint32 // index in slots; the ids are own copies
	slots []routeSlot
	free  uint32 // first of the unused slots plus one, each has the next in owner; 0: none
	nodes nodeTable
}

// routeSlot has no pointers, so that the garbage collector does not look at it.
type routeSlot struct {
	version zmsg.RouteVersion
	owner   uint32 // in nodes
	at      uint32 // when it was last known to be right
	used    uint32 // when it was last asked for
	last    uint32 // number of what was sent by it last; 0: nothing, or all of it has arrived
}

const (
	samples   = 8   // routes that one to be evicted is picked from
	rarely    = 4   // memory is given back when fewer than one of so many slots is in use
	smallMany = 256 // slots below which that is not worth it
)

// newRoutes makes an empty one; with a limit below 1 it remembers nothing.
func newRoutes(limit int) *routes { return &routes{limit: limit, at: map[zmsg.Key]uint32{}} }

func (r *routes) find(k zmsg.Key) *routeSlot {
	if i, ok := r.at[k]; ok {
		return &r.slots[i]
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

// laneAge is how long, in seconds, what was sent by a route may be on its way.
const laneAge = 10

// lane returns the number of what was sent last by the route of k, if it may be on its way. It comes before get, by which the route counts as
// used.
func (r *routes) lane(k zmsg.Key, now uint32) (last uint32) {
	if s := r.find(k); s != nil && now-s.used <= laneAge {
		return s.last
	}
	return 0
}

// sent remembers the number of what was sent last by the route of k, if there is one, and that it was now.
func (r *routes) sent(k zmsg.Key, last, now uint32) {
	if s := r.find(k); s != nil {
		s.last, s.used = last, now
	}
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
	if len(r.at) >= r.limit {
		r.evict()
		evicted = true
	}
	k.ID = strings.Clone(k.ID)
	r.insert(k, routeSlot{version: route.Version, owner: r.nodes.take(route.Owner), at: now, used: now})
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
	s.version, s.owner, s.last = route.Version, r.nodes.take(route.Owner), 0
	r.nodes.drop(old)
}

// drop forgets the route of k.
func (r *routes) drop(k zmsg.Key) {
	if i, ok := r.at[k]; ok {
		r.remove(k, i)
	}
}

// to returns the keys whose routes lead to n. It looks at every route, unless there is none to n.
func (r *routes) to(n zmsg.NodeRef) (keys []zmsg.Key) {
	owner, ok := r.nodes.index[n]
	if !ok {
		return nil
	}
	for k, i := range r.at {
		if r.slots[i].owner == owner {
			keys = append(keys, k)
		}
	}
	return keys
}

// dropOwner forgets all routes to n, and returns how many. It looks at every route, unless there is none to n.
func (r *routes) dropOwner(n zmsg.NodeRef) int {
	owner, ok := r.nodes.index[n]
	if !ok {
		return 0
	}
	return r.dropWhere(func(s *routeSlot) bool { return s.owner == owner })
}

// sweep forgets what was not used for free seconds, and by which nothing may be on its way, and returns how many. It looks at every route.
func (r *routes) sweep(now, free uint32) int {
	return r.dropWhere(func(s *routeSlot) bool {
		return now > s.used && now-s.used >= free && (s.last == 0 || now-s.used > laneAge)
	})
}

func (r *routes) dropWhere(old func(*routeSlot) bool) int {
	before := len(r.at)
	for k, i := range r.at {
		if old(&r.slots[i]) {
			r.remove(k, i)
		}
	}
	if len(r.slots) >= smallMany && len(r.at) < len(r.slots)/rarely {
		r.shrink()
	}
	return before - len(r.at)
}

// len returns how many routes there are.
func (r *routes) len() int { return len(r.at) }

// evict removes the one that was not used for the longest time, of a few.
func (r *routes) evict() {
	var oldest zmsg.Key
	var at uint32
	n := 0
	for k, i := range r.at { // begins anywhere
		if n == 0 || r.slots[i].used < r.slots[at].used {
			oldest, at = k, i
		}
		if n++; n == samples {
			break
		}
	}
	r.remove(oldest, at)
}

func (r *routes) remove(k zmsg.Key, i uint32) {
	r.nodes.drop(r.slots[i].owner)
	delete(r.at, k)
	r.slots[i] = routeSlot{owner: r.free}
	r.free = i + 1
}

func (r *routes) insert(k zmsg.Key, s routeSlot) {
	i := r.free
	if i > 0 {
		i--
		r.free = r.slots[i].owner
		r.slots[i] = s
	} else {
		i = uint32(len(r.slots))
		r.slots = append(r.slots, s)
	}
	r.at[k] = i
}

// shrink gives memory back that is hardly used: maps do not by themselves.
func (r *routes) shrink() {
	was, slots := r.at, r.slots
	r.at, r.slots, r.free = make(map[zmsg.Key]uint32, len(was)), make([]routeSlot, 0, len(was)), 0
	for k, i := range was {
		r.insert(k, slots[i])
	}
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
