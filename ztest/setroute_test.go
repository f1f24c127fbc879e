package ztest_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// pins is an app whose nodes have an actor each that hears what is said to it. An actor of the third one has what a client says go to that of the node
// which Join's room names; the stage that a client asks Who of has its Leaves come to itself.
type pins struct {
	mu    sync.Mutex
	rooms map[string]zmsg.Address
	heard map[string][]int
}

func (p *pins) app() znode.App {
	p.rooms, p.heard = map[string]zmsg.Address{}, map[string][]int{}
	say, _ := zmsg.IDOf(&chatpb.Say{})
	leave, _ := zmsg.IDOf(&chatpb.Leave{})
	app := znode.App{Name: "pins"}
	app.Objects = func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.RoomState]{
			Type: stageType, Name: "stage", Version: 1,
			Create: func(zmsg.Key) (*chatpb.RoomState, error) { return &chatpb.RoomState{}, nil },
			Handlers: []zrouter.Handler[*chatpb.RoomState]{
				zrouter.Handle(func(c *stageContext, _ *chatpb.Leave) (*chatpb.Left, error) {
					return &chatpb.Left{Room: c.Key().ID}, nil
				}, zrouter.FromClients()),
				zrouter.Handle(func(c *stageContext, _ *chatpb.Who) (*chatpb.Members, error) {
					return &chatpb.Members{}, c.SetRoute(c.Session(), c.Object(c.Key()), leave)
				}, zrouter.FromClients()),
			},
		}}
	}
	app.Setup = func(n *znode.Node) error {
		id := n.Self().ID
		ref, err := n.Spawn("room", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(_ *zactor.Context, req *chatpb.Say) (*chatpb.Said, error) {
					i, err := strconv.Atoi(req.GetText())
					p.mu.Lock()
					defer p.mu.Unlock()
					p.heard[id] = append(p.heard[id], i)
					return &chatpb.Said{Room: id}, err
				}, zactor.FromClients()),
			}}
		})
		p.mu.Lock()
		p.rooms[id] = ref.Address()
		p.mu.Unlock()
		if err != nil || id != "n3" {
			return err
		}
		_, err = n.Spawn("pinner", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(c *zactor.Context, req *chatpb.Join) (*chatpb.Joined, error) {
					var to zactor.Ref
					p.mu.Lock()
					defer p.mu.Unlock()
					if at, ok := p.rooms[req.GetRoom()]; ok {
						to = c.Group().Ref(at)
					}
					return &chatpb.Joined{}, c.SetRoute(c.Session(), to, say)
				}, zactor.FromClients()),
			}}
		})
		return err
	}
	return app
}

// A session's own route is set from any node, to an actor of any node: what is sent before goes the old way, what is sent behind the answer of who has
// set it the new one, each in order, while the connection stays. An actor whose node is dead is answered for; without the route all is as before.
func TestSetRoute(t *testing.T) {
	t.Parallel()
	var p pins
	c := ztest.Cluster(t, 3, p.app())
	ann, bob := c.Client("ann", 0), c.Client("bob", 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := 0
	say := func(to string) {
		t.Helper()
		n++
		var s chatpb.Said
		if err := ann.Request(ctx, &chatpb.Say{Room: "x", Text: fmt.Sprint(n)}, &s); err != nil || s.GetRoom() != to {
			t.Errorf("said to %q, %v; expected %q", s.GetRoom(), err, to)
		}
	}
	pin := func(to string) {
		t.Helper()
		if err := ann.Request(ctx, &chatpb.Join{Room: to}, new(chatpb.Joined)); err != nil {
			t.Fatal(err)
		}
	}
	say("n1")
	for _, to := range []string{"n2", "n3", "n1", "n2"} {
		for range 50 { // on their way while the route changes
			n++
			if err := ann.Send(&chatpb.Say{Room: "x", Text: fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
		pin(to)
		for range 20 {
			say(to)
		}
	}
	var s chatpb.Said
	if err := bob.Request(ctx, &chatpb.Say{Room: "x", Text: "0"}, &s); err != nil || s.GetRoom() != "n1" {
		t.Errorf("another session's goes to %q, %v", s.GetRoom(), err)
	}
	ztest.Eventually(t, "all are heard", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		all := 0
		for _, heard := range p.heard {
			all += len(heard)
		}
		return all == n+1 // and one of bob
	})
	p.mu.Lock()
	for who, heard := range p.heard {
		if heard = slices.DeleteFunc(heard, func(i int) bool { return i == 0 }); !slices.IsSorted(heard) {
			t.Errorf("%s heard %v", who, heard)
		}
	}
	p.mu.Unlock()
	c.Kill(1)
	c.Settle()
	if err := ann.Request(ctx, &chatpb.Say{Room: "x", Text: "0"}, &s); zmsg.CodeOf(err) != zmsg.CodeNodeLost || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("to an actor of a dead node: %v", err)
	}
	pin("")
	say("n1")
	if got := ann.Stats().Connects; got != 1 {
		t.Errorf("connected %d times", got)
	}
}

// A route to an object goes to where it lives, whatever the message names, and follows it when it moves.
func TestSetRouteToObject(t *testing.T) {
	t.Parallel()
	var p pins
	c := ztest.Cluster(t, 3, p.app())
	ann := c.Client("ann", 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	leave := func(room, to string) {
		t.Helper()
		var l chatpb.Left
		if err := ann.Request(ctx, &chatpb.Leave{Room: room}, &l); err != nil || l.GetRoom() != to {
			t.Errorf("%s went to %q, %v; expected %q", room, l.GetRoom(), err, to)
		}
	}
	leave("a", "a")
	for _, to := range []string{"b", "c", "d"} {
		if err := ann.Request(ctx, &chatpb.Who{Room: to}, new(chatpb.Members)); err != nil {
			t.Fatal(err)
		}
		leave("a", to)
		at := c.OwnerOf(stage(to))
		if _, err := c.Node(at).Objects().Transfer(ctx, stage(to), c.Node((at+1)%3).Self()); err != nil {
			t.Fatal(err)
		}
		leave("a", to)
		leave("", to)
	}
}
