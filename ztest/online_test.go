package ztest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// A kind whose objects come with their users: presence says what becomes of a request for one that nobody has. Who is away is not in the server; who is there
// and has no object yet is unavailable for now; and who has got it since the record was read is found, at whatever node.
func TestOnlineServer(t *testing.T) {
	t.Parallel()
	const heroType = 42
	var before atomic.Pointer[func()] // is called before the hook
	app := znode.App{Name: "heroes", Objects: func(n *znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.Members]{
			Type: heroType, Name: "heroes", Version: 1,
			Handlers: []zrouter.Handler[*chatpb.Members]{
				zrouter.Handle(func(c *zrouter.Context[*chatpb.Members], _ *chatpb.Who) (*chatpb.Members, error) {
					return &chatpb.Members{Room: c.Self().Address().Node.ID}, nil
				}),
			},
			PullOnlineServer: func(ctx context.Context, k zmsg.Key) (zrouter.Route, error) {
				if f := before.Swap(nil); f != nil {
					(*f)()
				}
				return n.Users().OnlineServer(ctx, k)
			},
			Settings: zrouter.Settings{ObjectRetryInterval: time.Millisecond},
		}}
	}}
	c := ztest.Cluster(t, 3, app)
	k := zmsg.Key{Type: heroType, ID: "ann"}
	heroes := func(node int) *zrouter.Manager[*chatpb.Members] {
		m, err := zrouter.ManagerOf[*chatpb.Members](c.Node(node).Objects(), heroType)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ask := func(node int) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a, err := zrouter.Call[chatpb.Members](ctx, c.Node(node).Objects(), k, &chatpb.Who{})
		return a.GetRoom(), err
	}
	all := func(when string, want error) {
		t.Helper()
		for node := range 3 {
			if _, err := ask(node); !errors.Is(err, want) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("%s, from node %d: %v, want %v", when, node, err, want)
			}
		}
	}
	if _, err := heroes(1).MutableObject(t.Context(), k, &chatpb.Members{}); err != nil {
		t.Fatal(err)
	}
	if at, err := ask(0); at != "n2" || err != nil {
		t.Fatalf("at %q, %v", at, err)
	}
	if err := heroes(1).Remove(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "nobody has it, and ann is away", func() bool {
		_, err := ask(0)
		return errors.Is(err, zrouter.ErrNotInServer)
	})
	all("ann is away", zrouter.ErrNotInServer)
	c.Client("ann", 2)
	all("ann is there, and has no object", zrouter.ErrUnavailable)
	claim := func() {
		if _, err := heroes(2).MutableObject(t.Context(), k); err != nil {
			t.Error(err)
		}
	}
	before.Store(&claim)
	for node := range 3 {
		if at, err := ask(node); at != "n3" || err != nil {
			t.Errorf("from node %d: at %q, %v", node, at, err)
		}
	}
	if before.Load() != nil {
		t.Error("nobody has asked the hook")
	}
}
