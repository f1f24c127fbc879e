package natsbus_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/natsbus"
)

// TestReceiveDirect: a direct handler runs on the connection's reader for lone messages and on a goroutine of its own for floods, in the
// order of arrival and never twice at once, and Close leaves nothing behind.
func TestReceiveDirect(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	a, b := dial(t, natsbus.Config{URL: srv.URL()}), dial(t, natsbus.Config{URL: srv.URL()})
	defer closeBus(t, a)
	defer closeBus(t, b)

	var inside atomic.Bool
	var onReader, onOwn, got atomic.Int64
	last, one := uint64(0), make(chan struct{}, 1)
	r, err := b.ReceiveDirect(func(m zbus.Msg) {
		if inside.Swap(true) {
			t.Error("two at once")
		}
		defer inside.Store(false)
		if n := binary.BigEndian.Uint64(m.Data); n != last+1 {
			t.Errorf("message %d after %d", n, last)
		}
		last++
		if got.Add(1)%97 == 1 || m.Reply != "" { // a stack each time takes long
			stack := make([]byte, 16<<10)
			if stack = stack[:runtime.Stack(stack, false)]; strings.Contains(string(stack), "readLoop") {
				onReader.Add(1)
			} else {
				onOwn.Add(1)
			}
		}
		if m.Reply != "" {
			one <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Subscribe(t.Context(), "t.direct"); err != nil {
		t.Fatal(err)
	}
	n, data := uint64(0), make([]byte, 100)
	publish := func(reply string) {
		n++
		binary.BigEndian.PutUint64(data, n)
		if err := a.Publish("t.direct", reply, data); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		publish("t.reply")
		<-one
	}
	if onReader.Load() == 0 {
		t.Error("no lone message was handled by the reader")
	}
	const flood = 50_000
	for i := range flood {
		publish("")
		if i%1000 == 0 { // a lone one behind a flood, and a flood behind it
			if err := a.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, bus := range []*natsbus.Bus{a, b} {
		if err := bus.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if uint64(got.Load()) != n {
		t.Errorf("%d of %d messages were handled before Close returned", got.Load(), n)
	}
	if onOwn.Load() == 0 {
		t.Error("the reader handled the whole flood")
	}
}

// TestDirectOfALostConnection: what had come when the connection is lost is handled, though its reader does not come back.
func TestDirectOfALostConnection(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := dial(t, natsbus.Config{URL: srv.URL()}), dial(t, natsbus.Config{URL: srv.URL()})
	defer closeBus(t, a)
	defer closeBus(t, b)
	var got atomic.Int64
	const total = 5_000
	all := make(chan struct{})
	r, err := b.ReceiveDirect(func(zbus.Msg) {
		if got.Add(1) == total {
			close(all)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Subscribe(t.Context(), "t.lost"); err != nil {
		t.Fatal(err)
	}
	for range total {
		if err := a.Publish("t.lost", "", make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for _, bus := range []*natsbus.Bus{a, b} {
		if err := bus.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	srv.Stop()
	select {
	case <-all:
	case <-time.After(within):
		t.Fatalf("%d of %d messages were handled", got.Load(), total)
	}
}
