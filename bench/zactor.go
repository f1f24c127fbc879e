package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/bench/benchpb"
	"zgame/zactor"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// Zactor is ours, through its public API.
type Zactor struct {
	// Observed registers the metrics with a registry, as a node does, and puts Trace and Measure around each handler.
	Observed bool
}

// Name is "zactor", or "zactor-observed".
func (z Zactor) Name() string {
	if z.Observed {
		return "zactor-observed"
	}
	return "zactor"
}

// Open makes a Group with the bound queue.
func (z Zactor) Open(queue int) (Runtime, error) {
	cfg := zactor.Config{Node: zmsg.NodeRef{ID: "bench", Epoch: 1}, Mailbox: queue}
	if z.Observed {
		reg := prometheus.NewRegistry()
		cfg.Metrics = zmetrics.NewActor(reg)
		cfg.Middleware = []zactor.Middleware{zactor.Trace(nil), zactor.Measure(zmetrics.NewHandlers(reg))}
	}
	g, err := zactor.NewGroup(cfg)
	if err != nil {
		return nil, err
	}
	return &zactorRuntime{g}, nil
}

type zactorRuntime struct{ g *zactor.Group }

// plain is an actor without hooks.
type plain struct{ handlers []zactor.Handler }

func (p *plain) Handlers() []zactor.Handler { return p.handlers }

// factory makes instances that share their handlers: they have no state of their own.
func factory(handlers ...zactor.Handler) func() zactor.Actor {
	return func() zactor.Actor { return &plain{handlers} }
}

func (r *zactorRuntime) Sinks(n int, handled *atomic.Int64) Sinks {
	refs := make([]zactor.Ref, n)
	note := &benchpb.Note{N: 1}
	f := factory(zactor.HandleTell(func(*zactor.Context, *benchpb.Note) error { handled.Add(1); return nil }))
	return Sinks{
		Spawn: func(i int) (err error) {
			refs[i], err = r.g.Spawn(strconv.Itoa(i), f)
			return err
		},
		Tell: func(i int) {
			for refs[i].Tell(note) != nil { // ErrBusy
				runtime.Gosched()
			}
		},
	}
}

func (r *zactorRuntime) PingPong() (func(n int) int, error) {
	var refs [2]zactor.Ref
	b := newBall()
	for i := range refs {
		ref, err := r.g.Spawn("", factory(zactor.HandleTell(func(c *zactor.Context, m *benchpb.Ping) error {
			if !b.hit() {
				return nil
			}
			err := c.Tell(refs[1-i], m)
			if err != nil {
				b.lost()
			}
			return err
		})))
		if err != nil {
			return nil, err
		}
		refs[i] = ref
	}
	ping := &benchpb.Ping{}
	return func(n int) int { return b.play(n, func() error { return refs[0].Tell(ping) }) }, nil
}

func (r *zactorRuntime) Echo() (func() error, error) {
	ping, pong := &benchpb.Ping{}, &benchpb.Pong{}
	ref, err := r.g.Spawn("", factory(zactor.Handle(func(*zactor.Context, *benchpb.Ping) (*benchpb.Pong, error) {
		return pong, nil
	})))
	ctx := context.Background()
	return func() error {
		_, err := zactor.Ask[benchpb.Pong](ctx, ref, ping)
		return err
	}, err
}

func (r *zactorRuntime) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	var instances int64 // of the actor: its instances come one after the other
	f := func() zactor.Actor {
		instances++
		state, self := new(phoenix), instances
		return &plain{[]zactor.Handler{
			zactor.HandleTell(func(*zactor.Context, *benchpb.Crash) error { panic("crash") }),
			zactor.Handle(func(*zactor.Context, *benchpb.Ping) (*benchpb.Pong, error) {
				state.requests++
				return &benchpb.Pong{N: pack(state.requests, self)}, nil
			}),
		}}
	}
	ref, err := r.g.Spawn("", f, zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
	bad, good := &benchpb.Crash{}, &benchpb.Ping{}
	ctx := context.Background()
	return func() error { return ref.Tell(bad) },
		func() (int64, int64, error) {
			pong, err := zactor.Ask[benchpb.Pong](ctx, ref, good)
			if err != nil {
				return 0, 0, err
			}
			return unpack(pong)
		}, err
}

func (r *zactorRuntime) Blocked(n int, until <-chan struct{}) error {
	var waiting atomic.Int64
	f := factory(zactor.HandleTell(func(*zactor.Context, *benchpb.Block) error { waiting.Add(1); <-until; return nil }))
	for range n {
		ref, err := r.g.Spawn("", f)
		if err != nil {
			return err
		}
		if err := ref.Tell(&benchpb.Block{}); err != nil {
			return err
		}
	}
	return await(&waiting, int64(n))
}

func (r *zactorRuntime) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.g.Shutdown(ctx); err != nil {
		return fmt.Errorf("bench: closing the group: %w", err)
	}
	return nil
}
