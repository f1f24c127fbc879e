package zactor_test

import (
	"errors"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// A handler defers its reply, because what it begins next will give it, and then cannot begin: the error that it returns is the
// outcome, not a time-out.
func TestErrorAfterDefer(t *testing.T) {
	t.Parallel()
	var kept zactor.Deferred
	handler := func(c *zactor.Context, req *testpb.Ping) (*testpb.Pong, error) {
		kept = c.Defer()
		switch req.GetText() {
		case "code":
			return nil, zactor.NotRun(zmsg.Errorf(4001, "no place"))
		case "plain":
			return nil, errors.New("disk on fire")
		case "replied":
			kept.Reply(&testpb.Pong{Text: "first"})
			return nil, errors.New("too late to say")
		}
		panic("in order")
	}
	ping := factory(zactor.Handle(handler, zactor.With(zactor.Recover())))
	g, s := zactortest.NewSteps(t, zactor.Config{})
	ref, err := g.Spawn("ping", ping)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		code zmsg.Code
		out  zmsg.Outcome
	}{{"code", 4001, zmsg.NotExecuted}, {"plain", zmsg.CodeInternal, zmsg.Executed}, {"replied", zmsg.CodeOK, zmsg.Executed}, {"panic", zmsg.CodeTimeout, zmsg.Unknown}} {
		_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{Text: c.text})
		if zmsg.CodeOf(err) != c.code || err != nil && zmsg.OutcomeOf(err) != c.out {
			t.Errorf("%s: %v", c.text, err)
		}
		if kept.Reply(&testpb.Pong{}) != (c.text == "panic") { // after Recover it stays with whoever has it
			t.Errorf("%s: the Deferred is not what it should be", c.text)
		}
	}
	// Without Recover the actor goes on, and nobody else knows that it owes a reply.
	resumed := spawn(t, g, "resumed", factory(zactor.Handle(handler)), zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return zactor.Resume }}))
	_, err = zactor.Ask[testpb.Pong](t.Context(), resumed, &testpb.Ping{Text: "panic"})
	if !errors.Is(err, zmsg.ErrPanicked) || kept.Reply(&testpb.Pong{}) {
		t.Errorf("a panic of an actor that is resumed: %v", err)
	}
	s.Run()
}

// A second Defer of a message finds nothing to take, and takes nothing from the first.
func TestDeferTwice(t *testing.T) {
	t.Parallel()
	g, _ := zactortest.NewSteps(t, zactor.Config{})
	ref := spawn(t, g, "ping", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
		c.Defer()
		if c.Defer().Reply(&testpb.Pong{}) {
			t.Error("the second has replied")
		}
		return nil, zmsg.Errorf(4001, "no place")
	})))
	if _, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{}); zmsg.CodeOf(err) != 4001 {
		t.Error(err)
	}
}
