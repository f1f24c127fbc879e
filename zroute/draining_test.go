package zroute_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// Everybody is unreachable: with NextBest the order of the tries is that of the keys' heirs, without it that of the list.
func TestNextBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r zroute.Remote
		all := fleet(t, &r, nodeNames.Draw(t, "nodes"))
		m := message(5)
		m.Session.ID = rapid.Uint64Min(1).Draw(t, "session")
		next := rapid.Bool().Draw(t, "next best")
		late := rapid.Bool().Draw(t, "refused by reply")
		s := zroute.Rendezvous(nil)
		to := &link{answer: func(_ zmsg.Address, _ *zmsg.Message, r zmsg.Replier, token uint64) error {
			if !late {
				return zmsg.ErrUnavailable
			}
			r.Reply(token, &zmsg.Reply{Code: zmsg.CodeDraining, Outcome: zmsg.NotExecuted})
			return nil
		}}
		d, err := zroute.New(zroute.Config{Node: self, Remote: &r, Sender: to, Strategy: s, NextBest: next})
		if err != nil {
			t.Fatal(err)
		}
		var want []zmsg.Address
		left := slices.Clone(all)
		for i := s.Pick(m, left); len(left) > 0; {
			want = append(want, left[i].Address())
			left = slices.Delete(left, i, i+1)
			if i = 0; next && len(left) > 0 {
				i = s.Pick(m, left)
			}
		}
		got := make(replies, 2)
		m.SetReplier(got, 1)
		res, _, err := d.Dispatch(m)
		if late && (res != zroute.OnRemote || len(got) != 1) || !late && (res != zroute.NoRoute || zmsg.CodeOf(err) != zmsg.CodeUnavailable) {
			t.Fatalf("%v, %v, %d outcomes", res, err, len(got))
		}
		if !slices.Equal(to.sent, want) {
			t.Fatalf("tried %v, want %v", to.sent, want)
		}
	})
}

// A strategy may end the search.
func TestNextBestEnds(t *testing.T) {
	t.Parallel()
	var r zroute.Remote
	fleet(t, &r, []string{"a", "b", "c"})
	to := &link{answer: func(zmsg.Address, *zmsg.Message, zmsg.Replier, uint64) error { return zmsg.ErrUnavailable }}
	picks := 0
	d := dispatcher(t, zroute.Config{Remote: &r, Sender: to, NextBest: true, Strategy: zroute.RemoteStrategyFunc(func(_ *zmsg.Message, c []zroute.RemoteCandidate) int {
		if picks++; picks == 3 {
			return -1
		}
		return 99 // out of range counts as 0
	})})
	if res, tried, err := d.Dispatch(message(5)); res != zroute.NoRoute || tried != 2 || zmsg.CodeOf(err) != zmsg.CodeUnavailable {
		t.Errorf("%v, %d tried, %v", res, tried, err)
	}
	if len(to.sent) != 2 || to.sent[0].Node.ID != "a" || to.sent[1].Node.ID != "b" {
		t.Errorf("tried %v", to.sent)
	}
}

// A draining node gets nothing from strategies that do not ask for it. From those that do it gets the keys that it had, and what
// its actor turns down goes where the key will be, never to another node that drains.
func TestDrainingNodes(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	var before zroute.Remote
	fleet(t, &before, names)
	var s zdiscovery.Snapshot
	for _, id := range names {
		n := node(id, remoteActor(1, zmsg.Advert{ID: 5, Client: id != "b"}))
		if id == "b" || id == "c" {
			n.State = zdiscovery.Draining
		}
		s.Nodes = append(s.Nodes, n)
	}
	var r zroute.Remote
	r.Apply(&s, self)
	if got := places(r.ByID(5)); !slices.Equal(got, []string{"a@1/1", "d@1/1"}) || len(r.Candidates()) != 2 {
		t.Fatalf("ready: %v", got)
	}
	if got := places(r.EveryByID(5, true)); !slices.Equal(got, []string{"a@1/1", "c@1/1", "d@1/1"}) || r.EveryByID(6, false) != nil {
		t.Fatalf("for clients: %v", got)
	}
	key := zroute.Rendezvous(nil)
	has := func(m *zmsg.Message) bool { return m.Session.ID%2 == 0 } // the keys that have not moved yet
	to := &link{answer: func(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
		v := zmsg.Reply{ID: 9}
		if (to.Node.ID == "b" || to.Node.ID == "c") && !has(m) {
			v = zmsg.Reply{Code: zmsg.CodeDraining, Outcome: zmsg.NotExecuted}
		}
		r.Reply(token, &v)
		return nil
	}}
	for name, strategy := range map[string]zroute.RemoteStrategy{
		"keep": zroute.KeepDraining(nil), "by id": zroute.Strategies{ByID: map[uint32]zroute.RemoteStrategy{5: zroute.KeepDraining(key)}},
		"by type": zroute.Strategies{Default: zroute.RoundRobin(), ByType: map[string]zroute.RemoteStrategy{"t": zroute.KeepDraining(key)}},
		"other":   zroute.Strategies{Default: key, ByID: map[uint32]zroute.RemoteStrategy{6: zroute.KeepDraining(key)}},
		"plain":   key, "round": zroute.RoundRobin(), "inside": zroute.ZoneFirst("x", zroute.KeepDraining(key)),
	} {
		d := dispatcher(t, zroute.Config{Remote: &r, Sender: to, Strategy: strategy})
		keeps := name == "keep" || name == "by id" || name == "by type"
		for k := range uint64(200) {
			m := message(5)
			m.Session.ID = k + 1
			old := before.ByID(5)[key.Pick(m, before.ByID(5))].Node.ID
			heir := r.ByID(5)[key.Pick(m, r.ByID(5))].Node.ID
			to.sent = nil
			got := make(replies, 2)
			m.SetReplier(got, 1)
			held := has(m)
			if res, _, err := d.Dispatch(m); res != zroute.OnRemote || err != nil || len(got) != 1 {
				t.Fatalf("%s, key %d: %v, %v", name, k+1, res, err)
			} else if v := <-got; v.ID != 9 {
				t.Fatalf("%s, key %d: %+v", name, k+1, v)
			}
			want := []string{heir}
			switch {
			case keeps && old != heir && held:
				want = []string{old}
			case keeps && old != heir:
				want = []string{old, heir}
			case name == "round":
				want = []string{[]string{"a", "d"}[k%2]}
			}
			var sent []string
			for _, a := range to.sent {
				sent = append(sent, a.Node.ID)
			}
			if !slices.Equal(sent, want) {
				t.Fatalf("%s, key %d: sent to %v, want %v", name, k+1, sent, want)
			}
		}
	}
}
