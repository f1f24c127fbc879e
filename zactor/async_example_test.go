package zactor_test

import (
	"context"
	"errors"
	"fmt"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

// Slow work beside an actor, on a pool of its own; the result counts only while the shop is open.
func ExampleAsync() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{AsyncPools: map[string]zactor.AsyncPool{"db": {Workers: 4}}})
	load := func(context.Context) (int64, error) { return 42, nil }
	ref, _ := group.Spawn("shop", func() zactor.Actor {
		open := true
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(c *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
				reply := c.Defer()
				stillOpen := zactor.CheckThen(func(*zactor.Context) error {
					if !open {
						return errors.New("closed meanwhile")
					}
					return nil
				})
				err := zactor.Async(c, load, func(_ *zactor.Context, price int64, err error) {
					open = false // only one is sold
					if err != nil {
						reply.Reply(&testpb.Pong{Text: err.Error()})
						return
					}
					reply.Reply(&testpb.Pong{N: price})
				}, zactor.OnPool("db"), stillOpen)
				if err != nil {
					return nil, err
				}
				return nil, zactor.ErrDeferred
			}),
		}}
	})
	for range 2 {
		pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{})
		fmt.Println(pong.GetN(), pong.GetText(), err)
	}
	_ = group.Shutdown(ctx)
	// Output:
	// 42  <nil>
	// 0 closed meanwhile <nil>
}
