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
