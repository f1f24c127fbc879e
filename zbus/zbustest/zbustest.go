// Package zbustest holds drivers of zbus.Bus to the contract. A driver's test calls Run with a function that starts a
// server (or what stands for it) of its own for each test.
package zbustest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zbus"
)

// within bounds every wait of the suite: generous, for busy machines.
const within = time.Minute

// Fixture is a server and what the suite may do with it.
type Fixture struct {
	// Bus makes a new connection that is up. The suite closes it.
	Bus func(tb testing.TB) zbus.Bus
	// SetUp stops (false) and starts (true) the server, at the same address. Nil leaves out the tests that need it.
	SetUp func(tb testing.TB, up bool)
	// Pending is how many messages wait for a receiver before more are dropped; keep it below 10,000 and above 100.
	// 0 leaves out the test of slow handlers.
	Pending int
	// Subscriptions counts the server's subscriptions. Nil leaves out that check.
	Subscriptions func() int
}

// Run runs the suite; open is called once for each test, and cleans up by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	tests := []struct {
		name string
		f    func(t *testing.T, f Fixture)
	}{
		{"Passes", testPasses},
		{"OrderOverSubjects", testOrderOverSubjects},
		{"ManyPublishers", testManyPublishers},
		{"Echo", testEcho},
		{"SubscribeTwice", testSubscribeTwice},
		{"Wildcard", testWildcard},
		{"Unsubscribe", testUnsubscribe},
		{"NoResponders", testNoResponders},
		{"MaxPayload", testMaxPayload},
		{"CloseReceiver", testCloseReceiver},
		{"SlowHandler", testSlowHandler},
		{"Closed", testClosed},
		{"CloseAtOnce", testCloseAtOnce},
		{"DownAndUp", testDownAndUp},
		{"SubscriptionsGoBack", testSubscriptionsGoBack},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.f(t, open(t)) })
	}
}

// connect makes a bus that is closed with the test.
func connect(t *testing.T, f Fixture) zbus.Bus {
	t.Helper()
	b := f.Bus(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// receive opens a receiver of subjects that puts everything into the channel.
func receive(t *testing.T, b zbus.Bus, room int, subjects ...string) (<-chan zbus.Msg, zbus.Receiver) {
	t.Helper()
	ch := make(chan zbus.Msg, room)
	r, err := b.Receive(func(m zbus.Msg) { ch <- m })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subjects {
		subscribe(t, r, s)
	}
	return ch, r
}

func subscribe(t *testing.T, r zbus.Receiver, subject string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := r.Subscribe(ctx, subject); err != nil {
		t.Fatalf("subscribe %s: %v", subject, err)
	}
}

func publish(t *testing.T, b zbus.Bus, subject, reply string, data []byte) {
	t.Helper()
	if err := b.Publish(subject, reply, data); err != nil {
		t.Fatalf("publish %s: %v", subject, err)
	}
}

func flush(t *testing.T, b zbus.Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := b.Flush(ctx); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

func next(t *testing.T, ch <-chan zbus.Msg) zbus.Msg {
	t.Helper()
	select {
	case m := <-ch:
		return m
	case <-time.After(within):
		t.Fatal("nothing arrived")
		return zbus.Msg{}
	}
}

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func number(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func testPasses(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, b, 16, "t.a-1.B_2")
	data := []byte("hello")
	publish(t, a, "t.a-1.B_2", "t.reply", data)
	copy(data, "XXXXX") // the bus does not keep it
	m := next(t, ch)
	if m.Subject != "t.a-1.B_2" || m.Reply != "t.reply" || string(m.Data) != "hello" || m.NoResponders {
		t.Errorf("got %+v", m)
	}
	publish(t, a, "t.a-1.B_2", "", nil)
	if m := next(t, ch); len(m.Data) != 0 || m.Reply != "" || m.NoResponders {
		t.Errorf("empty message came as %+v", m)
	}
	if !a.Up() {
		t.Error("not up")
	}
}

func testOrderOverSubjects(t *testing.T, f Fixture) {
	t.Helper()
	const n = 9000
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, b, n, "t.x", "t.y", "t.z.*")
	subjects := []string{"t.x", "t.y", "t.z.1", "t.z.2", "t.y", "t.x"}
	for i := range n {
		publish(t, a, subjects[i%len(subjects)], "", number(i))
		if i%50 == 49 { // stay below every driver's limit of waiting messages
			flush(t, a)
		}
	}
	for i := range n {
		m := next(t, ch)
		if got := binary.BigEndian.Uint64(m.Data); got != uint64(i) || m.Subject != subjects[i%len(subjects)] {
			t.Fatalf("message %d is %d of %s", i, got, m.Subject)
		}
	}
}

func testManyPublishers(t *testing.T, f Fixture) {
	t.Helper()
	const publishers, n = 8, 400
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, b, publishers*n, "t.many")
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range n {
				if err := a.Publish("t.many", "", []byte{byte(p), byte(i >> 8), byte(i)}); err != nil {
					t.Errorf("publish: %v", err)
				}
				if i%10 == 9 {
					flush(t, a)
				}
			}
		})
	}
	wg.Wait()
	var want [publishers]int
	for range publishers * n {
		m := next(t, ch)
		p, i := m.Data[0], int(m.Data[1])<<8|int(m.Data[2])
		if i != want[p] {
			t.Fatalf("publisher %d: message %d, want %d", p, i, want[p])
		}
		want[p]++
	}
}

func testEcho(t *testing.T, f Fixture) {
	t.Helper()
	a := connect(t, f)
	ch, _ := receive(t, a, 4, "t.echo")
	publish(t, a, "t.echo", "", []byte("me"))
	if m := next(t, ch); string(m.Data) != "me" {
		t.Errorf("got %q", m.Data)
	}
}

func testSubscribeTwice(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, r := receive(t, b, 16, "t.twice", "t.twice", "t.end")
	publish(t, a, "t.twice", "", []byte("1"))
	publish(t, a, "t.end", "", nil)
	if m := next(t, ch); string(m.Data) != "1" {
		t.Errorf("got %+v", m)
	}
	if m := next(t, ch); m.Subject != "t.end" {
		t.Errorf("a subject subscribed twice was received twice: %+v", m)
	}
	if err := r.Unsubscribe("t.twice"); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	publish(t, a, "t.twice", "", []byte("2"))
	if m := next(t, ch); string(m.Data) != "2" {
		t.Errorf("one Unsubscribe of two ended the subscription: %+v", m)
	}
}

func testWildcard(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, b, 16, "t.w.*")
	for _, s := range []string{"t.w", "t.w.a.b", "t.v.a", "t.w.a"} {
		publish(t, a, s, "", []byte(s))
	}
	if m := next(t, ch); m.Subject != "t.w.a" {
		t.Errorf("t.w.* received %s", m.Subject)
	}
}

func testUnsubscribe(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, r := receive(t, b, 16, "t.off", "t.on")
	if err := r.Unsubscribe("t.off"); err != nil {
		t.Fatal(err)
	}
	if err := r.Unsubscribe("t.never"); err != nil {
		t.Errorf("unsubscribing what never was: %v", err)
	}
	flush(t, b)
	publish(t, a, "t.off", "", nil)
	publish(t, a, "t.on", "", nil)
	if m := next(t, ch); m.Subject != "t.on" {
		t.Errorf("received %s after Unsubscribe", m.Subject)
	}
}

func testNoResponders(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, a, 16, "t.r.*")
	other, _ := receive(t, b, 16, "t.r.*", "t.there")
	publish(t, a, "t.nobody", "t.r.1", []byte("x"))
	m := next(t, ch)
	if !m.NoResponders || m.Subject != "t.r.1" || len(m.Data) != 0 {
		t.Errorf("got %+v", m)
	}
	publish(t, a, "t.there", "t.r.2", []byte("y"))
	if m := next(t, other); m.NoResponders || m.Subject != "t.there" || m.Reply != "t.r.2" {
		t.Errorf("the other bus got %+v", m)
	}
	publish(t, a, "t.nobody", "", []byte("z"))
	publish(t, a, "t.nobody", "t.r.3", []byte("z"))
	if m := next(t, ch); !m.NoResponders || m.Subject != "t.r.3" {
		t.Errorf("got %+v, want the answer for t.r.3 alone", m)
	}
}

func testMaxPayload(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	ch, _ := receive(t, b, 4, "t.big")
	limit := a.MaxPayload()
	if limit < 64<<10 {
		t.Fatalf("limit of %d bytes", limit)
	}
	data := make([]byte, limit+1)
	if err := a.Publish("t.big", "", data); !errors.Is(err, zbus.ErrTooLarge) {
		t.Errorf("limit+1: %v, want ErrTooLarge", err)
	}
	publish(t, a, "t.big", "", data[:limit])
	if m := next(t, ch); len(m.Data) != limit {
		t.Errorf("arrived with %d bytes of %d", len(m.Data), limit)
	}
}

func testCloseReceiver(t *testing.T, f Fixture) {
	t.Helper()
	const n = 90
	a, b := connect(t, f), connect(t, f)
	var got atomic.Int64
	release := make(chan struct{})
	started := make(chan struct{})
	var once sync.Once
	r, err := b.Receive(func(zbus.Msg) {
		once.Do(func() { close(started) })
		<-release
		got.Add(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, r, "t.close")
	for i := range n {
		publish(t, a, "t.close", "", number(i))
	}
	flush(t, a)
	<-started
	flush(t, b) // what was published has passed the reader of b

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close while the handler is stuck: %v, want the context's error", err)
	}
	close(release)
	ctx, cancel = context.WithTimeout(t.Context(), within)
	defer cancel()
	for range 2 {
		if err := r.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if got.Load() != n {
		t.Errorf("the handler had %d messages when Close returned, want %d", got.Load(), n)
	}
	if err := r.Subscribe(ctx, "t.more"); !errors.Is(err, zbus.ErrClosed) {
		t.Errorf("subscribe after close: %v, want ErrClosed", err)
	}
}

func testSlowHandler(t *testing.T, f Fixture) {
	t.Helper()
	if f.Pending == 0 {
		t.Log("left out: the driver names no limit")
		return
	}
	a, b := connect(t, f), connect(t, f)
	var dropped, got atomic.Int64
	stop := b.Observe(zbus.Events{Dropped: func(n int) { dropped.Add(int64(n)) }})
	defer stop()
	release := make(chan struct{})
	r, err := b.Receive(func(zbus.Msg) {
		<-release
		got.Add(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, r, "t.slow1")
	subscribe(t, r, "t.slow2")
	n := 2*f.Pending + 100
	for i := range n {
		publish(t, a, fmt.Sprintf("t.slow%d", 1+i%2), "", number(i))
	}
	flush(t, a)
	flush(t, b)
	close(release)
	eventually(t, "each message is received or reported as dropped", func() bool {
		return got.Load()+dropped.Load() == int64(n)
	})
	if dropped.Load() == 0 {
		t.Error("nothing dropped: the test did not test")
	}
}

func testClosed(t *testing.T, f Fixture) {
	t.Helper()
	b := f.Bus(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, r := receive(t, b, 1, "t.c")
	for range 2 {
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	_, errReceive := b.Receive(func(zbus.Msg) {})
	for what, err := range map[string]error{
		"publish": b.Publish("t.c", "", nil), "receive": errReceive, "subscribe": r.Subscribe(ctx, "t.d"), "flush": b.Flush(ctx),
	} {
		if !errors.Is(err, zbus.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	if b.Up() {
		t.Error("up after close")
	}
	if err := r.Unsubscribe("t.c"); err != nil {
		t.Errorf("unsubscribe after close: %v", err)
	}
}

// testCloseAtOnce closes receiver and bus from several goroutines while messages arrive.
func testCloseAtOnce(t *testing.T, f Fixture) {
	t.Helper()
	a, b := connect(t, f), f.Bus(t)
	_, r := receive(t, b, 1<<12, "t.n11")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				publish(t, a, "t.n11", "", nil)
			}
			var err error
			if i%2 == 0 {
				err = r.Close(ctx)
			} else {
				err = b.Close(ctx)
			}
			if err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
}

func testDownAndUp(t *testing.T, f Fixture) {
	t.Helper()
	if f.SetUp == nil {
		t.Log("left out: the server cannot be stopped")
		return
	}
	a, b := connect(t, f), connect(t, f)
	var ups, downs atomic.Int64
	defer a.Observe(zbus.Events{Up: func() { ups.Add(1) }, Down: func(err error) {
		if err == nil {
			t.Error("down without an error")
		}
		downs.Add(1)
	}})()
	ch, r := receive(t, b, 16, "t.du")
	f.SetUp(t, false)
	eventually(t, "down is told", func() bool { return downs.Load() == 1 && !a.Up() && !b.Up() })
	if err := a.Publish("t.du", "", []byte("lost")); !errors.Is(err, zbus.ErrDown) {
		t.Errorf("publish while down: %v, want ErrDown", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := r.Subscribe(ctx, "t.du2"); !errors.Is(err, zbus.ErrDown) {
		t.Errorf("subscribe while down: %v, want ErrDown", err)
	}
	if err := a.Flush(ctx); !errors.Is(err, zbus.ErrDown) {
		t.Errorf("flush while down: %v, want ErrDown", err)
	}
	f.SetUp(t, true)
	eventually(t, "up is told", func() bool { return ups.Load() >= 1 && a.Up() && b.Up() })
	flush(t, b)
	publish(t, a, "t.du2", "", []byte("not subscribed"))
	publish(t, a, "t.du", "", []byte("after"))
	if m := next(t, ch); string(m.Data) != "after" {
		t.Errorf("got %q of %s, want only what was published after", m.Data, m.Subject)
	}
	if downs.Load() != 1 || ups.Load() != 1 {
		t.Errorf("told %d times that it is down, %d times that it is up", downs.Load(), ups.Load())
	}
}

func testSubscriptionsGoBack(t *testing.T, f Fixture) {
	t.Helper()
	if f.Subscriptions == nil {
		t.Log("left out: the server does not count")
		return
	}
	b := connect(t, f)
	_, r := receive(t, b, 1, "t.base")
	base := f.Subscriptions()
	for i := range 300 {
		subscribe(t, r, fmt.Sprintf("t.s%d", i))
	}
	if got := f.Subscriptions(); got != base+300 {
		t.Errorf("%d subscriptions, want %d", got, base+300)
	}
	for i := range 300 {
		if err := r.Unsubscribe(fmt.Sprintf("t.s%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, b)
	if got := f.Subscriptions(); got != base {
		t.Errorf("%d subscriptions left, want %d", got, base)
	}
}
