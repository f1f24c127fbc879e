package zrouter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore/kvstore"
)

// onKV has the world keep its objects in JetStream KV.
func (w *world) onKV(tb testing.TB) {
	tb.Helper()
	srv, err := embedded.StartNATS(tb.TempDir(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Stop)
	w.kv, err = kvstore.New(kvstore.Config{URL: srv.URL()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.kv.Close(context.Background()) })
}

func stores(b *testing.B, f func(b *testing.B, w *world)) {
	b.Helper()
	b.Run("mem", func(b *testing.B) { f(b, newWorld(b)) })
	b.Run("kv", func(b *testing.B) {
		w := newWorld(b)
		w.onKV(b)
		f(b, w)
	})
}

// The first request to an object that was never there: read, create, load, run.
func BenchmarkCold(b *testing.B) {
	stores(b, func(b *testing.B, w *world) {
		b.Helper()
		a := w.start("a", zrouter.Settings{}, quickKind())
		done := make(chanReplier, 1)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if err := a.set.DeliverObject(key(fmt.Sprint(i)), request(done)); err != nil {
				b.Fatal(err)
			}
			<-done
		}
	})
}

// Durable requests to 64 objects at once, one after the other to each; and 16 to each at once, which share their saves.
func BenchmarkSaves(b *testing.B) {
	for _, each := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=64x%d", each), func(b *testing.B) {
			stores(b, func(b *testing.B, w *world) {
				b.Helper()
				a := w.start("a", zrouter.Settings{}, bounded())
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for c := range 64 * each {
					id := fmt.Sprint(c % 64)
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := a.keep(id, "line"); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "saved/s")
			})
		})
	}
}

// bounded is a kind whose state stays small.
func bounded() zrouter.Kind[*testpb.Log] {
	k := logs()
	k.Handlers = []zrouter.Handler[*testpb.Log]{zrouter.Handle(func(c *logContext, req *testpb.Keep) (*testpb.Appended, error) {
		c.State().Lines = append(c.State().Lines[:0], req.Line)
		c.Dirty()
		return &testpb.Appended{}, nil
	}, zrouter.Durable())}
	return k
}

// A hundred thousand objects in memory: bringing them there, reaching each, and giving all up at the end.
func BenchmarkResident(b *testing.B) {
	const objects = 100_000
	for range b.N {
		w := newWorld(b)
		a := w.start("a", zrouter.Settings{}, quickKind())
		start := time.Now()
		all := func() {
			var wg sync.WaitGroup
			for c := range 16 {
				wg.Go(func() {
					done := make(chanReplier, 1)
					for i := c; i < objects; i += 16 {
						if err := a.set.DeliverObject(key(fmt.Sprint(i)), request(done)); err != nil {
							b.Error(err)
							return
						}
						<-done
					}
				})
			}
			wg.Wait()
		}
		all()
		b.ReportMetric(objects/time.Since(start).Seconds(), "loaded/s")
		start = time.Now()
		all()
		b.ReportMetric(objects/time.Since(start).Seconds(), "requests/s")
		start = time.Now()
		rep, err := a.set.Close(context.Background())
		if err != nil || rep.Released != objects {
			b.Errorf("%+v, %v", rep, err)
		}
		b.ReportMetric(objects/time.Since(start).Seconds(), "released/s")
	}
}
