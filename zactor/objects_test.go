package zactor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// objects is an Objects that notes what comes, and answers a Ping.
type objects struct {
	got chan heard
	err error
}

// heard is what an object gets to know of a message.
type heard struct {
	key     zmsg.Key
	id      uint32
	from    zmsg.Address
	chain   []uint64
	session zmsg.SessionRef
	user    string
	wants   bool
	same    *zmsg.Message // as it is, only to be compared
}

func (o *objects) DeliverObject(k zmsg.Key, m *zmsg.Message) error {
	if o.err != nil {
		return o.err
	}
	o.got <- heard{k, m.ID, m.From, slices.Clone(m.Chain), m.Session, m.User, m.Wants(), m}
	if p, ok := m.Value.(*testpb.Ping); ok {
		m.Reply(&zmsg.Reply{Value: &testpb.Pong{N: p.GetN()}})
	}
	m.Release()
	return nil
}

// All that an actor, and others, send to an object comes with what it is about.
func TestObject(t *testing.T) {
	t.Parallel()
	o := &objects{got: make(chan heard, 1)}
	g := newGroup(t, func(c *zactor.Config) { c.Objects = o })
	key := zmsg.Key{Type: 7, Zone: 1, ID: "ann"}
	ways := map[int64]func(c *zactor.Context, to zactor.Ref) error{
		1: func(c *zactor.Context, to zactor.Ref) error { return c.Tell(to, &testpb.Note{}) },
		2: func(c *zactor.Context, to zactor.Ref) error {
			_, err := zactor.Call[testpb.Pong](c, to, &testpb.Ping{N: 2})
			return err
		},
		3: func(c *zactor.Context, to zactor.Ref) error {
			_, err := zactor.Ask[testpb.Pong](c.Context(), to, &testpb.Ping{N: 3})
			return err
		},
		4: func(c *zactor.Context, to zactor.Ref) error {
			later := c.Defer()
			zactor.Then(c, to, &testpb.Ping{N: 4}, func(_ *zactor.Context, p *testpb.Pong, err error) {
				if err != nil {
					later.Fail(err)
					return
				}
				later.Reply(p)
			})
			return zactor.ErrDeferred
		},
		5: func(c *zactor.Context, to zactor.Ref) error { return c.Forward(to) },
	}
	player := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		return &testpb.Pong{N: p.GetN()}, ways[p.GetN()](c, c.Object(key))
	})))
	session := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "gate", Epoch: 2}, ID: 9, Gen: 1}
	pingID, _ := zmsg.IDOf(&testpb.Ping{})
	noteID, _ := zmsg.IDOf(&testpb.Note{})
	for n := range ways {
		m := zmsg.NewMessage(pingID)
		m.Value, m.Session, m.User, m.Chain = &testpb.Ping{N: n}, session, "ann", []uint64{5}
		replies := make(replyChan, 1)
		m.SetReplier(replies, 1)
		if err := player.Deliver(m); err != nil {
			t.Fatal(err)
		}
		want := heard{key: key, id: pingID, from: player.Address(), chain: []uint64{5, player.Address().UID()}, session: session, user: "ann", wants: true}
		switch n {
		case 1:
			want.id, want.chain, want.wants = noteID, nil, false
		case 4: // nobody waits in it
			want.chain = []uint64{5}
		case 5: // as it came
			want.from, want.chain = zmsg.Address{}, []uint64{5}
		}
		if n == 5 {
			want.same = m
		}
		got := receive(t, o.got)
		if n == 3 { // the context of a turn is not about a session
			want.session, want.user = zmsg.SessionRef{}, ""
		}
		if n != 5 {
			got.same = nil
		}
		if got.key != want.key || got.id != want.id || got.from != want.from || !slices.Equal(got.chain, want.chain) ||
			got.session != want.session || got.user != want.user || got.wants != want.wants || got.same != want.same {
			t.Errorf("way %d: got %+v, want %+v", n, got, want)
		}
		if r := receive(t, replies); r.Code != zmsg.CodeOK {
			t.Errorf("way %d: %v", n, r.Err())
		}
	}

	ref := g.Object(key)
	if ref.String() != "object 7/1/ann" || ref.IsZero() || !ref.Address().IsZero() || ref.Load() != 0 {
		t.Errorf("the ref is %v, address %v", ref, ref.Address())
	}
	if err := ref.Tell(&testpb.Note{}); err != nil {
		t.Error(err)
	}
	if got := receive(t, o.got); got.key != key || !got.from.IsZero() || got.wants {
		t.Errorf("a Tell from outside: %+v", got)
	}
	if p, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: 8}); err != nil || p.GetN() != 8 {
		t.Errorf("an Ask from outside: %v, %v", p, err)
	}
	receive(t, o.got)
	m := zmsg.NewMessage(noteID)
	if err := ref.Deliver(m); err != nil || receive(t, o.got).same != m {
		t.Errorf("Deliver: %v", err)
	}
	o.err = zmsg.ErrBusy
	if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{}); !errors.Is(err, zmsg.ErrBusy) {
		t.Errorf("refused: %v, want ErrBusy", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := ref.Tell(&testpb.Note{}); !errors.Is(err, zmsg.ErrStopped) {
		t.Errorf("after the group's end: %v, want ErrStopped", err)
	}
	if err := newGroup(t, nil).Object(key).Tell(&testpb.Note{}); !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("without Objects: %v, want ErrUnavailable", err)
	}
}

// replyChan is a Replier whose outcomes have no body.
type replyChan chan zmsg.Reply

func (c replyChan) Reply(_ uint64, r *zmsg.Reply) {
	c <- zmsg.Reply{Code: r.Code, Outcome: r.Outcome, Text: r.Text}
}

// A record names the object that was asked, and a replay sees that another is.
func TestObjectRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := &objects{got: make(chan heard, 10)}
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}, Objects: o})
	friend := func(id string) func() zactor.Actor {
		return runner(func(c *zactor.Context, _ int64) error {
			p, err := zactor.Call[testpb.Pong](c, c.Object(zmsg.Key{Type: 7, ID: id}), &testpb.Ping{N: 3})
			if err != nil || p.GetN() != 3 {
				return err
			}
			panic("boom")
		})
	}
	s.Send(spawn(t, g, "", friend("ann")), &testpb.Note{})
	s.Run()
	rec := records(t, dir)[0]
	report := replay(t, rec, friend("ann"))
	if report.Panic == nil || report.Diverged() || !strings.Contains(report.String(), "object 7/0/ann") {
		t.Errorf("the replay of the same: %v", report)
	}
	if report = replay(t, rec, friend("bob")); !report.Diverged() || !strings.Contains(report.String(), "object 7/0/ann") {
		t.Errorf("a replay that asks another object: %v", report)
	}
}
