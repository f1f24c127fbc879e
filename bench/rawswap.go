package bench

import (
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"zgame/bench/benchpb"
)

// rawActor is the bare machine's actor, against which the others are measured: a mutex, two slices that are swapped
// whole, and a goroutine only while there is work. No bound, no panic barrier, no identity, no counters.
type rawActor struct {
	mu      sync.Mutex
	in      []rawItem // guarded by mu
	spare   []rawItem // guarded by mu
	running bool      // guarded by mu
	handle  func(rawItem)
	run     func()
}

type rawItem struct {
	value proto.Message
	reply chan proto.Message
}

func newRawActor(handle func(rawItem)) *rawActor {
	a := &rawActor{handle: handle}
	a.run = a.loop
	return a
}

func (a *rawActor) tell(it rawItem) {
	a.mu.Lock()
	a.in = append(a.in, it)
	start := !a.running
	a.running = true
	a.mu.Unlock()
	if start {
		go a.run() // owned by the actor; ends when nothing waits
	}
}

func (a *rawActor) loop() {
	for {
		a.mu.Lock()
		if len(a.in) == 0 {
			a.running = false
			a.mu.Unlock()
			return
		}
		batch := a.in
		a.in, a.spare = a.spare, nil
		a.mu.Unlock()
		for _, it := range batch {
			a.handle(it)
		}
		clear(batch)
		a.mu.Lock()
		a.spare = batch[:0]
		a.mu.Unlock()
	}
}

var rawReplies = sync.Pool{New: func() any { return make(chan proto.Message, 1) }}

func (a *rawActor) ask(m proto.Message) proto.Message {
	ch := rawReplies.Get().(chan proto.Message)
	a.tell(rawItem{m, ch})
	r := <-ch
	rawReplies.Put(ch)
	return r
}

// RawSwap is the baseline.
type RawSwap struct{}

// Name is "raw-swap".
func (RawSwap) Name() string { return "raw-swap" }

// Open needs no bound.
func (RawSwap) Open(int) (Runtime, error) { return &rawRuntime{names: make(map[string]*rawActor)}, nil }

// rawRuntime knows its actors by name: the least that a spawn is.
type rawRuntime struct {
	mu    sync.Mutex
	names map[string]*rawActor // guarded by mu
}

func (r *rawRuntime) Sinks(n int, handled *atomic.Int64) Sinks {
	actors := make([]*rawActor, n)
	note := &benchpb.Note{N: 1}
	handle := func(rawItem) { handled.Add(1) }
	return Sinks{
		Spawn: func(i int) error {
			a := newRawActor(handle)
			r.mu.Lock()
			r.names[strconv.Itoa(i)] = a
			r.mu.Unlock()
			actors[i] = a
			return nil
		},
		Tell: func(i int) { actors[i].tell(rawItem{value: note}) },
	}
}

func (r *rawRuntime) PingPong() (func(n int) int, error) {
	var x, y *rawActor
	b := newBall()
	x = newRawActor(func(it rawItem) {
		if b.hit() {
			y.tell(it)
		}
	})
	y = newRawActor(func(it rawItem) {
		if b.hit() {
			x.tell(it)
		}
	})
	ping := &benchpb.Ping{}
	return func(n int) int { return b.play(n, func() error { x.tell(rawItem{value: ping}); return nil }) }, nil
}

func (r *rawRuntime) Echo() (func() error, error) {
	ping, pong := &benchpb.Ping{}, &benchpb.Pong{}
	a := newRawActor(func(it rawItem) { it.reply <- pong })
	return func() error { return isPong(a.ask(ping)) }, nil
}

func (r *rawRuntime) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	state, instances := new(phoenix), int64(1)
	a := newRawActor(func(it rawItem) {
		defer func() {
			if recover() != nil {
				state = new(phoenix)
				instances++
			}
		}()
		if it.reply == nil {
			panic("crash")
		}
		state.requests++
		it.reply <- &benchpb.Pong{N: pack(state.requests, instances)}
	})
	bad, good := &benchpb.Crash{}, &benchpb.Ping{}
	return func() error { a.tell(rawItem{value: bad}); return nil },
		func() (int64, int64, error) { return unpack(a.ask(good)) }, nil
}

func (r *rawRuntime) Blocked(n int, until <-chan struct{}) error {
	var waiting atomic.Int64
	for range n {
		newRawActor(func(rawItem) { waiting.Add(1); <-until }).tell(rawItem{value: &benchpb.Block{}})
	}
	return await(&waiting, int64(n))
}

func (r *rawRuntime) Close() error { return nil }
