package ztrace

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Config is what a Tracer needs.
type Config struct {
	Self *zmsg.Self // the node
	// Share is what part of clients' requests is recorded, 0 to 1. The id of a trace decides, so all gates agree about it.
	Share float64
	// Export takes each span that is recorded at this node, on the goroutine that has ended it. It must not block, and not keep s. nil: nobody.
	Export  func(s *Span)
	Metrics *zmetrics.Trace // nil: counts into the void
}

// Tracer decides which traces are recorded, and takes their spans.
type Tracer struct {
	cfg   Config
	below uint64 // of the upper half of a trace's id
	all   bool
	ended [len(kindNames)]zmetrics.Counter
	slow  zmetrics.Counter // followers

	follows atomic.Pointer[followed] // nil: nobody follows

	mu        sync.Mutex
	followers map[*follower]struct{} // guarded by mu
}

// followed is who is followed, by how many. It does not change.
type followed struct {
	users     map[string]int
	keys      map[zmsg.Key]int
	followers []*follower
}

type follower struct {
	spans chan Span
	user  string
	key   zmsg.Key
}

// New returns a Tracer.
func New(cfg Config) *Tracer {
	if cfg.Metrics == nil {
		cfg.Metrics = zmetrics.NewTrace(nil)
	}
	t := &Tracer{cfg: cfg, all: cfg.Share >= 1, followers: map[*follower]struct{}{}}
	for k, name := range kindNames {
		t.ended[k] = cfg.Metrics.Spans.With(name)
	}
	t.slow = cfg.Metrics.Drops.With("follower")
	if cfg.Share > 0 && !t.all {
		t.below = uint64(cfg.Share * math.MaxUint64)
	}
	return t
}

// Sample reports whether the trace of a user's request is to be recorded.
func (t *Tracer) Sample(id zmsg.TraceID, user string) bool {
	if t == nil {
		return false
	}
	if t.all || binary.BigEndian.Uint64(id[:]) < t.below {
		return true
	}
	f := t.follows.Load()
	return f != nil && user != "" && f.users[user] > 0
}

// SampleObject reports whether what an object handles is to be recorded where the trace is not yet.
func (t *Tracer) SampleObject(k zmsg.Key) bool {
	f := t.follows.Load()
	return f != nil && f.keys[k] > 0
}

// NewSpan returns the id of a new span.
func (t *Tracer) NewSpan() uint64 { return rand.Uint64() | 1 }

// NewTrace returns the id of a new trace.
func (t *Tracer) NewTrace() (id zmsg.TraceID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// End records a span; s.Node, and s.ID where it is 0, are set.
func (t *Tracer) End(s *Span) {
	if t == nil {
		return
	}
	s.Node = t.cfg.Self.Ref()
	if s.ID == 0 {
		s.ID = t.NewSpan()
	}
	t.ended[s.Kind].Inc()
	if t.cfg.Export != nil {
		t.cfg.Export(s)
	}
	f := t.follows.Load()
	if f == nil {
		return
	}
	for _, to := range f.followers {
		select {
		case to.spans <- *s:
		default:
			t.slow.Inc()
		}
	}
}

// Follow has the requests of a user recorded that come to this node's gate, and what the object k handles at this node, where these say something,
// until stop, and sends all spans that are recorded at this node meanwhile, of whatever trace: what the user's requests lead to at other nodes
// belongs to his traces, and only those who see all nodes can tell. At most size spans wait; more are dropped, and counted.
// stop may be called again; the channel stays open.
func (t *Tracer) Follow(user string, k zmsg.Key, size int) (spans <-chan Span, stop func()) {
	f := &follower{spans: make(chan Span, size), user: user, key: k}
	t.change(func() { t.followers[f] = struct{}{} })
	return f.spans, func() { t.change(func() { delete(t.followers, f) }) }
}

// change changes the followers, and what is made of them.
func (t *Tracer) change(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	if len(t.followers) == 0 {
		t.follows.Store(nil)
		return
	}
	f := &followed{users: map[string]int{}, keys: map[zmsg.Key]int{}}
	for x := range maps.Keys(t.followers) {
		f.followers = append(f.followers, x)
		if x.user != "" {
			f.users[x.user]++
		}
		if x.key != (zmsg.Key{}) {
			f.keys[x.key]++
		}
	}
	t.follows.Store(f)
}
