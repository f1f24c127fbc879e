package zroute_test

import (
	"fmt"
	"testing"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

func BenchmarkDispatchLocal(b *testing.B) {
	b.ReportAllocs()
	var l zroute.Local
	register(b, &l, 1, takes(func() error { return nil }), zmsg.Advert{ID: 5, Client: true})
	d := dispatcher(b, zroute.Config{Local: &l})
	m := message(5)
	m.Client = true
	for b.Loop() {
		if res, _, _ := d.Dispatch(m); res != zroute.OnLocal {
			b.Fatal(res)
		}
	}
}

// A message by key to one of 100 actors of other nodes, all of it but the sending.
func BenchmarkDispatchByKey(b *testing.B) {
	b.ReportAllocs()
	d := dispatcher(b, zroute.Config{Local: &zroute.Local{}, Remote: hundredNodes(b), Sender: &answering{}, Strategy: zroute.Rendezvous(nil)})
	m := message(5)
	m.Client = true
	for b.Loop() {
		m.ID, m.Session.ID = 5, m.Session.ID+1 // Dispatch has released it: no matter here
		if res, _, _ := d.Dispatch(m); res != zroute.OnRemote {
			b.Fatal(res)
		}
	}
}

// many are 100 candidates of message id 5: on each node one, in three zones, with two versions, weights and loads.
func many(tb testing.TB) []zroute.RemoteCandidate {
	tb.Helper()
	return hundredNodes(tb).ByID(5)
}

func hundredNodes(tb testing.TB) *zroute.Remote {
	tb.Helper()
	nodes := make([]zdiscovery.Node, 100)
	for i := range nodes {
		n := node(fmt.Sprintf("gameserver-%03d", i), remoteActor(1, zmsg.Advert{ID: 5, Client: true}, zmsg.Advert{ID: 6}))
		n.Zone, n.Version, n.Weight, n.Load = fmt.Sprint("z", i%3), fmt.Sprint("v", i%2), uint32(50+i), uint32(i)
		nodes[i] = n
	}
	return remotes(tb, nodes...)
}

// Lookup and pick, as a Dispatcher does them.
func BenchmarkPick(b *testing.B) {
	r := hundredNodes(b)
	m := message(5)
	m.Session.ID, m.User = 7, "ann"
	key := zroute.Rendezvous(nil)
	for _, c := range []struct {
		name string
		s    zroute.RemoteStrategy
	}{
		{"first", zroute.First()},
		{"round-robin", zroute.RoundRobin()},
		{"rendezvous", key},
		{"rendezvous-user", zroute.Rendezvous(zroute.UserKey)},
		{"weighted-rendezvous", zroute.WeightedRendezvous(nil)},
		{"weighted", zroute.Weighted()},
		{"least-loaded", zroute.LeastLoaded()},
		{"zone-round-robin", zroute.ZoneFirst("z1", zroute.RoundRobin())},
		{"zone-rendezvous", zroute.ZoneFirst("z1", key)},
		{"canary-rendezvous", zroute.NewCanary("v1", 0.1, key)},
		{"table-rendezvous", zroute.Strategies{ByID: map[uint32]zroute.RemoteStrategy{5: key}}},
	} {
		b.Run(c.name+"/candidates=100", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Session.ID++
				c.s.Pick(m, r.ByID(5))
			}
		})
	}
}

// What a new list of nodes costs: one node of a hundred has another load.
func BenchmarkApply(b *testing.B) {
	var s zdiscovery.Snapshot
	for i := range 100 {
		n := node(fmt.Sprintf("gameserver-%03d", i))
		for a := range 10 {
			n.Actors = append(n.Actors, remoteActor(uint64(a+1), zmsg.Advert{ID: uint32(10 * a)}, zmsg.Advert{ID: uint32(10*a + 1)}))
		}
		s.Nodes = append(s.Nodes, n)
	}
	var r zroute.Remote
	b.ReportAllocs()
	for b.Loop() {
		s.Nodes[50].Load++
		r.Apply(&s, self)
	}
}
