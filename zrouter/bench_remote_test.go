package zrouter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/internal/cputime"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// onNATS is a node of a world whose messages go over NATS.
type onNATS struct {
	*testNode
	link  *zbus.Link
	actor zactor.Ref
}

func (w *world) startOnNATS(tb testing.TB, url, id string) *onNATS {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	bus, err := natsbus.New(natsbus.Config{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	if err := bus.Ready(ctx); err != nil {
		tb.Fatal(err)
	}
	n := &onNATS{}
	n.link, err = zbus.NewLink(zbus.LinkConfig{
		Self: zmsg.NodeRef{ID: id, Epoch: w.epoch + 1}, Bus: bus, Direct: true,
		Handlers: zbus.Handlers{
			Actor: func(_ uint64, m *zmsg.Message) {
				if err := n.actor.Deliver(m); err != nil {
					m.ReplyError(err)
					m.Release()
				}
			},
			Object: func(e *zmsg.Envelope, m *zmsg.Message) { n.set.Receive(e, m) },
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = n.link.Close(ctx)
		_ = bus.Close(ctx)
	})
	w.link = n.link
	n.testNode = w.start(id, zrouter.Settings{}, quickKind())
	w.link = nil
	if n.actor, err = n.group.Spawn("", func() zactor.Actor { return plain{} }); err != nil {
		tb.Fatal(err)
	}
	if err := n.link.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	return n
}

// A request to an object of another node whose route is known, next to the same request to an actor of that node.
func BenchmarkRemote(b *testing.B) {
	srv, err := embedded.StartNATS(b.TempDir(), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Stop)
	w := newWorld(b)
	here, there := w.startOnNATS(b, srv.URL(), "a"), w.startOnNATS(b, srv.URL(), "b")
	k := key("x")
	if _, err := zrouter.Call[testpb.Lines](b.Context(), there.set, k, getX); err != nil {
		b.Fatal(err)
	}
	if m, err := zrouter.ManagerOf[*testpb.Log](here.set, 7); err == nil {
		if r, _ := m.MutableCache(b.Context(), k); r.Owner == here.ref {
			here, there = there, here
		}
	}
	body, err := proto.Marshal(getX)
	if err != nil {
		b.Fatal(err)
	}
	message := func(to zmsg.Replier) *zmsg.Message {
		m := zmsg.NewMessage(4103)
		m.SetBody(body)
		m.SetReplier(to, 0)
		return m
	}
	run := func(b *testing.B, callers int, send func(m *zmsg.Message) error) {
		b.Helper()
		b.ReportAllocs()
		var left atomic.Int64
		left.Store(int64(b.N))
		var wg sync.WaitGroup
		b.ResetTimer()
		start := cputime.Used()
		for range callers {
			wg.Go(func() {
				done := make(chanReplier, 1)
				for left.Add(-1) >= 0 {
					if err := send(message(done)); err != nil {
						b.Error(err)
						return
					}
					<-done
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(cputime.Used()-start)/float64(b.N), "cpu-ns/op")
	}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("actor/callers=%d", callers), func(b *testing.B) {
			to := zmsg.Address{Node: there.ref, Actor: 1}
			run(b, callers, func(m *zmsg.Message) error {
				r, token := m.TakeReplier()
				err := here.link.Send(to, m, r, token)
				m.Release()
				return err
			})
		})
		b.Run(fmt.Sprintf("object/callers=%d", callers), func(b *testing.B) {
			run(b, callers, func(m *zmsg.Message) error { return here.set.DeliverObject(k, m) })
		})
	}
}
