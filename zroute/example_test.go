package zroute_test

import (
	"fmt"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// A message goes to the actor of this node that handles its id, else to another node's.
func Example() {
	var local zroute.Local
	var remote zroute.Remote
	self := zmsg.NodeRef{ID: "n1", Epoch: 1}
	link := &link{} // a zbus.Link
	d, err := zroute.New(zroute.Config{Node: self, Local: &local, Remote: &remote, Sender: link})
	if err != nil {
		fmt.Println(err)
		return
	}
	lobby := &target{} // a zactor.Ref; a zactor.Group registers it
	_ = local.Register(1, "lobby", lobby, []zmsg.Advert{{ID: 1001, Client: true}})
	remote.Apply(&zdiscovery.Snapshot{Nodes: []zdiscovery.Node{{
		Ref: zmsg.NodeRef{ID: "n2", Epoch: 1}, State: zdiscovery.Ready,
		Actors: []zdiscovery.Actor{{ID: 7, Type: "shop", Adverts: []zmsg.Advert{{ID: 1002, Client: true}}}},
	}}}, self)

	for _, id := range []uint32{1001, 1002, 1003} {
		m := zmsg.NewMessage(id)
		m.Client = true // as a gate marks it
		res, tried, err := d.Dispatch(m)
		fmt.Println(id, res, tried, zmsg.CodeOf(err))
	}
	fmt.Println(link.sent)
	// Output:
	// 1001 local 0 ok
	// 1002 remote 1 ok
	// 1003 no_route 0 no_route
	// [n2@1/7]
}

// nodesOf makes a table of nodes with one actor each that handles message id 1002.
func nodesOf(nodes ...zdiscovery.Node) *zroute.Remote {
	for i := range nodes {
		nodes[i].State = zdiscovery.Ready
		nodes[i].Actors = []zdiscovery.Actor{{ID: 7, Type: "shop", Adverts: []zmsg.Advert{{ID: 1002, Client: true}}}}
	}
	var r zroute.Remote
	r.Apply(&zdiscovery.Snapshot{Nodes: nodes}, zmsg.NodeRef{ID: "gate-1", Epoch: 1})
	return &r
}

func named(id string) zdiscovery.Node { return zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: 1}} }

// A session stays with its node; when another comes, it takes some sessions, and no other moves.
func ExampleRendezvous() {
	key := zroute.Rendezvous(nil)
	three, four := nodesOf(named("a"), named("b"), named("c")).ByID(1002), nodesOf(named("a"), named("b"), named("c"), named("d")).ByID(1002)
	for session := range uint64(6) {
		m := zmsg.NewMessage(1002)
		m.Session.ID = session + 1
		fmt.Println("session", m.Session.ID, "at", three[key.Pick(m, three)].Node.ID, "then", four[key.Pick(m, four)].Node.ID)
	}
	// Output:
	// session 1 at b then b
	// session 2 at c then c
	// session 3 at c then c
	// session 4 at a then d
	// session 5 at b then b
	// session 6 at b then b
}

// The nearest first, and among those the ones with room: the wrapper narrows what the other strategy sees.
func ExampleZoneFirst() {
	a, b, c := named("a"), named("b"), named("c")
	a.Zone, b.Zone, c.Zone = "west", "east", "west"
	all := nodesOf(a, b, c).ByID(1002)
	near, nobody := zroute.ZoneFirst("west", zroute.RoundRobin()), zroute.ZoneFirst("north", zroute.RoundRobin())
	m := zmsg.NewMessage(1002)
	for range 3 {
		fmt.Println(all[near.Pick(m, all)].Node.ID, all[nobody.Pick(m, all)].Node.ID)
	}
	// Output:
	// a a
	// c b
	// a c
}

// A share of the users gets the new version; who has it keeps it when the share grows.
func ExampleCanary() {
	a, b, c := named("a"), named("b"), named("c")
	a.Version, b.Version, c.Version = "v1.4.0", "v1.5.0", "v1.4.0"
	all := nodesOf(a, b, c).ByID(1002)
	canary := zroute.NewCanary("v1.5.0", 0, zroute.Rendezvous(zroute.UserKey))
	for _, share := range []float64{0.05, 0.3} {
		canary.SetShare(share)
		var users []string
		for u := range 20 {
			m := zmsg.NewMessage(1002)
			m.User = fmt.Sprintf("user-%d", u)
			if all[canary.Pick(m, all)].Version == "v1.5.0" {
				users = append(users, m.User)
			}
		}
		fmt.Println(share, users)
	}
	// Output:
	// 0.05 [user-15]
	// 0.3 [user-1 user-2 user-8 user-13 user-14 user-15 user-19]
}

// One strategy for a message id, one for a type of actors, one for all others.
func ExampleStrategies() {
	all := nodesOf(named("a"), named("b"), named("c")).ByID(1002)
	s := zroute.Strategies{
		Default: zroute.LeastLoaded(),
		ByType:  map[string]zroute.RemoteStrategy{"shop": zroute.RoundRobin()},
		ByID:    map[uint32]zroute.RemoteStrategy{1003: zroute.Rendezvous(zroute.UserKey)},
	}
	for _, id := range []uint32{1002, 1002, 1003, 1003} {
		m := zmsg.NewMessage(id)
		m.User = "ann"
		fmt.Println(id, all[s.Pick(m, all)].Node.ID)
	}
	// Output:
	// 1002 a
	// 1002 b
	// 1003 c
	// 1003 c
}

// Shares of the sessions follow the weights of the nodes.
func ExampleWeightedRendezvous() {
	a, b := named("a"), named("b")
	a.Weight, b.Weight = 100, 300
	all := nodesOf(a, b).ByID(1002)
	key, at := zroute.WeightedRendezvous(nil), map[string]int{}
	for session := range uint64(10_000) {
		m := zmsg.NewMessage(1002)
		m.Session.ID = session + 1
		at[all[key.Pick(m, all)].Node.ID]++
	}
	fmt.Println("a quarter:", at["a"] > 2400 && at["a"] < 2600)
	// Output:
	// a quarter: true
}
