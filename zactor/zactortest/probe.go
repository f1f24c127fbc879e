package zactortest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
)

// Bound is how long a test waits for what should happen at once.
const Bound = 20 * time.Second

// NewGroup makes a group that is shut down at the end of the test. What the shutdown has to cut fails the test.
func NewGroup(tb testing.TB, cfg zactor.Config) *zactor.Group {
	tb.Helper()
	g, err := zactor.NewGroup(withNode(cfg))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { shutDown(tb, g) })
	return g
}

func withNode(cfg zactor.Config) zactor.Config {
	if cfg.Node.IsZero() {
		cfg.Node = zmsg.NodeRef{ID: "test", Epoch: 1}
	}
	return cfg
}

func shutDown(tb testing.TB, g *zactor.Group) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		tb.Errorf("shutdown of the test's group: %v", err)
	}
}

// Got is a message that a probe has received.
type Got struct {
	Message proto.Message
	Sender  zactor.Ref
	User    string
	Session zmsg.SessionRef

	reply zactor.Deferred
}

// Reply answers the message, if its sender waits.
func (g Got) Reply(answer proto.Message) bool { return g.reply.Reply(answer) }

// Fail ends the request with err, if its sender waits.
func (g Got) Fail(err error) bool { return g.reply.Fail(err) }

// Probe is an actor whose messages a test takes one by one, and answers when it likes.
type Probe struct {
	tb     testing.TB
	ref    zactor.Ref
	got    chan Got
	manual *zactor.Manual // nil: the group's actors have goroutines
}

// Expected names a type of message that a probe takes.
type Expected func(p *Probe) zactor.Handler

// Expect makes a probe take messages of the type.
func Expect[Q any, PQ interface {
	*Q
	proto.Message
}]() Expected {
	return func(p *Probe) zactor.Handler {
		return zactor.HandleTell(func(c *zactor.Context, m PQ) error {
			p.got <- Got{Message: m, Sender: c.Sender(), User: c.User(), Session: c.Session(), reply: c.Defer()}
			return zactor.ErrDeferred
		})
	}
}

// probeQueue is how many messages a probe takes that the test has not looked at; further ones wait in its mailbox.
const probeQueue = 1024

// NewProbe starts a probe of the name in g.
func NewProbe(tb testing.TB, g *zactor.Group, name string, types ...Expected) *Probe {
	tb.Helper()
	return newProbe(tb, g, name, nil, types)
}

// NewSubscriber starts a probe, without a name, that subscribes to the topic.
func NewSubscriber(tb testing.TB, g *zactor.Group, topic string, types ...Expected) *Probe {
	tb.Helper()
	return newProbe(tb, g, "", func(c *zactor.Context) error { return c.Subscribe(topic) }, types)
}

func newProbe(tb testing.TB, g *zactor.Group, name string, start func(*zactor.Context) error, types []Expected) *Probe {
	tb.Helper()
	p := &Probe{tb: tb, got: make(chan Got, probeQueue), manual: g.Manual()}
	ref, err := g.Spawn(name, func() zactor.Actor { return &probeActor{p, types, start} })
	if err != nil {
		tb.Fatal(err)
	}
	p.ref = ref
	return p
}

type probeActor struct {
	p     *Probe
	types []Expected
	start func(*zactor.Context) error // nil: nothing to do
}

func (a *probeActor) OnStart(c *zactor.Context) error {
	if a.start == nil {
		return nil
	}
	return a.start(c)
}

func (a *probeActor) Handlers() []zactor.Handler {
	hs := make([]zactor.Handler, 0, len(a.types))
	for _, t := range a.types {
		hs = append(hs, t(a.p))
	}
	return hs
}

// Ref returns the probe's ref.
func (p *Probe) Ref() zactor.Ref { return p.ref }

// Next waits for the next message. In a group that is stepped by hand it steps until there is one, and does not wait.
func (p *Probe) Next() Got {
	p.tb.Helper()
	if p.manual != nil {
		for len(p.got) == 0 && p.manual.Next() {
		}
		if len(p.got) == 0 {
			p.tb.Fatalf("no message came to the probe %v, and no actor has anything left to do", p.ref)
		}
	}
	late := time.NewTimer(Bound)
	defer late.Stop()
	select {
	case g := <-p.got:
		return g
	case <-late.C:
		p.tb.Fatalf("no message came to the probe %v within %v", p.ref, Bound)
		return Got{}
	}
}

// Receive waits for the next message and returns it as a Q; a message of another type ends the test.
func Receive[Q any, PQ interface {
	*Q
	proto.Message
}](p *Probe) (PQ, Got) {
	p.tb.Helper()
	g := p.Next()
	m, ok := g.Message.(PQ)
	if !ok {
		p.tb.Fatalf("the probe %v got a %T, want a %T", p.ref, g.Message, m)
	}
	return m, g
}

// None reports what waits though nothing should: it ends the test when a message has come to the probe so far.
func (p *Probe) None() {
	p.tb.Helper()
	select {
	case g := <-p.got:
		p.tb.Fatalf("the probe %v got %v, want nothing", p.ref, g.Message)
	default:
	}
}
