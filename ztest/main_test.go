package ztest_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
)

func TestMain(m *testing.M) {
	if os.Getenv(asNode) != "" {
		if err := runNode(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// asNode in the environment makes the test's program a node, for tests that kill it: see runNode.
const asNode = "ZTEST_AS_NODE"

// runNode is a node whose actor takes Who and never answers. Who's room is the address of an actor that it watches. It runs until it is
// killed.
func runNode() error {
	s, err := znode.LoadSettings("", os.Environ())
	if err != nil {
		return err
	}
	n, err := znode.New(znode.Config{Settings: s, App: znode.App{Name: "test", Setup: func(n *znode.Node) error {
		_, err := n.Spawn("mute", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(c *zactor.Context, w *chatpb.Who) (*chatpb.Members, error) {
					var to zmsg.Address
					if _, err := fmt.Sscan(w.GetRoom(), &to.Node.ID, &to.Node.Epoch, &to.Actor); err != nil {
						return nil, err
					}
					c.Watch(c.Group().Ref(to), func(*zactor.Context, zactor.Down) {})
					c.Defer()
					return nil, zactor.ErrDeferred
				}),
			}}
		})
		return err
	}}})
	if err != nil {
		return err
	}
	return n.Run(context.Background())
}
