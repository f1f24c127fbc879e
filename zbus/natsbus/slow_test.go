package natsbus_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/ztest/faultproxy"
)

// TestPendingBytes: what waits for a slow handler is bounded by its size too, and keeps its order; each message is received or
// counted as dropped.
func TestPendingBytes(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	const total, each, limit = 400, 100 << 10, 4 << 20
	a, b := dial(t, natsbus.Config{URL: srv.URL()}), dial(t, natsbus.Config{URL: srv.URL(), PendingBytes: limit})
	defer closeBus(t, a)
	defer closeBus(t, b)
	var dropped, got atomic.Int64
	defer b.Observe(zbus.Events{Dropped: func(n int) { dropped.Add(int64(n)) }})()
	entered, release := make(chan struct{}, total), make(chan struct{})
	last := -1
	r, err := b.Receive(func(m zbus.Msg) {
		entered <- struct{}{}
		<-release
		if n := int(m.Data[0])<<8 | int(m.Data[1]); n <= last {
			t.Errorf("message %d after %d", n, last)
		} else {
			last = n
		}
		got.Add(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Subscribe(t.Context(), "t.bytes"); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, each)
	for i := range total {
		data[0], data[1] = byte(i>>8), byte(i)
		if err := a.Publish("t.bytes", "", data); err != nil {
			t.Fatal(err)
		}
	}
	<-entered
	for _, bus := range []*natsbus.Bus{a, b} { // all is at b, whose reader has had the answer behind it
		if err := bus.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	for end := time.Now().Add(within); got.Load()+dropped.Load() < total; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d received and %d dropped, of %d", got.Load(), dropped.Load(), total)
		}
	}
	// The queue, one at the handler, and what the reader adds between two looks.
	if n := got.Load(); n > limit/each+6 || n < limit/each {
		t.Errorf("%d messages of %d bytes were kept, with a limit of %d bytes", n, each, limit)
	}
}

// TestNoRoomInTheSocket: a server that does not read makes a publisher wait for WriteTimeout; then the connection is lost, as what was
// published before is.
func TestNoRoomInTheSocket(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	p := faultproxy.Start(t, srv.URL()[len("nats://"):])
	b := dial(t, natsbus.Config{URL: "nats://" + p.Addr(), WriteTimeout: 50 * time.Millisecond, PingInterval: time.Hour})
	defer closeBus(t, b)
	down, up := make(chan struct{}, 100), make(chan struct{}, 100)
	defer b.Observe(zbus.Events{Down: func(error) { down <- struct{}{} }, Up: func() { up <- struct{}{} }})()
	p.Set(faultproxy.Up, faultproxy.Fault{Stall: true})
	data := make([]byte, 256<<10)
	for end := time.Now().Add(within); ; {
		if err := b.Publish("t.full", "", data); err != nil {
			if !errors.Is(err, zbus.ErrDown) {
				t.Errorf("publish: %v, want ErrDown", err)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("a stalled socket takes everything")
		}
	}
	select {
	case <-down:
	case <-time.After(within):
		t.Fatal("down is not told")
	}
	p.Heal()
	select {
	case <-up:
	case <-time.After(within):
		t.Fatal("up is not told")
	}
	if err := b.Publish("t.full", "", data); err != nil {
		t.Error(err)
	}
}
