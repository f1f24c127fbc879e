package zclient

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
)

// held is a network on which each try waits for a word.
type held struct{ asked, open chan struct{} }

func (h *held) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	h.asked <- struct{}{}
	select {
	case <-h.open:
		return new(net.Dialer).DialContext(ctx, network, addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heldClient is a client that connects, and does not get there.
func heldClient(t *testing.T, s *server, change ...func(*Config)) (*Client, *held) {
	t.Helper()
	h := &held{make(chan struct{}, 1000), make(chan struct{}, 1000)}
	cfg := Config{URL: s.ws(), Token: "ann", Dialer: h.dial, RetryFirst: true, MinBackoff: time.Millisecond, HandshakeTimeout: patience}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Connect(context.Background()) }() // ends with the client
	t.Cleanup(func() {
		_ = c.Close()
		receive(t, c.Done(), "the last handler")
	})
	receive(t, h.asked, "a try")
	return c, h
}

func fails(t *testing.T, err error, code zmsg.Code) {
	t.Helper()
	if zmsg.CodeOf(err) != code || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("%v, expected %v, not executed", err, code)
	}
}

// Requests that are made before the connection is there wait for it, so many as may, and each ends once.
func TestRequestsWaitForTheConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, h := heldClient(t, s, func(cfg *Config) { cfg.MaxWaiting = 10 })
	var wg sync.WaitGroup
	errs := make(chan error, 10)
	for range 10 {
		wg.Go(func() { errs <- c.Request(within(t), &chatpb.Who{}, &chatpb.Members{}) })
	}
	eventually(t, "ten wait", func() bool { return c.waiting.Load() == 10 })
	fails(t, c.Request(within(t), &chatpb.Who{}, nil), zmsg.CodeBusy)
	fails(t, c.Send(&chatpb.Leave{}), zmsg.CodeUnavailable)
	if len(errs) > 0 {
		t.Errorf("one has ended: %v", <-errs)
	}
	h.open <- struct{}{}
	conn := s.next()
	seen := map[uint64]bool{}
	for range 10 {
		f := conn.next()
		if seen[f.Seq] || f.TimeoutMs == 0 || f.TimeoutMs > uint32(patience.Milliseconds()) {
			t.Errorf("%+v", f)
		}
		seen[f.Seq] = true
		conn.respond(f, &chatpb.Members{})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n := c.waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
	// And where it is lost.
	_ = conn.ws.Close()
	receive(t, h.asked, "the next try")
	wg.Go(func() {
		if err := c.Request(within(t), &chatpb.Who{}, &chatpb.Members{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "one waits", func() bool { return c.waiting.Load() == 1 })
	h.open <- struct{}{}
	conn = s.next()
	conn.respond(conn.next(), &chatpb.Members{})
	wg.Wait()
}

// What waits ends with its deadline, with its caller, with the client, and where there will be no connection any more: it has not run.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, _ := heldClient(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	fails(t, c.Request(ctx, &chatpb.Who{}, nil), zmsg.CodeTimeout)
	ctx, cancel = context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { errs <- c.Request(ctx, &chatpb.Who{}, nil) }() // ends below
	eventually(t, "one waits", func() bool { return c.waiting.Load() == 1 })
	cancel()
	fails(t, receive(t, errs, "its end"), zmsg.CodeCancelled)
	go func() { errs <- c.Request(within(t), &chatpb.Who{}, nil) }() // ends below
	eventually(t, "one waits", func() bool { return c.waiting.Load() == 1 })
	_ = c.Close()
	fails(t, receive(t, errs, "its end"), zmsg.CodeCancelled)
	fails(t, c.Request(within(t), &chatpb.Who{}, nil), zmsg.CodeUnavailable)

	c, h := heldClient(t, s)
	s.mute.Store(true)
	go func() { errs <- c.Request(within(t), &chatpb.Who{}, nil) }() // ends below
	eventually(t, "one waits", func() bool { return c.waiting.Load() == 1 })
	h.open <- struct{}{}
	s.next().closing(3501, 0)
	fails(t, receive(t, errs, "its end"), zmsg.CodeUnavailable)

	c, _ = heldClient(t, s, func(cfg *Config) { cfg.MaxWaiting = -1 })
	fails(t, c.Request(within(t), &chatpb.Who{}, nil), zmsg.CodeUnavailable)
	c, err := New(Config{URL: s.ws()})
	if err != nil {
		t.Fatal(err)
	}
	fails(t, c.Request(within(t), &chatpb.Who{}, nil), zmsg.CodeUnavailable) // nobody connects
	_ = c.Close()
}
