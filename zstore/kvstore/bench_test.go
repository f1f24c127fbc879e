package kvstore_test

import (
	"fmt"
	"sync"
	"testing"

	"zgame/zmsg"
	"zgame/zstore"
)

const benchState = 4 << 10

// BenchmarkSave saves states of 4 KiB, beside bare KV updates of the same size on a stream of the same settings, so that
// the two can be compared within one run. Each writer has a key of its own.
func BenchmarkSave(b *testing.B) {
	for _, inflight := range []int{1, 64} {
		b.Run(fmt.Sprintf("inflight=%d/store", inflight), func(b *testing.B) {
			srv := start(b)
			s := open(b, srv.config())
			w := zstore.Write{Schema: 1, State: make([]byte, benchState)}
			recs := make([]zstore.Record, inflight)
			for i := range recs {
				rec, err := s.Create(b.Context(), zmsg.Key{Type: 1, ID: fmt.Sprint(i)}, node, w, zstore.NewWriteID())
				if err != nil {
					b.Fatal(err)
				}
				recs[i] = rec
			}
			drive(b, inflight, func(i int) error {
				rev, err := s.Save(b.Context(), recs[i].Key, recs[i].Own, recs[i].Rev, w, zstore.NewWriteID())
				recs[i].Rev = rev
				return err
			})
		})
		b.Run(fmt.Sprintf("inflight=%d/bare_kv_update", inflight), func(b *testing.B) {
			srv := start(b)
			cfg := srv.config()
			open(b, cfg) // makes the stream
			kv, err := srv.js.KeyValue(b.Context(), cfg.Bucket)
			if err != nil {
				b.Fatal(err)
			}
			v := make([]byte, benchState)
			seqs := make([]uint64, inflight)
			for i := range seqs {
				if seqs[i], err = kv.Create(b.Context(), fmt.Sprint(i), v); err != nil {
					b.Fatal(err)
				}
			}
			drive(b, inflight, func(i int) (err error) {
				seqs[i], err = kv.Update(b.Context(), fmt.Sprint(i), v, seqs[i])
				return err
			})
		})
	}
}

// drive runs b.N calls from n goroutines.
func drive(b *testing.B, n int, call func(i int) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(benchState)
	if n == 1 {
		for b.Loop() {
			if err := call(0); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range n {
		share := b.N / n
		if i < b.N%n {
			share++
		}
		wg.Go(func() { // ends after its share; drive waits
			for range share {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkReadClaim(b *testing.B) {
	srv := start(b)
	s := open(b, srv.config())
	rec, err := s.Create(b.Context(), key, node, zstore.Write{State: make([]byte, benchState)}, zstore.NewWriteID())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Read(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("claim", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if rec, err = s.Claim(b.Context(), key, rec.Own, rec.Rev, node, zstore.NewWriteID()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkScan looks for a tenth of 20,000 records of 1 KiB.
func BenchmarkScan(b *testing.B) {
	srv := start(b)
	s := open(b, srv.config())
	const n = 20000
	other := zmsg.NodeRef{ID: "other", Epoch: 1}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() { // ends after its share; the benchmark waits
			for i := g; i < n; i += 32 {
				owner := other
				if i%10 == 0 {
					owner = node
				}
				if _, err := s.Create(b.Context(), zmsg.Key{Type: 1, ID: fmt.Sprint(i)}, owner, zstore.Write{State: make([]byte, 1024)}, zstore.NewWriteID()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for b.Loop() {
		got := 0
		if err := s.Scan(b.Context(), node, func(zmsg.Key, zstore.Own) bool { got++; return true }); err != nil || got != n/10 {
			b.Fatalf("%d records, %v", got, err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
