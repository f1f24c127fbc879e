package zrouter

import (
	"fmt"
	"maps"
	"runtime"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"zgame/zmsg"
)

// naiveRoutes is what routes does, without bounds and savings.
type naiveRoutes map[zmsg.Key]*naiveRoute

type naiveRoute struct {
	route    Route
	at, used uint32
}

func TestRoutesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{0, 1, 3, 20, 1 << 20}).Draw(t, "limit")
		r, model := newRoutes(limit), naiveRoutes{}
		now, most := uint32(0), 0
		ids := rapid.SampledFrom([]uint64{1, 4, 30}).Draw(t, "ids")
		key := func() zmsg.Key {
			return zmsg.NumKey(uint32(rapid.IntRange(1, 2).Draw(t, "type")), 0, rapid.Uint64Range(1, ids).Draw(t, "id"))
		}
		owner := func(k zmsg.Key, v zmsg.RouteVersion) zmsg.NodeRef { // a version has one owner
			return []zmsg.NodeRef{{}, {ID: "a", Epoch: 1}, {ID: "a", Epoch: 2}, {ID: "b", Epoch: 1}}[zmsg.HashBytes(k.String()+fmt.Sprint(v))%4]
		}
		route := func(k zmsg.Key) Route {
			v := zmsg.RouteVersion(rapid.IntRange(1, 5).Draw(t, "version"))
			return Route{Owner: owner(k, v), Version: v}
		}
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) { now += 10 * rapid.Uint32Range(0, 10).Draw(t, "later") },
			"get": func(t *rapid.T) {
				k := key()
				got, at, ok := r.get(k, now)
				want, there := model[k]
				if ok != there {
					t.Fatalf("%s is there: %v, want %v", k, ok, there)
				}
				if !ok {
					return
				}
				if got != want.route || at != want.at {
					t.Fatalf("%s: %v of %d, want %+v", k, got, at, want)
				}
				want.used = now
			},
			"put": func(t *rapid.T) {
				k := key()
				ro := route(k)
				evicted := r.put(k, ro, now)
				m := model[k]
				switch {
				case m == nil && limit > 0:
					if evicted != (len(model) == limit) {
						t.Fatalf("evicted %v of %d routes, the limit is %d", evicted, len(model), limit)
					}
					if evicted { // any one, but one
						gone := 0
						for old := range maps.Clone(model) {
							if r.find(old) == nil {
								delete(model, old)
								gone++
							}
						}
						if gone != 1 {
							t.Fatalf("%d routes are gone", gone)
						}
					}
					model[k] = &naiveRoute{ro, now, now}
				case m == nil:
				case ro.Version >= m.route.Version:
					m.route, m.at = ro, now
				}
			},
			"update": func(t *rapid.T) {
				k := key()
				ro := route(k)
				m := model[k]
				want := m != nil && m.route.Version < ro.Version
				if got := r.update(k, ro); got != want {
					t.Fatalf("updated %v, want %v", got, want)
				}
				if want {
					m.route = ro
				}
			},
			"drop": func(t *rapid.T) {
				k := key()
				r.drop(k)
				delete(model, k)
			},
			"drop owner": func(t *rapid.T) {
				n, want := zmsg.NodeRef{ID: "a", Epoch: rapid.Uint64Range(1, 3).Draw(t, "epoch")}, 0
				for k, m := range model {
					if m.route.Owner == n {
						delete(model, k)
						want++
					}
				}
				if got := r.dropOwner(n); got != want {
					t.Fatalf("%d dropped, want %d", got, want)
				}
			},
			"sweep": func(t *rapid.T) {
				free, want := 10*rapid.Uint32Range(1, 10).Draw(t, "free"), 0
				for k, m := range model {
					if now-m.used >= free {
						delete(model, k)
						want++
					}
				}
				if got := r.sweep(now, free); got != want {
					t.Fatalf("%d swept, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				if r.len() != len(model) {
					t.Fatalf("%d routes, want %d", r.len(), len(model))
				}
				if most = max(most, r.len()); len(r.slots) > most {
					t.Fatalf("%d slots for at most %d routes", len(r.slots), most)
				}
				uses := map[zmsg.NodeRef]int{}
				for k, m := range model {
					s := r.find(k)
					if s == nil || (naiveRoute{Route{Owner: r.nodes.ref(s.owner), Version: s.version}, s.at, s.used}) != *m {
						t.Fatalf("%s: %+v, want %+v", k, s, m)
					}
					if !m.route.Owner.IsZero() {
						uses[m.route.Owner]++
					}
				}
				if len(r.nodes.index) != len(uses) || len(r.nodes.nodes) > 5 {
					t.Fatalf("%d nodes, %d places, want %v", len(r.nodes.index), len(r.nodes.nodes), uses)
				}
				for n, i := range r.nodes.index {
					if r.nodes.nodes[i].uses != uses[n] {
						t.Fatalf("%s: %d uses, want %d", n, r.nodes.nodes[i].uses, uses[n])
					}
				}
			},
		})
	})
}

// Ids and node names may lie in the buffer of a message that is used again: nothing here keeps them.
func TestRoutesKeepNoBuffer(t *testing.T) {
	t.Parallel()
	buf := []byte("ann node")
	alias := func(from, to int) string { return unsafe.String(&buf[from], to-from) }
	r := newRoutes(10)
	k := func() zmsg.Key { return zmsg.Key{Type: 1, ID: alias(0, 3)} }
	r.put(k(), Route{Owner: zmsg.NodeRef{ID: alias(4, 8), Epoch: 1}, Version: 1}, 1)
	r.put(k(), Route{Owner: zmsg.NodeRef{ID: alias(4, 8), Epoch: 2}, Version: 2}, 2)
	r.update(k(), Route{Owner: zmsg.NodeRef{ID: alias(4, 8), Epoch: 3}, Version: 3})
	r.get(k(), 3)
	copy(buf, "bob edge")
	got, _, ok := r.get(zmsg.Key{Type: 1, ID: "ann"}, 4)
	if want := (Route{Owner: zmsg.NodeRef{ID: "node", Epoch: 3}, Version: 3}); !ok || got != want {
		t.Errorf("%v %v, want %v", got, ok, want)
	}
	if _, _, ok = r.get(zmsg.Key{Type: 1, ID: "bob"}, 4); ok {
		t.Error("the key has changed")
	}
	if n := r.dropOwner(zmsg.NodeRef{ID: "node", Epoch: 3}); n != 1 || r.len() != 0 {
		t.Errorf("%d dropped, %d left", n, r.len())
	}
}

// What is in use stays, although new ones come all the time.
func TestRoutesEvictTheOld(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1000, 20_000} {
		r := newRoutes(limit)
		hot := limit / 40
		owner := zmsg.NodeRef{ID: "n", Epoch: 1}
		now, lost, asked := uint32(0), 0, 0
		for i := range 10 * limit {
			if i%100 == 0 {
				now++
			}
			r.put(zmsg.NumKey(1, 0, uint64(i)), Route{Owner: owner, Version: 1}, now)
			if i%10 == 0 { // each hot one is used again before a quarter of limit others have come
				k := zmsg.NumKey(2, 0, uint64(i/10%hot))
				if _, _, ok := r.get(k, now); !ok {
					if i > limit {
						lost++
					}
					r.put(k, Route{Owner: owner, Version: 1}, now)
				}
				asked++
			}
		}
		if r.len() != limit {
			t.Errorf("%d routes, want %d", r.len(), limit)
		}
		if lost > asked/20 {
			t.Errorf("limit %d: %d of %d uses of hot routes missed", limit, lost, asked)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The bound: 200 bytes for a route with an id of 16 bytes, however full the maps are, after a long time at the limit, and when
// most of them have gone. Not parallel: it measures the heap.
func TestRoutesAreSmall(t *testing.T) {
	const most = 200
	owners := make([]zmsg.NodeRef, 100)
	for i := range owners {
		owners[i] = zmsg.NodeRef{ID: fmt.Sprintf("node-%d", i), Epoch: uint64(i + 1)}
	}
	from, limit := 100_000, 300_000 // over two doublings of the table
	if raceEnabled {
		limit = 120_000
	}
	buf := make([]byte, 16)
	key := func(i int) zmsg.Key {
		copy(buf, fmt.Sprintf("user%012d", i))
		return zmsg.Key{Type: 1, ID: unsafe.String(&buf[0], len(buf))}
	}
	before := heap()
	r := newRoutes(limit)
	worst, at := 0.0, 0
	check := func(when string) {
		t.Helper()
		per := (float64(heap()) - float64(before)) / float64(r.len()) // what others left behind may go meanwhile
		if per > worst {
			worst, at = per, r.len()
		}
		if per > most {
			t.Errorf("%s: %.0f bytes for each of %d routes, at most %d", when, per, r.len(), most)
		}
	}
	now := uint32(0)
	put := func(i int) {
		now = uint32(i / 1000)
		r.put(key(i), Route{Owner: owners[i%len(owners)], Version: zmsg.RouteVersion(i)}, now)
	}
	next := from
	for i := range limit {
		put(i)
		if r.len() == next {
			check("filling")
			next += next / 8 // maps double: some of these are just behind that
		}
	}
	check("full")
	t.Logf("at most %.0f bytes for a route, at %d routes", worst, at)
	for i := range limit / 2 {
		put(limit + i)
	}
	check("long at the limit")
	if r.len() != limit {
		t.Errorf("%d routes at the limit of %d", r.len(), limit)
	}
	r.sweep(now, 20) // most are older
	t.Logf("%d routes left", r.len())
	check("swept")
	runtime.KeepAlive(r)
}

func TestRoutesDoNotAllocate(t *testing.T) {
	r := newRoutes(1000)
	a, b := zmsg.NodeRef{ID: "a", Epoch: 1}, zmsg.NodeRef{ID: "b", Epoch: 1}
	keys := make([]zmsg.Key, 1000)
	for i := range keys {
		keys[i] = zmsg.NumKey(1, 0, uint64(i)<<30)
		r.put(keys[i], Route{Owner: a, Version: 1}, 1)
		r.put(keys[i], Route{Owner: []zmsg.NodeRef{a, b}[i%2], Version: 2}, 1)
	}
	i, v := 0, zmsg.RouteVersion(3)
	if n := testing.AllocsPerRun(1000, func() {
		k := keys[i%len(keys)]
		i, v = i+7, v+1
		r.get(k, uint32(i))
		r.put(k, Route{Owner: a, Version: v}, uint32(i))
		r.update(k, Route{Owner: b, Version: v + 1})
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRoutes(b *testing.B) {
	const n = 1 << 20
	r := newRoutes(n)
	keys := make([]zmsg.Key, n)
	for i := range keys {
		keys[i] = zmsg.NumKey(1, 0, uint64(i)<<30)
		r.put(keys[i], Route{Owner: zmsg.NodeRef{ID: "a", Epoch: 1}, Version: 1}, 1)
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.get(keys[i*7919%n], uint32(i>>20))
		}
	})
	b.Run("get-hot", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.get(keys[i%100], uint32(i>>20))
		}
	})
	b.Run("put-at-the-limit", func(b *testing.B) {
		b.ReportAllocs()
		k := zmsg.Key{Type: 2}
		for i := 0; b.Loop(); i++ {
			k.Zone, k.ID = uint32(i), keys[i%n].ID
			r.put(k, Route{Owner: zmsg.NodeRef{ID: "b", Epoch: 1}, Version: 1}, uint32(i>>10))
		}
	})
}
