package game

import (
	"zgame/examples/game/gamepb"
	"zgame/zactor"
)

// lobby is a service actor: each node has one, and a client's Hello goes to that of its gate's node. It handles one message at a time, so what it
// has needs no lock. It is not saved: what must not be lost belongs into an object, see tables.go.
type lobby struct {
	visits uint64
}

func newLobby() zactor.Actor { return &lobby{} }

// Handlers says what the actor understands.
func (l *lobby) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(l.hello, zactor.FromClients())}
}

func (l *lobby) hello(c *zactor.Context, _ *gamepb.Hello) (*gamepb.Welcome, error) {
	l.visits++
	return &gamepb.Welcome{Node: c.Self().Address().Node.ID, Visits: l.visits}, nil
}
