package bench

import (
	"strconv"
	"sync"
	"sync/atomic"

	"zgame/bench/benchpb"
	"zgame/internal/rawswap"
)

// RawSwap is the baseline.
type RawSwap struct{}

// Name is "raw-swap".
func (RawSwap) Name() string { return "raw-swap" }

// Open needs no bound.
func (RawSwap) Open(int) (Runtime, error) {
	return &rawRuntime{names: make(map[string]*rawswap.Actor)}, nil
}

// rawRuntime knows its actors by name: the least that a spawn is.
type rawRuntime struct {
	mu    sync.Mutex
	names map[string]*rawswap.Actor // guarded by mu
}

func (r *rawRuntime) Sinks(n int, handled *atomic.Int64) Sinks {
	actors := make([]*rawswap.Actor, n)
	note := &benchpb.Note{N: 1}
	handle := func(rawswap.Item) { handled.Add(1) }
	return Sinks{
		Spawn: func(i int) error {
			a := rawswap.New(handle)
			r.mu.Lock()
			r.names[strconv.Itoa(i)] = a
			r.mu.Unlock()
			actors[i] = a
			return nil
		},
		Tell: func(i int) { actors[i].Tell(rawswap.Item{Value: note}) },
	}
}

func (r *rawRuntime) PingPong() (func(n int) int, error) {
	var x, y *rawswap.Actor
	b := newBall()
	x = rawswap.New(func(it rawswap.Item) {
		if b.hit() {
			y.Tell(it)
		}
	})
	y = rawswap.New(func(it rawswap.Item) {
		if b.hit() {
			x.Tell(it)
		}
	})
	ping := &benchpb.Ping{}
	return func(n int) int { return b.play(n, func() error { x.Tell(rawswap.Item{Value: ping}); return nil }) }, nil
}

func (r *rawRuntime) Echo() (func() error, error) {
	ping, pong := &benchpb.Ping{}, &benchpb.Pong{}
	a := rawswap.New(func(it rawswap.Item) { it.Reply <- pong })
	return func() error { return isPong(a.Ask(ping)) }, nil
}

func (r *rawRuntime) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	state, instances := new(phoenix), int64(1)
	a := rawswap.New(func(it rawswap.Item) {
		defer func() {
			if recover() != nil {
				state = new(phoenix)
				instances++
			}
		}()
		if it.Reply == nil {
			panic("crash")
		}
		state.requests++
		it.Reply <- &benchpb.Pong{N: pack(state.requests, instances)}
	})
	bad, good := &benchpb.Crash{}, &benchpb.Ping{}
	return func() error { a.Tell(rawswap.Item{Value: bad}); return nil },
		func() (int64, int64, error) { return unpack(a.Ask(good)) }, nil
}

func (r *rawRuntime) Blocked(n int, until <-chan struct{}) error {
	var waiting atomic.Int64
	for range n {
		rawswap.New(func(rawswap.Item) { waiting.Add(1); <-until }).Tell(rawswap.Item{Value: &benchpb.Block{}})
	}
	return await(&waiting, int64(n))
}

func (r *rawRuntime) Close() error { return nil }
