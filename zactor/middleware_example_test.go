package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// Code around every handler of a group, and around one.
func ExampleMiddleware() {
	say := func(text string) zactor.Middleware {
		return func(h zactor.HandlerInfo, next zactor.Func) zactor.Func {
			return func(c *zactor.Context) error {
				fmt.Println(text, "before", h.Name)
				err := next(c)
				fmt.Println(text, "after:", err)
				return err
			}
		}
	}
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{Middleware: []zactor.Middleware{say("group")}})
	ref, _ := group.Spawn("", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(echo, zactor.With(say("handler")))}}
	})
	pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{N: 7})
	_ = group.Shutdown(ctx) // waits for the handler, which has answered before it returns
	fmt.Println(pong.GetN(), err)
	// Output:
	// group before zgame.actortest.Ping
	// handler before zgame.actortest.Ping
	// handler after: <nil>
	// group after: <nil>
	// 7 <nil>
}

// An actor that keeps its state when a handler panics.
func ExampleRecover() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{Middleware: []zactor.Middleware{zactor.Recover()}})
	ref, _ := group.Spawn("", func() zactor.Actor {
		n := int64(0)
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				if p.GetText() == "bad" {
					panic("boom")
				}
				n++
				return &testpb.Pong{N: n}, nil
			}),
		}}
	})
	for _, text := range []string{"", "bad", ""} {
		pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{Text: text})
		fmt.Println(pong.GetN(), err)
	}
	_ = group.Shutdown(ctx)
	// Output:
	// 1 <nil>
	// 0 panicked: the handler panicked (code 5, unknown)
	// 2 <nil>
}

// How often each message was handled, and how it ended.
func ExampleMeasure() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()
	group, _ := zactor.NewGroup(zactor.Config{
		Middleware: []zactor.Middleware{zactor.Measure(zmetrics.NewHandlers(registry))},
	})
	ref, _ := group.Spawn("", func() zactor.Actor { return &greeter{} })
	for _, name := range []string{"ann", "bob", ""} {
		_, _ = zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{Text: name})
	}
	families, _ := registry.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				fmt.Print(l.GetValue(), " ")
			}
			fmt.Println(f.GetName(), m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()))
		}
	}
	_ = group.Shutdown(ctx)
	// Output:
	// zgame.actortest.Ping application zgame_handler_handled_total 1
	// zgame.actortest.Ping ok zgame_handler_handled_total 2
	// zgame.actortest.Ping zgame_handler_seconds 3
}

// A trace that begins at one actor and goes on at the next.
func ExampleTrace() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	log := slog.New(slog.DiscardHandler) // else it gets one line for each message
	back, _ := group.Spawn("back", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
			return &testpb.Pong{Text: fmt.Sprint(c.Trace())}, nil
		})}}
	})
	front, _ := group.Spawn("front", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			pong, err := zactor.Call[testpb.Pong](c, back, p)
			return &testpb.Pong{Text: fmt.Sprint(!c.Trace().IsZero(), " ", pong.GetText() == fmt.Sprint(c.Trace()))}, err
		}, zactor.With(zactor.Trace(log)))}}
	})
	pong, err := zactor.Ask[testpb.Pong](ctx, front, &testpb.Ping{})
	fmt.Println(pong.GetText(), err)
	_ = group.Shutdown(ctx)
	// Output: true true <nil>
}

// At most two at once of a message that costs much, and one more each minute.
func ExampleLimit() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{})
	ref, _ := group.Spawn("", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(echo, zactor.With(zactor.Limit(1./60, 2)))}}
	})
	for range 3 {
		_, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{})
		fmt.Println(err, zmsg.CodeOf(err).Retry())
	}
	_ = group.Shutdown(ctx)
	// Output:
	// <nil> false
	// <nil> false
	// rate_limited: too many requests (code 10, not_executed) true
}

// Handlers of clients that have logged in.
func ExampleRequireUser() {
	ctx := context.Background()
	group, _ := zactor.NewGroup(zactor.Config{Middleware: []zactor.Middleware{zactor.RequireUser()}})
	ref, _ := group.Spawn("", func() zactor.Actor { return &greeter{} })
	for _, user := range []string{"", "ann"} {
		m := zmsg.NewMessage(990001) // as a gate delivers it
		m.Client, m.User, m.Value = true, user, &testpb.Ping{Text: "me"}
		replies := make(replier, 1)
		m.SetReplier(replies, 1)
		if err := ref.Deliver(m); errors.Is(err, zmsg.ErrBusy) {
			m.Release()
		}
		r := <-replies
		fmt.Println(r.Err())
	}
	_ = group.Shutdown(ctx)
	// Output:
	// unauthorized: log in first (code 8, not_executed)
	// <nil>
}
