package zrouter_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zstore"
)

// TestMemory holds what an object in memory for which nothing comes takes, with a state of a few bytes.
func TestMemory(t *testing.T) {
	if zrouter.RaceEnabled || testing.Short() {
		t.Skip("the race detector has memory of its own")
	}
	const objects = 20_000
	w := newWorld(t)
	n := w.start("a", zrouter.Settings{}, quickKind())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	stored := storedBytes(t, objects)
	before := heap()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			done := make(chanReplier, 1)
			for i := c; i < objects; i += 8 {
				if err := n.set.DeliverObject(key(fmt.Sprintf("object-%09d", i)), request(done)); err != nil {
					t.Error(err)
					return
				}
				<-done
			}
		})
	}
	wg.Wait()
	each := (float64(heap()) - float64(before) - stored) / objects
	t.Logf("%.0f bytes for each object in memory", each)
	if each > 2500 {
		t.Errorf("%.0f bytes for each object in memory, want 2500 at most", each)
	}
	runtime.KeepAlive(n)
	runtime.KeepAlive(w)
}

// storedBytes is what the records take that the store in memory keeps for the objects.
func storedBytes(t *testing.T, objects int) float64 {
	t.Helper()
	w := newWorld(t)
	runtime.GC()
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	for i := range objects {
		if _, err := w.db.Create(t.Context(), key(fmt.Sprintf("object-%09d", i)), zmsg.NodeRef{ID: "a", Epoch: 1}, zstore.Write{Schema: 1}, zstore.NewWriteID()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&b)
	runtime.KeepAlive(w)
	return float64(b.HeapAlloc) - float64(a.HeapAlloc)
}
