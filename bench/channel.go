package bench

import (
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"zgame/bench/benchpb"
)

// channelSize is the buffer of a channel actor: what people write by hand. A sender that meets a full one blocks.
const channelSize = 64

// Channel is what Go offers without a framework: a goroutine that ranges over a channel.
type Channel struct{}

// Name is "channel".
func (Channel) Name() string { return "channel" }

// Open does not use queue: channels have 64 places in every row.
func (Channel) Open(int) (Runtime, error) {
	return &channelRuntime{names: make(map[string]chan proto.Message)}, nil
}

type channelRuntime struct {
	wg    sync.WaitGroup
	names map[string]chan proto.Message
}

// channelAsk is a request with the place for its answer.
type channelAsk struct {
	proto.Message
	reply chan proto.Message
}

var channelAsks = sync.Pool{New: func() any { return &channelAsk{reply: make(chan proto.Message, 1)} }}

func askChannel(to chan proto.Message, m proto.Message) proto.Message {
	a := channelAsks.Get().(*channelAsk)
	a.Message = m
	to <- a
	r := <-a.reply
	channelAsks.Put(a)
	return r
}

// spawn starts a goroutine that handles what comes in until Close.
func (r *channelRuntime) spawn(handle func(m proto.Message)) chan proto.Message {
	in := make(chan proto.Message, channelSize)
	r.wg.Go(func() { // ends when Close closes the channel
		for m := range in {
			handle(m)
		}
	})
	r.names[strconv.Itoa(len(r.names))] = in
	return in
}

func (r *channelRuntime) Sinks(n int, handled *atomic.Int64) Sinks {
	actors := make([]chan proto.Message, n)
	note := &benchpb.Note{N: 1}
	handle := func(proto.Message) { handled.Add(1) }
	return Sinks{
		Spawn: func(i int) error { actors[i] = r.spawn(handle); return nil },
		Tell:  func(i int) { actors[i] <- note },
	}
}

func (r *channelRuntime) PingPong() (func(n int) int, error) {
	var x, y chan proto.Message
	b := newBall()
	x = r.spawn(func(m proto.Message) {
		if b.hit() {
			y <- m
		}
	})
	y = r.spawn(func(m proto.Message) {
		if b.hit() {
			x <- m
		}
	})
	ping := &benchpb.Ping{}
	return func(n int) int { return b.play(n, func() error { x <- ping; return nil }) }, nil
}

func (r *channelRuntime) Echo() (func() error, error) {
	ping, pong := &benchpb.Ping{}, &benchpb.Pong{}
	to := r.spawn(func(m proto.Message) { m.(*channelAsk).reply <- pong })
	return func() error { return isPong(askChannel(to, ping)) }, nil
}

func (r *channelRuntime) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	state, instances := new(phoenix), int64(1)
	to := r.spawn(func(m proto.Message) {
		defer func() {
			if recover() != nil {
				state = new(phoenix)
				instances++
			}
		}()
		a, ok := m.(*channelAsk)
		if !ok {
			panic("crash")
		}
		state.requests++
		a.reply <- &benchpb.Pong{N: pack(state.requests, instances)}
	})
	bad, good := &benchpb.Crash{}, &benchpb.Ping{}
	return func() error { to <- bad; return nil },
		func() (int64, int64, error) { return unpack(askChannel(to, good)) }, nil
}

func (r *channelRuntime) Blocked(n int, until <-chan struct{}) error {
	var waiting atomic.Int64
	for range n {
		r.spawn(func(proto.Message) { waiting.Add(1); <-until }) <- &benchpb.Block{}
	}
	return await(&waiting, int64(n))
}

// Close closes all channels and waits for their goroutines.
func (r *channelRuntime) Close() error {
	for _, ch := range r.names {
		close(ch)
	}
	r.wg.Wait()
	return nil
}
