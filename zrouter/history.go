package zrouter

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
)

// What operators see of the objects of a node: those in memory, and what came and went lately.

// ObjectStatus is how an object in memory looks from outside.
type ObjectStatus struct {
	Key     zmsg.Key          `json:"key"`
	Kind    string            `json:"kind"`
	Version zmsg.RouteVersion `json:"version"`
	Phase   string            `json:"phase"`   // as of internal/entry: active, freezing, moving, ...
	Waiting int               `json:"waiting"` // requests that wait, or whose success does
	Used    time.Time         `json:"used"`    // when something last came for it
	Unsaved time.Time         `json:"unsaved"` // since when something is not saved; zero: all is
}

// Residents returns how the objects in memory are whose id has match in it, of the kind of that name where it is not empty: at most n,
// those that something came for last first; and how many there are of them. It looks at each object, and holds a part of them up for a moment.
func (s *ManagerSet) Residents(kind, match string, n int) (list []ObjectStatus, all int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, o := range sh.objects {
			if o.res == nil || kind != "" && o.name() != kind || !strings.Contains(o.key.ID, match) {
				continue
			}
			all++
			list = append(list, ObjectStatus{o.key, o.name(), o.entry.Route.Version, o.entry.Phase.String(), len(o.calls), o.used, o.unsaved})
		}
		sh.mu.Unlock()
		if len(list) > 4*n+64 {
			list = lastUsed(list, n)
		}
	}
	return lastUsed(list, n), all
}

func lastUsed(list []ObjectStatus, n int) []ObjectStatus {
	slices.SortFunc(list, func(a, b ObjectStatus) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Key.Type, b.Key.Type), cmp.Compare(a.Key.Zone, b.Key.Zone), cmp.Compare(a.Key.ID, b.Key.ID))
	})
	return list[:min(len(list), max(n, 0))]
}

// Passage is that an object came into the memory of this node, or left it.
type Passage struct {
	Number  uint64            `json:"number"` // of this set's: the next has one more
	At      time.Time         `json:"at"`
	Key     zmsg.Key          `json:"key"`
	Kind    string            `json:"kind"`
	What    string            `json:"what"`            // loaded, or a Reason's name
	Version zmsg.RouteVersion `json:"version"`         // that the object has since
	To      string            `json:"to,omitempty"`    // of moved: the id of the node that has it
	Pause   time.Duration     `json:"pause,omitempty"` // of moved, and of loaded behind a move: for how long it took no requests
}

// keptPassages is how many are remembered, about 300 KB; the oldest go.
const keptPassages = 2048

// History returns what came and went with a number above since, the oldest first, the newest n of it: of the object k, or of all where k is zero.
// A number higher than the newest, as of an earlier process, is taken for 0.
func (s *ManagerSet) History(since uint64, k zmsg.Key, n int) []Passage {
	return s.history.get(since, k, n)
}

// history is a ring of the last ones. Its lock is a leaf.
type history struct {
	mu   sync.Mutex
	ring []Passage // guarded by mu
	last uint64    // number of the newest; guarded by mu
}

func (h *history) add(p Passage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	p.Number = h.last
	if len(h.ring) < keptPassages {
		h.ring = append(h.ring, p)
		return
	}
	h.ring[(p.Number-1)%keptPassages] = p
}

func (h *history) get(since uint64, k zmsg.Key, n int) []Passage {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since > h.last {
		since = 0
	}
	list := make([]Passage, 0, min(max(n, 0), 64))
	for number := h.last; number > since && number+keptPassages > h.last && len(list) < n; number-- {
		if p := &h.ring[(number-1)%keptPassages]; k == (zmsg.Key{}) || p.Key == k {
			list = append(list, *p)
		}
	}
	slices.Reverse(list)
	return list
}

// came notes that an object is in memory.
func (t *turn) came(o *object, res *residence) {
	t.sh.set.history.add(Passage{At: t.time(), Key: o.key, Kind: o.name(), What: "loaded", Version: res.version, Pause: res.pause})
}

// went notes that it is not any more; r is its route since.
func (t *turn) went(o *object, res *residence, r entry.Route) {
	p := Passage{At: t.time(), Key: o.key, Kind: o.name(), What: res.why.String(), Version: r.Version}
	if res.why == Moved {
		p.To, p.Pause = r.Owner.ID, res.away
	}
	t.sh.set.history.add(p)
}
