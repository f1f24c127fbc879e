package zactor

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// tap stands between an actor and everybody else: a recorder notes what passes, a replay answers in place of the others. Nearly
// all actors have none; then each of the places where it is asked costs a look at a field of the Context.
//
// The first methods are called when a turn begins, in the turn, before code of the user runs; the others within one. ask may be
// called from other goroutines as well.
type tap interface {
	created(c *cell) // a new instance; before OnStart
	started(x *Context)
	message(x *Context, h *Handler)
	outcome(x *Context, f *future)
	tick(x *Context, t *timer)
	down(x *Context, d downItem)
	escalated(x *Context, e *EscalatedError)
	crashed(x *Context, k *crash)

	call(x *Context, to Ref, req proto.Message) (*future, error)
	ask(ctx context.Context, to Ref, req proto.Message, t *turnContext) (*future, error)
	// then sees a request whose outcome comes to f; it reports whether it keeps it from being sent.
	then(x *Context, f *future, token uint64, to Ref, req proto.Message) (kept bool)
	// async sees work whose result comes to f; do starts it.
	async(x *Context, f *future, token uint64, do func() error) error
	// result is called in the turn in which work's result is handled, which it may note or set.
	result(x *Context, result any, err *error)
	// effect does what tells the actor nothing but whether it failed.
	effect(x *Context, k opKind, what effect, do func() error) error
	spawn(x *Context, name string, do func() (Ref, error)) (Ref, error)
	timer(x *Context) opID
	// watch reports whether w is kept from being registered.
	watch(x *Context, w *watch) (kept bool)
}

// effect says what an actor does to others.
type effect struct {
	to      Ref
	session zmsg.SessionRef
	others  int    // further sessions
	text    string // group, topic
	msg     proto.Message
}

func (c *Context) callTapped(to Ref, req proto.Message) (*future, error) {
	if c.tap == nil {
		return c.call(to, req)
	}
	return c.tap.call(c, to, req)
}

func askTapped(ctx context.Context, to Ref, req proto.Message, t *turnContext) (*future, error) {
	if t == nil || t.tap == nil {
		return ask(ctx, to, req, t)
	}
	return t.tap.ask(ctx, to, req, t)
}

func (c *Context) tellTapped(to Ref, msg proto.Message) error {
	return c.tap.effect(c, opTell, effect{to: to, msg: msg}, func() error { return c.tell(to, msg) })
}

func (c *Context) forwardTapped(to Ref, m *zmsg.Message) error {
	return c.tap.effect(c, opForward, effect{to: to, msg: m.Value}, func() error { return c.forward(to, m) })
}

func (c *Context) spawnTapped(name string, factory func() Actor, opts []SpawnOption) (Ref, error) {
	return c.tap.spawn(c, name, func() (Ref, error) { return c.cell.g.spawn(c.cell, name, factory, opts) })
}

// sessions is the way to clients for a turn.
func (c *Context) sessions() Sessions {
	if c.tap == nil {
		return c.cell.g.cfg.Sessions
	}
	return tappedSessions{c, c.cell.g.cfg.Sessions}
}

// tappedSessions is the Sessions of an actor with a tap.
type tappedSessions struct {
	c *Context
	s Sessions
}

func (t tappedSessions) do(k opKind, e effect, p *zmsg.Push, do func() error) error {
	if p != nil {
		e.msg = p.Value
	}
	return t.c.tap.effect(t.c, k, e, do)
}

func (t tappedSessions) Push(to zmsg.SessionRef, p *zmsg.Push) error {
	return t.do(opPush, effect{session: to}, p, func() error { return t.s.Push(to, p) })
}

func (t tappedSessions) PushMany(to []zmsg.SessionRef, p *zmsg.Push) error {
	e := effect{others: len(to) - 1}
	if len(to) > 0 {
		e.session = to[0]
	}
	return t.do(opPush, e, p, func() error { return t.s.PushMany(to, p) })
}

func (t tappedSessions) Publish(group string, p *zmsg.Push) error {
	return t.do(opPublish, effect{text: group}, p, func() error { return t.s.Publish(group, p) })
}

func (t tappedSessions) Join(s zmsg.SessionRef, group string) error {
	return t.do(opJoin, effect{session: s, text: group}, nil, func() error { return t.s.Join(s, group) })
}

func (t tappedSessions) Leave(s zmsg.SessionRef, group string) error {
	return t.do(opLeave, effect{session: s, text: group}, nil, func() error { return t.s.Leave(s, group) })
}

func (t tappedSessions) Kick(s zmsg.SessionRef, code uint32, text string) error {
	return t.do(opKick, effect{session: s, text: text}, nil, func() error { return t.s.Kick(s, code, text) })
}

func (t tappedSessions) Watch(s zmsg.SessionRef, actor uint64) error {
	return t.do(opWatchSession, effect{session: s}, nil, func() error { return t.s.Watch(s, actor) })
}

func (t tappedSessions) Unwatch(s zmsg.SessionRef, actor uint64) error {
	return t.do(opUnwatchSession, effect{session: s}, nil, func() error { return t.s.Unwatch(s, actor) })
}

func (t tappedSessions) Route(s zmsg.SessionRef, r *zmsg.SessionRoute) error {
	return t.do(opRoute, effect{session: s}, nil, func() error { return t.s.Route(s, r) })
}

// now returns the time of the tick that is handled, in nanoseconds of the group's clock.
func (t *timer) now() int64 {
	if n := t.noted; n != 0 {
		t.noted = 0
		return n
	}
	return t.pool.g.futures.now()
}

// since notes the time of the tick, and returns how late it is; for a Loop the time since its start.
func (t *timer) since() int64 {
	now := t.pool.g.futures.now()
	t.noted = now
	switch {
	case t.loop != nil:
		return now - t.loop.start
	case t.period > 0:
		return now - t.due
	default:
		return 0
	}
}

// setSince makes the tick as late as it was.
func (t *timer) setSince(d time.Duration) {
	now := t.pool.g.futures.now()
	switch {
	case t.loop != nil:
		t.loop.start = now - int64(d)
	case t.period > 0:
		t.due = now - int64(d)
	}
}
