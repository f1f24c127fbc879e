package zbus_test

import (
	"context"
	"fmt"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zmsg"
)

// printer is a zmsg.Replier that prints the outcome of a request.
type printer struct{ done chan struct{} }

func (p printer) Reply(_ uint64, r *zmsg.Reply) {
	fmt.Printf("%s: %s\n", r.Code, r.Body)
	close(p.done)
}

// Two nodes, one request.
func ExampleLink() {
	ctx := context.Background()
	hub := membus.New() // natsbus.New in production
	open := func(id string, actor func(to uint64, m *zmsg.Message)) *zbus.Link {
		link, err := zbus.NewLink(zbus.LinkConfig{
			Self: zmsg.NodeRef{ID: id, Epoch: 1}, Bus: hub.Bus(), Handlers: zbus.Handlers{Actor: actor},
		})
		if err != nil {
			panic(err)
		}
		if err := link.Start(ctx); err != nil {
			panic(err)
		}
		return link
	}
	b := open("b", func(_ uint64, m *zmsg.Message) {
		m.Reply(&zmsg.Reply{ID: 2, Body: append([]byte("hello, "), m.Body()...)})
		m.Release()
	})
	a := open("a", nil)

	m := zmsg.NewMessage(1)
	m.SetBody([]byte("world"))
	p := printer{make(chan struct{})}
	if err := a.Send(zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}, m, p, 0); err != nil {
		panic(err)
	}
	m.Release()
	<-p.done
	_, _ = a.Close(ctx), b.Close(ctx)
	// Output: ok: hello, world
}
