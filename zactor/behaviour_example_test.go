package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// table is a match that watches its dealer, and makes one child for each player.
type table struct{ dealer zactor.Ref }

func (t *table) Handlers() []zactor.Handler { return nil }

func (t *table) OnStart(c *zactor.Context) error {
	c.Watch(t.dealer, func(c *zactor.Context, d zactor.Down) {
		fmt.Println("the dealer is gone:", d.Reason)
		c.Stop()
	})
	for _, name := range []string{"ann", "bob"} {
		if _, err := c.Spawn(name, func() zactor.Actor { return &player{} }); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) OnStop(c *zactor.Context, why zactor.Reason) {
	fmt.Println(c.Name(), "ends:", why, "- with", len(c.Children()), "children left")
}

type player struct{}

func (p *player) Handlers() []zactor.Handler { return nil }

func (p *player) OnStop(c *zactor.Context, why zactor.Reason) { fmt.Println(c.Name(), "ends:", why) }

// An actor that learns of another's end, and whose children end with it.
func ExampleContext_Watch() {
	ctx := context.Background()
	group, steps, _ := zactor.NewManual(zactor.Config{})
	dealer, _ := group.Spawn("dealer", func() zactor.Actor { return &greeter{} })
	_, _ = group.Spawn("table", func() zactor.Actor { return &table{dealer: dealer} })
	_ = group.Stop(dealer)
	steps.Run(100)
	_ = group.Shutdown(ctx)
	// Output:
	// the dealer is gone: requested
	// table/bob ends: parent
	// table/ann ends: parent
	// table ends: requested - with 0 children left
}

var errNoMoney = errors.New("no money")

// A policy decides by the cause of a failure: here the actor keeps its state for one kind, and starts afresh for all others.
func ExamplePolicy() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	policy := zactor.Policy{
		Decide: func(cause error) zactor.Directive {
			if errors.Is(cause, errNoMoney) {
				return zactor.Resume
			}
			return zactor.Restart
		},
		MaxRestarts: 3,
		Window:      time.Minute,
		PastLimit:   zactor.Stop,
	}
	shop, _ := group.Spawn("shop", func() zactor.Actor {
		sold := int64(0)
		return &actor{handlers: []zactor.Handler{zactor.Handle(func(_ *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
			switch req.GetText() {
			case "poor":
				panic(errNoMoney)
			case "broken":
				panic("the till is broken")
			}
			sold++
			return &testpb.Pong{N: sold}, nil
		})}}
	}, zactor.WithPolicy(policy))
	for _, who := range []string{"ann", "poor", "bob", "broken", "carl"} {
		pong, err := zactor.Ask[testpb.Pong](ctx, shop, &testpb.Ping{Text: who})
		fmt.Println(who, pong.GetN(), zmsg.CodeOf(err))
	}
	_ = group.Shutdown(ctx)
	// Output:
	// ann 1 ok
	// poor 0 panicked
	// bob 2 ok
	// broken 0 panicked
	// carl 1 ok
}

// Two actors that ask each other: each goes on with other messages while it waits.
func ExampleReentrant() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	var left, right zactor.Ref
	half := func(other *zactor.Ref) func() zactor.Actor {
		return func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
				if req.GetN() == 0 {
					return &testpb.Pong{Text: "done"}, nil
				}
				answer, err := zactor.Call[testpb.Pong](c, *other, &testpb.Ping{N: req.GetN() - 1})
				return &testpb.Pong{Text: c.Name() + " " + answer.GetText()}, err
			})}}
		}
	}
	left, _ = group.Spawn("left", half(&right), zactor.Reentrant())
	right, _ = group.Spawn("right", half(&left), zactor.Reentrant())
	pong, err := zactor.Ask[testpb.Pong](ctx, left, &testpb.Ping{N: 4})
	fmt.Println(pong.GetText(), err)
	_ = group.Shutdown(ctx)
	// Output: left right left right done <nil>
}

// An actor for each user that is made when it is needed, and ends when nobody has needed it for ten minutes.
func ExampleGroup_Reach() {
	ctx := context.Background()
	clock := zactortest.NewClock(time.Unix(0, 0))
	group, steps, _ := zactor.NewManual(zactor.Config{Clock: clock})
	visit := func(user string) {
		err := group.Reach(ctx, "user/"+user, func() zactor.Actor { return &greeter{} }, func(ref zactor.Ref) error {
			pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{Text: user})
			fmt.Println(pong.GetText(), pong.GetN())
			return err
		}, zactor.WithIdle(10*time.Minute))
		if err != nil {
			fmt.Println(err)
		}
	}
	visit("ann")
	visit("ann")
	clock.Advance(20 * time.Minute)
	steps.Run(100)
	fmt.Println(group.Len(), "actors")
	visit("ann")
	_ = group.Shutdown(ctx)
	// Output:
	// hello ann 1
	// hello ann 2
	// 0 actors
	// hello ann 1
}

// A simulation in steps of a thirtieth of a second.
func ExampleContext_Loop() {
	clock := zactortest.NewClock(time.Unix(0, 0))
	group, steps, _ := zactor.NewManual(zactor.Config{Clock: clock})
	_, _ = group.Spawn("world", func() zactor.Actor {
		return &actor{start: func(c *zactor.Context) error {
			c.Loop(30, func(_ *zactor.Context, t zactor.Tick) {
				fmt.Println("step", t.N, "left out before it:", t.Skipped)
			}, zactor.CatchUp(2))
			return nil
		}}
	})
	clock.Advance(time.Second / 30)
	steps.Run(100)
	clock.Advance(4 * time.Second / 30) // the actor was late: two steps are made up for
	steps.Run(100)
	_ = group.Shutdown(context.Background())
	// Output:
	// step 1 left out before it: 0
	// step 4 left out before it: 2
	// step 5 left out before it: 0
}

// Mailboxes that are full.
func ExampleWithOverflow() {
	ctx := context.Background()
	group, steps, _ := zactor.NewManual(zactor.Config{}) // nothing is handled before steps.Run
	show := func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			fmt.Println(c.Name(), "got", n.GetN())
			return nil
		})}}
	}
	for name, overflow := range map[string]zactor.Overflow{"orders": zactor.Reject, "positions": zactor.DropOldest} {
		ref, _ := group.Spawn(name, show, zactor.WithMailbox(2), zactor.WithOverflow(overflow))
		for i := range int64(4) {
			if err := ref.Tell(&testpb.Note{N: i}); err != nil {
				fmt.Println(name, i, zmsg.CodeOf(err))
			}
		}
	}
	steps.Run(100)
	_ = group.Shutdown(ctx)
	// Unordered output:
	// orders 2 busy
	// orders 3 busy
	// orders got 0
	// orders got 1
	// positions got 2
	// positions got 3
}
