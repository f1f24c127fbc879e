package zrouter

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zrouter/internal/handoffpb"
)

// Gates is the way to the gates, which keep for sessions what objects they are bound to. Its methods are called in the turns of objects, and in
// that order; they do not block. Owner of a Binding is the object's actor on this node, which hears of the end of each session (a
// wirepb.SessionClosed, once), also where it has ended before. A gate takes what is of the newest route version it has heard of the object, or
// of a newer one.
type Gates interface {
	// Bind binds sessions, or tells of a new owner of what they are bound to.
	Bind(b *zmsg.Binding)
	// Unbind lets sessions go.
	Unbind(b *zmsg.Binding)
	// Lost says that the object has left memory, and no other node has it from there.
	Lost(b *zmsg.Binding)
	// Forget says that another node owns the object now: the actor hears no more of the sessions.
	Forget(b *zmsg.Binding)
	// BoundKey returns the object of a type that a session of this node's gate is bound to.
	BoundKey(s zmsg.SessionRef, typ uint32) (zmsg.Key, bool)
}

// noGates is where there are none.
type noGates struct{}

func (noGates) Bind(*zmsg.Binding)   {}
func (noGates) Unbind(*zmsg.Binding) {}
func (noGates) Lost(*zmsg.Binding)   {}
func (noGates) Forget(*zmsg.Binding) {}
func (noGates) BoundKey(zmsg.SessionRef, uint32) (zmsg.Key, bool) {
	return zmsg.Key{}, false
}

// MaxBound is how many sessions may be bound to one object.
const MaxBound = 16_384

var (
	errSealed  error = &zmsg.Error{Code: zmsg.CodeHandoff, Outcome: zmsg.NotExecuted, Text: "the object is being handed over to another node"}
	errBound   error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "as many sessions are bound to the object as may be"}
	errSession error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the message is not of a client: there is no session to bind"}
	errNoID          = errors.New("zrouter: a push without (zgame.id): its type is to have one")
)

// Bind binds a client's session to the object, until the session ends, Unbind, or the object's end: what the client sends to the object's kind without
// naming an object by the key field goes to this one; its end comes as a message, as with WatchSession; and what the object pushes to it keeps its
// order while the object moves to another node, where the session is bound still. Of several objects of one kind the client's messages go
// to the one bound last. A bound session keeps the object in memory. Binding twice is binding once.
//
// It does not wait for the gate. Errors: nothing was done: busy for one above MaxBound; ErrHandoff while the object is handed over; zmsg.ErrBadRequest
// for no session.
func (c *Context[S]) Bind(s zmsg.SessionRef) error { return c.cell.res.bind(s) }

// Unbind lets a session go that Bind has bound; its end is not told any more. Errors: ErrHandoff while the object is handed over.
func (c *Context[S]) Unbind(s zmsg.SessionRef) error { return c.cell.res.unbind(s) }

// Sessions returns the sessions that are bound to the object.
func (c *Context[S]) Sessions() []zmsg.SessionRef { return c.cell.res.bound.sessions() }

// PushAll sends msg to each session that is bound to the object. It must not be changed afterwards. Errors: what the gates or the bus say, joined;
// ErrHandoff while the object is handed over.
func (c *Context[S]) PushAll(msg proto.Message, opts ...zactor.PushOption) error {
	p, err := c.push(msg, opts)
	if err != nil {
		return err
	}
	return c.cell.res.pushTo(nil, &p)
}

// Push sends msg to a session, in order with PushAll where it is bound to the object. It must not be changed afterwards. Errors: as PushAll.
func (c *Context[S]) Push(to zmsg.SessionRef, msg proto.Message, opts ...zactor.PushOption) error {
	r := c.cell.res
	if !r.bound.has(to) {
		return c.Context.Push(to, msg, opts...)
	}
	p, err := c.push(msg, opts)
	if err != nil {
		return err
	}
	return r.pushTo([]zmsg.SessionRef{to}, &p)
}

// PushMany is Push for many sessions.
func (c *Context[S]) PushMany(to []zmsg.SessionRef, msg proto.Message, opts ...zactor.PushOption) error {
	r := c.cell.res
	var mine, others []zmsg.SessionRef
	for _, s := range to {
		if r.bound.has(s) {
			mine = append(mine, s)
		} else {
			others = append(others, s)
		}
	}
	var errs [2]error
	if len(others) > 0 {
		errs[0] = c.Context.PushMany(others, msg, opts...)
	}
	if len(mine) > 0 {
		var p zmsg.Push
		if p, errs[1] = c.push(msg, opts); errs[1] == nil {
			errs[1] = r.pushTo(mine, &p)
		}
	}
	return errors.Join(errs[:]...)
}

// SetRoute is that of the actor's Context, said by the object: of several owners of the object the newest one's word counts, however late the others' come.
func (c *Context[S]) SetRoute(s zmsg.SessionRef, to zactor.Ref, ids ...uint32) error {
	r, err := zactor.RouteTo(to, ids...)
	if err != nil {
		return err
	}
	r.By, r.Version = c.Key(), c.Version()
	return c.cell.res.sh.set.group.Sessions().Route(s, &r)
}

// PushEncoded sends p, whose Body is encoded, to bound sessions: to all where to is nil, else to those of to that are bound. Errors: as PushAll.
func (c *Context[S]) PushEncoded(to []zmsg.SessionRef, p zmsg.Push) error {
	r := c.cell.res
	if to != nil {
		to = slices.DeleteFunc(slices.Clone(to), func(s zmsg.SessionRef) bool { return !r.bound.has(s) })
		if len(to) == 0 {
			return nil
		}
	}
	p.Trace = c.SendTrace()
	return r.pushTo(to, &p)
}

func (c *Context[S]) push(msg proto.Message, opts []zactor.PushOption) (p zmsg.Push, err error) {
	id, ok := zmsg.IDOf(msg)
	if !ok {
		return p, errNoID
	}
	p.ID, p.Value, p.Trace = id, msg, c.SendTrace()
	for _, o := range opts {
		o(&p)
	}
	return p, nil
}

// bound is the sessions that are bound to an object, by their gates. It belongs to the turns of the object's actor; nil: there are none.
type bound struct {
	gates  []*boundGate
	count  int
	sealed bool                   // what is here is on its way to another node
	went   []*wirepb.SessionMoved // meanwhile
}

// boundGate is those of one gate.
type boundGate struct {
	node  zmsg.NodeRef
	list  []zmsg.SessionRef
	at    map[zmsg.SessionRef]int // index in list
	last  uint64                  // number of the last push to the gate
	base  uint64                  // that of the last before the first of these sessions was bound
	since zmsg.RouteVersion       // of the owner that has begun to count
}

func (b *bound) gate(n zmsg.NodeRef) *boundGate {
	if b == nil {
		return nil
	}
	for _, g := range b.gates {
		if g.node == n {
			return g
		}
	}
	return nil
}

func (b *bound) has(s zmsg.SessionRef) bool {
	g := b.gate(s.Gate)
	if g == nil {
		return false
	}
	_, ok := g.at[s]
	return ok
}

func (b *bound) sessions() (all []zmsg.SessionRef) {
	if b == nil {
		return nil
	}
	for _, g := range b.gates {
		all = append(all, g.list...)
	}
	return all
}

// add adds a session that is not there.
func (b *bound) add(s zmsg.SessionRef, version zmsg.RouteVersion) *boundGate {
	g := b.gate(s.Gate)
	if g == nil {
		g = &boundGate{node: s.Gate, at: make(map[zmsg.SessionRef]int), since: version}
		b.gates = append(b.gates, g)
	}
	g.at[s] = len(g.list)
	g.list = append(g.list, s)
	b.count++
	return g
}

// remove takes a session out, and its gate where it was the last one; nil where it is not there.
func (b *bound) remove(s zmsg.SessionRef) *boundGate {
	g := b.gate(s.Gate)
	if g == nil {
		return nil
	}
	i, there := g.at[s]
	if !there {
		return nil
	}
	last := len(g.list) - 1
	g.list[i] = g.list[last]
	g.at[g.list[i]] = i
	g.list = g.list[:last]
	delete(g.at, s)
	b.count--
	if last == 0 {
		b.gates = slices.DeleteFunc(b.gates, func(o *boundGate) bool { return o == g })
	}
	return g
}

// binding says of g's sessions, or of some of them, what a gate is told.
func (r *residence) binding(g *boundGate, sessions []zmsg.SessionRef, base uint64) *zmsg.Binding {
	return &zmsg.Binding{
		Key: r.o.key, Version: r.version, Owner: zmsg.Address{Node: r.sh.set.self.Ref(), Actor: r.actor}, Gate: g.node,
		Sessions: sessions, Last: g.last, Base: base, Since: g.since,
	}
}

func (r *residence) bind(s zmsg.SessionRef) error {
	if s.IsZero() {
		return errSession
	}
	b := r.bound
	switch {
	case b == nil:
		b = new(bound)
		r.bound = b
	case b.sealed:
		return errSealed
	case b.has(s):
		return nil
	case b.count >= MaxBound:
		return errBound
	}
	g := b.add(s, r.version)
	if len(g.list) == 1 {
		g.base = g.last
	}
	r.boundCount.Store(int32(b.count))
	r.sh.set.gates.Bind(r.binding(g, []zmsg.SessionRef{s}, g.last))
	return nil
}

func (r *residence) unbind(s zmsg.SessionRef) error {
	b := r.bound
	switch {
	case !b.has(s):
		return nil
	case b.sealed:
		return errSealed
	}
	g := b.remove(s)
	r.boundCount.Store(int32(b.count))
	r.sh.set.gates.Unbind(r.binding(g, []zmsg.SessionRef{s}, 0))
	return nil
}

// sessionClosed takes a session out that has ended.
func (r *residence) sessionClosed(s zmsg.SessionRef) {
	if b := r.bound; b != nil && b.remove(s) != nil {
		r.boundCount.Store(int32(b.count))
	}
}

// sessionMoved binds a session at the gate that it has come to. What is pushed to it from here on has its number there, and comes behind what was sent
// to it by its name before.
func (r *residence) sessionMoved(m *wirepb.SessionMoved) {
	from, to := zmsg.MovedSession(m)
	b := r.bound
	if !b.has(from) {
		return
	}
	if b.sealed {
		b.went = append(b.went, m) // the next owner hears so by itself, when it binds them
		return
	}
	b.remove(from)
	if err := r.bind(to); err != nil {
		r.o.log().Warn("a session that went to another gate is not bound any more", "session", to.ID, "err", err)
	}
	r.boundCount.Store(int32(b.count))
}

// pushTo sends p to bound sessions, nil: to all.
func (r *residence) pushTo(to []zmsg.SessionRef, p *zmsg.Push) error {
	b := r.bound
	switch {
	case b == nil || b.count == 0:
		return nil
	case b.sealed:
		return errSealed
	}
	if len(to) == 1 {
		return r.pushGate(b.gate(to[0].Gate), to, p)
	}
	var err error
	if len(b.gates) > 1 { // once for all
		if p.Body, err = p.EncodedBody(); err != nil {
			return err
		}
	}
	for _, g := range b.gates {
		list := g.list
		if to != nil {
			list = nil
			for _, s := range to {
				if s.Gate == g.node {
					list = append(list, s)
				}
			}
			if len(list) == 0 {
				continue
			}
		}
		if e := r.pushGate(g, list, p); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// pushGate sends p to sessions of one gate. What was not sent has no number.
func (r *residence) pushGate(g *boundGate, to []zmsg.SessionRef, p *zmsg.Push) (err error) {
	g.last++
	p.Key, p.Version, p.No = r.o.key, r.version, g.last
	if len(to) == 1 {
		err = r.sh.set.group.Sessions().Push(to[0], p)
	} else {
		err = r.sh.set.group.Sessions().PushMany(to, p)
	}
	if err != nil && !numbered(err) {
		g.last--
	}
	return err
}

// numbered reports that the gate may have seen a push that failed: a number that comes twice would lose the second, one that never comes is a
// gap that the clients are told of.
func numbered(err error) bool {
	switch zmsg.CodeOf(err) { //nolint:exhaustive // the link, and a gate before it looks
	case zmsg.CodeUnavailable, zmsg.CodeBusy, zmsg.CodeTooLarge:
		return false
	}
	return true
}

// rebind tells the gates of a new owner, which came with gates, or of a new actor. It is called when the actor starts, before anything can
// be pushed.
func (r *residence) rebind(zc *zactor.Context, gates []*handoffpb.BoundGate) {
	r.actor = zc.Self().Address().Actor
	if r.bound == nil { // else they are of a stay here, and newer
		var err error
		if r.bound, err = boundOf(gates); err != nil {
			r.o.log().Error("the sessions that were bound to the object are lost", "err", err)
		}
	}
	b := r.bound
	if b == nil {
		return
	}
	r.boundCount.Store(int32(b.count))
	for _, g := range b.gates {
		r.sh.set.gates.Bind(r.binding(g, g.list, g.base))
	}
}

// seal returns what of the bound sessions moves with the object; from then on nothing is pushed or bound until unseal.
func (r *residence) seal() []*handoffpb.BoundGate {
	b := r.bound
	if b == nil {
		b = new(bound)
		r.bound = b
	}
	b.sealed = true
	var out []*handoffpb.BoundGate
	for _, g := range b.gates {
		w := &handoffpb.BoundGate{
			Node: g.node.ID, Epoch: g.node.Epoch, Pushes: g.last, Base: g.base, Since: uint64(g.since),
			Sessions: make([]uint64, len(g.list)), Generations: make([]uint32, len(g.list)),
		}
		for i, s := range g.list {
			w.Sessions[i], w.Generations[i] = s.ID, s.Gen
		}
		out = append(out, w)
	}
	return out
}

// unseal goes on where the object was not handed over.
func (r *residence) unseal() {
	b := r.bound
	if b == nil {
		return
	}
	b.sealed = false
	went := b.went
	b.went = nil
	for _, m := range went {
		r.sessionMoved(m)
	}
}

var errGates = errors.New("zrouter: what was handed over of bound sessions makes no sense")

// boundOf is the sessions that came with an object. The error says that they make no sense: nil then.
func boundOf(gates []*handoffpb.BoundGate) (*bound, error) {
	if len(gates) == 0 {
		return nil, nil //nolint:nilnil // nil: there are none
	}
	b := new(bound)
	for _, w := range gates {
		n := zmsg.NodeRef{ID: w.GetNode(), Epoch: w.GetEpoch()}
		if n.IsZero() || b.gate(n) != nil || len(w.GetSessions()) != len(w.GetGenerations()) || b.count+len(w.GetSessions()) > MaxBound ||
			len(w.GetSessions()) == 0 || w.GetBase() > w.GetPushes() {
			return nil, errGates
		}
		var g *boundGate
		for i, id := range w.GetSessions() {
			s := zmsg.SessionRef{Gate: n, ID: id, Gen: w.GetGenerations()[i]}
			if b.has(s) {
				return nil, errGates
			}
			g = b.add(s, zmsg.RouteVersion(w.GetSince()))
		}
		g.last, g.base = w.GetPushes(), w.GetBase()
	}
	return b, nil
}

// left tells the gates that the object has left the memory of this node, in the last turn of its actor.
func (r *residence) left(why Reason) {
	b := r.bound
	if b == nil || len(b.gates) == 0 {
		return
	}
	r.bound = nil
	gates := r.sh.set.gates
	for _, g := range b.gates {
		x := r.binding(g, g.list, 0)
		switch {
		case why == Panicked, b.sealed && (why == Moved || why == Released):
			gates.Forget(x) // it comes back with another actor, here, or where what is handed over is
		case r.leaving():
			gates.Unbind(x)
		default:
			gates.Lost(x)
		}
	}
	if why == Panicked {
		b.sealed = false // what it was to be handed over with has ended with the actor
		r.sh.mu.Lock()
		r.o.orphans, r.o.orphaned = b, r.version
		r.sh.mu.Unlock()
	}
}

// orphan tells the gates of an object that has not come back after a panic. The shard's mu is held.
func (o *object) orphan() {
	r := &residence{o: o, sh: o.sh, version: o.orphaned}
	for _, g := range o.orphans.gates {
		o.sh.set.gates.Lost(r.binding(g, g.list, 0))
	}
	o.orphans = nil
}
