package ztest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

const stageType = 10

func stage(id string) zmsg.Key { return zmsg.Key{Type: stageType, ID: id} }

// stages is an App whose stages, objects, have the sessions bound to them that have joined, and say to all what one says. They are hosted by
// all nodes but the first, whose gate has the clients.
type stages struct {
	mu     sync.Mutex
	closed []string // users, as the stages were told
}

type stageContext = zrouter.Context[*chatpb.RoomState]

func (a *stages) app() znode.App {
	return znode.App{Name: "stages", Objects: func(n *znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.RoomState]{
			Type: stageType, Name: "stage", Version: 1,
			Create: func(zmsg.Key) (*chatpb.RoomState, error) { return &chatpb.RoomState{}, nil },
			Handlers: []zrouter.Handler[*chatpb.RoomState]{
				zrouter.Handle(func(c *stageContext, _ *chatpb.Join) (*chatpb.Joined, error) {
					if err := c.Bind(c.Session()); err != nil {
						return nil, err
					}
					return &chatpb.Joined{Room: c.Key().ID, Node: n.Self().ID}, nil
				}, zrouter.FromClients()),
				zrouter.Handle(func(c *stageContext, _ *chatpb.Leave) (*chatpb.Left, error) {
					return &chatpb.Left{Room: c.Key().ID}, c.Unbind(c.Session())
				}, zrouter.FromClients()),
				zrouter.Handle(func(c *stageContext, req *chatpb.Say) (*chatpb.Said, error) {
					s := c.State()
					s.Last++
					c.Dirty()
					return &chatpb.Said{Room: c.Key().ID, Seq: s.GetLast()},
						c.PushAll(&chatpb.Line{Room: c.Key().ID, Seq: s.GetLast(), From: c.User(), Text: req.GetText()})
				}, zrouter.FromClients()),
				zrouter.Handle(func(c *stageContext, _ *chatpb.Who) (*chatpb.Members, error) {
					return &chatpb.Members{Room: n.Self().ID, Members: make([]string, len(c.Sessions()))}, nil
				}, zrouter.FromClients()),
				zrouter.HandleTell(func(_ *stageContext, e *wirepb.SessionClosed) error {
					a.mu.Lock()
					defer a.mu.Unlock()
					a.closed = append(a.closed, e.GetUser())
					return nil
				}),
			},
		}}
	}}
}

func (a *stages) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.closed)
}

// gateAlone has the first node host no objects.
func gateAlone(k int, s *znode.Settings) {
	if k == 0 {
		s.Logic.Router.Hosts = []string{}
	}
}

// listener is a client that keeps what it was pushed.
type listener struct {
	*zclient.Client
	t    *testing.T
	mu   sync.Mutex
	got  []uint64
	gaps []zclient.Gap
}

func listen(t *testing.T, c *zclient.Client) *listener {
	t.Helper()
	l := &listener{Client: c, t: t}
	zclient.On(c, func(m *chatpb.Line) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got = append(l.got, m.GetSeq())
	})
	c.OnGap(func(g zclient.Gap) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gaps = append(l.gaps, g)
	})
	return l
}

func (l *listener) heard() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

func (l *listener) missed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.gaps)
}

func (l *listener) join(room string) *chatpb.Joined {
	l.t.Helper()
	j, err := joinClub(l.t, l.Client, room)
	if err != nil {
		l.t.Fatal(err)
	}
	return j
}

// say says something to the stage; without one, to that which it is bound to.
func (l *listener) say(room string) (*chatpb.Said, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	var s chatpb.Said
	return &s, l.Request(ctx, &chatpb.Say{Room: room, Text: "x"}, &s)
}

func count(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// Sessions that are bound to an object: what they send goes to it though it names nobody, what it pushes comes in order, it hears of their ends; and
// letting go ends all that. Gates of the object's own node and of others behave the same.
func TestBoundSessions(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(gateAlone))
	far := listen(t, c.Client("far", 0))
	if _, err := far.say(""); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("a message for nobody, bound to nothing: %v", err)
	}
	home := far.join("go").GetNode()
	at := slices.IndexFunc([]string{"n1", "n2", "n3"}, func(id string) bool { return id == home })
	near, other := listen(t, c.Client("near", at)), listen(t, c.Client("other", 3-at))
	near.join("go")
	other.join("go")
	const lines = 300
	for i := range lines {
		l := []*listener{far, near, other}[i%3]
		if s, err := l.say(""); err != nil || s.GetRoom() != "go" || s.GetSeq() != uint64(i)+1 {
			t.Fatalf("line %d: %v, %v", i+1, s, err)
		}
	}
	for _, l := range []*listener{far, near, other} {
		ztest.Eventually(t, "all lines have come", func() bool { return len(l.heard()) >= lines })
		if got := l.heard(); !slices.Equal(got, count(lines)) || l.missed() != 0 {
			t.Errorf("heard %v, %d gaps", got, l.missed())
		}
	}
	// A key that is named goes before what the session is bound to; of two objects the last one counts.
	if s, err := far.say("chess"); err != nil || s.GetRoom() != "chess" {
		t.Errorf("said to %v, %v", s, err)
	}
	far.join("chess")
	if s, err := far.say(""); err != nil || s.GetRoom() != "chess" {
		t.Errorf("said to %v, %v", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := far.Request(ctx, &chatpb.Leave{}, new(chatpb.Left)); err != nil { // of chess
		t.Fatal(err)
	}
	if s, err := far.say(""); err != nil || s.GetRoom() != "go" {
		t.Errorf("said to %v, %v", s, err)
	}
	// Ends are told, for gates here and elsewhere, once; what was let go is not.
	for _, l := range []*listener{far, near} {
		_ = l.Close()
	}
	ztest.Eventually(t, "the ends are told", func() bool { return len(a.told()) >= 2 })
	sorted := a.told()
	if slices.Sort(sorted); !slices.Equal(sorted, []string{"far", "near"}) {
		t.Errorf("told of %q", sorted)
	}
	var m chatpb.Members
	if err := other.Request(ctx, &chatpb.Who{}, &m); err != nil || len(m.GetMembers()) != 1 {
		t.Errorf("%d sessions are bound, %v", len(m.GetMembers()), err)
	}
	if err := other.Request(ctx, &chatpb.Leave{}, new(chatpb.Left)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.say(""); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("a message of one that has left: %v", err)
	}
}

// An owner that dies: the clients stay connected, are told that something may be missing, and what they send next finds the new owner, which they
// can be bound to again.
func TestBoundSessionsOfAKilledOwner(t *testing.T) {
	t.Parallel()
	var a stages
	c := ztest.Cluster(t, 3, a.app(), ztest.Settings(gateAlone))
	const rooms = 6
	var all []*listener
	owner := map[string]string{}
	for i := range rooms {
		room := fmt.Sprint(i)
		l := listen(t, c.Client(fmt.Sprint("c", i), 0))
		owner[room] = l.join(room).GetNode()
		all = append(all, l)
	}
	c.Kill(1)
	for i, l := range all {
		room := fmt.Sprint(i)
		want := 0
		if owner[room] == "n2" {
			want = 1
			ztest.Eventually(t, "the gap is told", func() bool { return l.missed() == 1 })
			if g := l.gaps[0]; g.Key != stage(room) || g.Missed != 0 {
				t.Errorf("told of %+v", g)
			}
		}
		ztest.Eventually(t, "it is served", func() bool { s, err := l.say(""); return err == nil && s.GetRoom() == room })
		if at := l.join("").GetNode(); at != "n3" {
			t.Errorf("room %s is at %s", room, at)
		}
		before := len(l.heard())
		if _, err := l.say(""); err != nil {
			t.Error(err)
		}
		ztest.Eventually(t, "a push comes", func() bool { return len(l.heard()) > before })
		if got := l.missed(); got < want || want == 0 && got != 0 {
			t.Errorf("room %s of %s: %d gaps", room, owner[room], got)
		}
		if n := l.Stats().Connects; n != 1 {
			t.Errorf("connected %d times", n)
		}
	}
}

// stageMembers is how many sessions are bound to the stage.
func stageMembers(t *testing.T, c *ztest.Nodes, room string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zrouter.Call[chatpb.Members](ctx, c.Node(0).Objects(), stage(room), &chatpb.Who{Room: room})
	return len(m.GetMembers()), err
}
