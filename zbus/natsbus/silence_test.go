package natsbus_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zbus"
	"zgame/zbus/natsbus"
)

// silent is a server that greets, and from then on says nothing: what a network that stalls in the middle of a reconnect looks
// like. It counts connections.
func silent(t *testing.T) (url string, connections func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := 0
	serve := func(c net.Conn) {
		defer c.Close()
		_, _ = c.Write([]byte(`INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true}` + "\r\n"))
		greeted := false
		for lines := bufio.NewScanner(c); lines.Scan(); { // until the client closes
			if lines.Text() == "PING" && !greeted {
				greeted = true
				_, _ = c.Write([]byte("PONG\r\n"))
				mu.Lock()
				count++
				mu.Unlock()
			}
		}
	}
	wg.Go(func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "nats://" + l.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// A server that greets and then falls silent is not up: it does not have the subscriptions. The connection is made again.
func TestSilentAfterTheGreeting(t *testing.T) {
	t.Parallel()
	url, connections := silent(t)
	b, err := natsbus.New(natsbus.Config{URL: url, ConnectTimeout: 50 * time.Millisecond, PingInterval: 50 * time.Millisecond, ReconnectWait: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = b.Close(ctx) // cannot flush
	}()
	defer b.Observe(zbus.Events{Up: func() { t.Error("it told that it is up") }})()
	for limit := time.Now().Add(within); connections() < 3; {
		if time.Now().After(limit) {
			t.Fatalf("only %d connections", connections())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := b.Ready(ctx); !errors.Is(err, zbus.ErrDown) {
			t.Fatalf("ready: %v", err)
		}
		cancel()
		if b.Up() {
			t.Fatal("up")
		}
	}
	for limit := time.Now().Add(within); ; { // on a busy machine an attempt to connect may have failed since, which is the reason then
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := b.Ready(ctx)
		cancel()
		if err != nil && strings.Contains(err.Error(), "stale connection") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("ready: %v, want the reason", err)
		}
	}
}
