package room

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two people at two nodes talk while the room's node is drained; who comes later reads the newest hundred lines.
func TestRoom(t *testing.T) {
	t.Parallel()
	const lines = 120
	c := ztest.Cluster(t, 4, App(), ztest.Settings(func(k int, s *znode.Settings) {
		if k < 2 {
			s.Logic.Router.Hosts = []string{"zuser"} // gates, which stay
		}
	}))
	heard := &ztest.Oracle{}
	clients := []*zclient.Client{c.Client("ann", 0), c.Client("bob", 1)}
	for _, cl := range clients {
		ztest.Call[chatpb.Joined](t, cl, &chatpb.Join{Room: "go"})
	}
	zclient.On(clients[1], func(l *chatpb.Line) { heard.Got("go", l.GetSeq()) })
	for i := range lines {
		said := ztest.Call[chatpb.Said](t, clients[i%2], &chatpb.Say{Room: "go", Text: fmt.Sprint(i)})
		if said.GetSeq() != uint64(i+1) {
			t.Fatalf("line %d is number %d", i+1, said.GetSeq())
		}
		if i == lines/2 {
			c.Stop(c.OwnerOf(zmsg.Key{Type: 100, ID: "go"}))
		}
	}
	ztest.Eventually(t, "all is heard", func() bool { return heard.Count("go") == lines })
	if err := heard.Check(lines, "go"); err != nil {
		t.Error(err)
	}
	late := ztest.Call[chatpb.Joined](t, c.Client("eve", 0), &chatpb.Join{Room: "go"}).GetHistory()
	if len(late) != 100 || late[0].GetSeq() != lines-99 || late[99].GetText() != fmt.Sprint(lines-1) || late[99].GetFrom() != "bob" {
		t.Errorf("who comes late reads %d lines, the last is %v", len(late), late[len(late)-1])
	}
}
