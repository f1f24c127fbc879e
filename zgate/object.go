package zgate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// ErrOldOwner is what the owner of an object gets that is none any more: nothing was changed, nothing sent.
var ErrOldOwner error = &opError{"zgate: the object has a newer owner", zmsg.CodeMoved}

// Limits of what waits while objects move. What is above them is not lost: the wait ends early, and the clients are told that something
// may be missing.
const (
	maxHeld      = 1024     // pushes of one object
	maxHeldBytes = 1 << 20  // likewise
	maxHeldAll   = 64 << 20 // bytes of all objects
)

// boundObjects is the table of the objects that have sessions of this gate bound to them.
//
// Order of locks: shard, boundObject, Session.mu, conn.q.
type boundObjects struct {
	g      *Gate
	heldBy atomic.Int64 // bytes that wait
	count  atomic.Int64 // objects
	shards [sessionShards]struct {
		mu   sync.RWMutex
		m    map[zmsg.Key]*boundObject
		past pastOwners // of those that are not in m
		_    [64]byte
	}
}

// boundObject is an object that has sessions of this gate bound to it: who owns it, and how far its pushes have come. It is in the
// table as long as it has sessions.
type boundObject struct {
	key zmsg.Key

	mu       sync.Mutex
	owner    zmsg.Address // told of the ends of sessions; zero: it is lost
	order    order
	sessions map[uint64]*Session // by id
	held     []heldPush          // in the order of their numbers
	bytes    int                 // of held
	timer    *time.Timer
	waitID   uint64      // of the timer that counts
	lost     *time.Timer // until the clients are told that nobody has the object
	gone     bool        // out of the table
	pushed   bool        // something has come for its sessions
	blank    bool        // sessions have brought it from another gate, and its owner has not said yet how far its pushes are
}

// heldPush is a push that waits for those before it.
type heldPush struct {
	version zmsg.RouteVersion
	n       uint64
	one     zmsg.SessionRef // to one session
	ids     []uint64        // or to many
	e       encoded
}

func (t *boundObjects) shard(k zmsg.Key) *struct {
	mu   sync.RWMutex
	m    map[zmsg.Key]*boundObject
	past pastOwners // of those that are not in m
	_    [64]byte
} {
	return &t.shards[zmsg.HashBytes(k.ID)%sessionShards]
}

func (t *boundObjects) get(k zmsg.Key) *boundObject {
	sh := t.shard(k)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.m[k]
}

// Bind makes the object of b the one that the sessions are bound to: it is told when they end, what their clients send to its kind without naming
// an object goes to it, and its pushes keep their order while it moves. Of an object's owners the one with the greatest version counts.
// A session that is gone already is told of at once, as lost. Binding twice is binding once.
// Errors: ErrOldOwner; ErrWrongGate; ErrNotWired. It does not block.
func (g *Gate) Bind(b *zmsg.Binding) error {
	switch {
	case g.cfg.Tell == nil:
		return ErrNotWired
	case !g.self.Is(b.Gate):
		g.count.dropWrongGate.Inc()
		return ErrWrongGate
	}
	type told struct {
		ref zmsg.SessionRef
		how ending
	}
	var gone []told
	t := &g.objects
	sh := t.shard(b.Key)
	sh.mu.Lock()
	o := sh.m[b.Key]
	fresh := o == nil
	if fresh {
		if sh.past.older(b.Key, b.Version, time.Now()) {
			sh.mu.Unlock()
			g.count.bindOld.Inc()
			return ErrOldOwner
		}
		o = &boundObject{
			key: b.Key, order: newOrder(b), sessions: make(map[uint64]*Session),
		}
	}
	o.mu.Lock()
	if !fresh && !t.rebindLocked(o, b) {
		o.mu.Unlock()
		sh.mu.Unlock()
		g.count.bindOld.Inc()
		return ErrOldOwner
	}
	another := o.owner != b.Owner
	o.owner = b.Owner
	var news []*Session // to the owner
	for _, ref := range b.Sessions {
		if s := o.sessions[ref.ID]; s != nil && s.ref.Gen == ref.Gen {
			if another {
				news = append(news, s)
			}
			continue // also one that is about to end: that tells the new owner
		}
		s, err := g.session(ref)
		if err != nil {
			gone = append(gone, told{ref, ending{closedLost, "the session has ended before"}})
			continue
		}
		if to, went := s.goneTo(); went {
			g.tellMoved(b.Owner, ref, to)
			continue
		}
		if how := s.bound(o); how.code != 0 {
			gone = append(gone, told{ref, how})
			continue
		}
		o.sessions[s.ref.ID] = s
		news = append(news, s)
		g.count.Bound.Inc()
	}
	if fresh && len(o.sessions) > 0 {
		if sh.m == nil {
			sh.m = make(map[zmsg.Key]*boundObject)
		}
		sh.m[b.Key] = o
		delete(sh.past, b.Key)
		t.count.Add(1)
	}
	sh.mu.Unlock()
	if len(o.sessions) > 0 {
		t.waitLocked(o)
	}
	o.mu.Unlock()
	g.count.bindOK.Inc()
	for _, x := range gone {
		g.tellClosed(b.Owner, x.ref, "", x.how)
	}
	for _, s := range news {
		s.tellOwner(b.Owner)
	}
	return nil
}

// rebindLocked takes note of an owner's version and last number, for the sessions that o has already; false where it is none any more.
func (t *boundObjects) rebindLocked(o *boundObject, b *zmsg.Binding) bool {
	if o.blank && b.Version >= o.order.version { // nothing of what it counts has been sent here
		o.blank, o.order = false, newOrder(b)
		t.foundLocked(o)
		return true
	}
	ok, h := o.order.bind(b.Version, b.Last, b.Since, b.Again)
	switch {
	case !ok:
		return false
	default:
		t.foundLocked(o)
	}
	switch {
	case h.is:
		t.holeLocked(o, h)
	default:
		o.held = slices.DeleteFunc(o.held, func(p heldPush) bool { // what an owner before had not handed over
			old := p.version < b.Version && p.n > b.Last
			if old {
				t.droppedLocked(o, &p)
				t.g.count.dropOldOwner.Inc()
			}
			return old
		})
		t.drainLocked(o)
	}
	return true
}

// bound adds o to what the session is bound to; what it returns says how the session has ended, where it has.
func (s *Session) bound(o *boundObject) ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return ending{closedLost, "the session has ended before"}
	case len(s.objects) >= s.g.cfg.MaxBindings:
		s.g.log.Warn("a session is bound to as many objects as may be", "session", s.ref.ID, "user", s.user, "key", o.key.String())
		return ending{CloseInternal, "the session is bound to " + itoa(len(s.objects)) + " objects, which is the limit"}
	}
	s.objects = append(s.objects, o)
	return ending{}
}

// unbound takes o from what the session is bound to.
func (s *Session) unbound(o *boundObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.objects, o); i >= 0 {
		s.objects = slices.Delete(s.objects, i, i+1)
	}
}

// arrive binds a session, which has come from another gate, to what it was bound to there, ahead of the owner's own word.
func (t *boundObjects) arrive(s *Session, b *wirepb.BoundTo) {
	k := zmsg.Key{Type: b.GetKey().GetType(), Zone: b.GetKey().GetZone(), ID: b.GetKey().GetId()}
	version := zmsg.RouteVersion(b.GetVersion())
	sh := t.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.m[k]
	fresh := o == nil
	if fresh {
		o = &boundObject{
			key: k, order: order{version: version, since: version}, sessions: make(map[uint64]*Session), blank: true,
			owner: zmsg.Address{Node: zmsg.NodeRef{ID: b.GetNode(), Epoch: b.GetEpoch()}, Actor: b.GetActor()},
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sessions[s.ref.ID] != nil || s.bound(o).code != 0 {
		return
	}
	o.sessions[s.ref.ID] = s
	t.g.count.Bound.Inc()
	if fresh {
		if sh.m == nil {
			sh.m = make(map[zmsg.Key]*boundObject)
		}
		sh.m[k] = o
		delete(sh.past, k)
		t.count.Add(1)
	}
}

// Unbind lets sessions of an object go; what they are bound to besides stays. Errors: ErrOldOwner, ErrWrongGate.
func (g *Gate) Unbind(b *zmsg.Binding) error {
	if !g.self.Is(b.Gate) {
		return ErrWrongGate
	}
	o := g.objects.get(b.Key)
	if o == nil {
		return nil
	}
	var let []*Session
	o.mu.Lock()
	if b.Version < o.order.version {
		o.mu.Unlock()
		g.count.bindOld.Inc()
		return ErrOldOwner
	}
	for _, ref := range b.Sessions {
		if s := o.sessions[ref.ID]; s != nil && s.ref.Gen == ref.Gen {
			let = append(let, s)
		}
	}
	o.mu.Unlock()
	for _, s := range let {
		if _, there := g.objects.leave(o, s); there {
			s.unbound(o)
		}
	}
	return nil
}

// Lost says that an object has left its owner's memory, and that nobody has it from there: its clients are told that something may be missing,
// unless a new owner binds them within PushWait. What they send goes to it still, wherever it is then. Errors: ErrOldOwner, ErrWrongGate.
func (g *Gate) Lost(b *zmsg.Binding) error {
	if !g.self.Is(b.Gate) {
		return ErrWrongGate
	}
	o := g.objects.get(b.Key)
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.Version < o.order.version {
		return ErrOldOwner
	}
	g.objects.lostLocked(o)
	return nil
}

// OwnerLost says that a node is gone: as Lost for all objects that it owned.
func (g *Gate) OwnerLost(n zmsg.NodeRef) {
	for i := range g.objects.shards {
		sh := &g.objects.shards[i]
		sh.mu.RLock()
		all := make([]*boundObject, 0, len(sh.m))
		for _, o := range sh.m {
			all = append(all, o)
		}
		sh.mu.RUnlock()
		for _, o := range all {
			o.mu.Lock()
			if o.owner.Node == n {
				g.objects.lostLocked(o)
			}
			o.mu.Unlock()
		}
	}
}

func (t *boundObjects) lostLocked(o *boundObject) {
	if o.owner.IsZero() || o.gone {
		return
	}
	o.owner = zmsg.Address{}
	t.g.unknownLocked(o)
	var timer *time.Timer
	timer = time.AfterFunc(t.g.cfg.PushWait, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.lost != timer || o.gone {
			return
		}
		o.lost = nil
		if o.order.waits() {
			t.giveUpLocked(o)
		}
		t.tellLocked(o, 0)
	})
	o.lost = timer
}

// foundLocked takes lostLocked back: it has an owner.
func (t *boundObjects) foundLocked(o *boundObject) {
	if o.lost != nil {
		o.lost.Stop()
		o.lost = nil
	}
}

// BoundKey returns the object of a type that a session is bound to, the last one where it is to several.
func (g *Gate) BoundKey(ref zmsg.SessionRef, typ uint32) (zmsg.Key, bool) {
	if g.objects.count.Load() == 0 || !g.self.Is(ref.Gate) {
		return zmsg.Key{}, false
	}
	s := g.sessions.get(ref.ID)
	if s == nil || s.ref.Gen != ref.Gen {
		return zmsg.Key{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range slices.Backward(s.objects) {
		if o.key.Type == typ {
			return o.key, true
		}
	}
	return zmsg.Key{}, false
}

// leave takes a session from an object, and returns who is to be told if it has ended. there is false where it was no session of the object's.
func (t *boundObjects) leave(o *boundObject, s *Session) (owner zmsg.Address, there bool) {
	sh := t.shard(o.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sessions[s.ref.ID] != s {
		return owner, false
	}
	delete(o.sessions, s.ref.ID)
	t.g.count.Bound.Dec()
	if len(o.sessions) == 0 {
		delete(sh.m, o.key)
		sh.past.add(o.key, o.order.version, time.Now())
		t.count.Add(-1)
		o.gone = true
		for i := range o.held {
			t.droppedLocked(o, &o.held[i])
		}
		o.held = nil
		t.stopLocked(o)
		t.foundLocked(o)
	}
	return o.owner, true
}

// pushOf sends a push of an object to sessions of this gate, in the order of its numbers; one that waits is on its way as any other. Errors: those of Push;
// ErrOldOwner.
func (g *Gate) pushOf(one zmsg.SessionRef, ids []uint64, p *zmsg.Push) error {
	e, err := g.encode(p, false)
	if err != nil {
		return err
	}
	t := &g.objects
	o := t.get(p.Key)
	if o == nil {
		return g.toSessions(one, ids, &e)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return g.toSessions(one, ids, &e)
	}
	o.pushed = true
	v, h := o.order.push(p.Version, p.No)
	switch v {
	case stale:
		g.count.dropOldOwner.Inc()
		return ErrOldOwner
	case doubled:
		g.count.dropDoubled.Inc()
		return nil
	case wait:
		t.holdLocked(o, heldPush{version: p.Version, n: p.No, one: one, ids: ids, e: e})
		return nil
	case pass:
	}
	if h.is {
		t.holeLocked(o, h)
	}
	err = g.toSessions(one, ids, &e)
	if len(o.held) > 0 || o.timer != nil {
		t.drainLocked(o)
		t.waitLocked(o)
	}
	return err
}

// toSessions sends e to one session, or to many.
func (g *Gate) toSessions(one zmsg.SessionRef, ids []uint64, e *encoded) error {
	if len(ids) > 0 {
		g.pushIDs(ids, e)
		return nil
	}
	s, err := g.session(one)
	if err != nil {
		return err
	}
	return s.push(e, false)
}

// holdLocked keeps p until what is before it has come.
func (t *boundObjects) holdLocked(o *boundObject, p heldPush) {
	i, twice := slices.BinarySearchFunc(o.held, p.n, func(h heldPush, n uint64) int {
		switch {
		case h.n < n:
			return -1
		case h.n > n:
			return 1
		}
		return 0
	})
	if twice {
		t.g.count.dropDoubled.Inc()
		return
	}
	p.e.keep()
	p.ids = slices.Clone(p.ids)
	p.one.Gate = t.g.orOwn(p.one.Gate)
	o.held = slices.Insert(o.held, i, p)
	o.bytes += p.e.weight()
	t.g.count.Held.Inc()
	if all := t.heldBy.Add(int64(p.e.weight())); len(o.held) > maxHeld || o.bytes > maxHeldBytes || all > maxHeldAll {
		t.giveUpLocked(o)
		t.g.count.waitFull.Inc()
		return
	}
	t.waitLocked(o)
}

// droppedLocked takes the weight of p, which leaves held, off.
func (t *boundObjects) droppedLocked(o *boundObject, p *heldPush) {
	o.bytes -= p.e.weight()
	t.heldBy.Add(-int64(p.e.weight()))
	t.g.count.Held.Dec()
}

// popLocked sends the first of what waits.
func (t *boundObjects) popLocked(o *boundObject) {
	p := o.held[0]
	o.held = slices.Delete(o.held, 0, 1)
	t.droppedLocked(o, &p)
	_ = t.g.toSessions(p.one, p.ids, &p.e) // who is gone, or slow, is counted
}

// drainLocked sends of what waits that which has its turn.
func (t *boundObjects) drainLocked(o *boundObject) {
	for len(o.held) > 0 {
		switch n := o.held[0].n; {
		case n <= o.order.have:
			p := o.held[0]
			o.held = slices.Delete(o.held, 0, 1)
			t.droppedLocked(o, &p)
			t.g.count.dropDoubled.Inc()
		case o.order.next(n):
			t.popLocked(o)
		case o.order.waits():
			return
		default:
			t.tellLocked(o, n-o.order.have-1)
			o.order.have = n
			t.popLocked(o)
		}
	}
}

// holeLocked tells of what is missing. Where numbers begin anew, what waits is older than all that comes.
func (t *boundObjects) holeLocked(o *boundObject, h hole) {
	t.tellLocked(o, h.missed)
	if !h.anew {
		return
	}
	t.stopLocked(o)
	for len(o.held) > 0 { // there are holes between them, and behind them
		n := o.held[0].n
		t.popLocked(o)
		if len(o.held) == 0 || o.held[0].n != n+1 {
			t.tellLocked(o, 0)
		}
	}
}

// giveUpLocked ends a wait: the clients are told of what is missing, and get what is there.
func (t *boundObjects) giveUpLocked(o *boundObject) {
	missed := o.order.from - o.order.have
	for i := range o.held {
		if o.held[i].n <= o.order.from {
			missed--
		}
	}
	if missed > 0 {
		t.tellLocked(o, missed)
	}
	for len(o.held) > 0 && o.held[0].n <= o.order.from {
		o.order.have = o.held[0].n
		t.popLocked(o)
	}
	o.order.have = max(o.order.have, o.order.from)
	t.drainLocked(o)
	t.stopLocked(o)
}

// waitLocked has the timer run while something is waited for.
func (t *boundObjects) waitLocked(o *boundObject) {
	switch waits := o.order.waits(); {
	case o.gone:
	case waits && o.timer == nil:
		o.waitID++
		id := o.waitID
		o.timer = time.AfterFunc(t.g.cfg.PushWait, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.waitID != id || o.timer == nil || o.gone {
				return
			}
			o.timer = nil
			t.giveUpLocked(o)
			t.g.count.waitTime.Inc()
		})
	case !waits && o.timer != nil:
		t.stopLocked(o)
		t.g.count.waitOver.Inc()
	}
}

func (t *boundObjects) stopLocked(o *boundObject) {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// tellLocked tells the object's sessions that so many of its pushes are missing, 0: nobody knows how many.
func (t *boundObjects) tellLocked(o *boundObject, missed uint64) {
	if !o.pushed && t.g.isUser(o.key) {
		return // every client has one of these, and most never get a push of it: a node's death is not to have all of them load anew
	}
	g := &wirepb.Gap{KeyType: o.key.Type, KeyZone: o.key.Zone, KeyId: o.key.ID, Missed: missed}
	for _, s := range o.sessions {
		s.gap(g)
	}
}

// onBinding runs bind, unbind and lost that another node sends.
func (g *Gate) onBinding(e *zmsg.Envelope, from zmsg.NodeRef) error {
	b := zmsg.Binding{
		Key: e.Key, Version: e.Version, Owner: zmsg.Address{Node: from, Actor: e.FromActor}, Gate: g.orOwn(e.Session.Gate), Last: e.PushNo,
	}
	if err := b.DecodeSessions(e.Body); err != nil {
		return fmt.Errorf("zgate: %w", err)
	}
	b.Key.ID, b.Owner.Node.ID = strings.Clone(b.Key.ID), strings.Clone(b.Owner.Node.ID)
	switch e.Op {
	case wirepb.SessionOp_SESSION_OP_BIND:
		return g.Bind(&b)
	case wirepb.SessionOp_SESSION_OP_UNBIND:
		return g.Unbind(&b)
	default:
		return g.Lost(&b)
	}
}
