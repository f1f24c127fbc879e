package ztest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// sayAt says something to a stage from a node.
func sayAt(t *testing.T, n *znode.Node, room string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := zrouter.Call[chatpb.Said](ctx, n.Objects(), stage(room), &chatpb.Say{Room: room, Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return s.GetSeq()
}

// lateStage is a stage with one client, whose old owner's pushes are on their way still when the new owner's have come.
func lateStage(t *testing.T, wait time.Duration) (l *listener, release func()) {
	t.Helper()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		s.Gate.PushWait = wait
	}))
	l = listen(t, c.Client("ann", 0))
	old := slices.Index([]string{"n1", "n2", "n3"}, l.join("go").GetNode())
	if sayAt(t, c.Node(old), "go") != 1 {
		t.Fatal("not the first")
	}
	ztest.Eventually(t, "the first line", func() bool { return len(l.heard()) == 1 })
	release = c.Hold(old, 0)
	for range 3 {
		sayAt(t, c.Node(old), "go")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	next := 3 - old
	if _, err := c.Node(old).Objects().Transfer(ctx, stage("go"), c.Node(next).Self()); err != nil {
		t.Fatal(err)
	}
	if n := sayAt(t, c.Node(next), "go"); n != 5 {
		t.Fatalf("the new owner's first line is %d", n)
	}
	sayAt(t, c.Node(next), "go")
	// An answer of the new owner to its client comes behind its pushes.
	ztest.Eventually(t, "the gate's node knows the new owner", func() bool {
		r, err := c.Node(0).Objects().Lookup(ctx, stage("go"))
		return err == nil && r.Owner == c.Node(next).Self()
	})
	var m chatpb.Members
	if err := l.Request(ctx, &chatpb.Who{}, &m); err != nil || m.GetRoom() != c.Node(next).Self().ID {
		t.Fatalf("asked %s, %v", m.GetRoom(), err)
	}
	return l, release
}

// Pushes keep their order through a move although those of the old owner come late.
func TestBoundSessionsOldPushesComeLate(t *testing.T) {
	t.Parallel()
	l, release := lateStage(t, patience)
	if got := l.heard(); !slices.Equal(got, count(1)) {
		t.Errorf("heard %v before the old owner's came", got)
	}
	release()
	ztest.Eventually(t, "all lines have come", func() bool { return len(l.heard()) >= 6 })
	if got := l.heard(); !slices.Equal(got, count(6)) || l.missed() != 0 {
		t.Errorf("heard %v, %d gaps", got, l.missed())
	}
}

// Where they come too late the client is told of the gap, and they do not come any more.
func TestBoundSessionsOldPushesComeTooLate(t *testing.T) {
	t.Parallel()
	l, release := lateStage(t, 20*time.Millisecond)
	ztest.Eventually(t, "the new owner's lines have come", func() bool { return len(l.heard()) >= 3 })
	release()
	for range 3 {
		if _, err := l.say(""); err != nil {
			t.Fatal(err)
		}
	}
	ztest.Eventually(t, "more lines have come", func() bool { return len(l.heard()) >= 6 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if want := []uint64{1, 5, 6, 7, 8, 9}; !slices.Equal(l.got, want) || len(l.gaps) != 1 || l.gaps[0].Missed != 3 || l.gaps[0].Key != stage("go") {
		t.Errorf("heard %v, want %v; gaps %+v", l.got, want, l.gaps)
	}
}

// A handler that panics costs nobody the binding; nor does a node that loses its place in the cluster, whose clients are told of a gap and join again.
func TestBoundSessionsSurviveFaults(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(gateAlone))
	l := listen(t, c.Client("ann", 0))
	at := slices.Index([]string{"n1", "n2", "n3"}, l.join("go").GetNode())
	near := listen(t, c.Client("bob", at))
	near.join("go")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := l.say(""); err != nil {
		t.Fatal(err)
	}
	m, err := zrouter.ManagerOf[*chatpb.RoomState](c.Node(at).Objects(), stageType)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Save(ctx, stage("go")); err != nil {
		t.Fatal(err)
	}
	if err := m.Do(ctx, stage("go"), func(*stageContext) error { panic("on purpose") }); zmsg.CodeOf(err) != zmsg.CodePanicked {
		t.Errorf("a panic: %v", err)
	}
	if s, err := l.say(""); err != nil || s.GetRoom() != "go" {
		t.Errorf("said to %q, %v", s.GetRoom(), err)
	}
	for _, x := range []*listener{l, near} {
		ztest.Eventually(t, "both lines", func() bool { return len(x.heard()) >= 2 })
		if got := x.heard(); !slices.Equal(got, count(2)) || x.missed() != 0 {
			t.Errorf("heard %v, %d gaps", got, x.missed())
		}
	}
	c.Expire(at)
	ztest.Eventually(t, "the gap is told", func() bool { return l.missed() == 1 })
	ztest.Eventually(t, "it can be joined again", func() bool { _, err := joinClub(t, l.Client, ""); return err == nil })
	before := len(l.heard())
	if s, err := l.say(""); err != nil || s.GetRoom() != "go" {
		t.Errorf("said to %q, %v", s.GetRoom(), err)
	}
	ztest.Eventually(t, "a push comes", func() bool { return len(l.heard()) > before })
	if l.Stats().Connects != 1 {
		t.Errorf("connected %d times", l.Stats().Connects)
	}
}
