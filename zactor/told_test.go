package zactor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

var elsewhere = zmsg.NodeRef{ID: "elsewhere", Epoch: 3}

// arrival encodes notes for an actor as another node does: note i is from its actor i, and traced if i is even.
func arrival(tb testing.TB, to uint64, notes ...int64) (*zmsg.Arrival, []zmsg.Told) {
	tb.Helper()
	var batch []byte
	for _, n := range notes {
		v := &testpb.Note{N: n}
		id, ok := zmsg.Plain(v)
		if !ok {
			tb.Fatal("a note is not plain")
		}
		d := zmsg.Tell{To: to, From: uint64(n), ID: id}
		if n%2 == 0 {
			d.Trace = zmsg.TraceID{1, byte(n)}
		}
		var err error
		if batch, err = zmsg.AppendBatchTellOf(batch, &d, v); err != nil {
			tb.Fatal(err)
		}
	}
	return &zmsg.Arrival{From: elsewhere, Data: batch}, toldIn(batch)
}

func upTo(n int64) (list []int64) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// Messages that are not decoded before their turn are what they were sent as, for every way to look at them.
func TestToldMessages(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	type seen struct {
		n     int64
		from  zmsg.Address
		trace zmsg.TraceID
	}
	got := make(chan seen, 100)
	check := func(c *zactor.Context, n int64) {
		if c.FromClient() || c.User() != "" || !c.Session().IsZero() {
			t.Error("a session from nowhere")
		}
		if _, ok := c.Deadline(); ok {
			t.Error("a deadline from nowhere")
		}
		got <- seen{n, c.Sender().Address(), c.Trace()}
	}
	want := func(n int64) seen {
		s := seen{n: n}
		if n != 0 {
			s.from = zmsg.Address{Node: elsewhere, Actor: uint64(n)}
		}
		if n%2 == 0 {
			s.trace = zmsg.TraceID{1, byte(n)}
		}
		return s
	}
	typed := zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error { check(c, m.GetN()); return nil })
	id := typed.ID()
	raw := zactor.HandleRaw(id, func(c *zactor.Context, m *zmsg.Message) error {
		var v testpb.Note
		if err := proto.Unmarshal(m.Body(), &v); err != nil || m.ID != id || m != c.Message() {
			t.Errorf("%+v: %v", m, err)
		}
		check(c, v.GetN())
		return nil
	})
	var taken []*zmsg.Message
	takes := zactor.HandleRaw(id, func(c *zactor.Context, m *zmsg.Message) error {
		if own := c.Take(); own != m {
			t.Error("another message was taken")
		}
		taken = append(taken, m)
		got <- want(int64(m.From.Actor))
		return nil
	})
	last := spawn(t, g, "", factory(typed))
	forwards := zactor.HandleRaw(id, func(c *zactor.Context, _ *zmsg.Message) error { return c.Forward(last) })
	for name, h := range map[string]zactor.Handler{"typed": typed, "raw": raw, "takes": takes, "forwards": forwards} {
		for _, opts := range [][]zactor.SpawnOption{nil, {zactor.WithMailboxBytes(1 << 20)}} { // the second takes them one by one
			ref := spawn(t, g, "", factory(h), opts...)
			a, list := arrival(t, ref.Address().Actor, upTo(20)...)
			g.ReceiveTells(ref.Address().Actor, a, list)
			for n := range int64(20) {
				if have := receive(t, got); have != want(n) {
					t.Fatalf("%s: have %+v, want %+v", name, have, want(n))
				}
			}
		}
	}
	for i, m := range taken {
		var v testpb.Note
		if err := proto.Unmarshal(m.Body(), &v); err != nil || v.GetN() != int64(i%20) || m.Trace.ID != want(int64(i%20)).trace {
			t.Errorf("message %d that was kept is %+v: %v", i, m, err)
		}
		m.Release()
	}
}

// A handler that waits in Call keeps its message while others of its batch are handled.
func TestToldMessageOfASuspendedHandler(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	hold := make(chan struct{})
	slow := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		<-hold
		return &testpb.Pong{N: p.GetN()}, nil
	})))
	got := make(chan string, 10)
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
		if m.GetN() == 2 {
			if _, err := zactor.Call[testpb.Pong](c, slow, &testpb.Ping{}); err != nil {
				return err
			}
		}
		got <- fmt.Sprint(m.GetN(), c.Sender().Address().Actor, c.Trace()[1])
		return nil
	})), zactor.Reentrant())
	a, list := arrival(t, ref.Address().Actor, 2, 3, 4)
	g.ReceiveTells(ref.Address().Actor, a, list)
	for _, want := range []string{"3 3 0", "4 4 4"} {
		if have := receive(t, got); have != want {
			t.Errorf("got %q, want %q", have, want)
		}
	}
	close(hold)
	if have := receive(t, got); have != "2 2 2" {
		t.Errorf("got %q behind the call", have)
	}
}

// What does not fit is refused and counted, one by one; what is behind an end is a dead letter; a crash does not touch the others.
func TestToldRefused(t *testing.T) {
	t.Parallel()
	var dead []zactor.DeadLetter
	end := make(chan struct{}, 10)
	g := newGroup(t, func(c *zactor.Config) {
		c.OnDeadLetter = func(d zactor.DeadLetter) { dead = append(dead, d); end <- struct{}{} }
	})
	entered, hold, got := make(chan struct{}, 10), make(chan struct{}), make(chan int64, 10)
	ref := spawn(t, g, "", factory(
		zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			switch m.GetN() {
			case 0:
				entered <- struct{}{}
				<-hold
				panic("on purpose")
			case 4:
				c.Stop()
			}
			got <- m.GetN()
			return nil
		}),
	), zactor.WithMailbox(5))
	to := ref.Address().Actor
	a, list := arrival(t, to, upTo(9)...)
	g.ReceiveTells(to, a, list[:1])
	receive(t, entered)
	g.ReceiveTells(to, a, list[1:])
	if n := ref.Load(); n != 5 {
		t.Errorf("%d wait, want 5", n)
	}
	close(hold)
	var have []int64
	for range 4 {
		have = append(have, receive(t, got))
	}
	if !slices.Equal(have, []int64{1, 2, 3, 4}) {
		t.Errorf("handled %v", have)
	}
	receive(t, end) // 5 is in the mailbox of an actor that stops
	id, _ := zmsg.Plain(&testpb.Note{})
	if len(dead) != 1 || dead[0].ID != id || dead[0].Reason != "stopped" {
		t.Errorf("dead letters %+v", dead)
	}
	eventually(t, func() bool { return errors.Is(ref.Tell(&testpb.Note{}), zmsg.ErrStopped) })
	g.ReceiveTells(to, a, list) // to nobody: nothing happens
	g.ReceiveTells(1<<40, a, list)
}
