package zactor

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Ref is the address of an actor, here or on another node: a small value that is copied freely and used from any goroutine.
// A ref to an actor of this node carries it, and stays its ref over restarts; once the actor has ended, messages are refused
// with ErrStopped. The zero Ref is nobody: ErrUnknownActor.
type Ref struct {
	cell *cell
	far  *far
}

// far is where a ref points that is not an actor of this group.
type far struct {
	g      *Group
	addr   zmsg.Address
	byID   bool     // through the Router
	object bool     // through the Objects
	key    zmsg.Key // of an object
	name   string   // in a replay: of an actor of the node that was recorded
}

// found reports whether the messages say themselves where they go: what they are about may decide, and travels with them.
func (f *far) found() bool { return f.byID || f.object }

// IsZero reports whether r is nobody.
func (r Ref) IsZero() bool { return r == Ref{} }

// Address returns the actor's place in the cluster; zero for the zero Ref, and for those of ByID and Object.
func (r Ref) Address() zmsg.Address {
	switch {
	case r.cell != nil:
		return r.cell.address()
	case r.far != nil:
		return r.far.addr
	default:
		return zmsg.Address{}
	}
}

// String names the actor for logs.
func (r Ref) String() string {
	if name := r.name(); name != "" {
		return name
	}
	return r.Address().String()
}

// name returns the name of an actor of this node, or what an object is called; "" if it has none.
func (r Ref) name() string {
	switch {
	case r.cell != nil:
		return r.cell.name
	case r.far == nil:
		return ""
	case r.far.object:
		return "object " + r.far.key.String()
	default:
		return r.far.name
	}
}

// Load returns how many messages wait for the actor; 0 for one of another node.
func (r Ref) Load() int {
	if r.cell == nil {
		return 0
	}
	return r.cell.load()
}

// Tell sends a one-way message. msg must not be changed afterwards: a receiver in the same process gets it as it is.
// Errors: ErrBusy, ErrStopped, ErrUnknownActor, ErrDraining, ErrUnavailable, ErrNoRoute, and what the bus or the router of objects says; on an error
// nothing was sent.
func (r Ref) Tell(msg proto.Message) error {
	if c := r.cell; c != nil {
		if c.g.draining.Load() {
			c.g.refused(zmsg.ErrDraining)
			return zmsg.ErrDraining
		}
		it := item{value: msg}
		err := c.pushUser(&it)
		if err != nil {
			err = c.overflow(&it, err, patience{waits: true})
		}
		return err
	}
	return r.tellFar(msg, nil)
}

// Deliver gives m to the actor. A nil error means that it took m over, else m stays with the caller.
// Errors: as Group.Deliver, and as Tell.
func (r Ref) Deliver(m *zmsg.Message) error {
	c := r.cell
	switch {
	case c == nil:
		return r.deliverFar(m)
	case c.g.draining.Load() && !zmsg.SessionEvent(m.ID) && m.ID != zmsg.FenceID:
		c.g.refused(zmsg.ErrDraining)
		return zmsg.ErrDraining
	default:
		return c.deliver(m, patience{})
	}
}

// tellFar sends a one-way message off this group, or by its id.
func (r Ref) tellFar(msg proto.Message, from *Context) error {
	if r.far == nil {
		return zmsg.ErrUnknownActor
	}
	if t := r.far.teller(); t != nil && (from == nil || from.SendTrace().Span == 0) {
		if id, ok := zmsg.Plain(msg); ok && id != 0 {
			d := zmsg.Tell{To: r.far.addr.Actor, ID: id}
			if from != nil {
				d.From, d.Trace = from.cell.id, from.Trace()
			}
			return t.Tell(r.far.addr.Node, d, msg)
		}
	}
	m, err := newMessage(msg)
	if err != nil {
		return err
	}
	if from != nil {
		from.sign(m, r.far.found())
	}
	if err := r.deliverFar(m); err != nil {
		m.Release()
		return err
	}
	return nil
}

// teller returns what takes one-way messages to f; nil: deliverFar does, or says why not.
func (f *far) teller() Teller {
	g := f.g
	if f.found() || g.teller == nil || f.addr.Actor == 0 || g.replay != nil || g.closed.Load() || g.self.Is(f.addr.Node) {
		return nil
	}
	return g.teller
}

// deliverFar sends m off this group, or by its id. A nil error means that m is given away.
func (r Ref) deliverFar(m *zmsg.Message) error {
	f := r.far
	switch {
	case f == nil:
		return zmsg.ErrUnknownActor
	case f.g.replay != nil:
		return f.g.replay.send(f, m)
	case f.g.closed.Load():
		return zmsg.ErrStopped
	case f.byID:
		if f.g.cfg.Router == nil {
			return zmsg.ErrNoRoute
		}
		return f.g.cfg.Router.Dispatch(m)
	case f.object:
		if f.g.cfg.Objects == nil {
			return zmsg.ErrUnavailable
		}
		return f.g.cfg.Objects.DeliverObject(f.key, m)
	case f.g.self.Is(f.addr.Node):
		return zmsg.ErrUnknownActor
	case f.g.cfg.Remote == nil:
		return zmsg.ErrUnavailable
	}
	to, token := m.TakeReplier()
	if err := f.g.cfg.Remote.Send(f.addr, m, to, token); err != nil {
		m.SetReplier(to, token)
		return err
	}
	m.Release()
	return nil
}

var errNoID error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the message's type has no (zgame.id)"}

func newMessage(msg proto.Message) (*zmsg.Message, error) {
	id, ok := zmsg.IDOf(msg)
	if !ok {
		return nil, errNoID
	}
	m := zmsg.NewMessage(id)
	m.Value = msg
	return m, nil
}
