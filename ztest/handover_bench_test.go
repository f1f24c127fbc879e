package ztest_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// BenchmarkDrainedGate is the time until 99 % of the clients of a gate that drains go on at another gate, with what was pushed to them meanwhile: each
// has a line every half second, by an actor of a third node. Clients, gates and actor share the process. It fails where a line is lost or comes twice.
func BenchmarkDrainedGate(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("clients=", n), func(b *testing.B) {
			for range b.N {
				most, all := drainGate(b, n)
				b.ReportMetric(most.Seconds(), "s-99%")
				b.ReportMetric(all.Seconds(), "s-all")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// tally is what one client has heard.
type tally struct {
	mu    sync.Mutex
	times map[uint64]int
}

func drainGate(b *testing.B, n int) (most, all time.Duration) {
	b.Helper()
	h := &hall{names: map[string]zmsg.SessionRef{}, own: true}
	c := ztest.Cluster(b, 3, h.app(), ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		s.Drain.Timeout, s.Drain.Handover, s.Drain.Delay = patience, patience, 2*time.Second
		s.Gate.HandoverTime, s.Gate.AuthTimeout = patience/2, patience/2 // of a busy machine
		s.Gate.AcceptRate, s.Gate.MaxPerAddress, s.Gate.MaxUnauthenticated = -1, -1, n
	}))
	var to atomic.Pointer[string] // the gate of now
	lead := func(k int) {
		u := c.Node(k).GateURL()
		u = u[len("ws://") : len(u)-len("/ws")]
		to.Store(&u)
	}
	lead(0)
	var back atomic.Int64
	var began atomic.Pointer[time.Time]
	var took99, tookAll atomic.Int64
	tallies := make([]*tally, n)
	clients := make([]*zclient.Client, n)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 64)
	for i := range n {
		cl, err := zclient.New(zclient.Config{
			URL: "ws://gate.example/ws", Token: fmt.Sprint("user", i), RequestTimeout: patience, MinBackoff: 100 * time.Millisecond, HandshakeTimeout: patience,
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, *to.Load())
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		t := &tally{times: map[uint64]int{}}
		zclient.On(cl, func(m *chatpb.Line) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.times[m.GetSeq()]++
		})
		cl.OnState(func(s zclient.State) {
			if start := began.Load(); start != nil && s.Phase == zclient.Online {
				if !s.Session.Resumed {
					b.Errorf("client %d has lost its session", i)
				}
				switch at := int(back.Add(1)); at {
				case n:
					tookAll.Store(int64(time.Since(*start)))
					fallthrough
				case (n*99 + 99) / 100:
					took99.CompareAndSwap(0, int64(time.Since(*start)))
				}
			}
		})
		tallies[i], clients[i] = t, cl
		b.Cleanup(func() { _ = cl.Close() })
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			if err := cl.Connect(ctx); err != nil {
				b.Errorf("client %d: %v", i, err)
				return
			}
			if err := cl.Request(ctx, &chatpb.Join{Room: "go"}, new(chatpb.Joined)); err != nil {
				b.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	stop := make(chan struct{})
	said := h.speak(b, c, stop, 500*time.Millisecond)
	ztest.Eventually(b, "all hear", func() bool { return heardAll(tallies, 1) })
	lead(1)
	now := time.Now()
	began.Store(&now)
	c.Stop(0)
	ztest.Eventually(b, "all are back", func() bool { return tookAll.Load() != 0 })
	close(stop)
	last := said()
	ztest.Eventually(b, "all is heard", func() bool { return heardAll(tallies, last) })
	for i, t := range tallies {
		t.mu.Lock()
		for k := range last {
			if t.times[k+1] != 1 {
				b.Errorf("client %d has heard line %d %d times", i, k+1, t.times[k+1])
			}
		}
		t.mu.Unlock()
		if st := clients[i].Stats(); st.Gaps != 0 || st.Lost != 0 {
			b.Errorf("client %d: %+v", i, st)
		}
	}
	for _, cl := range clients {
		_ = cl.Close()
	}
	return time.Duration(took99.Load()), time.Duration(tookAll.Load())
}

func heardAll(all []*tally, last uint64) bool {
	for _, t := range all {
		t.mu.Lock()
		n := t.times[last]
		t.mu.Unlock()
		if n == 0 {
			return false
		}
	}
	return true
}
