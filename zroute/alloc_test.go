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
	m := message(5)
	m.Client, m.Session.ID, m.User = true, 9, "ann"
	sharded := message(7)
	sharded.Session.ID = 4
	cs, lc := hundred(), l.View(5)
	rr, rv, user := zroute.RoundRobin(), zroute.Rendezvous(nil), zroute.Rendezvous(zroute.UserKey)
	local, least := zroute.LocalRendezvous(nil), zroute.LocalLeastLoad()
	sink := discard{}
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"dispatch local", func() { _, _, _ = d.Dispatch(m) }},
		{"dispatch remote request", func() {
			q := message(6)
			q.SetReplier(sink, 1)
			_, _, _ = d.Dispatch(q)
		}},
		{"dispatch remote one-way", func() { _, _, _ = d.Dispatch(message(6)) }},
		{"dispatch sharded", func() {
			q := message(7)
			q.Session.ID = 4
			_, _, _ = d.Dispatch(q)
		}},
		{"view", func() { l.View(5); l.ClientView(5); l.Shard(5) }},
		{"by id", func() { r.ByID(6); r.ClientByID(6); r.Shard(6) }},
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

// answering is a link whose requests are answered at once.
type answering struct{ reply zmsg.Reply }

func (a *answering) Send(_ zmsg.Address, _ *zmsg.Message, r zmsg.Replier, token uint64) error {
	if r != nil {
		r.Reply(token, &a.reply)
	}
	return nil
}

type discard struct{}

func (discard) Reply(uint64, *zmsg.Reply) {}
