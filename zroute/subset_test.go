package zroute_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// Against filtering a list: the inner strategy sees those of the zone, in order, and what it returns is the index in all.
func TestZoneFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b"}), 1, 8).Draw(t, "zones")
		var cs, mine []zroute.RemoteCandidate
		var at []int
		for i, z := range zones {
			c := zroute.RemoteCandidate{Node: zmsg.NodeRef{ID: fmt.Sprint(i)}, Zone: z}
			cs = append(cs, c)
			if z == "a" {
				mine, at = append(mine, c), append(at, i)
			}
		}
		if len(mine) == 0 {
			mine = cs
			for i := range cs {
				at = append(at, i)
			}
		}
		answer := rapid.IntRange(-2, len(mine)).Draw(t, "answer")
		s := zroute.ZoneFirst("a", zroute.RemoteStrategyFunc(func(_ *zmsg.Message, c []zroute.RemoteCandidate) int {
			if fmt.Sprint(places(c)) != fmt.Sprint(places(mine)) {
				t.Fatalf("inner sees %v, want %v", places(c), places(mine))
			}
			return answer
		}))
		want := -1
		switch {
		case answer >= 0 && answer < len(mine):
			want = at[answer]
		case answer != -1 && len(mine) < len(cs):
			want = at[0]
		case answer != -1:
			want = 0
		}
		got := s.Pick(message(5), cs)
		if got < -1 || got >= len(cs) {
			got = 0 // as a Dispatcher takes it
		}
		if got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
	if got := zroute.ZoneFirst("", nil).Pick(message(5), hundred()); got != 0 {
		t.Errorf("no zone, no inner: %d", got)
	}
}

// Each strategy of this package picks among some as it picks in a list of these alone, also two wrappers deep.
func TestWrappedStrategiesSeeTheRestOnly(t *testing.T) {
	t.Parallel()
	all := many(t)
	var mine []zroute.RemoteCandidate
	for _, c := range all {
		if c.Zone == "z1" && c.Version == "v1" {
			mine = append(mine, c)
		}
	}
	for name, make := range map[string]func() zroute.RemoteStrategy{
		"first": zroute.First, "round robin": zroute.RoundRobin,
		"rendezvous": func() zroute.RemoteStrategy { return zroute.Rendezvous(nil) },
		"weighted":   func() zroute.RemoteStrategy { return zroute.WeightedRendezvous(nil) },
		"table": func() zroute.RemoteStrategy {
			return zroute.Strategies{ByType: map[string]zroute.RemoteStrategy{"t": zroute.KeepDraining(nil)}}
		},
		"zone of nobody": func() zroute.RemoteStrategy { return zroute.ZoneFirst("z9", zroute.Rendezvous(nil)) },
		"application's": func() zroute.RemoteStrategy {
			return zroute.RemoteStrategyFunc(func(_ *zmsg.Message, c []zroute.RemoteCandidate) int { return len(c) / 2 })
		},
	} {
		wrapped, plain := zroute.ZoneFirst("z1", zroute.NewCanary("v1", 1, make())), make()
		m := message(5)
		for k := range uint64(200) {
			m.Session.ID = k + 1
			if got, want := all[wrapped.Pick(m, all)].Node, mine[plain.Pick(m, mine)].Node; got != want {
				t.Fatalf("%s: %v, want %v", name, got, want)
			}
		}
	}
	for name, s := range map[string]zroute.RemoteStrategy{"weighted": zroute.Weighted(), "least loaded": zroute.LeastLoaded()} {
		s = zroute.ZoneFirst("z1", s)
		for range 1000 {
			if c := all[s.Pick(message(5), all)]; c.Zone != "z1" {
				t.Fatalf("%s: picked %v of zone %s", name, c.Node, c.Zone)
			}
		}
	}
}

func TestCanary(t *testing.T) {
	t.Parallel()
	cs := hundred()[:6]
	for i := range cs {
		cs[i].Version = []string{"v1", "v2", "v1"}[i%3]
	}
	canary := func(i int) bool { return cs[i].Version == "v2" }
	users := 100_000 / slower
	at := func(s zroute.RemoteStrategy, share float64, user int) bool {
		m := message(5)
		m.User, m.Session.ID = fmt.Sprint("user-", user), uint64(user)*7+1
		i := s.Pick(m, cs)
		m.Session.ID += 1 << 40 // another session of the user
		if j := s.Pick(m, cs); canary(i) != canary(j) {
			t.Fatalf("share %v: user %d is here and there", share, user)
		}
		return canary(i)
	}
	s, other := zroute.NewCanary("v2", 0, zroute.Rendezvous(nil)), zroute.NewCanary("v1", 0.05, nil)
	on := make([]bool, users)
	for _, share := range []float64{0, 0.05, 0.5, 1, 0.05} {
		s.SetShare(share)
		n, both := 0, 0
		for u := range users {
			now := at(s, share, u)
			if on[u] && !now && share != 0.05 {
				t.Fatalf("share %v: user %d left though it grew", share, u)
			}
			if now {
				n++
				if share == 0.05 && !at(other, share, u) {
					both++
				}
			}
			on[u] = now
		}
		near(t, fmt.Sprint("share ", share), n, share*float64(users), 0, 4)
		if share == 0.05 {
			near(t, "users of two canaries", both, share*share*float64(users), 0, 4) // each version has its own choice of users
		}
		if share == 1 {
			clear(on) // it shrinks next
		}
	}
	// Who is nobody is no canary, not even at 100 %.
	s.SetShare(1)
	m := message(5)
	m.Seq = 3
	if canary(s.Pick(m, cs)) {
		t.Error("a message of nobody went to the canary")
	}
	m.Session.ID = 3 // a session without a user
	if !canary(s.Pick(m, cs)) {
		t.Error("a session did not go to the canary")
	}
	// One side alone serves all.
	for _, share := range []float64{0, 1, -3, 7, math.NaN()} {
		if got := zroute.NewCanary("v9", share, nil).Pick(m, cs); got != 0 {
			t.Errorf("share %v of a version that nobody has: %d", share, got)
		}
		if got := zroute.NewCanary("v2", share, nil).Pick(m, cs[1:2]); got != 0 {
			t.Errorf("share %v with the version alone: %d", share, got)
		}
	}
}

// One strategy for each id, else type, else the default.
func TestStrategies(t *testing.T) {
	t.Parallel()
	fixed := func(i int) zroute.RemoteStrategy {
		return zroute.RemoteStrategyFunc(func(*zmsg.Message, []zroute.RemoteCandidate) int { return i })
	}
	local := func(i int) zroute.LocalRouter {
		return zroute.LocalRouterFunc(func(*zmsg.Message, []zroute.LocalCandidate) (int, error) { return i, nil })
	}
	full := zroute.Strategies{Default: fixed(1), ByID: map[uint32]zroute.RemoteStrategy{5: fixed(2), 8: nil}, ByType: map[string]zroute.RemoteStrategy{"shop": fixed(3)}}
	locals := zroute.LocalRouters{Default: local(1), ByID: map[uint32]zroute.LocalRouter{5: local(2)}, ByType: map[string]zroute.LocalRouter{"shop": local(3)}}
	for _, tt := range []struct {
		id    uint32
		typ   string
		s     zroute.Strategies
		l     zroute.LocalRouters
		place int
	}{
		{5, "shop", full, locals, 2},
		{6, "shop", full, locals, 3},
		{6, "lobby", full, locals, 1},
		{8, "lobby", full, locals, 1},
		{5, "shop", zroute.Strategies{}, zroute.LocalRouters{}, 0},
	} {
		n := node("z")
		ad := zmsg.Advert{ID: tt.id}
		var l zroute.Local
		targets := make([]target, 4)
		for i := range 4 {
			n.Actors = append(n.Actors, zdiscovery.Actor{ID: uint64(i + 1), Type: tt.typ, Adverts: []zmsg.Advert{ad}})
			if err := l.Register(uint64(i+1), tt.typ, &targets[i], []zmsg.Advert{ad}); err != nil {
				t.Fatal(err)
			}
		}
		r := remotes(t, n)
		if got := tt.s.Pick(message(tt.id), r.ByID(tt.id)); got != tt.place {
			t.Errorf("%d of %s: picked %d", tt.id, tt.typ, got)
		}
		to := &link{}
		if res, _, err := dispatcher(t, zroute.Config{Remote: r, Sender: to, Strategy: tt.s}).Dispatch(message(tt.id)); res != zroute.OnRemote || err != nil || to.sent[0].Actor != uint64(tt.place+1) {
			t.Errorf("%d of %s: %v, %v, %v", tt.id, tt.typ, res, err, to.sent)
		}
		if res, _, _ := dispatcher(t, zroute.Config{Local: &l, LocalRouter: tt.l}).Dispatch(message(tt.id)); res != zroute.OnLocal || len(targets[tt.place].got) != 1 {
			t.Errorf("%d of %s: %v, not at local actor %d", tt.id, tt.typ, res, tt.place)
		}
	}
	if _, err := locals.Pick(message(5), nil); err == nil {
		t.Error("a local pick of nobody")
	}
}
