package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	ref := spawn(t, g, "echo", factory(zactor.Handle(echo)))
	for i := range int64(100) {
		pong, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: i})
		if err != nil || pong.GetN() != i {
			t.Fatalf("got %v, %v, want %d", pong, err, i)
		}
	}
	if _, err := zactor.Ask[testpb.Note](testContext(t), ref, &testpb.Ping{}); err == nil || !strings.Contains(err.Error(), "Pong") {
		t.Errorf("asking for another type: got %v, want an error that names it", err)
	}
}

// Each way to fail has its own code and outcome.
func TestAskErrors(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	block, blocked := make(chan struct{}), make(chan struct{}, 1)
	ref := spawn(t, g, "a", factory(
		zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			switch p.GetText() {
			case "coded":
				return nil, zmsg.Errorf(1001, "not %d", 7)
			case "plain":
				return nil, errors.New("secret")
			case "nested":
				return nil, zmsg.ErrUnavailable
			case "late":
				return nil, fmt.Errorf("secret: %w", context.DeadlineExceeded)
			case "cut":
				return nil, context.Canceled
			case "not run":
				return nil, zactor.NotRun(zmsg.ErrDraining)
			case "panic":
				panic("boom")
			case "block":
				blocked <- struct{}{}
				<-block
			case "no defer":
				return nil, zactor.ErrDeferred
			}
			return &testpb.Pong{}, nil
		}),
	), zactor.WithMailbox(1), zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
	ask := func(text string) error {
		_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{Text: text})
		return err
	}
	check := func(what string, err error, code zmsg.Code, out zmsg.Outcome) {
		t.Helper()
		if zmsg.CodeOf(err) != code || zmsg.OutcomeOf(err) != out {
			t.Errorf("%s: got %v, want code %v and outcome %v", what, err, code, out)
		}
	}
	check("coded", ask("coded"), 1001, zmsg.Executed)
	plain := ask("plain")
	check("plain", plain, zmsg.CodeInternal, zmsg.Executed)
	if strings.Contains(plain.Error(), "secret") {
		t.Errorf("the text of an error without a code went out: %v", plain)
	}
	check("nested", ask("nested"), zmsg.CodeUnavailable, zmsg.Executed) // this handler did run
	check("out of time", ask("late"), zmsg.CodeTimeout, zmsg.Unknown)
	check("cut short", ask("cut"), zmsg.CodeCancelled, zmsg.Unknown)
	check("not run", ask("not run"), zmsg.CodeDraining, zmsg.NotExecuted)
	check("panic", ask("panic"), zmsg.CodePanicked, zmsg.Unknown)
	check("no defer", ask("no defer"), zmsg.CodeInternal, zmsg.Executed)
	_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Note{})
	check("no handler", err, zmsg.CodeNoRoute, zmsg.NotExecuted)
	_, err = zactor.Ask[testpb.Pong](testContext(t), zactor.Ref{}, &testpb.Ping{})
	check("nobody", err, zmsg.CodeUnknownActor, zmsg.NotExecuted)
	_, err = zactor.Ask[testpb.Pong](testContext(t), g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "n1", Epoch: 1}, Actor: 99}), &testpb.Ping{})
	check("unknown", err, zmsg.CodeUnknownActor, zmsg.NotExecuted)
	_, err = zactor.Ask[testpb.Pong](testContext(t), g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "n2"}, Actor: 1}), &testpb.Ping{})
	check("no remote", err, zmsg.CodeUnavailable, zmsg.NotExecuted)
	_, err = zactor.Ask[testpb.Pong](testContext(t), g.ByID(), &testpb.Ping{})
	check("no router", err, zmsg.CodeNoRoute, zmsg.NotExecuted)

	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 3)
	go func() {
		_, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{Text: "block"})
		ended <- err
	}()
	receive(t, blocked)
	go func() {
		_, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{})
		ended <- err
	}()
	eventually(t, func() bool { return ref.Load() == 1 })
	check("busy", ask(""), zmsg.CodeBusy, zmsg.NotExecuted)
	cancel()
	err = receive(t, ended)
	check("cancelled", err, zmsg.CodeCancelled, zmsg.Unknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error in it", err)
	}
	if err := g.Stop(ref); err != nil {
		t.Fatal(err)
	}
	close(block)
	check("stopped while it waited", receive(t, ended), zmsg.CodeStopped, zmsg.NotExecuted)
	check("stopped", ask(""), zmsg.CodeStopped, zmsg.NotExecuted)
}

func TestTellIsInOrder(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	const senders, each = 8, 5000
	last := [senders]int64{}
	done := make(chan struct{})
	handled := 0
	ref := spawn(t, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, n *testpb.Note) error {
		if n.GetN() != last[n.GetFrom()]+1 {
			t.Errorf("sender %d: %d follows %d", n.GetFrom(), n.GetN(), last[n.GetFrom()])
		}
		last[n.GetFrom()] = n.GetN()
		if handled++; handled == senders*each {
			close(done)
		}
		return nil
	})), zactor.WithMailbox(senders*each))
	for s := range int64(senders) {
		go func() {
			for n := range int64(each) {
				if err := ref.Tell(&testpb.Note{N: n + 1, From: s}); err != nil {
					t.Errorf("tell: %v", err)
				}
			}
		}()
	}
	receive(t, done)
}

// A body that comes from outside is decoded; what does not parse is the sender's fault.
func TestDeliver(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	ref := spawn(t, g, "", factory(zactor.Handle(echo, zactor.FromClients()), zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil })))
	deliver := func(id uint32, body []byte, client bool) (zmsg.Reply, error) {
		replies := make(replier, 1)
		m := zmsg.NewMessage(id)
		m.SetBody(body)
		m.Client = client
		m.SetReplier(replies, 1)
		if err := g.Deliver(ref.Address().Actor, m); err != nil {
			if !m.Wants() {
				t.Error("a refused message has lost its reply slot")
			}
			m.Release()
			return zmsg.Reply{}, err
		}
		return receive(t, replies), nil
	}
	body, err := proto.Marshal(&testpb.Ping{N: 4})
	if err != nil {
		t.Fatal(err)
	}
	r, err := deliver(990001, body, true)
	if err != nil || r.ID != 990002 || r.Value.(*testpb.Pong).GetN() != 4 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err = deliver(990001, []byte{0xff}, true); err != nil || r.Code != zmsg.CodeBadRequest || r.Outcome != zmsg.NotExecuted {
		t.Errorf("bad body: got %+v, %v", r, err)
	}
	if r, err = deliver(990003, nil, false); err != nil || r.Code != zmsg.CodeOK {
		t.Errorf("a request to a one-way handler: got %+v, %v, want OK", r, err)
	}
	if _, err = deliver(990003, nil, true); !errors.Is(err, zmsg.ErrNoRoute) {
		t.Errorf("client mark: got %v, want no route", err)
	}
	if _, err = deliver(10, nil, true); !errors.Is(err, zmsg.ErrNoRoute) {
		t.Errorf("a client sends SessionClosed: got %v, want no route", err)
	}
	m := zmsg.NewMessage(1)
	if err := g.Deliver(4711, m); !errors.Is(err, zmsg.ErrUnknownActor) {
		t.Errorf("unknown actor: got %v", err)
	}
	m.Release()
}

// replier takes replies.
type replier chan zmsg.Reply

func (r replier) Reply(_ uint64, v *zmsg.Reply) { r <- *v }

func TestSpawnNames(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	var instances, wins atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := g.Spawn("one", func() zactor.Actor {
				instances.Add(1)
				return &actor{}
			})
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, zactor.ErrExists):
				t.Errorf("got %v, want ErrExists", err)
			}
		})
	}
	wg.Wait()
	if instances.Load() != 1 || wins.Load() != 1 {
		t.Errorf("%d instances, %d winners, want one each", instances.Load(), wins.Load())
	}
	ref, ok := g.Lookup("one")
	if !ok {
		t.Fatal("not found by name")
	}
	if err := g.StopWait(testContext(t), ref); err != nil {
		t.Fatal(err)
	}
	if _, ok := g.Lookup("one"); ok {
		t.Error("found after its end")
	}
	spawn(t, g, "one", factory())
}

func TestSpawnErrors(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	for _, c := range []struct {
		name string
		f    func() zactor.Actor
		want string
	}{
		{"twice", factory(zactor.Handle(echo), zactor.HandleTell(func(*zactor.Context, *testpb.Ping) error { return nil })), "handled twice: by handler 0 (zgame.actortest.Ping) and by handler 1"},
		{"no id", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Plain) error { return nil })), "zgame.actortest.Plain has no id"},
		{"zero", factory(zactor.Handler{}), "zero Handler"},
		{"factory panics", func() zactor.Actor { panic("ouch") }, "ouch"},
		{"no actor", func() zactor.Actor { return nil }, "no actor"},
		{"start fails", func() zactor.Actor {
			return &actor{start: func(*zactor.Context) error { return errors.New("no database") }, stop: func(*zactor.Context, zactor.Reason) { t.Error("OnStop of an actor that did not start") }}
		}, "no database"},
		{"start panics", func() zactor.Actor { return &actor{start: func(*zactor.Context) error { panic("ouch") }} }, "ouch"},
	} {
		if _, err := g.Spawn(c.name, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
		if _, ok := g.Lookup(c.name); ok {
			t.Errorf("%s: found though it did not start", c.name)
		}
	}
	if g.Len() != 0 {
		t.Errorf("%d actors are left", g.Len())
	}
}
