package ztest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// X2: rooms are made and joined while the nodes that host them are replaced one by one: each is made where nobody leaves, and no client sees an error.
func TestJoinsDuringRollingRestart(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(gateAlone))
	var all []*listener
	for i := range 3 {
		all = append(all, listen(t, c.Client(fmt.Sprint("c", i), 0)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	made := 0
	for node := 1; node < 3; node++ {
		stop := make(chan struct{})
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, l := range all {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					room := fmt.Sprint(node, "-", i, "-", n)
					before := len(l.heard())
					if _, err := joinClub(t, l.Client, room); err != nil {
						t.Errorf("join of %s: %v (%v)", room, err, zmsg.OutcomeOf(err))
						return
					}
					if s, err := l.say(""); err != nil || s.GetRoom() != room || s.GetSeq() != 1 {
						t.Errorf("said %d to %q in %s: %v (%v)", s.GetSeq(), s.GetRoom(), room, err, zmsg.OutcomeOf(err))
						return
					}
					ztest.Eventually(t, "the line comes", func() bool { return len(l.heard()) > before })
					if err := l.Request(ctx, &chatpb.Leave{}, new(chatpb.Left)); err != nil {
						t.Errorf("leave of %s: %v (%v)", room, err, zmsg.OutcomeOf(err))
						return
					}
					mu.Lock()
					made++
					mu.Unlock()
				}
			})
		}
		c.Restart(node)
		close(stop)
		wg.Wait()
	}
	t.Logf("%d rooms were made", made)
	for i, l := range all {
		if l.missed() != 0 || l.Stats().Connects != 1 {
			t.Errorf("client %d: %d gaps, connected %d times", i, l.missed(), l.Stats().Connects)
		}
	}
}

// What sessions are bound to stays in memory; what is given up, with nobody to take it, knows them again when it comes back; and what ends lets them go.
func TestBoundSessionsAndTheObjectsLife(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		s.Logic.Router.ObjectFreeTimeout = 200 * time.Millisecond
		s.Gate.PushWait = patience
	}))
	l := listen(t, c.Client("ann", 0))
	at := slices.Index([]string{"n1", "n2", "n3"}, l.join("go").GetNode())
	l.join("lone")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Request(ctx, &chatpb.Leave{Room: "lone"}, new(chatpb.Left)); err != nil {
		t.Fatal(err)
	}
	owner := func(room string) zmsg.NodeRef {
		rec, err := c.Node(0).Store().Read(ctx, stage(room))
		if err != nil {
			t.Fatal(err)
		}
		return rec.Own.Node
	}
	ztest.Eventually(t, "what nobody is bound to goes", func() bool { return owner("lone").IsZero() })
	if owner("go").IsZero() {
		t.Error("what somebody is bound to has gone")
	}
	// Given up by a transfer to nobody.
	if _, err := c.Node(at).Objects().Transfer(ctx, stage("go"), zmsg.NodeRef{}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.say(""); err != nil || s.GetRoom() != "go" {
		t.Errorf("said to %q, %v", s.GetRoom(), err)
	}
	ztest.Eventually(t, "the line comes", func() bool { return len(l.heard()) == 1 })
	if n, err := stageMembers(t, c, "go"); err != nil || n != 1 || l.missed() != 0 {
		t.Errorf("%d are bound, %v, %d gaps", n, err, l.missed())
	}
	// Ended for good.
	at = slices.IndexFunc([]int{0, 1, 2}, func(k int) bool { return c.Node(k).Self() == owner("go") })
	m, err := zrouter.ManagerOf[*chatpb.RoomState](c.Node(at).Objects(), stageType)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Do(ctx, stage("go"), func(c *stageContext) error { c.Delete(); return nil }); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "it is let go", func() bool { _, err := l.say(""); return zmsg.CodeOf(err) == zmsg.CodeBadRequest })
	if l.missed() != 0 || len(a.told()) != 0 {
		t.Errorf("%d gaps, told of %q", l.missed(), a.told())
	}
}

// A gate that is replaced takes its sessions with it: each object is told of the end of each, once, and knows those that come back as new.
func TestBoundSessionsOfAGateThatRestarts(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(gateAlone))
	const rooms = 4
	var all []*listener
	for i := range rooms {
		l := listen(t, c.Client(fmt.Sprint("c", i), 0))
		l.join(fmt.Sprint(i))
		all = append(all, l)
	}
	for _, l := range all {
		_ = l.Close()
	}
	for i := range rooms {
		l := listen(t, c.Client(fmt.Sprint("d", i), 0))
		l.join(fmt.Sprint(i))
	}
	c.Kill(0)
	c.Add()
	gate := c.Len() - 1
	ztest.Eventually(t, "all ends are told", func() bool { return len(a.told()) >= 2*rooms })
	for i := range rooms {
		room := fmt.Sprint(i)
		l := listen(t, c.Client(fmt.Sprint("e", i), gate))
		l.join(room)
		ztest.Eventually(t, "only who came back is bound", func() bool {
			var m chatpb.Members
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return l.Request(ctx, &chatpb.Who{}, &m) == nil && len(m.GetMembers()) == 1
		})
		if s, err := l.say(""); err != nil || s.GetRoom() != room {
			t.Errorf("said to %q, %v", s.GetRoom(), err)
		}
		ztest.Eventually(t, "the line comes", func() bool { return len(l.heard()) == 1 })
	}
	if n := len(a.told()); n != 2*rooms {
		t.Errorf("%d ends were told, of %d", n, 2*rooms)
	}
}
