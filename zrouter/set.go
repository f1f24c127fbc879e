package zrouter

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
	"zgame/ztrace"
)

// Link is the way to the sets of other nodes; *zbus.Link is one.
type Link interface {
	SendObject(to zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message, r zmsg.Replier, token uint64) error
	SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error
}

// Members says who is alive. Its methods are called from any goroutine, often, and must not block.
type Members interface {
	// ServeUntil is until when this node may act as itself; see zdiscovery.Member.
	ServeUntil() time.Time
	// Nodes is the list of nodes as last seen, never nil; the same pointer as long as it is the same list.
	Nodes() *zdiscovery.Snapshot
}

// Config is what a ManagerSet needs. Self, Group, Link, Members and Store are required.
type Config struct {
	// Self is this node, as it is when the set is made; see Rejoin.
	Self zmsg.NodeRef
	// Group hosts the objects' actors. It is shut down after the set is closed.
	Group *zactor.Group
	// Link reaches the other nodes.
	Link Link
	// Members says who is alive.
	Members Members
	// Gates bind sessions to objects; nil: there are none.
	Gates Gates
	// Store keeps the objects of all kinds that have no store of their own.
	Store zstore.Store

	// Settings of the node, and of single kinds by their names.
	Settings     Settings
	KindSettings map[string]Settings

	// CallTimeout is how long requests wait that set no deadline; moves of objects are to be over by then (Settings.FitCalls). 0: not checked.
	CallTimeout time.Duration

	// ResendWindow is how long after a request has run it may still come again from a client whose gate is gone: kinds with Settings.ClientDedup
	// remember it for so long. Defaults to 5 min.
	ResendWindow time.Duration

	// Clock is what the set measures and waits by; that of the group. Defaults to package time.
	Clock zactor.Clock
	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics; nil counts for nobody.
	Metrics *zmetrics.Router
	// Tracer takes the spans of saves; nil: nobody does. Handlers are the group's (zactor.Spans).
	Tracer *ztrace.Tracer

	// executor runs what may block; a simulation has its own.
	executor executor
	// random is the source of waits and write ids; a simulation has its own.
	random *rand.Rand
}

// executor runs job on another goroutine, and then what it returns.
type executor interface {
	do(job func() (done func()))
	close(ctx context.Context) error
}

const shardCount = 64

// ManagerSet is all that a node knows and hosts of objects. Its methods may be called from any goroutine.
type ManagerSet struct {
	// Set at construction.
	log      *slog.Logger
	group    *zactor.Group
	link     Link
	members  Members
	gates    Gates
	store    zstore.Store
	clock    zactor.Clock
	settings Settings
	kinds    map[uint32]*kind
	counts   *counts
	foreign  kindCounts // of kinds that this node does not host
	maxHops  uint8
	window   time.Duration // Config.ResendWindow
	start    time.Time
	pool     executor        // of calls of the store
	loader   executor        // of loads
	ctx      context.Context //nolint:containedctx // the set's life: ended by Close
	cancel   context.CancelFunc
	turns    sync.Pool
	spawnOpt []zactor.SpawnOption

	tracer    *ztrace.Tracer
	self      zmsg.Self
	lastID    atomic.Uint64
	kept      atomic.Int64 // calls that wait in entries, or whose success is held
	residents atomic.Int64
	expected  atomic.Int64 // objects that this node has agreed to take over, and that have not come
	keptBytes atomic.Int64 // of the messages of kept
	closing   atomic.Bool  // claims nothing
	ending    atomic.Bool  // Close was called
	closed    atomic.Bool
	suspended atomic.Bool
	strays    atomic.Bool  // objects were told on their own that the lease is not valid
	until     atomic.Int64 // the lease, as last seen: nanoseconds since start
	places    atomic.Pointer[places]
	owns      atomic.Pointer[owners]
	drains    drains
	history   history
	mourning  mourning

	simulated bool // write ids are of random
	remembers bool // a kind that it hosts has Remember

	randMu sync.Mutex
	random *rand.Rand

	timers struct {
		sync.Mutex
		lease zactor.ClockTimer
		sweep zactor.ClockTimer
		ended bool
	}

	shards [shardCount]shard
}

// shard is a part of the keys.
type shard struct {
	set *ManagerSet
	mu  sync.Mutex // guards what follows, and the objects. Nobody is told of an outcome with it held

	sends   uint32               // numbers what is sent to other nodes
	sending sync.RWMutex         // held for reading by who sends by a route that it took under mu, until it has
	objects map[zmsg.Key]*object // about which something is under way, or that are in memory
	routes  *routes              // of the others' objects, at rest
}

var objects = sync.Pool{New: func() any { return new(object) }}

// New makes the set of a node with the kinds that it hosts.
// Errors: what is wrong with the configuration or the kinds, all at once.
func New(cfg Config, kinds ...AnyKind) (*ManagerSet, error) {
	var faults []error
	for name, missing := range map[string]bool{
		"Self": cfg.Self.IsZero(), "Group": cfg.Group == nil, "Link": cfg.Link == nil,
		"Members": cfg.Members == nil, "Store": cfg.Store == nil,
	} {
		if missing {
			faults = append(faults, fmt.Errorf("zrouter: Config.%s is not set", name))
		}
	}
	node := cfg.Settings.withDefaults()
	faults = append(faults, node.validate())
	s := &ManagerSet{
		log: cfg.Logger, group: cfg.Group, link: cfg.Link, members: cfg.Members, gates: cfg.Gates, clock: cfg.Clock,
		settings: node, kinds: make(map[uint32]*kind), counts: newCounts(cfg.Metrics), tracer: cfg.Tracer,
		maxHops: uint8(node.MaxHops), window: cmp.Or(cfg.ResendWindow, 5*time.Minute),
		pool: cfg.executor, random: cfg.random,
		spawnOpt: []zactor.SpawnOption{
			zactor.Private(), zactor.WithPolicy(zactor.Policy{MaxRestarts: -1}), zactor.WithOverflow(zactor.Reject),
			zactor.WithMailbox(node.MaxQueue),
		},
	}
	s.store = zstore.Guard(cfg.Store, s.storePanicked)
	names := make(map[string]uint32)
	ids := make(map[uint32]string)
	for i, any := range kinds {
		if any == nil {
			faults = append(faults, fmt.Errorf("zrouter: kind %d of %d is nil: expected a Kind", i+1, len(kinds)))
			continue
		}
		k, err := any.spec()
		faults = append(faults, err)
		if err != nil {
			continue
		}
		if o := s.kinds[k.typ]; o != nil {
			faults = append(faults, fmt.Errorf("zrouter: kinds %q and %q have the Type %d both", o.name, k.name, k.typ))
		}
		if _, twice := names[k.name]; twice {
			faults = append(faults, fmt.Errorf("zrouter: two kinds are called %q", k.name))
		}
		names[k.name] = k.typ
		for _, a := range k.adverts {
			if o, twice := ids[a.ID]; twice {
				faults = append(faults, fmt.Errorf("zrouter: message id %d is handled by the kinds %q and %q", a.ID, o, k.name))
			}
			ids[a.ID] = k.name
		}
		if k.store != nil {
			k.store = zstore.Guard(k.store, s.storePanicked)
		}
		k.set = cfg.Settings.merge(k.code).merge(cfg.KindSettings[k.name]).withDefaults()
		if err := errors.Join(k.code.ofNode(), cfg.KindSettings[k.name].ofNode(), k.set.validate()); err != nil {
			faults = append(faults, fmt.Errorf("zrouter: kind %q: %w", k.name, err))
		}
		if cfg.CallTimeout > 0 {
			if err := k.set.FitCalls(cfg.CallTimeout); err != nil {
				faults = append(faults, fmt.Errorf("zrouter: kind %q: %w", k.name, err))
			}
		}
		for id, h := range k.handlers {
			k.rules[id] = rule{durable: h.durable || k.set.Durable == On && !h.memory, inServer: h.inServer}
		}
		k.spawnOpt = append(slices.Clone(s.spawnOpt), zactor.WithType(k.name))
		s.kinds[k.typ] = k
		s.remembers = s.remembers || k.set.Remember == On
	}
	for name := range cfg.KindSettings {
		if _, there := names[name]; !there {
			faults = append(faults, fmt.Errorf("zrouter: there are settings for a kind %q, which this node does not host", name))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.gates == nil {
		s.gates = noGates{}
	}
	if s.clock == nil {
		s.clock = realClock{}
	}
	if s.simulated = s.random != nil; !s.simulated {
		s.random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if s.loader = s.pool; s.pool == nil {
		// Loading runs code of the application, which may ask other objects: no load waits for the end of another.
		s.pool, s.loader = newPool(node.StoreOps), newPool(math.MaxInt)
	}
	s.start = s.clock.Now()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.turns.New = func() any { return new(turn) }
	s.self.Set(cfg.Self)
	for i := range s.shards {
		s.shards[i] = shard{set: s, objects: make(map[zmsg.Key]*object), routes: newRoutes(max(1, node.MaxRoutes/shardCount))}
	}
	s.foreign = s.counts.kind("")
	for _, k := range s.kinds {
		k.counts = s.counts.kind(k.name)
	}
	s.lease()
	s.sweepLater()
	return s, nil
}

// realClock is package time.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) zactor.ClockTimer {
	return time.AfterFunc(d, f)
}

func (s *ManagerSet) shard(k zmsg.Key) *shard {
	return &s.shards[zmsg.HashBytes(k.ID)%shardCount]
}

// cloneKey is k with an id of its own.
func cloneKey(k zmsg.Key) zmsg.Key {
	k.ID = strings.Clone(k.ID)
	return k
}

func (s *ManagerSet) seconds(t time.Time) uint32 { return uint32(t.Sub(s.start) / time.Second) }

// storeOf returns the store of a kind, which is nil where this node does not host it.
func (s *ManagerSet) storeOf(k *kind) zstore.Store {
	if k != nil && k.store != nil {
		return k.store
	}
	return s.store
}

// settingsOf are those that are in force for an object: of its kind, where this node hosts it.
func (s *ManagerSet) settingsOf(k zmsg.Key) *Settings {
	if kind := s.kinds[k.Type]; kind != nil {
		return &kind.set
	}
	return &s.settings
}

func (s *ManagerSet) storeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.settings.StoreTimeout)
}

// readRecord reads a record; a store that says ErrAgain is asked again.
func (s *ManagerSet) readRecord(store zstore.Store, k zmsg.Key) (rec zstore.Record, err error) {
	set := s.settingsOf(k)
	err = s.again(set.RetryMaxTTL, set.CacheRetryInterval, func(ctx context.Context) (err error) {
		rec, err = store.Read(ctx, k)
		return err
	})
	return rec, err
}

// again calls what may say ErrAgain, and does so again after a random wait then, a bounded number of times.
func (s *ManagerSet) again(times int, wait time.Duration, call func(ctx context.Context) error) error {
	for try := 0; ; try++ {
		ctx, cancel := s.storeContext()
		err := call(ctx)
		cancel()
		if !errors.Is(err, ErrAgain) || try+1 >= times || !s.pause(s.jitter(wait)) {
			return err
		}
	}
}

// pause waits; it reports false when the set closed first.
func (s *ManagerSet) pause(d time.Duration) bool { return s.nap(s.ctx, d) == nil }

// after calls f, d from now, unless the set is closed then.
func (s *ManagerSet) after(d time.Duration, f func()) {
	s.clock.AfterFunc(d, func() {
		if !s.closed.Load() {
			f()
		}
	})
}

// jitter is a random wait up to d.
func (s *ManagerSet) jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	s.randMu.Lock()
	defer s.randMu.Unlock()
	return time.Duration(s.random.Int64N(int64(d))) + 1
}

// newWID makes the id of a write.
func (s *ManagerSet) newWID() (w zstore.WriteID) {
	if !s.simulated {
		return zstore.NewWriteID()
	}
	s.randMu.Lock()
	defer s.randMu.Unlock()
	binary.LittleEndian.PutUint64(w[:], s.random.Uint64())
	binary.LittleEndian.PutUint64(w[8:], s.random.Uint64()|1)
	return w
}

// backoff is first, doubled with each try, up to most.
func backoff(try int, first, most time.Duration) time.Duration {
	for ; try > 1 && first < most; try-- {
		first *= 2
	}
	return min(first, most)
}

// spawn makes the actor of an object.
func (s *ManagerSet) spawn(o *object, res *residence) (zactor.Ref, error) {
	return s.group.Spawn("", func() zactor.Actor { return o.kind.actor(res) }, o.kind.spawnOpt...)
}

// serving reports whether the lease is valid.
func (s *ManagerSet) serving(now time.Time) bool {
	since := now.Sub(s.start)
	if int64(since) < s.until.Load() {
		return true
	}
	until := int64(s.members.ServeUntil().Sub(s.start))
	s.until.Store(until)
	return int64(since) < until
}

// dead reports that a node provably never serves again.
func (s *ManagerSet) dead(n zmsg.NodeRef) bool {
	return !n.IsZero() && !s.self.Is(n) && zdiscovery.Gone(n, s.members.Nodes())
}

// places are where objects live that nobody owns: elsewhere, when this node takes none any more.
type places struct {
	of      *zdiscovery.Snapshot
	closing bool
	mu      sync.Mutex
	kinds   map[uint32]*placement
}

// placement is that of a kind by the list of nodes as it is.
func (s *ManagerSet) placement(typ uint32) *placement {
	snap, closing := s.members.Nodes(), s.closing.Load()
	p := s.places.Load()
	if p == nil || p.of != snap || p.closing != closing {
		p = &places{of: snap, closing: closing, kinds: make(map[uint32]*placement)}
		s.places.Store(p)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.kinds[typ]
	if at == nil {
		not := ""
		if closing {
			not = s.self.Ref().ID
		}
		at = newPlacement(snap, typ, not)
		p.kinds[typ] = at
	}
	return at
}

// home is where k would live, whose state has the version schema, 0 where there is none or it is not known.
func (s *ManagerSet) home(k zmsg.Key, schema uint32) zmsg.NodeRef {
	home := s.placement(k.Type).home(k, schema)
	if s.self.Is(home) {
		home = s.self.Ref() // the list may have an earlier one
	}
	return home
}

// learn keeps a route that was committed; sent is the number of the request whose answer says so.
func (s *ManagerSet) learn(k zmsg.Key, r Route, sent uint32) {
	if s.self.Is(r.Owner) {
		return
	}
	sh := s.shard(k)
	t := sh.lock()
	defer t.end()
	if !t.told(k, r, sent) {
		sh.remember(k, r, s.seconds(t.time()))
	}
}

// told tells the entry of a route, and makes one where what was sent by an older route may be on its way. It reports false where there
// is none, and nothing is.
func (t *turn) told(k zmsg.Key, r Route, sent uint32) bool {
	sh := t.sh
	o := sh.objects[k]
	if o == nil {
		slot := sh.routes.find(k)
		if slot == nil || r.Version <= slot.version {
			return slot != nil
		}
		if last := sh.routes.lane(k, sh.set.seconds(t.time())); last == 0 || last == sent {
			return false
		}
		o = t.object(k)
	}
	t.tell(o, &entry.Event{Kind: entry.Told, Route: r, Last: sent != 0 && o.last == sent})
	t.settle(o)
	return true
}

// number is the next for what is sent to other nodes.
func (sh *shard) number() uint32 {
	if sh.sends++; sh.sends == 0 {
		sh.sends++
	}
	return sh.sends
}

// remember puts a route with those at rest. The lock is held.
func (sh *shard) remember(k zmsg.Key, r Route, at uint32) {
	if sh.routes.put(k, r, at) {
		sh.set.counts.Evictions.Inc()
	}
}

// expire has the route of an object looked up again before it is used. The lock is held.
func (sh *shard) expire(k zmsg.Key) {
	if s := sh.routes.find(k); s != nil {
		s.at = sh.set.seconds(sh.set.clock.Now()) - sh.set.settingsOf(k).cacheSeconds()
	}
}

// refused counts a request that was not taken.
func (s *ManagerSet) refused(o *object, why entry.Cause) { s.countsOf(o).refused(why).Inc() }

// lostOneWay counts, and logs at a bounded rate, a one-way message that nobody hears about. One that is for objects in memory alone (InServer)
// finds none as a matter of course, such as a push to a user who is away: it is counted.
func (s *ManagerSet) lostOneWay(c *call) {
	s.counts.LostOneWay.Inc()
	if code := c.reply.Code; c.req.Shy && (code == zmsg.CodeNotInServer || code == zmsg.CodeNotFound) {
		return
	}
	if n, ok := s.counts.seldom(rareOneWay); ok {
		s.log.Warn("a one-way message for an object was not handled", "suppressed", n, "key", c.key.String(), "code", c.reply.Code.String(), "why", c.reply.Text)
	}
}

func (s *ManagerSet) storeFailed(o *object, op zstore.Op, err error) {
	if n, ok := s.counts.seldom(rareStore); ok {
		s.log.Warn("the store of objects does not do what was asked", "suppressed", n, "op", op.String(), "key", o.key.String(), "err", err)
	}
}

// storePanicked logs, at a bounded rate, where a store panicked; that what was asked of it failed is told by itself.
func (s *ManagerSet) storePanicked(op zstore.Op, v any, stack []byte) {
	if n, ok := s.counts.seldom(rarePanic); ok {
		s.log.Error("the store of objects panicked", "suppressed", n, "op", op.String(), "panic", v, "stack", string(stack))
	}
}

// tooNew logs, at a bounded rate, that an object is not served here, since a newer version of the program wrote its state.
func (s *ManagerSet) tooNew(o *object, err error) {
	if n, ok := s.counts.seldom(rareSchema); ok {
		s.log.Warn("an object is not served here: a newer version of the program wrote its state", "suppressed", n, "key", o.key.String(), "kind", o.name(), "err", err)
	}
}

// notCreated logs, at a bounded rate, that an object was not created, where that is not just an answer to who asked.
func (s *ManagerSet) notCreated(o *object, err error) {
	if c := zmsg.CodeOf(err); c >= zmsg.CodeApplication {
		return
	}
	if n, ok := s.counts.seldom(rareCreate); ok {
		s.log.Error("the object cannot be created", "suppressed", n, "key", o.key.String(), "kind", o.name(), "err", err)
	}
}
