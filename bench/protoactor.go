package bench

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"zgame/bench/benchpb"
)

// Protoactor is github.com/asynkron/protoactor-go with its defaults: unbounded mailboxes, no metrics, no log.
type Protoactor struct{}

// Name is "protoactor-go".
func (Protoactor) Name() string { return "protoactor-go" }

// Open does not use queue: the default mailbox has no bound.
func (Protoactor) Open(int) (Runtime, error) {
	discard := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }
	return &protoactorRuntime{sys: actor.NewActorSystem(actor.WithLoggerFactory(discard))}, nil
}

type protoactorRuntime struct {
	sys  *actor.ActorSystem
	pids []*actor.PID // what Close stops, but for sinks
}

// askTimeout is what zactor has by default.
const askTimeout = 10 * time.Second

func (r *protoactorRuntime) Sinks(n int, handled *atomic.Int64) Sinks {
	pids := make([]*actor.PID, n)
	note := &benchpb.Note{N: 1}
	spawned := int64(0)
	var started atomic.Int64
	props := actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *benchpb.Note:
			handled.Add(1)
		case *actor.Started:
			started.Add(1)
		}
	})
	return Sinks{
		Spawn: func(i int) (err error) {
			pids[i], err = r.sys.Root.SpawnNamed(props, strconv.Itoa(i))
			spawned++
			return err
		},
		Started: func() error { return await(&started, spawned) },
		Tell:    func(i int) { r.sys.Root.Send(pids[i], note) },
	}
}

// spawn makes an actor that Close stops.
func (r *protoactorRuntime) spawn(root *actor.RootContext, props *actor.Props) *actor.PID {
	pid := root.Spawn(props)
	r.pids = append(r.pids, pid)
	return pid
}

func (r *protoactorRuntime) PingPong() (func(n int) int, error) {
	var pids [2]*actor.PID
	b := newBall()
	for i := range pids {
		pids[i] = r.spawn(r.sys.Root, actor.PropsFromFunc(func(c actor.Context) {
			if m, ok := c.Message().(*benchpb.Ping); ok && b.hit() {
				c.Send(pids[1-i], m)
			}
		}))
	}
	ping := &benchpb.Ping{}
	return func(n int) int {
		return b.play(n, func() error { r.sys.Root.Send(pids[0], ping); return nil })
	}, nil
}

func (r *protoactorRuntime) Echo() (func() error, error) {
	ping, pong := &benchpb.Ping{}, &benchpb.Pong{}
	pid := r.spawn(r.sys.Root, actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*benchpb.Ping); ok {
			c.Respond(pong)
		}
	}))
	return func() error {
		v, err := r.sys.Root.RequestFuture(pid, ping, askTimeout).Result()
		if err != nil {
			return err
		}
		return isPong(v)
	}, nil
}

// protoPhoenix is one instance.
type protoPhoenix struct {
	phoenix
	self int64
}

// Receive handles one message.
func (p *protoPhoenix) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *benchpb.Crash:
		panic("crash")
	case *benchpb.Ping:
		p.requests++
		c.Respond(&benchpb.Pong{N: pack(p.requests, p.self)})
	}
}

func (r *protoactorRuntime) Phoenix() (crash func() error, ask func() (int64, int64, error), err error) {
	var instances int64 // of the actor: its instances come one after the other
	props := actor.PropsFromProducer(func() actor.Actor {
		instances++
		return &protoPhoenix{self: instances}
	})
	pid := r.spawn(r.sys.Root.WithGuardian(actor.RestartingSupervisorStrategy()), props) // restarts without limit
	bad, good := &benchpb.Crash{}, &benchpb.Ping{}
	return func() error { r.sys.Root.Send(pid, bad); return nil },
		func() (int64, int64, error) {
			v, err := r.sys.Root.RequestFuture(pid, good, askTimeout).Result()
			if err != nil {
				return 0, 0, err
			}
			return unpack(v)
		}, nil
}

func (r *protoactorRuntime) Blocked(n int, until <-chan struct{}) error {
	var waiting atomic.Int64
	props := actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*benchpb.Block); ok {
			waiting.Add(1)
			<-until
		}
	})
	for range n {
		r.sys.Root.Send(r.spawn(r.sys.Root, props), &benchpb.Block{})
	}
	return await(&waiting, int64(n))
}

// Close stops the actors that may be at work, and the system. Sinks are left to the garbage collector with the system.
func (r *protoactorRuntime) Close() error {
	for _, pid := range r.pids {
		if err := r.sys.Root.StopFuture(pid).Wait(); err != nil {
			return err
		}
	}
	r.sys.Shutdown()
	return nil
}
