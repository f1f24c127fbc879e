//go:build linux

package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/bench/benchpb"
	"zgame/bench/internal/child"
	"zgame/zactor"
	"zgame/zgate"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zroute"
)

// Message ids of the workloads, beside the Parcel of benchpb.
const (
	echoID   = 2001 // an actor answers with the body as it came
	joinID   = 2002 // the session gets what is published
	joinSlow = 2003 // the session gets what is published to the slow ones
	pushID   = 2004 // what is published
)

// gate is the subject: zgate, zroute and a zactor.Group, put together as znode does, without other nodes.
type gate struct {
	group   *zactor.Group
	gate    *zgate.Gate
	cfg     zgate.Config
	drained chan error // from the shutdown of those before; nil: there are none
}

// openGate opens a gate; heartbeat is how often clients are to send a Ping, "" for the default.
func openGate(heartbeat string) (_ server, err error) {
	every := time.Duration(0)
	if heartbeat != "" {
		if every, err = time.ParseDuration(heartbeat); err != nil {
			return nil, err
		}
	}
	self, registry := zmsg.NodeRef{ID: "gate-1", Epoch: 1}, prometheus.NewRegistry()
	local := new(zroute.Local)
	d, err := zroute.New(zroute.Config{Node: self, Local: local, Metrics: zmetrics.NewRoute(registry)})
	if err != nil {
		return nil, err
	}
	s := &gate{}
	if s.group, err = zactor.NewGroup(zactor.Config{
		Node: self, Routes: local, Router: d.Router(), Metrics: zmetrics.NewActor(registry),
		Mailbox: 1 << 15, // all clients' requests at once
	}); err != nil {
		return nil, err
	}
	if _, err = s.group.Spawn("echo", func() zactor.Actor { return &echo{} }); err != nil {
		return nil, err
	}
	s.cfg = zgate.Config{
		Node: self, Addr: "127.0.0.1:0", Auth: zgate.DevAuth{}, Dispatcher: d,
		Handlers: map[uint32]zgate.Handler{joinID: s.join("all"), joinSlow: s.join("slow")},
		MaxPerIP: -1, // all clients are at one address
		Rate:     -1, // and send as fast as they can
		ByteRate: -1, AcceptRate: -1,
		Heartbeat: every, Metrics: zmetrics.NewGate(registry),
	}
	s.gate, err = s.start()
	return s, err
}

func (s *gate) start() (*zgate.Gate, error) {
	g, err := zgate.New(s.cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded()
	defer cancel()
	return g, g.Start(ctx)
}

func (s *gate) drain() (port int, err error) {
	old := s.gate
	if s.drained != nil {
		return 0, errors.New("it drains already")
	}
	if s.gate, err = s.start(); err != nil {
		return 0, err
	}
	s.drained = make(chan error, 1)
	go func() { // ends with the old gate's sessions, or when they are cut; close waits for it
		ctx, cancel := bounded()
		defer cancel()
		s.drained <- old.Shutdown(ctx)
	}()
	return s.gate.Addr().(*net.TCPAddr).Port, nil
}

// echo is the actor.
type echo struct{ reply zmsg.Reply }

func (e *echo) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.HandleRaw(echoID, func(_ *zactor.Context, m *zmsg.Message) error {
			e.reply = zmsg.Reply{ID: echoID, Body: m.Body()}
			m.Reply(&e.reply)
			return nil
		}, zactor.FromClients()),
		zactor.Handle(func(_ *zactor.Context, m *benchpb.Parcel) (*benchpb.Parcel, error) { return m, nil }, zactor.FromClients()),
	}
}

func (s *gate) join(group string) zgate.Handler {
	return func(session *zgate.Session, m *zmsg.Message) {
		defer m.Release()
		if err := s.gate.Join(session.Ref(), group); err != nil {
			m.ReplyError(err)
			return
		}
		m.Reply(&zmsg.Reply{})
	}
}

func (s *gate) addr() string { return s.gate.Addr().String() }
func (s *gate) clients() int { return s.gate.Sessions() }

func (s *gate) publish(body []byte) { s.gate.PublishLocal("all", &zmsg.Push{ID: pushID, Body: body}) }

func (s *gate) fill(body []byte) (time.Duration, error) {
	before := s.clients()
	p := &zmsg.Push{ID: pushID, Body: body}
	for until := time.Now().Add(child.Patience); ; {
		if _, failed := s.gate.PublishLocal("slow", p); failed > 0 {
			break
		}
		if time.Now().After(until) {
			return 0, fmt.Errorf("nobody is slow within %v", child.Patience)
		}
		rest(100 * time.Microsecond)
	}
	full := time.Now()
	for s.clients() == before {
		if time.Since(full) > child.Patience {
			return 0, fmt.Errorf("the slow one is still there %v later", child.Patience)
		}
		rest(time.Millisecond)
	}
	return time.Since(full), nil
}

func (s *gate) close() error {
	ctx, cancel := bounded()
	defer cancel()
	err := errors.Join(s.gate.Shutdown(ctx), s.group.Shutdown(ctx))
	if s.drained != nil {
		err = errors.Join(err, <-s.drained)
	}
	return err
}

// rest waits for d.
func rest(d time.Duration) { <-time.After(d) }

// bounded is a context for what takes no time when all is well.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), child.Patience)
}
