package zactor_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bound is how long a test waits for what should happen at once.
const bound = time.Minute

// newGroup makes a group that ends with the test, in order.
func newGroup(tb testing.TB, change func(*zactor.Config)) *zactor.Group {
	tb.Helper()
	cfg := zactor.Config{}
	cfg.Node.ID, cfg.Node.Epoch = "n1", 1
	if change != nil {
		change(&cfg)
	}
	g, err := zactor.NewGroup(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		_ = g.Shutdown(ctx) // what it cuts is the business of tests that ask
	})
	return g
}

// actor is an Actor made of functions.
type actor struct {
	handlers []zactor.Handler
	start    func(*zactor.Context) error
	stop     func(*zactor.Context, zactor.Reason)
}

func (a *actor) Handlers() []zactor.Handler { return a.handlers }

func (a *actor) OnStart(c *zactor.Context) error {
	if a.start == nil {
		return nil
	}
	return a.start(c)
}

func (a *actor) OnStop(c *zactor.Context, why zactor.Reason) {
	if a.stop != nil {
		a.stop(c, why)
	}
}

func factory(handlers ...zactor.Handler) func() zactor.Actor {
	return func() zactor.Actor { return &actor{handlers: handlers} }
}

func spawn(tb testing.TB, g *zactor.Group, name string, f func() zactor.Actor, opts ...zactor.SpawnOption) zactor.Ref {
	tb.Helper()
	ref, err := g.Spawn(name, f, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return ref
}

// echo answers a Ping with a Pong of the same number.
func echo(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
	return &testpb.Pong{N: p.GetN(), Text: p.GetText()}, nil
}

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bound)
	tb.Cleanup(cancel)
	return ctx
}

// receive waits for a value.
func receive[T any](tb testing.TB, ch <-chan T) T {
	tb.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(bound):
		tb.Fatal("nothing came")
		panic("unreachable")
	}
}
