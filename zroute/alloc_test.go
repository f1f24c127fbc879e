//go:build !race

package zroute_test

import (
	"testing"

	"zgame/zmsg"
	"zgame/zroute"
)

// The budgets of the hot paths; the race detector allocates by itself.
func TestAllocations(t *testing.T) {
	var l zroute.Local
	keep := takes(func() error { return nil })
	register(t, &l, 1, keep, zmsg.Advert{ID: 5, Client: true})
	register(t, &l, 2, keep, zmsg.Advert{ID: 5, Client: true}, zmsg.Advert{ID: 7, Sharded: true})
	ad, shard := zmsg.Advert{ID: 6, Client: true}, zmsg.Advert{ID: 7, Sharded: true}
	r := remotes(t, node("y", remoteActor(1, ad, shard)), node("z", remoteActor(1, ad)))
	sender := &answering{}
	d := dispatcher(t, zroute.Config{Local: &l, Remote: r, Sender: sender, Strategy: zroute.Rendezvous(nil)})
	object := dispatcher(t, zroute.Config{Local: &l, Objects: owner{}})
	m := message(5)
	m.Client, m.Session.ID, m.User = true, 9, "ann"
	sharded := message(7)
	sharded.Session.ID = 4
	cs, lc := hundred(), l.View(5)
	rr, rv, user := zroute.RoundRobin(), zroute.Rendezvous(nil), zroute.Rendezvous(zroute.UserKey)
	local, least := zroute.LocalRendezvous(nil), zroute.LocalLeastLoad()
	sink := discard{}
	mixed, nodes := many(t), hundredNodes(t)
	foreign := zroute.ZoneFirst("z1", zroute.RemoteStrategyFunc(func(_ *zmsg.Message, c []zroute.RemoteCandidate) int { return len(c) - 1 }))
	zone, plainZone := zroute.ZoneFirst("z1", zroute.WeightedRendezvous(nil)), zroute.ZoneFirst("z1", zroute.RoundRobin())
	canary, weighted, loaded := zroute.NewCanary("v1", 0.3, zone), zroute.Weighted(), zroute.LeastLoaded()
	table := zroute.Strategies{ByID: map[uint32]zroute.RemoteStrategy{5: canary}, ByType: map[string]zroute.RemoteStrategy{"t": weighted}}
	kept := dispatcher(t, zroute.Config{Remote: r, Sender: sender, NextBest: true, Strategy: zroute.Strategies{
		Default: zroute.KeepDraining(nil), ByID: map[uint32]zroute.RemoteStrategy{6: zroute.KeepDraining(nil)},
	}})
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"dispatch local", func() { _, _, _ = d.Dispatch(m) }},
		{"dispatch to an object", func() { _, _, _ = object.Dispatch(m) }},
		{"dispatch remote request", func() {
			q := message(6)
			q.SetReplier(sink, 1)
			_, _, _ = d.Dispatch(q)
		}},
		{"dispatch remote one-way", func() { _, _, _ = d.Dispatch(message(6)) }},
		{"dispatch by table, draining too", func() {
			q := message(6)
			q.Session.ID = 4
			_, _, _ = kept.Dispatch(q)
		}},
		{"weighted rendezvous", func() { zroute.RemoteStrategy(canary).Pick(m, mixed) }},
		{"zone", func() { zone.Pick(m, mixed); plainZone.Pick(m, mixed) }},
		{"zone, with a strategy of the application", func() { foreign.Pick(m, mixed) }},
		{"table", func() { table.Pick(m, mixed) }},
		{"weighted", func() { weighted.Pick(m, mixed) }},
		{"least loaded", func() { loaded.Pick(m, mixed) }},
		{"every by id", func() { r.EveryByID(6, true) }},
		{"dispatch sharded", func() {
			q := message(7)
			q.Session.ID = 4
			_, _, _ = d.Dispatch(q)
		}},
		{"view", func() { l.View(5); l.ClientView(5); l.Shard(5) }},
		{"by id", func() { r.ByID(6); r.ClientByID(6); r.Shard(6) }},
		{"lookup and first, of 100", func() { zroute.First().Pick(m, nodes.ByID(5)) }},
		{"lookup and round robin, of 100", func() { rr.Pick(m, nodes.ByID(5)) }},
		{"lookup and rendezvous, of 100", func() { rv.Pick(m, nodes.ByID(5)) }},
		{"round robin", func() { rr.Pick(m, cs) }},
		{"rendezvous", func() { rv.Pick(m, cs) }},
		{"user key", func() { user.Pick(m, cs) }},
		{"local rendezvous", func() { _, _ = local.Pick(m, lc) }},
		{"local least load", func() { _, _ = least.Pick(m, lc) }},
	} {
		if got := testing.AllocsPerRun(1000, c.f); got != 0 {
			t.Errorf("%s: %v allocations, want none", c.name, got)
		}
	}
}

type discard struct{}

func (discard) Reply(uint64, *zmsg.Reply) {}

// owner is an Objects that takes messages of id 5.
type owner struct{}

func (owner) Owns(id uint32) bool         { return id == 5 }
func (owner) Deliver(*zmsg.Message) error { return nil }
