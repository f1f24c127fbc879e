package zactor_test

import (
	"context"
	"fmt"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// greeter counts whom it greets: plain state, which nobody else touches.
type greeter struct{ greeted int64 }

func (g *greeter) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(g.greet, zactor.FromClients())}
}

func (g *greeter) greet(_ *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
	if req.GetText() == "" {
		return nil, zmsg.Errorf(1001, "say who you are")
	}
	g.greeted++
	return &testpb.Pong{N: g.greeted, Text: "hello " + req.GetText()}, nil
}

// An actor, and who asks it.
func Example() {
	ctx := context.Background()
	group, err := zactor.NewGroup(zactor.Config{Node: zmsg.NodeRef{ID: "n1", Epoch: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, err := group.Spawn("greeter", func() zactor.Actor { return &greeter{} })
	if err != nil {
		fmt.Println(err)
		return
	}
	pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{Text: "ann"})
	fmt.Println(pong.GetText(), pong.GetN(), err)

	_, err = zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{})
	fmt.Println(err, "-", zmsg.CodeOf(err) == 1001)

	fmt.Println(group.Shutdown(ctx))
	// Output:
	// hello ann 1 <nil>
	// application: say who you are (code 1001, executed) - true
	// <nil>
}

// A handler that goes on while another actor works, and replies later.
func ExampleThen() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	bank, _ := group.Spawn("bank", func() zactor.Actor { return &greeter{} })
	shop, _ := group.Spawn("shop", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(c *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
				reply := c.Defer()
				zactor.Then(c, bank, req, func(_ *zactor.Context, answer *testpb.Pong, err error) {
					if err != nil {
						reply.Fail(err)
						return
					}
					reply.Reply(&testpb.Pong{Text: "the bank says " + answer.GetText()})
				})
				return nil, zactor.ErrDeferred
			}),
		}}
	})
	pong, err := zactor.Ask[testpb.Pong](ctx, shop, &testpb.Ping{Text: "bob"})
	fmt.Println(pong.GetText(), err)
	_ = group.Shutdown(ctx)
	// Output: the bank says hello bob <nil>
}

// A one-way message.
func ExampleRef_Tell() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	ref, _ := group.Spawn("log", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{
			zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
				fmt.Println("note", n.GetN())
				return nil
			}),
		}}
	})
	for i := range int64(3) {
		if err := ref.Tell(&testpb.Note{N: i}); err != nil {
			fmt.Println(err)
		}
	}
	_ = group.Shutdown(ctx) // handles what waits
	// Output:
	// note 0
	// note 1
	// note 2
}
