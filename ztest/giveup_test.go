package ztest_test

import (
	"context"
	"errors"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// waits answers nobody: it notes why its context ended.
type waits struct {
	begun chan struct{}
	why   chan error
}

func (w waits) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, _ *chatpb.Who) (*chatpb.Members, error) {
		w.begun <- struct{}{}
		<-c.Context().Done()
		w.why <- context.Cause(c.Context())
		return nil, nil
	})}
}

// Who asks an actor of another node, by its address or by message id, and gives up: the handler there learns of it.
func TestGivingUpTravelsToOtherNodes(t *testing.T) {
	t.Parallel()
	w := waits{make(chan struct{}, 1), make(chan error, 1)}
	c := ztest.Cluster(t, 2, znode.App{Setup: func(n *znode.Node) error {
		if n.Self().ID != "n2" {
			return nil
		}
		_, err := n.Spawn("waits", func() zactor.Actor { return w })
		return err
	}})
	far, _ := c.Node(1).Group().Lookup("waits")
	g := c.Node(0).Group()
	for name, ref := range map[string]zactor.Ref{"address": g.Ref(far.Address()), "message id": g.ByID()} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := zactor.Ask[chatpb.Members](ctx, ref, &chatpb.Who{Room: "go"})
			asked <- err
		}()
		<-w.begun
		cancel()
		if err := <-asked; !errors.Is(err, zmsg.ErrCancelled) {
			t.Errorf("by %s: who asked got %v", name, err)
		}
		if why := <-w.why; !errors.Is(why, zmsg.ErrCancelled) {
			t.Errorf("by %s: the handler learned %v", name, why)
		}
	}
}
