package zactor_test

import (
	"context"
	"fmt"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

// board shows what is published on a topic.
type board struct{ topic string }

func (b *board) Handlers() []zactor.Handler { return []zactor.Handler{zactor.HandleTell(b.show)} }

func (b *board) OnStart(c *zactor.Context) error {
	return c.Subscribe(b.topic)
}

func (b *board) show(c *zactor.Context, n *testpb.Note) error {
	fmt.Println(c.Name(), "shows", n.GetN())
	return nil
}

// printer is one of several that share the work.
type printer struct{}

func (printer) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
		fmt.Println("one printer prints", n.GetN())
		return nil
	})}
}

func (printer) OnStart(c *zactor.Context) error {
	return c.SubscribeQueue("scores", "printers")
}

// Each board shows a score, and one of the printers prints it. On a node of znode they may be anywhere in the cluster.
func ExampleContext_Subscribe() {
	group, steps, _ := zactor.NewManual(zactor.Config{})
	for _, name := range []string{"north", "south"} {
		_, _ = group.Spawn(name, func() zactor.Actor { return &board{topic: "scores"} })
	}
	for range 3 {
		_, _ = group.Spawn("", func() zactor.Actor { return printer{} })
	}
	referee, _ := group.Spawn("referee", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
			err := c.PublishTopic("scores", &testpb.Note{N: req.GetN()})
			return &testpb.Pong{}, err
		})}}
	})
	_ = referee.Tell(&testpb.Ping{N: 3})
	steps.Run(100)
	_ = group.Shutdown(context.Background())
	// Output:
	// north shows 3
	// south shows 3
	// one printer prints 3
}
