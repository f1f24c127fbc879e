package ztest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zdiscovery"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
	"zgame/ztest/faultproxy"
)

// counts answers Who with how often it was asked, in the members.
type counts struct{ n int }

func (a *counts) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) {
		a.n++
		return &chatpb.Members{Members: make([]string, a.n)}, nil
	}, zactor.FromClients())}
}

// asked asks once and returns how often the actor was asked by then.
func asked(t *testing.T, to zactor.Ref) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zactor.Ask[chatpb.Members](ctx, to, &chatpb.Who{})
	return len(m.GetMembers()), err
}

// knowsAs waits until n has of in its list as it is now, ready.
func knowsAs(n *znode.Node, of *znode.Node) func() bool {
	return func() bool {
		for _, r := range n.Nodes() {
			if r.Ref == of.Self() && r.State == zdiscovery.Ready {
				return true
			}
		}
		return false
	}
}

// E3, E10: a node whose lease is gone joins again, with a new epoch, without a restart: its actors live on, others route to them
// again, who watched them is told that the node was lost, its own watches go on, and its clients are sent away to come back.
func TestJoinsAgain(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none)
	a, b := c.Node(0), c.Node(1)
	first := a.Self()
	service, err := a.Spawn("service", func() zactor.Actor { return &counts{} })
	if err != nil {
		t.Fatal(err)
	}
	quiet := spawn(t, a, actor{})
	byID := b.Group().ByID()
	ztest.Eventually(t, "b routes to a", func() bool { _, err := asked(t, byID); return err == nil })
	before, err := asked(t, byID)
	if err != nil {
		t.Fatal(err)
	}
	_, lost := watch(t, b, service) // b's watch of a's actor
	known(t, b, quiet)
	target := spawn(t, b, actor{})
	_, downs := watch(t, a, target) // a's watch of b's actor
	known(t, a, target)
	kept := b.Group().Ref(service.Address())
	client, closed := c.Client("ann", 0), make(chan zclient.Reason, 10)
	client.OnState(func(s zclient.State) {
		if s.Reason != nil {
			closed <- *s.Reason
		}
	})

	c.Expire(0)
	ztest.Eventually(t, "a is somebody new", func() bool { return a.Self().Epoch > first.Epoch })
	c.Settle()
	ztest.Eventually(t, "b knows the new a", knowsAs(b, a))

	isDown(t, lost, kept, zactor.LostNode)
	ztest.Eventually(t, "the client is back", func() bool { return client.Session().Ref.Gate == a.Self() })
	select {
	case why := <-closed:
		if why.Code != int(zgate.CloseRejoined) {
			t.Errorf("the client was closed with %v, want code %d", why, zgate.CloseRejoined)
		}
	default:
		t.Error("the client was not closed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := client.Request(ctx, &chatpb.Who{}, &chatpb.Members{}); err != nil {
		t.Errorf("a request of the client that came back: %v", err)
	}
	after := 0
	ztest.Eventually(t, "b routes to a again", func() bool { after, err = asked(t, byID); return err == nil })
	if after <= before {
		t.Errorf("the actor was asked %d times before and %d times in all: it did not live on", before, after)
	}
	if _, err := asked(t, kept); !errors.Is(err, zmsg.ErrNodeLost) && !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("the old address on another node: %v, want node lost or unavailable", err)
	}
	if _, err := asked(t, a.Group().Ref(kept.Address())); err != nil {
		t.Errorf("the old address on its own node: %v", err)
	}
	if got := service.Address().Node; got != a.Self() {
		t.Errorf("the actor's address names %v, want %v", got, a.Self())
	}
	// a's watch came through, and b's new one of a works.
	known(t, a, target)
	_, lost = watch(t, b, service)
	known(t, b, quiet)
	if err := errors.Join(b.Group().Stop(target), a.Group().Stop(service)); err != nil {
		t.Fatal(err)
	}
	isDown(t, downs, target, zactor.StopRequested)
	isDown(t, lost, service, zactor.StopRequested)
	ztest.Eventually(t, "nothing is left", func() bool { return watchesWith(a, 0)() && watchesWith(b, 0)() })
}

// etcd is away from everybody for twice the lease: messages by id go on with the last known members; when it is back all
// nodes are members again, with new epochs, and messages by id go on.
func TestEtcdAwayForLong(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	c := ztest.Cluster(t, 3, none, ztest.Faulty(), ztest.Settings(func(k int, s *znode.Settings) {
		quick(k, s)
		s.Etcd.Lease, s.NATS.PingInterval = lease, patience // a busy machine is not to cost the bus
	}))
	var first [3]zmsg.NodeRef
	for k := range first {
		first[k] = c.Node(k).Self()
	}
	if _, err := c.Node(0).Spawn("service", func() zactor.Actor { return &counts{} }); err != nil {
		t.Fatal(err)
	}
	for k := 1; k < 3; k++ {
		ztest.Eventually(t, "it has the route", func() bool { _, err := asked(t, c.Node(k).Group().ByID()); return err == nil })
	}
	for k := range first {
		c.EtcdProxy(k).Set(faultproxy.Both, faultproxy.Fault{Swallow: true})
	}
	n := 0
	for end := time.Now().Add(2 * lease); time.Now().Before(end); n++ {
		if _, err := asked(t, c.Node(1+n%2).Group().ByID()); err != nil {
			t.Fatalf("request %d, while etcd was away: %v", n, err)
		}
		time.Sleep(time.Millisecond) // a load, not a flood
	}
	for k := range first {
		if now := c.Node(k).ServeUntil(); now.After(time.Now()) {
			t.Errorf("%v may serve as owner until %v, long after its lease", first[k], now)
		}
		missing(t, c.Node(k), "discovery")
	}
	begin := time.Now()
	for k := range first {
		c.EtcdProxy(k).Heal()
	}
	for k := range first {
		ztest.Eventually(t, "it is in the cluster again", func() bool { return c.Node(k).Self().Epoch > first[k].Epoch })
	}
	c.Settle()
	for k := range first {
		for j := range first {
			ztest.Eventually(t, "the lists have the new epochs", knowsAs(c.Node(k), c.Node(j)))
		}
		ztest.Eventually(t, "ready", func() bool { return c.Node(k).Ready(t.Context()) == nil })
	}
	took := time.Since(begin)
	t.Logf("%d requests while etcd was away; members again %v after it was back", n, took.Round(time.Millisecond))
	for k := range 3 {
		ztest.Eventually(t, "messages by id go on", func() bool { _, err := asked(t, c.Node(k).Group().ByID()); return err == nil })
	}
}

// Who has the address of a node that is gone sends to it still: that leaves nothing, however often nodes come and go.
func TestGoneNodesLeaveNothing(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	there := spawn(t, a, actor{}, zactor.Private())
	for range 10 {
		old, epoch := b.Group().Ref(there.Address()), a.Self().Epoch
		c.Expire(0)
		ztest.Eventually(t, "a is somebody new", func() bool { return a.Self().Epoch > epoch })
		ztest.Eventually(t, "b knows the new a", knowsAs(b, a))
		if _, err := asked(t, old); zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("a request to who is gone: %v", err)
		}
	}
	c.Stop(2) // the list of nodes changes once more
	ztest.Eventually(t, "b sends to a alone", func() bool { return metric(t, b, "zgame_bus_lanes") <= 1 })
}
