package znode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zroute"
)

// host says where it is; asked for nobody's room it never answers.
type host struct{ node string }

func (h host) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, w *chatpb.Who) (*chatpb.Members, error) {
		if w.GetRoom() == "nobody's" {
			c.Defer()
			return nil, zactor.ErrDeferred
		}
		return &chatpb.Members{Room: h.node}, nil
	})}
}

// A node routes as its application says, with its own zone. P16 and P21 of known-faults.md: a kind that has no members is an
// error at once, one whose member never answers at the deadline.
func TestRoutingOfANode(t *testing.T) {
	t.Parallel()
	r := newRig()
	zoned := func(id, zone string, hosts bool) *znode.Node {
		cfg := r.config(id, znode.App{
			Routing: func(n *znode.Node) znode.Routing {
				return znode.Routing{Remote: zroute.ZoneFirst(n.Settings().Node.Zone, zroute.RoundRobin()), NextBest: true}
			},
			Setup: func(n *znode.Node) error {
				if !hosts {
					return nil
				}
				_, err := n.Spawn("host", func() zactor.Actor { return host{id} })
				return err
			},
		})
		cfg.Settings.Node.Zone = zone
		return start(t, cfg)
	}
	asker := zoned("a", "z2", false)
	ask := func(limit time.Duration, room string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		got, err := zactor.Ask[chatpb.Members](ctx, asker.Group().ByID(), &chatpb.Who{Room: room})
		return got.GetRoom(), err
	}
	// comes waits until requests are answered by that host, "" for an error.
	comes := func(want string) {
		t.Helper()
		poll, limit := time.NewTicker(5*time.Millisecond), time.After(patience)
		defer poll.Stop()
		for {
			at, err := ask(patience, "x")
			if at == want {
				return
			}
			select {
			case <-poll.C:
			case <-limit:
				t.Fatalf("answered by %q (%v), want %q", at, err, want)
			}
		}
	}
	var e *zmsg.Error
	if _, err := ask(patience, "x"); !errors.As(err, &e) || e.Code != zmsg.CodeNoRoute || e.Outcome != zmsg.NotExecuted {
		t.Errorf("no members: %v", err)
	}
	b := zoned("b", "z1", true)
	comes("b")
	c := zoned("c", "z2", true)
	comes("c")
	for range 4 {
		if at, err := ask(patience, "x"); at != "c" {
			t.Errorf("asked in z2: %q, %v", at, err)
		}
	}
	if _, err := ask(100*time.Millisecond, "nobody's"); zmsg.CodeOf(err) != zmsg.CodeTimeout && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	stop(t, c)
	comes("b")
	stop(t, b)
	eventually(t, "there is no route when all are gone", func() bool { // until a knows, a request may meet the node that goes
		_, err := ask(patience, "x")
		return zmsg.CodeOf(err) == zmsg.CodeNoRoute
	})
}
