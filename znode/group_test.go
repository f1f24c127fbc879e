package znode_test

import (
	"context"
	"errors"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/znode"
)

// worker answers from work on a pool of its own, and fails where there is no room to speak of.
type worker struct{}

func (worker) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, w *chatpb.Who) (*chatpb.Members, error) {
		if w.GetRoom() == "" {
			panic(errNoRoom)
		}
		d := c.Defer()
		if err := zactor.Async(c, func(context.Context) (string, error) { return w.GetRoom(), nil }, func(_ *zactor.Context, room string, err error) {
			d.Reply(&chatpb.Members{Room: room})
		}, zactor.OnPool("db")); err != nil {
			return nil, err
		}
		return nil, zactor.ErrDeferred
	})}
}

var errNoRoom = errors.New("no room")

// What the application says about the node's actors reaches their group: pools, dead letters, failures that nobody took.
func TestGroupOfANode(t *testing.T) {
	t.Parallel()
	dead, escalated := make(chan zactor.DeadLetter, 1), make(chan error, 1)
	n := start(t, newRig().config("a", znode.App{
		AsyncPools:   map[string]zactor.AsyncPool{"db": {Workers: 1}},
		OnDeadLetter: func(_ *znode.Node, d zactor.DeadLetter) { dead <- d },
		OnEscalate:   func(_ *znode.Node, e *zactor.EscalatedError) { escalated <- e },
		Setup: func(n *znode.Node) error {
			_, err := n.Spawn("worker", func() zactor.Actor { return worker{} },
				zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return zactor.Escalate }}))
			return err
		},
	}))
	ref, _ := n.Group().Lookup("worker")
	if got, err := zactor.Ask[chatpb.Members](t.Context(), ref, &chatpb.Who{Room: "go"}); err != nil || got.GetRoom() != "go" {
		t.Errorf("%v, %v", got, err)
	}
	if err := ref.Tell(&chatpb.Say{}); err != nil {
		t.Fatal(err)
	}
	if d := <-dead; d.Name != "worker" || d.Reason != "no_handler" {
		t.Errorf("the dead letter is %+v", d)
	}
	if err := ref.Tell(&chatpb.Who{}); err != nil {
		t.Fatal(err)
	}
	if err := <-escalated; !errors.Is(err, errNoRoom) {
		t.Errorf("escalated: %v", err)
	}
}
