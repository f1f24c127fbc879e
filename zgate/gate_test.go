package zgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zmsg"
)

func TestConfigFaultsComeTogether(t *testing.T) {
	_, err := New(Config{
		Path: "ws", MaxMessage: 5, QueueBytes: -1, Timeout: time.Second, MaxInFlight: 5000, AllowedOrigins: []string{"example.com"},
		Handlers: map[uint32]Handler{0: nil}, MaxRequestTimeout: time.Second,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		"Node", "Auth", "Addr", "Path", "MaxMessage", "QueueBytes", "Timeout", "MaxInFlight",
		"AllowedOrigins", "Handlers", "MaxRequestTimeout",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// X9: start and stop, twenty times on one port; X5: with clients.
func TestStartStopOnOnePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	for range 20 {
		r := newRig(t, func(c *Config) { c.Addr = addr })
		c := r.login("ann")
		c.echo("x")
		done := make(chan struct{})
		go func() { defer close(done); c.closedWith(CloseShutdown) }()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		c.ws.end()
	}
}

func TestLife(t *testing.T) {
	cfg := Config{Node: testNode, Addr: "127.0.0.1:0", Auth: DevAuth{}}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if g.Addr() != nil {
		t.Error("has an address before Start")
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); !errors.Is(err, ErrStarted) {
		t.Error("started twice:", err)
	}
	cfg.Addr = g.Addr().String()
	other, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(t.Context()); err == nil || !strings.Contains(err.Error(), cfg.Addr) {
		t.Error("a port in use:", err)
	}
	if err := other.Shutdown(t.Context()); err != nil {
		t.Error("shutdown of a gate that did not start:", err)
	}
	if err := other.Start(t.Context()); !errors.Is(err, ErrStopped) {
		t.Error("start after shutdown:", err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Shutdown lets a request in flight end, refuses new ones, and writes everything before it says goodbye.
func TestShutdownDrains(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DrainTime, c.DrainSpread = time.Minute, time.Second })
	c := r.login("ann")
	half := r.dialRaw(false) // somewhere in the handshake
	login := r.dial(dialing{})
	eventually(t, "the gate knows that the handshake is over", func() bool { // its client may know before
		r.mu.Lock()
		defer r.mu.Unlock()
		for c := range r.conns {
			if c.phase.Load() == phaseLogin {
				return true
			}
		}
		return false
	})
	c.send(request(idHeld, 1, ""))
	m := <-r.held
	done := make(chan error, 1)
	go func() { done <- r.Shutdown(t.Context()) }()
	eventually(t, "draining", func() bool { return r.draining.Load() })
	if f := c.call(idEcho, "x"); f.Code != zmsg.CodeDraining {
		t.Errorf("a new request: %+v", f)
	}
	login.closedWith(CloseShutdown)
	if _, err := half.Read(make([]byte, 1)); err == nil {
		t.Error("the one in its handshake is still there")
	}
	if _, err := r.tryDial(dialing{}); err == nil {
		t.Error("still accepts")
	}
	for range 100 {
		if err := r.Push(c.ref(), &zmsg.Push{ID: 1, Body: make([]byte, 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	m.Reply(&zmsg.Reply{ID: 5, Body: []byte("late but there")})
	_, before := c.closedWith(CloseShutdown)
	if len(before) != 101 || string(before[100].Body) != "late but there" {
		t.Errorf("%d frames before the end", len(before))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r.Sessions() != 0 || r.counter("connections") != 0 || r.requests.Load() != 0 {
		t.Errorf("left: %d sessions, %v connections, %d requests", r.Sessions(), r.counter("connections"), r.requests.Load())
	}
}

// The delays that clients are told are spread.
func TestShutdownSpreads(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DrainSpread = time.Hour })
	var wg sync.WaitGroup
	var mu sync.Mutex
	delays := map[string]bool{}
	for range 10 {
		c := r.login("ann")
		wg.Go(func() {
			f, err := c.tryNext()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			delays[string(f.Control)] = true
			_, _ = c.tryNext()
			c.ws.end()
		})
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if len(delays) < 9 {
		t.Errorf("%d different delays of 10", len(delays))
	}
}

// A context that ends cuts what is left, also an authenticator that waits, and says how much that was.
func TestShutdownCuts(t *testing.T) {
	waiting := make(chan struct{})
	r := newRig(t, withSmallBuffers(t), func(c *Config) {
		c.CloseTimeout = time.Minute
		c.AuthTimeout = time.Minute
		c.Auth = AuthFunc(func(ctx context.Context, h Hello) (string, error) {
			if h.Token == "waits" {
				close(waiting)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return h.Token, nil
		})
	})
	_, ref := r.stall("ann")
	r.fill(ref)
	c := r.dialRaw(true)
	go func() {
		defer func() { _ = recover() }()
		c.frame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x0a, 7, 0x0a, 5, 'w', 'a', 'i', 't', 's'}}))
	}()
	<-waiting
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "2 connections") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
}

// Logins and a shutdown at once: everybody is told, or refused, and nothing stays.
func TestShutdownRacesLogin(t *testing.T) {
	for range 20 {
		r := newRig(t)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				nc, err := net.Dial("tcp", r.Addr().String())
				if err != nil {
					return
				}
				defer nc.Close()
				_, _ = nc.Write([]byte("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"))
				_, _ = nc.Read(make([]byte, 1000))
				_, _ = nc.Write(maskedFrame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: []byte{0x0a, 3, 0x0a, 1, 'a'}})))
				for b := make([]byte, 1000); err == nil; {
					_, err = nc.Read(b)
				}
			})
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := r.counter("connections"); n != 0 || r.unauthenticated.Load() != 0 || r.Sessions() != 0 {
			t.Errorf("%v connections, %d without login, %d sessions", n, r.unauthenticated.Load(), r.Sessions())
		}
	}
}

// The wheel fires each entry once it is due, never early, and sleeps when there is none.
func TestWheel(t *testing.T) {
	born := time.Now()
	now := func() int64 { return int64(time.Since(born)) }
	var fired, early atomic.Int64
	due := map[*conn]int64{}
	w := newWheel(now, func(c *conn, at int64) int64 {
		if fired.Add(1); at < due[c] {
			early.Add(1)
		}
		return 0
	})
	conns := make([]conn, 200)
	for i := range conns {
		c := &conns[i]
		c.timer.conn = c
		due[c] = now() + rand.Int64N(int64(300*time.Millisecond))
		w.schedule(&c.timer, due[c]+int64(time.Hour))
		w.schedule(&c.timer, due[c]) // earlier wins
		w.schedule(&c.timer, due[c]+int64(time.Minute))
		if i%10 == 0 {
			w.remove(&c.timer)
			w.schedule(&c.timer, due[c])
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); w.run(stop) }()
	eventually(t, "all fired", func() bool { return fired.Load() == 180 })
	eventually(t, "asleep", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.until == never && w.count == 0 })
	close(stop)
	<-done
	if early.Load() > 0 {
		t.Errorf("%d were early", early.Load())
	}
}

func TestBucket(t *testing.T) {
	b := bucket{tokens: 3}
	for i, want := range []bool{true, true, true, false, false} {
		if got := b.take(0, 10, 3); got != want {
			t.Errorf("take %d: %v", i, got)
		}
	}
	if b.strikes != 2 {
		t.Errorf("%d strikes", b.strikes)
	}
	if !b.take(int64(100*time.Millisecond), 10, 3) || b.take(int64(100*time.Millisecond), 10, 3) {
		t.Error("refill of one")
	}
	if b.takeN(int64(150*time.Millisecond), 2, 10, 3) || b.strikes != 5 {
		t.Errorf("two of one: %+v", b)
	}
	if !b.take(int64(time.Hour), 10, 3) || b.strikes != 0 || b.tokens != 2 {
		t.Errorf("refill: %+v", b)
	}
}

// An idle session is one goroutine, and holds no buffer but gorilla's.
func TestIdleSessionIsOneGoroutine(t *testing.T) {
	r := newRig(t)
	r.login("first").echo("x")
	before := runtime.NumGoroutine()
	const n = 50
	for range n {
		c := r.dialRaw(true)
		ref := c.hello("ann")
		if err := r.Push(ref, &zmsg.Push{ID: 1}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.wsRead(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one goroutine each", func() bool { return runtime.NumGoroutine() <= before+n }) // less where one that ends was counted before
	// A client may have read its push before the one who wrote it has put its queue in order.
	eventually(t, "the queues of idle sessions hold nothing", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for c := range r.conns {
			c.q.mu.Lock()
			idle := c.q.queued == 0 && len(c.q.segs) == 0 && !c.q.writing
			c.q.mu.Unlock()
			if !idle {
				return false
			}
		}
		return true
	})
}
