package zactor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zroute"
)

// The fits that znode relies on.
var (
	_ zactor.Routes = (*zroute.Local)(nil)
	_ zactor.Router = zroute.Router{}
	_ zroute.Target = zactor.Ref{}
)

// sessions notes what actors say to sessions.
type sessions struct {
	mu   sync.Mutex
	said []string
}

func (s *sessions) say(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
	return nil
}

func (s *sessions) Push(to zmsg.SessionRef, p *zmsg.Push) error {
	return s.say("push %d %d %d", to.ID, p.ID, p.Class)
}

func (s *sessions) PushMany(to []zmsg.SessionRef, p *zmsg.Push) error {
	return s.say("many %d %d", len(to), p.ID)
}

func (s *sessions) Publish(group string, p *zmsg.Push) error {
	return s.say("publish %s %d", group, p.ID)
}

func (s *sessions) Join(r zmsg.SessionRef, group string) error {
	return s.say("join %d %s", r.ID, group)
}

func (s *sessions) Leave(r zmsg.SessionRef, group string) error {
	return s.say("leave %d %s", r.ID, group)
}

func (s *sessions) Kick(r zmsg.SessionRef, code uint32, text string) error {
	return s.say("kick %d %d %s", r.ID, code, text)
}

func (s *sessions) Watch(r zmsg.SessionRef, actor uint64) error {
	return s.say("watch %d %d", r.ID, actor)
}

func (s *sessions) Route(r zmsg.SessionRef, to *zmsg.SessionRoute) error {
	return s.say("route %d %v %v %v", r.ID, to.IDs, to.Actor, to.Object)
}

func (s *sessions) Unwatch(r zmsg.SessionRef, actor uint64) error {
	return s.say("unwatch %d %d", r.ID, actor)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	var s sessions
	g := newGroup(t, func(c *zactor.Config) { c.Sessions = &s })
	closed := make(chan *wirepb.SessionClosed, 10)
	hold := make(chan struct{})
	ref := spawn(t, g, "", factory(
		zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
			me := c.Session()
			if c.User() != "ann" || !c.FromClient() {
				t.Errorf("user %q, client %v", c.User(), c.FromClient())
			}
			return nil, errors.Join(
				c.Push(me, &testpb.Note{}), c.Push(me, &testpb.Note{}, zactor.Class(zmsg.Latest)),
				c.PushMany([]zmsg.SessionRef{me, me}, &testpb.Note{}), c.Publish("room", &testpb.Note{}),
				c.Join(me, "room"), c.Leave(me, "room"), c.Kick(me, 3500, "go"), c.WatchSession(me), c.UnwatchSession(me))
		}, zactor.FromClients()),
		zactor.HandleTell(func(_ *zactor.Context, m *wirepb.SessionClosed) error { closed <- m; return nil }),
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { <-hold; return nil }),
	), zactor.WithMailbox(2))
	m := zmsg.NewMessage(990001)
	m.Value, m.Client, m.User, m.Session = &testpb.Ping{}, true, "ann", zmsg.SessionRef{ID: 5}
	replies := make(replier, 1)
	m.SetReplier(replies, 1)
	if err := ref.Deliver(m); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, replies); r.Code != zmsg.CodeOK {
		t.Fatalf("got %+v", r)
	}
	want := []string{"push 5 990003 0", "push 5 990003 1", "many 2 990003", "publish room 990003", "join 5 room", "leave 5 room", "kick 5 3500 go", "watch 5 1", "unwatch 5 1"}
	if !slices.Equal(s.said, want) {
		t.Errorf("said %q, want %q", s.said, want)
	}
	// The end of a session passes a full mailbox, behind what was sent before.
	for ref.Tell(&testpb.Note{}) == nil {
	}
	end := zmsg.NewMessage(10)
	body, err := proto.Marshal(&wirepb.SessionClosed{Session: 5})
	if err != nil {
		t.Fatal(err)
	}
	end.SetBody(body)
	if err := g.Deliver(ref.Address().Actor, end); err != nil {
		t.Errorf("a session's end was refused: %v", err)
	}
	close(hold)
	if got := receive(t, closed); got.GetSession() != 5 {
		t.Errorf("got %v", got)
	}
}

// Without sessions each call says so.
func TestNoSessions(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	ref := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
		return nil, c.Push(c.Session(), &testpb.Note{})
	})))
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// Two groups with a link that delivers at once: requests, tells, senders, cycles and routes cross it.
func TestAcrossNodes(t *testing.T) {
	t.Parallel()
	var hub hub
	g1, g2 := hub.group(t, "n1"), hub.group(t, "n2")
	heard := make(chan zmsg.Address, 1)
	far := spawn(t, g2, "far", factory(
		zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			if p.GetText() == "back" { // to the one who asked: a cycle over two nodes
				return zactor.Call[testpb.Pong](c, c.Sender(), p)
			}
			return &testpb.Pong{N: p.GetN()}, nil
		}),
		zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { heard <- c.Sender().Address(); return nil }),
	))
	near := spawn(t, g1, "near", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		to := c.Group().Ref(far.Address())
		if err := c.Tell(to, &testpb.Note{}); err != nil {
			return nil, err
		}
		if p.GetN() == 1 { // by its id: far is the only one who says it
			return zactor.Call[testpb.Pong](c, c.ByID(), &testpb.Say{Room: "r"})
		}
		return zactor.Call[testpb.Pong](c, to, p)
	})))
	spawn(t, g2, "rooms", factory(zactor.Handle(func(_ *zactor.Context, s *testpb.Say) (*testpb.Pong, error) {
		return &testpb.Pong{Text: s.GetRoom()}, nil
	})))
	hub.routes(t)
	pong, err := zactor.Ask[testpb.Pong](testContext(t), near, &testpb.Ping{N: 7})
	if err != nil || pong.GetN() != 7 {
		t.Errorf("got %v, %v", pong, err)
	}
	if from := receive(t, heard); from != near.Address() {
		t.Errorf("sender %v, want %v", from, near.Address())
	}
	if _, err := zactor.Ask[testpb.Pong](testContext(t), near, &testpb.Ping{Text: "back"}); !errors.Is(err, zmsg.ErrCycle) {
		t.Errorf("got %v, want a cycle", err)
	}
	receive(t, heard)
	pong, err = zactor.Ask[testpb.Pong](testContext(t), near, &testpb.Ping{N: 1})
	if err != nil || pong.GetText() != "r" {
		t.Errorf("by id: got %v, %v", pong, err)
	}
	receive(t, heard)
	gone := g1.Ref(zmsg.Address{Node: far.Address().Node, Actor: 99})
	if _, err := zactor.Ask[testpb.Pong](testContext(t), gone, &testpb.Ping{}); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("got %v, want unknown actor", err)
	}
}

// routes makes each node see the actors of the others.
func (h *hub) routes(tb testing.TB) {
	tb.Helper()
	var s zdiscovery.Snapshot
	for id, l := range h.locals {
		n := zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: 1}, State: zdiscovery.Ready}
		for _, e := range l.Adverts() {
			n.Actors = append(n.Actors, zdiscovery.Actor{ID: e.Actor, Type: e.Type, Adverts: e.Adverts})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for id, r := range h.remote {
		r.Apply(&s, zmsg.NodeRef{ID: id, Epoch: 1})
	}
}

// hub joins groups: what one sends is encoded, and received by the other.
type hub struct {
	groups map[string]*zactor.Group
	locals map[string]*zroute.Local
	remote map[string]*zroute.Remote
}

func (h *hub) group(tb testing.TB, id string) *zactor.Group {
	tb.Helper()
	if h.groups == nil {
		h.groups, h.locals, h.remote = map[string]*zactor.Group{}, map[string]*zroute.Local{}, map[string]*zroute.Remote{}
	}
	h.locals[id], h.remote[id] = new(zroute.Local), new(zroute.Remote)
	node := zmsg.NodeRef{ID: id, Epoch: 1}
	d, err := zroute.New(zroute.Config{Node: node, Local: h.locals[id], Remote: h.remote[id], Sender: h})
	if err != nil {
		tb.Fatal(err)
	}
	h.groups[id] = newGroup(tb, func(c *zactor.Config) {
		c.Node, c.Remote, c.Routes, c.Router = node, link{h, node}, h.locals[id], d.Router()
	})
	return h.groups[id]
}

// link is the hub as one of the groups has it.
type link struct {
	*hub
	node zmsg.NodeRef
}

// Tell sends a batch of one.
func (l link) Tell(to zmsg.NodeRef, t zmsg.Tell, v proto.Message) error {
	batch, err := zmsg.AppendBatchTellOf(nil, &t, v)
	if err != nil {
		return err
	}
	l.groups[to.ID].ReceiveTells(t.To, &zmsg.Arrival{From: l.node, Data: batch}, toldIn(batch))
	return nil
}

// toldIn returns all that is in a batch.
func toldIn(batch []byte) (list []zmsg.Told) {
	for at := 0; at < len(batch); {
		var t zmsg.Told
		next, ok := zmsg.NextTold(batch, at, &t)
		if !ok {
			panic("not a tell")
		}
		list, at = append(list, t), next
	}
	return list
}

func (h *hub) Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	body, err := m.EncodedBody()
	if err != nil {
		return err
	}
	c := zmsg.NewMessage(m.ID)
	c.CopyHead(m)
	c.Chain = slices.Clone(m.Chain)
	c.SetBody(body)
	if r != nil {
		c.SetReplier(wire{r}, token)
	}
	h.groups[to.Node.ID].Receive(to.Actor, c)
	return nil
}

// wire encodes replies.
type wire struct{ to zmsg.Replier }

func (w wire) Reply(token uint64, r *zmsg.Reply) {
	c := *r
	if c.Value != nil {
		c.Body, _ = proto.Marshal(c.Value)
		c.Value = nil
	}
	w.to.Reply(token, &c)
	for i := range c.Body { // valid during the call only
		c.Body[i] = 0xdb
	}
}

func TestRawTakeForward(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	sink := spawn(t, g, "sink", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		return &testpb.Pong{N: p.GetN(), Text: c.User()}, nil
	})))
	var kept []*zmsg.Message
	ref := spawn(t, g, "", factory(
		zactor.HandleRaw(990001, func(c *zactor.Context, m *zmsg.Message) error {
			p, ok := m.Value.(*testpb.Ping)
			switch {
			case !ok:
				return zmsg.ErrBadRequest
			case p.GetText() == "forward":
				return c.Forward(sink)
			case p.GetText() == "keep":
				kept = append(kept, c.Take())
			case p.GetText() == "now":
				c.Reply(&testpb.Pong{N: 1})
				if c.ReplyError(zmsg.ErrBusy) {
					t.Error("replied twice")
				}
			}
			return nil
		}),
		zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
			for _, m := range kept {
				m.Reply(&zmsg.Reply{Value: &testpb.Pong{N: 5}})
				m.Release()
			}
			kept = nil
			return nil
		}),
	))
	ask := func(text string) (*testpb.Pong, error) {
		return zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: 3, Text: text})
	}
	if pong, err := ask("forward"); err != nil || pong.GetN() != 3 {
		t.Errorf("forward: got %v, %v", pong, err)
	}
	if pong, err := ask("now"); err != nil || pong.GetN() != 1 {
		t.Errorf("now: got %v, %v", pong, err)
	}
	if pong, err := ask(""); err != nil || pong.GetN() != 0 {
		t.Errorf("empty OK: got %v, %v", pong, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if pong, err := ask("keep"); err != nil || pong.GetN() != 5 {
			t.Errorf("keep: got %v, %v", pong, err)
		}
	}()
	eventually(t, func() bool {
		if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Note{}); err != nil {
			t.Error(err)
		}
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// What is announced, when, and taken back.
func TestRoutes(t *testing.T) {
	t.Parallel()
	var l zroute.Local
	g := newGroup(t, func(c *zactor.Config) { c.Routes = &l })
	handlers := factory(zactor.Handle(echo, zactor.FromClients()),
		zactor.HandleTell(func(*zactor.Context, *testpb.Say) error { panic("boom") }, zactor.Sharded()),
		zactor.HandleTell(func(*zactor.Context, *wirepb.SessionClosed) error { return nil }))
	ref := spawn(t, g, "a", handlers, zactor.WithType("shop"), zactor.WithPolicy(zactor.Policy{MaxRestarts: -1}))
	spawn(t, g, "hidden", handlers, zactor.Private())
	es := l.Adverts()
	want := []zmsg.Advert{{ID: 990001, Client: true}, {ID: 990004, Sharded: true, KeyField: 1}}
	if len(es) != 1 || es[0].Type != "shop" || !slices.Equal(es[0].Adverts, want) {
		t.Errorf("announced %+v, want %+v", es, want)
	}
	if c := l.View(990001); len(c) != 1 || c[0].Actor != ref.Address().Actor {
		t.Errorf("view %+v", c)
	}
	_ = ref.Tell(&testpb.Say{}) // it fails, and may not restart: gone everywhere
	eventually(t, func() bool { return len(l.Adverts()) == 0 && g.Len() == 1 })
	if _, ok := g.Lookup("a"); ok {
		t.Error("found after its end")
	}
	// A start that cannot be announced is none.
	broken := newGroup(t, func(c *zactor.Config) { c.Routes = brokenRoutes{} })
	stopped := false
	if _, err := broken.Spawn("a", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(echo)}, stop: func(*zactor.Context, zactor.Reason) { stopped = true }}
	}); err == nil || !strings.Contains(err.Error(), "no table") || !stopped || broken.Len() != 0 {
		t.Errorf("got %v, stopped %v, %d actors", err, stopped, broken.Len())
	}
}

type brokenRoutes struct{}

func (brokenRoutes) Register(uint64, string, zactor.Target, []zmsg.Advert) error {
	return errors.New("no table")
}
func (brokenRoutes) Unregister(uint64) {}

// A message to itself never blocks: past the bound it is refused.
func TestTellItself(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var got []int64
	filled, done := make(chan struct{}), make(chan int, 1)
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
		if n.GetN() > 0 {
			got = append(got, n.GetN())
			if n.GetFrom() == 1 {
				done <- len(got)
			}
			return nil
		}
		sent := int64(0)
		for i := range int64(1000) {
			if c.Tell(c.Self(), &testpb.Note{N: i + 1}) == nil {
				sent++
			}
		}
		if sent != 100 {
			t.Errorf("%d taken, want the bound of 100", sent)
		}
		close(filled)
		return nil
	})), zactor.WithMailbox(100))
	if err := ref.Tell(&testpb.Note{}); err != nil {
		t.Fatal(err)
	}
	receive(t, filled)
	eventually(t, func() bool { return ref.Tell(&testpb.Note{N: 5000, From: 1}) == nil })
	receive(t, done)
	_ = g.StopWait(testContext(t), ref)
	if !slices.IsSorted(got) || len(got) != 101 {
		t.Errorf("%d handled, sorted %v", len(got), slices.IsSorted(got))
	}
}
