package zbus_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zbus/natsbus"
	"zgame/zmsg"
)

// TestSlowAsker: a node that takes too long loses answers to its own requests; they are sent again.
func TestSlowAsker(t *testing.T) {
	t.Parallel()
	const pending, total = 500, 5000
	hub := membus.NewHub(membus.Config{Queue: pending})
	slow, b := hub.Bus(), startOn(t, hub.Bus(), "b", zbus.Handlers{Actor: echo}, func(c *zbus.LinkConfig) { c.BatchBytes = 64 })
	entered, release := make(chan struct{}), make(chan struct{})
	a := startOn(t, slow, "a", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) {
		m.Release()
		close(entered)
		<-release
	}})
	if err := b.send(zmsg.Address{Node: a.ref, Actor: 1}); err != nil {
		t.Fatal(err)
	}
	receiveWithin(t, entered)
	o := newOutcomes(total)
	for i := range uint64(total) {
		a.ask(t, b.ref, o, i, 10*within)
	}
	eventually(t, "all is answered", func() bool { return b.count(t, "envelopes_sent_total", "reply") == total })
	close(release)
	for range total {
		if x := o.next(t); x.code != zmsg.CodeOK {
			t.Fatalf("outcome %+v", x)
		}
	}
	if n := a.count(t, "slow_drops_total"); n == 0 {
		t.Error("nothing dropped: the test did not test")
	}
}

// TestSlowConsumer is fault N2: a node that takes too long loses messages. What is dropped is counted, told and logged now and then; each
// request in it ends, not executed, long before its deadline, though nothing follows.
func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	const pending = 1000
	for name, open := range map[string]func(tb testing.TB) (slow, fast zbus.Bus){
		"mem": func(testing.TB) (slow, fast zbus.Bus) {
			hub := membus.NewHub(membus.Config{Queue: pending})
			return hub.Bus(), hub.Bus()
		},
		"nats": func(tb testing.TB) (slow, fast zbus.Bus) {
			tb.Helper()
			srv, err := embedded.StartNATS(tb.TempDir(), 0)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(srv.Stop)
			var buses [2]zbus.Bus
			for i, n := range []int{pending, 0} {
				b, err := natsbus.New(natsbus.Config{URL: srv.URL(), Pending: n})
				if err != nil {
					tb.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), within)
				defer cancel()
				if err := b.Ready(ctx); err != nil {
					tb.Fatal(err)
				}
				buses[i] = b
			}
			return buses[0], buses[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow, fast := open(t)
			const total, each = 30_000, 10 // one in each is a request
			release := make(chan struct{})
			ran := make([]atomic.Bool, total)
			log := &logCount{}
			b := startOn(t, slow, "b", zbus.Handlers{Actor: func(i uint64, m *zmsg.Message) {
				<-release
				ran[i].Store(true)
				echo(i, m)
			}}, func(c *zbus.LinkConfig) { c.Direct, c.Logger = false, slog.New(log) })
			var told atomic.Int64
			defer slow.Observe(zbus.Events{Dropped: func(n int) { told.Add(int64(n)) }})()
			a := startOn(t, fast, "a", zbus.Handlers{}, func(c *zbus.LinkConfig) { c.BatchBytes = 64 }) // few to a batch
			o := newOutcomes(total)
			begin := time.Now()
			for i := range uint64(total) {
				m := message("x")
				m.Deadline = begin.Add(10 * within)
				var r zmsg.Replier
				if i%each == 0 {
					r = o
				}
				a.sendUntil(t, func() error { return a.Send(zmsg.Address{Node: b.ref, Actor: i}, m, r, i) })
				m.Release()
			}
			eventually(t, "all is sent", func() bool { return a.count(t, "envelopes_sent_total", "actor") == total })
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			for _, bus := range []zbus.Bus{fast, slow} {
				if err := bus.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			close(release)
			answered, refused := 0, 0
			for range total / each {
				x := o.next(t)
				switch {
				case x.code == zmsg.CodeOK:
					answered++
				case x.code == zmsg.CodeUnavailable && x.out == zmsg.NotExecuted:
					refused++
					if ran[x.token].Load() {
						t.Fatalf("request %d ran: %+v", x.token, x)
					}
				default:
					t.Fatalf("outcome %+v", x)
				}
			}
			if refused == 0 || answered == 0 {
				t.Errorf("%d answered, %d lost: the test did not test", answered, refused)
			}
			eventually(t, "all drops are counted, and told", func() bool {
				return told.Load() > 0 && int64(b.count(t, "slow_drops_total")) == told.Load()
			})
			drops := b.count(t, "slow_drops_total")
			if n := b.count(t, "batch_gaps_total", "lost"); n > drops {
				t.Errorf("%d batches are missing, %d were dropped", n, drops)
			}
			if n := log.matching("handlers too slow"); n < 1 || n > 1+int(time.Since(begin)/(10*time.Second)) {
				t.Errorf("%d lines of log", n)
			}
			t.Logf("%d requests answered, %d lost; %d batches dropped; all told after %v", answered, refused, drops, time.Since(begin).Round(time.Millisecond))
		})
	}
}
