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

// asNode in the environment makes the test's program a node, for tests that kill it: see nodeApps.
const asNode = "ZTEST_AS_NODE"

// nodeApps are what such a node runs.
var nodeApps = map[string]func(n *znode.Node) error{"mute": setupMute, "crown": setupCrown, "named": setupNamed}

// setupCrown is a singleton that answers Say with its term, beside 10,000 actors.
func setupCrown(n *znode.Node) error {
	for range 10_000 {
		if _, err := n.Spawn("", func() zactor.Actor { return &actor{} }); err != nil {
			return err
		}
	}
	return n.Singleton("crown", func(term uint64) zactor.Actor {
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(*zactor.Context, *chatpb.Say) (*chatpb.Said, error) { return &chatpb.Said{Seq: term}, nil }),
		}}
	})
}

// setupNamed is an actor that answers Join with its node's id.
func setupNamed(n *znode.Node) error {
	_, err := n.Spawn("", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(*zactor.Context, *chatpb.Join) (*chatpb.Joined, error) {
				return &chatpb.Joined{Node: n.Self().ID}, nil
			}),
		}}
	})
	return err
}

// runNode runs a node until it is killed.
func runNode() error {
	s, err := znode.LoadSettings("", os.Environ())
	if err != nil {
		return err
	}
	n, err := znode.New(znode.Config{Settings: s, App: znode.App{Name: "test", Setup: nodeApps[os.Getenv(asNode)]}})
	if err != nil {
		return err
	}
	return n.Run(context.Background())
}

// setupMute is an actor that takes Who and never answers. Who's room is the address of an actor that it watches.
func setupMute(n *znode.Node) error {
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
}
