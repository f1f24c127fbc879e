package zactor

import "zgame/zmsg"

// Objects takes messages for stateful actors, which live on one of the nodes and are named by their key; zrouter's ManagerSet is one. With
// a nil error it took m over, and sees to its reply; on an error m stays with the caller.
type Objects interface {
	DeliverObject(k zmsg.Key, m *zmsg.Message) error
}

// Object returns a ref that stands for the stateful actor of the key, wherever it lives: each message goes through Config.Objects, with the
// sender, the call chain and the session that it is about. It is not checked that there is one; what a message ends with says it.
// A Watch of it ends at once, with UnknownActor: objects come and go with the requests to them.
func (g *Group) Object(k zmsg.Key) Ref { return Ref{far: &far{g: g, object: true, key: k}} }

// Object returns a ref that stands for a stateful actor: see Group.Object.
func (c *Context) Object(k zmsg.Key) Ref { return c.cell.g.Object(k) }
