package bus

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"zgame/bench/benchpb"
	"zgame/bench/internal/child"
	"zgame/zactor"
	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// subject is where the bare responder listens. What comes with a reply subject is answered: with itself, or with the number
// of those that came without one, if it is empty.
const subject = "bench.bare"

// node is one of the two: a Group on a Link on natsbus, with metrics as a node of zgame has them, and a bare connection.
type node struct {
	bare  *nats.Conn
	bus   *natsbus.Bus
	link  *zbus.Link
	group *zactor.Group
}

func openNode(id, server string) (n *node, err error) {
	n = &node{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.bare, err = nats.Connect(server); err != nil {
		return n, err
	}
	ctx, cancel := bounded()
	defer cancel()
	if n.bus, err = natsbus.New(natsbus.Config{URL: server, Name: id}); err != nil {
		return n, err
	}
	if err = n.bus.Ready(ctx); err != nil {
		return n, err
	}
	self, registry := zmsg.NodeRef{ID: id, Epoch: 1}, prometheus.NewRegistry()
	link, err := zbus.NewLink(zbus.LinkConfig{
		Self: self, Bus: n.bus, Direct: true, Metrics: zmetrics.NewBus(registry),
		Handlers: zbus.Handlers{
			Actor: func(to uint64, m *zmsg.Message) { n.group.Receive(to, m) },
			Tells: func(to uint64, a *zmsg.Arrival, list []zmsg.Told) { n.group.ReceiveTells(to, a, list) },
		},
	})
	if err != nil {
		return n, err
	}
	if n.group, err = zactor.NewGroup(zactor.Config{
		Node: self, Remote: link, Mailbox: 2 * burst, // none is to be refused
		Metrics: zmetrics.NewActor(registry),
	}); err != nil {
		return n, err
	}
	n.link = link
	return n, link.Start(ctx)
}

func (n *node) close() error {
	ctx, cancel := bounded()
	defer cancel()
	var errs []error
	if n.group != nil {
		errs = append(errs, n.group.Shutdown(ctx))
	}
	if n.link != nil {
		errs = append(errs, n.link.Close(ctx))
	}
	if n.bus != nil {
		errs = append(errs, n.bus.Close(ctx))
	}
	if n.bare != nil {
		n.bare.Close()
	}
	return errors.Join(errs...)
}

// runNode is the process of the other node.
func runNode(p *child.Parent) error {
	n, err := openNode("b", p.Arg)
	if err != nil {
		return err
	}
	ref, err := n.group.Spawn("echo", func() zactor.Actor { return &echo{} })
	if err == nil {
		err = n.respond()
	}
	if err == nil {
		p.Say(strconv.FormatUint(ref.Address().Actor, 10))
		p.Hear() // nothing: until the one that started it lets go
	}
	return errors.Join(err, n.close())
}

// echo is the actor that is sent to.
type echo struct{ letters int64 }

func (e *echo) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.Handle(func(_ *zactor.Context, m *benchpb.Parcel) (*benchpb.Parcel, error) { return m, nil }),
		zactor.HandleTell(func(*zactor.Context, *benchpb.Letter) error { e.letters++; return nil }),
		zactor.Handle(func(*zactor.Context, *benchpb.Ping) (*benchpb.Pong, error) {
			n := e.letters
			e.letters = 0
			return &benchpb.Pong{N: n}, nil
		}),
	}
}

// respond is the same, bare.
func (n *node) respond() error {
	var letters atomic.Int64
	sub, err := n.bare.Subscribe(subject, func(m *nats.Msg) {
		switch {
		case m.Reply == "":
			letters.Add(1)
		case len(m.Data) > 0:
			_ = m.Respond(m.Data) // an error is a request without an answer
		default:
			_ = m.Respond([]byte(strconv.FormatInt(letters.Swap(0), 10)))
		}
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if err := n.bare.Flush(); err != nil {
		return fmt.Errorf("bench: subscribing: %w", err)
	}
	return nil
}
