package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/rawswap"
	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/ztrace"
)

// flow limits how many messages are unhandled: a sender that meets the limit waits until half of them are handled. All
// systems pay for it alike.
type flow struct {
	open atomic.Int64
	_    [56]byte
	done atomic.Int64
}

const window = 1000

func (f *flow) take() {
	if n := f.open.Add(1); n-f.done.Load() >= window {
		for n-f.done.Load() >= window/2 {
			runtime.Gosched()
		}
	}
}

func (f *flow) drain(n int) {
	for f.done.Load() < int64(n) {
		runtime.Gosched()
	}
}

// each runs the benchmark on the raw actor and on ours; tell is how a message gets to actor i.
func each(b *testing.B, actors int, run func(b *testing.B, f *flow, tell func(i int))) {
	b.Helper()
	note := &testpb.Note{N: 1}
	b.Run("raw", func(b *testing.B) {
		var f flow
		as := make([]*rawswap.Actor, actors)
		for i := range as {
			as[i] = rawswap.New(func(rawswap.Item) { f.done.Add(1) })
		}
		run(b, &f, func(i int) { as[i].Tell(rawswap.Item{Value: note}) })
	})
	b.Run("zactor", func(b *testing.B) {
		g := newGroup(b, nil)
		var f flow
		as := make([]zactor.Ref, actors)
		for i := range as {
			as[i] = spawn(b, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				f.done.Add(1)
				return nil
			})))
		}
		run(b, &f, func(i int) {
			for as[i].Tell(note) != nil {
				runtime.Gosched()
			}
		})
	})
}

func BenchmarkTell(b *testing.B) {
	each(b, 1, func(b *testing.B, f *flow, tell func(i int)) {
		b.Helper()
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			f.take()
			tell(0)
			n++
		}
		f.drain(n)
	})
}

// What metrics and tracing cost; "plain" of the same run is what they compare with.
var observed = []struct {
	name string
	mw   func() []zactor.Middleware
}{
	{"plain", func() []zactor.Middleware { return nil }},
	{"measure", func() []zactor.Middleware { return []zactor.Middleware{zactor.Measure(zmetrics.NewHandlers(nil))} }},
	{"trace", func() []zactor.Middleware { return []zactor.Middleware{zactor.Trace(nil)} }},
	{"both", func() []zactor.Middleware {
		return []zactor.Middleware{zactor.Measure(zmetrics.NewHandlers(nil)), zactor.Trace(nil)}
	}},
	{"limit", func() []zactor.Middleware { return []zactor.Middleware{zactor.Limit(1e9, 1e9)} }},
	{"spans", func() []zactor.Middleware { return []zactor.Middleware{zactor.Spans(newTracer())} }},
	{"recover", func() []zactor.Middleware { return []zactor.Middleware{zactor.Recover()} }},
}

func newTracer() *ztrace.Tracer {
	self := new(zmsg.Self)
	self.Set(zmsg.NodeRef{ID: "n1", Epoch: 1})
	return ztrace.New(ztrace.Config{Self: self, Export: func(*ztrace.Span) {}})
}

// What a handler costs whose trace is recorded, next to one whose is not.
func BenchmarkSpan(b *testing.B) {
	for name, span := range map[string]uint64{"not_recorded": 0, "recorded": 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			g := newGroup(b, func(c *zactor.Config) { c.Middleware = []zactor.Middleware{zactor.Spans(newTracer())} })
			var f flow
			ref := spawn(b, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				f.done.Add(1)
				return nil
			})))
			id, _ := zmsg.IDOf(&testpb.Note{})
			n := 0
			for b.Loop() {
				f.take()
				m := zmsg.NewMessage(id)
				m.Value, m.Trace = &testpb.Note{N: 1}, zmsg.Trace{ID: zmsg.TraceID{1}, Span: span}
				for ref.Deliver(m) != nil {
					runtime.Gosched()
				}
				n++
			}
			f.drain(n)
		})
	}
}

func BenchmarkTellObserved(b *testing.B) {
	note := &testpb.Note{N: 1}
	for _, o := range observed {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			g := newGroup(b, func(c *zactor.Config) { c.Middleware = o.mw() })
			var f flow
			ref := spawn(b, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				f.done.Add(1)
				return nil
			})))
			n := 0
			for b.Loop() {
				f.take()
				for ref.Tell(note) != nil {
					runtime.Gosched()
				}
				n++
			}
			f.drain(n)
		})
	}
}

// What a mailbox that is not plain costs.
func BenchmarkTellBounded(b *testing.B) {
	note := &testpb.Note{N: 1}
	for _, o := range []struct {
		name string
		opts []zactor.SpawnOption
	}{
		{"plain", nil},
		{"drop_oldest", []zactor.SpawnOption{zactor.WithOverflow(zactor.DropOldest)}},
		{"wait", []zactor.SpawnOption{zactor.WithOverflow(zactor.Wait(time.Minute))}},
		{"bytes", []zactor.SpawnOption{zactor.WithMailboxBytes(1 << 20)}},
	} {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			g := newGroup(b, nil)
			var f flow
			ref := spawn(b, g, "", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				f.done.Add(1)
				return nil
			})), o.opts...)
			n := 0
			for b.Loop() {
				f.take()
				for ref.Tell(note) != nil {
					runtime.Gosched()
				}
				n++
			}
			f.drain(n)
		})
	}
}

func BenchmarkAskObserved(b *testing.B) {
	ctx := context.Background()
	ping, pong := &testpb.Ping{}, &testpb.Pong{}
	for _, o := range observed {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			g := newGroup(b, func(c *zactor.Config) { c.Middleware = o.mw() })
			ref := spawn(b, g, "", factory(zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { return pong, nil })))
			for b.Loop() {
				if _, err := zactor.Ask[testpb.Pong](ctx, ref, ping); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTell8(b *testing.B) {
	each(b, 1, func(b *testing.B, f *flow, tell func(i int)) {
		b.Helper()
		b.ReportAllocs()
		var left atomic.Int64
		b.ResetTimer()
		left.Store(int64(b.N))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					f.take()
					tell(0)
				}
			})
		}
		wg.Wait()
		f.drain(b.N)
	})
}

func BenchmarkTellRoundRobin1000(b *testing.B) {
	each(b, 1000, func(b *testing.B, f *flow, tell func(i int)) {
		b.Helper()
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			f.take()
			tell(n % 1000)
			n++
		}
		f.drain(n)
	})
}

func BenchmarkPingPong(b *testing.B) {
	ping := &testpb.Note{}
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		done := make(chan struct{})
		var left int
		var x, y *rawswap.Actor
		x = rawswap.New(func(it rawswap.Item) { y.Tell(it) })
		y = rawswap.New(func(it rawswap.Item) {
			if left--; left <= 0 {
				close(done)
				return
			}
			x.Tell(it)
		})
		left = b.N
		x.Tell(rawswap.Item{Value: ping})
		<-done
	})
	b.Run("zactor", func(b *testing.B) {
		b.ReportAllocs()
		g := newGroup(b, nil)
		done := make(chan struct{})
		var left int
		var x, y zactor.Ref
		x = spawn(b, g, "", factory(zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error { return c.Tell(y, n) })))
		y = spawn(b, g, "", factory(zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			if left--; left <= 0 {
				close(done)
				return nil
			}
			return c.Tell(x, n)
		})))
		left = b.N
		b.ResetTimer()
		if err := x.Tell(ping); err != nil {
			b.Fatal(err)
		}
		<-done
	})
}

func BenchmarkAsk(b *testing.B) {
	ping, pong := &testpb.Ping{}, &testpb.Pong{}
	for _, callers := range []int{1, 64} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			run := func(b *testing.B, ask func()) {
				b.Helper()
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for range callers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							ask()
						}
					})
				}
				wg.Wait()
			}
			b.Run("raw", func(b *testing.B) {
				a := rawswap.New(func(it rawswap.Item) { it.Reply <- pong })
				run(b, func() { a.Ask(ping) })
			})
			g := newGroup(b, nil)
			ref := spawn(b, g, "", factory(zactor.Handle(func(*zactor.Context, *testpb.Ping) (*testpb.Pong, error) { return pong, nil })))
			b.Run("zactor", func(b *testing.B) {
				ctx := context.Background()
				run(b, func() {
					if _, err := zactor.Ask[testpb.Pong](ctx, ref, ping); err != nil {
						b.Error(err)
					}
				})
			})
			b.Run("zactor-ctx", func(b *testing.B) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				run(b, func() {
					if _, err := zactor.Ask[testpb.Pong](ctx, ref, ping); err != nil {
						b.Error(err)
					}
				})
			})
		})
	}
}

func BenchmarkSpawn(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		names := make(map[string]*rawswap.Actor)
		var mu sync.Mutex
		n := 0
		for b.Loop() {
			a := rawswap.New(func(rawswap.Item) {})
			mu.Lock()
			names[strconv.Itoa(n)] = a
			mu.Unlock()
			n++
		}
	})
	b.Run("zactor", func(b *testing.B) {
		b.ReportAllocs()
		g := newGroup(b, nil)
		h := []zactor.Handler{zactor.Handle(echo)}
		f := func() zactor.Actor { return &plain{h} }
		n := 0
		b.ResetTimer()
		for b.Loop() {
			if _, err := g.Spawn(strconv.Itoa(n), f); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
}

// What an actor costs whose group has three layers of middleware.
func BenchmarkSpawnMiddleware(b *testing.B) {
	for _, handlers := range []int{1, 10} {
		b.Run("handlers="+strconv.Itoa(handlers), func(b *testing.B) {
			b.ReportAllocs()
			g := newGroup(b, func(c *zactor.Config) {
				c.Middleware = []zactor.Middleware{zactor.Measure(zmetrics.NewHandlers(nil)), zactor.Recover(), zactor.Limit(1e9, 1e9)}
			})
			var h []zactor.Handler
			for i := range handlers {
				h = append(h, zactor.HandleRaw(990100+uint32(i), func(*zactor.Context, *zmsg.Message) error { return nil }))
			}
			f := func() zactor.Actor { return &plain{h} }
			n := 0
			b.ResetTimer()
			for b.Loop() {
				if _, err := g.Spawn(strconv.Itoa(n), f); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}

// plain is an actor without hooks.
type plain struct{ handlers []zactor.Handler }

func (p *plain) Handlers() []zactor.Handler { return p.handlers }

// From a panic to the next message that the new instance has answered.
func BenchmarkRestart(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		var handle func(it rawswap.Item)
		handle = func(it rawswap.Item) {
			defer func() {
				if recover() != nil {
					fresh := rawswap.New(handle) // the state is made anew
					_ = fresh
				}
				it.Reply <- it.Value
			}()
			if it.Value == nil {
				panic("boom")
			}
		}
		a := rawswap.New(handle)
		for b.Loop() {
			a.Ask(nil)
			a.Ask(a)
		}
	})
	b.Run("zactor", func(b *testing.B) {
		b.ReportAllocs()
		g := newGroup(b, nil)
		f := func() zactor.Actor {
			return &plain{[]zactor.Handler{zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
				if p.GetN() == 1 {
					panic("boom")
				}
				return nil, nil
			})}}
		}
		ref := spawn(b, g, "", f, zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1}))
		bad, good := &testpb.Ping{N: 1}, &testpb.Ping{}
		ctx := context.Background()
		for b.Loop() {
			if _, err := zactor.Ask[testpb.Pong](ctx, ref, bad); !errors.Is(err, zmsg.ErrPanicked) {
				b.Fatal(err)
			}
			if _, err := zactor.Ask[testpb.Pong](ctx, ref, good); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a recorder costs a message.
func BenchmarkRecorder(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%v", on), func(b *testing.B) {
			g := newGroup(b, func(c *zactor.Config) { c.RecordDir = b.TempDir() })
			done := make(chan struct{}, 1)
			ref := spawn(b, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, m *testpb.Note) error {
				if m.GetFrom() == 1 {
					done <- struct{}{}
				}
				return nil
			})), zactor.WithRecorder(zactor.RecorderOptions{Off: !on}))
			note, last := &testpb.Note{N: 12345}, &testpb.Note{From: 1}
			b.ReportAllocs()
			for b.Loop() {
				for range 255 {
					if err := ref.Tell(note); err != nil {
						b.Fatal(err)
					}
				}
				if err := ref.Tell(last); err != nil {
					b.Fatal(err)
				}
				<-done
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/message")
		})
	}
}

// One message published to the actors of the same node that subscribe, until all have handled it.
func BenchmarkPublishTopic(b *testing.B) {
	for _, subscribers := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("subscribers=", subscribers), func(b *testing.B) {
			g := newGroup(b, nil)
			var heard atomic.Int64
			done := make(chan struct{}, 1)
			for range subscribers {
				spawn(b, g, "", func() zactor.Actor {
					return &actor{start: subscribeTo("topic"), handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
						if heard.Add(1)%int64(subscribers) == 0 {
							done <- struct{}{}
						}
						return nil
					})}}
				})
			}
			note := &testpb.Note{}
			b.ReportAllocs()
			for b.Loop() {
				_ = g.PublishTopicLocal("topic", note)
				<-done
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(subscribers), "ns/subscriber")
		})
	}
}
