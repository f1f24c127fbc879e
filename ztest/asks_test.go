package ztest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// asks is an actor that asks another one for the answer, if it has one to ask; else it owes it for ever.
type asks struct {
	other *zactor.Ref
	owed  *atomic.Int64
}

func (a asks) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, w *chatpb.Who) (*chatpb.Members, error) {
		if a.other != nil {
			return zactor.Call[chatpb.Members](c, *a.other, w)
		}
		a.owed.Add(1)
		c.Defer()
		return nil, zactor.ErrDeferred
	})}
}

// A asks B on another node, B asks A: an error at once, which says that it is a cycle.
func TestCycleAcrossNodes(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, znode.App{Setup: func(*znode.Node) error { return nil }})
	var a, b zactor.Ref // as the other one's node sees it
	refs := [2]zactor.Ref{}
	for k, other := range []*zactor.Ref{&b, &a} {
		ref, err := c.Node(k).Spawn("asks", func() zactor.Actor { return asks{other: other} }, zactor.Private())
		if err != nil {
			t.Fatal(err)
		}
		refs[k] = ref
	}
	a, b = c.Node(1).Group().Ref(refs[0].Address()), c.Node(0).Group().Ref(refs[1].Address())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	if _, err := zactor.Ask[chatpb.Members](ctx, refs[0], &chatpb.Who{}); !errors.Is(err, zmsg.ErrCycle) {
		t.Errorf("got %v after %v, want a cycle", err, time.Since(began))
	}
}

// A node dies with 20,000 requests in flight: each ends once, long before its deadline, and says that nobody knows whether it ran.
func TestNodeDiesWithRequestsInFlight(t *testing.T) {
	t.Parallel()
	n := int64(20_000)
	if raceEnabled || testing.Short() {
		n /= 10
	}
	owed := new(atomic.Int64)
	c := ztest.Cluster(t, 2, znode.App{Setup: func(n *znode.Node) error {
		_, err := n.Spawn("owes", func() zactor.Actor { return asks{owed: owed} }, zactor.Private(), zactor.WithMailbox(1<<16))
		return err
	}})
	far, _ := c.Node(1).Group().Lookup("owes")
	ref := c.Node(0).Group().Ref(far.Address())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var lost, other atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				_, err := zactor.Ask[chatpb.Members](ctx, ref, &chatpb.Who{})
				if errors.Is(err, zmsg.ErrBusy) { // the outbox is full for a moment: nothing was sent
					time.Sleep(time.Millisecond)
					continue
				}
				if zmsg.CodeOf(err) == zmsg.CodeNodeLost && zmsg.OutcomeOf(err) == zmsg.Unknown {
					lost.Add(1)
				} else {
					other.Add(1)
					t.Errorf("got %v", err)
				}
				return
			}
		})
	}
	ztest.Eventually(t, "all are in flight", func() bool { return owed.Load() == n })
	c.Kill(1)
	wg.Wait()
	if lost.Load() != n || other.Load() != 0 {
		t.Errorf("%d of %d ended with node_lost, %d otherwise", lost.Load(), n, other.Load())
	}
}
