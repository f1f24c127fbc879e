package ztrace_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/ztrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTracer(share float64, reg prometheus.Registerer, export func(*ztrace.Span)) *ztrace.Tracer {
	self := new(zmsg.Self)
	self.Set(zmsg.NodeRef{ID: "n1", Epoch: 7})
	return ztrace.New(ztrace.Config{Self: self, Share: share, Export: export, Metrics: zmetrics.NewTrace(reg)})
}

// The share is kept, and the id alone decides: two gates agree about each trace.
func TestShare(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	a, b := newTracer(0.1, nil, nil), newTracer(0.1, nil, nil)
	const all = 100_000
	n := 0
	for range all {
		var id zmsg.TraceID
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		yes := a.Sample(id, "ann")
		if yes {
			n++
		}
		if yes != b.Sample(id, "bob") {
			t.Fatal("two gates do not agree")
		}
	}
	if n < all*9/100 || n > all*11/100 {
		t.Errorf("%d of %d are recorded: expected a tenth", n, all)
	}
	var off *ztrace.Tracer
	if off.Sample(zmsg.TraceID{}, "ann") || newTracer(0, nil, nil).Sample(zmsg.TraceID{}, "ann") || !newTracer(1, nil, nil).Sample(zmsg.TraceID{255}, "") {
		t.Error("none, or all: not kept")
	}
	off.End(&ztrace.Span{})
}

// Who follows is sent everything, a slow one misses some, which are counted; when the last has gone, nobody's requests are recorded.
func TestFollow(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	exported := 0
	tr := newTracer(0, reg, func(s *ztrace.Span) {
		if s.Node.ID != "n1" || s.ID == 0 {
			t.Errorf("exported is %+v", s)
		}
		exported++
	})
	key := zmsg.Key{Type: 1, ID: "a"}
	spans, stop := tr.Follow("ann", zmsg.Key{}, 2)
	again, stopAgain := tr.Follow("ann", key, 8)
	if !tr.Sample(zmsg.TraceID{1}, "ann") || tr.Sample(zmsg.TraceID{1}, "bob") || tr.Sample(zmsg.TraceID{1}, "") || !tr.SampleObject(key) || tr.SampleObject(zmsg.Key{Type: 2, ID: "a"}) {
		t.Error("not those who are followed are recorded")
	}
	for range 5 {
		tr.End(&ztrace.Span{Trace: tr.NewTrace(), Kind: ztrace.Handler})
	}
	if len(spans) != 2 || len(again) != 5 || exported != 5 {
		t.Errorf("%d, %d, and %d exported: expected 2, 5 and 5", len(spans), len(again), exported)
	}
	if s := <-spans; s.Node.ID != "n1" || s.ID == 0 || s.Trace.IsZero() {
		t.Errorf("got %+v", s)
	}
	stop()
	stop()
	if !tr.Sample(zmsg.TraceID{1}, "ann") {
		t.Error("somebody follows still")
	}
	stopAgain()
	if tr.Sample(zmsg.TraceID{1}, "ann") || tr.SampleObject(key) {
		t.Error("nobody follows any more")
	}
	if n, err := testutil.GatherAndCount(reg, "zgame_trace_drops_total"); n != 1 || err != nil {
		t.Error("the drops are not counted", n, err)
	}
}

// A span comes through JSON as it was: ids of 64 bits, which JavaScript has no numbers for, as text.
func TestSpanAsJSON(t *testing.T) {
	t.Parallel()
	s := ztrace.Span{
		Trace: zmsg.TraceID{1, 2}, ID: 1<<64 - 1, Parent: 1 << 63, Kind: ztrace.Save, Name: "rooms", Node: zmsg.NodeRef{ID: "a", Epoch: 2},
		Start: time.Date(2026, 11, 30, 10, 0, 0, 5, time.UTC), Duration: 3, Wait: 4, Session: zmsg.SessionRef{ID: 5}, User: "ann", Actor: 1 << 60,
		ActorName: "x", Key: zmsg.Key{Type: 1, ID: "k"}, Version: 6, Sessions: 7, Result: "ok",
	}
	b, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	var got ztrace.Span
	if err := json.Unmarshal(b, &got); err != nil || got != s {
		t.Errorf("%s came back as %+v, %v", b, got, err)
	}
	for _, bad := range []string{`{"kind":"x"}`, `{"trace":"12"}`, `{"trace":"zz000000000000000000000000000000"}`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	for name, tr := range map[string]*ztrace.Tracer{"off": nil, "none": newTracer(0, nil, nil), "share": newTracer(0.001, nil, nil)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			id := zmsg.TraceID{255, 1}
			for b.Loop() {
				if tr.Sample(id, "ann") {
					b.Fatal("it is recorded")
				}
			}
		})
	}
}
