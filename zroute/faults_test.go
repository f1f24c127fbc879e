package zroute_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// P15 of known-faults.md: an actor takes itself out while a message is delivered to it, first, middle, last, and all at once. Who
// holds a view goes on with what he saw. (Any order of changes: TestLocalModel; from within a change: TestLocalErrors.)
func TestActorsThatLeaveWhileTheyAreTold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "actors")
		var l zroute.Local
		told := 0
		for i := range n {
			leaves := rapid.SliceOfDistinct(rapid.IntRange(0, n-1), rapid.ID[int]).Draw(t, fmt.Sprint("who leaves when ", i, " is told"))
			if err := l.Register(uint64(i), "t", takes(func() error {
				told++
				for _, j := range leaves {
					l.Unregister(uint64(j))
				}
				return nil
			}), []zmsg.Advert{{ID: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		left := map[uint64]bool{}
		for _, c := range l.View(5) { // as a broadcast would
			if err := c.Target.Deliver(message(5)); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range l.View(5) {
			left[c.Actor] = true
		}
		if told != n {
			t.Fatalf("%d told of %d", told, n)
		}
		for _, e := range l.Adverts() {
			if !left[e.Actor] {
				t.Fatalf("actor %d is announced but not in the view", e.Actor)
			}
		}
	})
}

// P16: nobody at all, a type without members, an id that nobody knows: an answer at once, NotExecuted, and not one to try
// again blindly, except where those who handle it drain. No strategy is asked about nobody.
func TestNobodyIsNoRoute(t *testing.T) {
	t.Parallel()
	never := zroute.RemoteStrategyFunc(func(_ *zmsg.Message, c []zroute.RemoteCandidate) int {
		if len(c) == 0 {
			panic("asked to pick nobody")
		}
		return 0
	})
	for name, r := range map[string]*zroute.Remote{
		"no nodes": {}, "no actors": remotes(t, node("z")), "no handlers": remotes(t, node("z", remoteActor(1))),
		"another id": remotes(t, node("z", remoteActor(1, zmsg.Advert{ID: 6}))),
		"starting":   remotes(t, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "z"}, State: zdiscovery.Starting, Actors: []zdiscovery.Actor{remoteActor(1, zmsg.Advert{ID: 5})}}),
		"draining":   remotes(t, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "z"}, State: zdiscovery.Draining, Actors: []zdiscovery.Actor{remoteActor(1, zmsg.Advert{ID: 5})}}),
		"itself":     remotes(t, node(self.ID, remoteActor(1, zmsg.Advert{ID: 5}))),
	} {
		for _, s := range []zroute.RemoteStrategy{
			nil, never, zroute.RoundRobin(), zroute.Rendezvous(nil), zroute.WeightedRendezvous(nil), zroute.Weighted(), zroute.LeastLoaded(),
			zroute.ZoneFirst("a", never), zroute.NewCanary("v", 0.5, never),
			zroute.Strategies{ByType: map[string]zroute.RemoteStrategy{"t": never}},
		} {
			var l zroute.Local
			to := &link{}
			d := dispatcher(t, zroute.Config{Local: &l, Remote: r, Sender: to, Strategy: s, NextBest: true})
			m := message(5)
			m.SetReplier(make(replies, 1), 1)
			var e *zmsg.Error
			if res, tried, err := d.Dispatch(m); res != zroute.NoRoute || tried != 0 || !errors.As(err, &e) || e.Outcome != zmsg.NotExecuted || e.Code.Retry() != (name == "draining") || len(to.sent) > 0 {
				t.Errorf("%s, %T: %v, %d tried, %v, sent %v", name, s, res, tried, err, to.sent)
			}
		}
	}
}

// P17: two handlers of one id fail at start: in one actor here (and in zactor, with both handlers named); two types of one id in
// zmsg.Registry, with both types named. Two actors of one id are candidates, not a mistake.
func TestTwoHandlersOfOneID(t *testing.T) {
	t.Parallel()
	var l zroute.Local
	err := l.Register(3, "shop", &target{}, []zmsg.Advert{{ID: 5}, {ID: 6}, {ID: 5, Client: true}})
	if err == nil || err.Error() != "zroute: actor 3 (shop) advertises message id 5 twice" {
		t.Errorf("got %v", err)
	}
	if l.View(5) != nil || l.View(6) != nil {
		t.Error("a part of it is in the table")
	}
	register(t, &l, 1, &target{}, zmsg.Advert{ID: 5})
	register(t, &l, 2, &target{}, zmsg.Advert{ID: 5})
	if got := actors(l.View(5)); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("candidates %v", got)
	}
}

// P19: messages with one key go to one candidate while the list stands, and move at most once at a change: away from one that left,
// or to one that came. (Across the change order is not promised: docs/routing.md says what to do.)
func TestOneKeyStaysUntilItsNodeGoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := nodeNames.Draw(t, "nodes")
		var r zroute.Remote
		to := &link{}
		d, err := zroute.New(zroute.Config{Node: self, Remote: &r, Sender: to, Strategy: zroute.Rendezvous(nil)})
		if err != nil {
			t.Fatal(err)
		}
		at := func() string {
			to.sent = nil
			for range 5 {
				m := message(5)
				m.Session.ID = 77
				if res, _, err := d.Dispatch(m); res != zroute.OnRemote && res != zroute.Parked {
					t.Fatal(res, err)
				}
			}
			if len(slices.Compact(to.sent)) != 1 {
				t.Fatalf("one key, one list: %v", to.sent)
			}
			return to.sent[0].Node.ID
		}
		fleet(t, &r, names)
		before := at()
		gone := rapid.SampledFrom(names).Draw(t, "leaves")
		fleet(t, &r, slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == gone }))
		if after := at(); (after != before) != (before == gone) {
			t.Fatalf("%s left: from %s to %s", gone, before, after)
		}
		fleet(t, &r, names) // it comes back, and its keys with it
		if again := at(); again != before {
			t.Fatalf("%s, then %s", before, again)
		}
	})
}

// P21: a request whose candidates all say "not here", for ever, ends after each was asked once.
func TestRequestDoesNotGoRound(t *testing.T) {
	t.Parallel()
	for _, next := range []bool{false, true} {
		var r zroute.Remote
		fleet(t, &r, []string{"a", "b", "c"})
		to := &link{answer: func(_ zmsg.Address, _ *zmsg.Message, r zmsg.Replier, token uint64) error {
			r.Reply(token, &zmsg.Reply{Code: zmsg.CodeUnknownActor, Outcome: zmsg.NotExecuted})
			return nil
		}}
		d := dispatcher(t, zroute.Config{Remote: &r, Sender: to, Strategy: zroute.RoundRobin(), NextBest: next})
		m := message(5)
		got := make(replies, 2)
		m.SetReplier(got, 1)
		_, _, _ = d.Dispatch(m)
		if len(to.sent) != 3 || len(got) != 1 {
			t.Fatalf("%d tries, %d outcomes", len(to.sent), len(got))
		}
		if v := <-got; v.Code != zmsg.CodeUnavailable || v.Outcome != zmsg.NotExecuted {
			t.Errorf("got %+v", v)
		}
	}
}
