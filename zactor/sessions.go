package zactor

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Sessions is the way to clients, at whatever gate they are. Its methods keep the order in which one caller calls them, and do not
// block; but Join waits until it is in force. p is not changed afterwards.
type Sessions interface {
	Push(to zmsg.SessionRef, p *zmsg.Push) error
	PushMany(to []zmsg.SessionRef, p *zmsg.Push) error
	Publish(group string, p *zmsg.Push) error
	Join(s zmsg.SessionRef, group string) error
	Leave(s zmsg.SessionRef, group string) error
	Kick(s zmsg.SessionRef, code uint32, text string) error
	Watch(s zmsg.SessionRef, actor uint64) error
	Unwatch(s zmsg.SessionRef, actor uint64) error
	Route(s zmsg.SessionRef, r *zmsg.SessionRoute) error
}

// noSessions stands for Config.Sessions where there are none.
type noSessions struct{}

func (noSessions) Push(zmsg.SessionRef, *zmsg.Push) error       { return zmsg.ErrUnavailable }
func (noSessions) PushMany([]zmsg.SessionRef, *zmsg.Push) error { return zmsg.ErrUnavailable }
func (noSessions) Publish(string, *zmsg.Push) error             { return zmsg.ErrUnavailable }
func (noSessions) Join(zmsg.SessionRef, string) error           { return zmsg.ErrUnavailable }
func (noSessions) Leave(zmsg.SessionRef, string) error          { return zmsg.ErrUnavailable }
func (noSessions) Kick(zmsg.SessionRef, uint32, string) error   { return zmsg.ErrUnavailable }
func (noSessions) Watch(zmsg.SessionRef, uint64) error          { return zmsg.ErrUnavailable }
func (noSessions) Unwatch(zmsg.SessionRef, uint64) error        { return zmsg.ErrUnavailable }
func (noSessions) Route(zmsg.SessionRef, *zmsg.SessionRoute) error {
	return zmsg.ErrUnavailable
}

// Sessions returns the way to clients, for work outside of an actor's turn: a Join in Async, say.
func (g *Group) Sessions() Sessions { return g.cfg.Sessions }

// PushOption says more about a push.
type PushOption func(*zmsg.Push)

// Class says what may happen to the push when a client is slow. Defaults to zmsg.Reliable.
func Class(c zmsg.Class) PushOption { return func(p *zmsg.Push) { p.Class = c } }

// LatestOf makes the push one of class zmsg.Latest: while it waits for a slow client a newer one of the same type and the same of, such as the name of
// an entity that moves about, replaces it. of is at most zmsg.MaxOf bytes; a longer one is refused.
func LatestOf(of string) PushOption { return func(p *zmsg.Push) { p.Class, p.Of = zmsg.Latest, of } }

func (c *Context) newPush(msg proto.Message, opts []PushOption) (*zmsg.Push, error) {
	id, ok := zmsg.IDOf(msg)
	if !ok {
		return nil, errNoID
	}
	p := &zmsg.Push{ID: id, Value: msg, Trace: c.SendTrace()}
	for _, o := range opts {
		o(p)
	}
	return p, nil
}

// Push sends msg to a session. It must not be changed afterwards. Errors: ErrUnavailable, and what the gate or bus says.
func (c *Context) Push(to zmsg.SessionRef, msg proto.Message, opts ...PushOption) error {
	p, err := c.newPush(msg, opts)
	if err != nil {
		return err
	}
	return c.sessions().Push(to, p)
}

// PushMany sends msg to each of the sessions. Errors as Push.
func (c *Context) PushMany(to []zmsg.SessionRef, msg proto.Message, opts ...PushOption) error {
	p, err := c.newPush(msg, opts)
	if err != nil {
		return err
	}
	return c.sessions().PushMany(to, p)
}

// Publish sends msg to the sessions that are in the group, at all gates. Errors as Push.
func (c *Context) Publish(group string, msg proto.Message, opts ...PushOption) error {
	p, err := c.newPush(msg, opts)
	if err != nil {
		return err
	}
	return c.sessions().Publish(group, p)
}

// Join puts a session into a group, and waits until it is in force: for another node's session that is a round trip. A
// busy actor joins in Async instead, by Group.Sessions.
func (c *Context) Join(s zmsg.SessionRef, group string) error {
	return c.sessions().Join(s, group)
}

// Leave takes a session out of a group.
func (c *Context) Leave(s zmsg.SessionRef, group string) error {
	return c.sessions().Leave(s, group)
}

// Kick closes a session with a websocket close code and a text for people.
func (c *Context) Kick(s zmsg.SessionRef, code uint32, text string) error {
	return c.sessions().Kick(s, code, text)
}

// WatchSession makes the end of a session a message to this actor: a *wirepb.SessionClosed, once, after what the session
// sent before. That its client is away for a moment, and back, is told by *wirepb.SessionSuspended and *wirepb.SessionResumed, that it goes to another gate by a *wirepb.SessionMoved, with the name that it has from then on; its end comes under that name. An actor that has no handler for it (HandleTell) does not hear of it. A session that is gone already is
// told at once.
func (c *Context) WatchSession(s zmsg.SessionRef) error {
	return c.sessions().Watch(s, c.cell.id)
}

// UnwatchSession takes WatchSession back.
func (c *Context) UnwatchSession(s zmsg.SessionRef) error {
	return c.sessions().Unwatch(s, c.cell.id)
}

var errRouteTo error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "a session's route leads to an actor or an object, not to whoever handles an id"}

// RouteTo returns the route of a session's messages with these ids to an actor, or an object; the zero Ref: none. Errors: zmsg.ErrBadRequest for a
// ref of ByID, or no ids.
func RouteTo(to Ref, ids ...uint32) (zmsg.SessionRoute, error) {
	r := zmsg.SessionRoute{IDs: ids}
	switch {
	case len(ids) == 0:
		return r, zmsg.Errorf(zmsg.CodeBadRequest, "a session's route without message ids")
	case to.far != nil && to.far.object:
		r.Object = to.far.key
	case to.far != nil && to.far.byID:
		return r, errRouteTo
	default:
		r.Actor = to.Address()
	}
	return r, nil
}

// SetRoute has what the session sends from now on with these message ids go to an actor, of any node, or an object (Context.Object), ahead of what
// handles them otherwise; the zero Ref takes that back. The connection is not touched, and what came before has gone the old way. Handlers are to be
// declared FromClients as for any message of a client. A route ends with the session, not with its target: requests to one that is gone end with
// an error, not executed. It does not wait. Errors: ErrUnavailable, and what the gate or bus says.
func (c *Context) SetRoute(s zmsg.SessionRef, to Ref, ids ...uint32) error {
	r, err := RouteTo(to, ids...)
	if err != nil {
		return err
	}
	return c.sessions().Route(s, &r)
}
