package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zbus/membus"
	"zgame/zdiscovery"
	"zgame/zdiscovery/memdisc"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/zstore/memstore"
)

// A room keeps its lines. It lives on one node, and every node finds it.
var rooms = zrouter.Kind[*chatpb.RoomState]{
	Type: 2, Name: "room", Version: 1,
	Create: func(zmsg.Key) (*chatpb.RoomState, error) { return &chatpb.RoomState{}, nil },
	Handlers: []zrouter.Handler[*chatpb.RoomState]{
		zrouter.Handle(say, zrouter.FromClients()),
		zrouter.Handle(who, zrouter.FromClients()),
	},
	Settings: zrouter.Settings{Dedup: 32},
}

func say(c *zrouter.Context[*chatpb.RoomState], req *chatpb.Say) (*chatpb.Said, error) {
	if req.GetText() == "" {
		return nil, zmsg.Errorf(zmsg.CodeApplication+1, "a line needs a text")
	}
	room := c.State() // plain Go: nobody else touches it
	room.Last++
	room.Lines = append(room.Lines, &chatpb.Line{Seq: room.Last, From: c.User(), Text: req.GetText()})
	c.Dirty() // saved within seconds; c.Save() has the answer wait for that
	return &chatpb.Said{Room: c.Key().ID, Seq: room.Last}, nil
}

func who(c *zrouter.Context[*chatpb.RoomState], _ *chatpb.Who) (*chatpb.Members, error) {
	m := &chatpb.Members{Room: c.Key().ID}
	for _, l := range c.State().GetLines() {
		m.Members = append(m.Members, l.GetText())
	}
	return m, nil
}

// move has a room live on the node of that id. It is asked at the node that has the room.
func move(ctx context.Context, owner *znode.Node, room zmsg.Key, to string) (zrouter.Route, error) {
	for _, n := range owner.Nodes() {
		if n.Ref.ID == to {
			return owner.Objects().Transfer(ctx, room, n.Ref)
		}
	}
	return zrouter.Route{}, fmt.Errorf("there is no node %q", to)
}

// await waits until each of the nodes has all of them on its list as ready: they hear of one that has started a moment later.
func await(ctx context.Context, nodes ...*znode.Node) {
	for _, n := range nodes {
		for ready := 0; ready < len(nodes) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			ready = 0
			for _, x := range n.Nodes() {
				if x.State == zdiscovery.Ready {
					ready++
				}
			}
		}
	}
}

func Example() {
	app := znode.App{Name: "game", Objects: func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{rooms}
	}}

	bus, disc, db := membus.New(), memdisc.New(), memstore.New()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := func(id string) *znode.Node {
		s := znode.DefaultSettings()
		s.Node.ID, s.Gate.Enabled, s.Admin.Address = id, false, ""
		n, err := znode.New(znode.Config{
			Settings: s, App: app, Backends: znode.Backends{Bus: bus.Bus(), Discovery: disc.Discovery(), Store: db.Share()},
		})
		if err == nil {
			err = n.Start(ctx)
		}
		if err != nil {
			panic(err)
		}
		return n
	}
	one, two := start("one"), start("two")
	await(ctx, one, two)

	lobby := zmsg.Key{Type: rooms.Type, ID: "lobby"}
	for i, n := range []*znode.Node{one, two} {
		said, err := zrouter.Call[chatpb.Said](ctx, n.Objects(), lobby, &chatpb.Say{Text: fmt.Sprint("line ", i+1)})
		fmt.Println(said.GetSeq(), err)
	}

	// Sent again, because nobody knows whether it ran: it runs once.
	for range 2 {
		said, err := zrouter.Call[chatpb.Said](ctx, two.Objects(), lobby, &chatpb.Say{Text: "paid"}, zrouter.Once("order-4711"))
		fmt.Println(said.GetSeq(), err)
	}

	_, err := zrouter.Call[chatpb.Said](ctx, one.Objects(), lobby, &chatpb.Say{})
	if failed, ok := errors.AsType[*zrouter.RouteError](err); ok {
		fmt.Println(failed.Outcome, zmsg.CodeOf(err))
	}

	route, _ := one.Objects().Lookup(ctx, lobby)
	owner, other := one, two
	if route.Owner != one.Self() {
		owner, other = two, one
	}
	route, err = move(ctx, owner, lobby, other.Self().ID)
	fmt.Println(route.Owner == other.Self(), route.Version, err)
	_ = owner.Stop(ctx) // what it had left would go to the other too
	lines, err := zrouter.Call[chatpb.Members](ctx, other.Objects(), lobby, &chatpb.Who{})
	fmt.Println(lines.GetMembers(), err)
	_ = other.Stop(ctx)
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
	// 3 <nil>
	// executed application
	// true 2 <nil>
	// [line 1 line 2 paid] <nil>
}
