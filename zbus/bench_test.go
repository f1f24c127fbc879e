package zbus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zmsg"
)

// waiter is a caller that waits for its outcome, as an Ask does.
type waiter struct{ done chan zmsg.Code }

func (w *waiter) Reply(_ uint64, r *zmsg.Reply) { w.done <- r.Code }

// spread runs b.N calls on the number of callers, each one after the other.
func spread(b *testing.B, callers int, call func(caller int)) {
	b.Helper()
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for caller := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				call(caller)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkRequest compares a request over two Links with nats.Conn.Request, on the same server, embedded in this
// process, in the same run.
func BenchmarkRequest(b *testing.B) {
	body := make([]byte, 64)
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("bare/callers=%d", callers), func(b *testing.B) {
			srv, err := embedded.StartNATS(b.TempDir(), 0)
			if err != nil {
				b.Fatal(err)
			}
			defer srv.Stop()
			client, server := bare(b, srv), bare(b, srv)
			defer client.Close()
			defer server.Close()
			if _, err := server.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
				b.Fatal(err)
			}
			if err := server.Flush(); err != nil {
				b.Fatal(err)
			}
			spread(b, callers, func(int) {
				if _, err := client.Request("echo", body, within); err != nil {
					b.Error(err)
				}
			})
		})
		b.Run(fmt.Sprintf("link/callers=%d", callers), func(b *testing.B) {
			c := newNATS(b)
			server := c.start(b, "b", zbus.Handlers{Actor: echo})
			client := c.start(b, "a", zbus.Handlers{})
			waiters := make([]*waiter, callers)
			for i := range waiters {
				waiters[i] = &waiter{make(chan zmsg.Code, 1)}
			}
			to := zmsg.Address{Node: server.ref, Actor: 1}
			spread(b, callers, func(caller int) {
				m := zmsg.NewMessage(1)
				m.SetBody(body)
				if err := client.Send(to, m, waiters[caller], 1); err != nil {
					b.Error(err)
				}
				m.Release()
				if code := <-waiters[caller].done; code != zmsg.CodeOK {
					b.Error(code)
				}
			})
		})
	}
}

func bare(b *testing.B, srv *embedded.NATS) *nats.Conn {
	b.Helper()
	nc, err := nats.Connect(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	return nc
}

// BenchmarkOneWay compares one-way messages over a Link with nats.Conn.Publish, until the last one was handled.
func BenchmarkOneWay(b *testing.B) {
	body := make([]byte, 64)
	b.Run("bare", func(b *testing.B) {
		srv, err := embedded.StartNATS(b.TempDir(), 0)
		if err != nil {
			b.Fatal(err)
		}
		defer srv.Stop()
		client, server := bare(b, srv), bare(b, srv)
		defer client.Close()
		defer server.Close()
		var got atomic.Int64
		sub, err := server.Subscribe("sink", func(*nats.Msg) { got.Add(1) })
		if err != nil {
			b.Fatal(err)
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			b.Fatal(err)
		}
		if err := server.Flush(); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := client.Publish("sink", body); err != nil {
				b.Fatal(err)
			}
		}
		n := int64(b.N)
		_ = client.Flush()
		drain(b, func() bool { return got.Load() >= n })
	})
	b.Run("link", func(b *testing.B) {
		c := newNATS(b)
		var got atomic.Int64
		server := c.start(b, "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { got.Add(1); m.Release() }})
		client := c.start(b, "a", zbus.Handlers{})
		to := zmsg.Address{Node: server.ref, Actor: 1}
		m := message(string(body))
		b.ReportAllocs()
		for b.Loop() {
			for client.Send(to, m, nil, 0) != nil { // full: the sender is faster than the bus
				time.Sleep(20 * time.Microsecond)
			}
		}
		n := int64(b.N)
		drain(b, func() bool { return got.Load() >= n })
	})
}

// drain waits for what is on the way, so that it is charged to the run.
func drain(b *testing.B, done func() bool) {
	b.Helper()
	for end := time.Now().Add(within); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			b.Fatal("not all arrived")
		}
	}
}

// nullBus takes everything and delivers nothing.
type nullBus struct{ zbus.Bus }

func (nullBus) Publish(string, string, []byte) error { return nil }

// BenchmarkSend is the cost of Send alone: encoding and the way into the outbox.
func BenchmarkSend(b *testing.B) {
	a := startOn(b, nullBus{newMem().bus(b)}, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.OutboxMessages, c.OutboxBytes = 1<<30, 1<<40 })
	to := zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}
	m := message("sixty-four bytes of a body, more or less, that is what we take..")
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Send(to, m, nil, 0); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = a.Drain(ctx)
}
