package zbus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zbus"
	"zgame/zmsg"
)

// tryBus counts how it is published on, and refuses what it is told to refuse.
type tryBus struct {
	zbus.Direct
	waits       atomic.Bool
	down        atomic.Bool
	tries, puts atomic.Int64
}

func (b *tryBus) Publish(subject, reply string, data []byte) error {
	b.puts.Add(1)
	if b.down.Load() {
		return zbus.ErrDown
	}
	return b.Direct.Publish(subject, reply, data)
}

func (b *tryBus) TryPublish(subject, reply string, data []byte) (bool, error) {
	b.tries.Add(1)
	switch {
	case b.waits.Load():
		return false, nil
	case b.down.Load():
		return false, zbus.ErrDown
	}
	return b.Direct.TryPublish(subject, reply, data)
}

// lone is who waits for a request; sending is set while Send runs.
type lone struct {
	t       *testing.T
	sending atomic.Bool
	from    chan zmsg.Reply
}

func (l *lone) Reply(_ uint64, r *zmsg.Reply) {
	if l.sending.Load() && r.Code != zmsg.CodeOK {
		l.t.Error("an outcome that the sender's own goroutine made reached him inside Send")
	}
	l.from <- zmsg.Reply{Code: r.Code, Outcome: r.Outcome}
}

// A lone request, and its reply, are published by who sends them; where that would wait, or fails, the outbox does it, and tells.
func TestLoneRequestIsPublishedAtOnce(t *testing.T) {
	t.Parallel()
	mem := newMem()
	here, there := &tryBus{Direct: mem.bus(t).(zbus.Direct)}, &tryBus{Direct: mem.bus(t).(zbus.Direct)}
	a := startOn(t, here, "a", zbus.Handlers{})
	to := zmsg.Address{Node: startOn(t, there, "b", zbus.Handlers{Actor: echo}).ref, Actor: 1}
	ask := func() zmsg.Reply {
		w := &lone{t: t, from: make(chan zmsg.Reply, 1)}
		w.sending.Store(true)
		err := a.Send(to, message("x"), w, 1)
		w.sending.Store(false)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-w.from:
			return r
		case <-time.After(within):
			t.Fatal("no outcome")
		}
		return zmsg.Reply{}
	}
	if r := ask(); r.Code != zmsg.CodeOK || here.tries.Load() != 1 || here.puts.Load() != 0 || there.tries.Load() != 1 || there.puts.Load() != 0 {
		t.Errorf("%v; tried %d and %d times, published otherwise %d and %d times: want once, and never", r.Code,
			here.tries.Load(), there.tries.Load(), here.puts.Load(), there.puts.Load())
	}
	here.waits.Store(true)
	there.waits.Store(true)
	if r := ask(); r.Code != zmsg.CodeOK || here.puts.Load() != 1 || there.puts.Load() != 1 {
		t.Errorf("would wait: %v; published %d and %d times: want once", r.Code, here.puts.Load(), there.puts.Load())
	}
	here.waits.Store(false)
	here.down.Store(true)
	// The outbox tries again, and says that it was not sent.
	if r := ask(); r.Code != zmsg.CodeUnavailable || r.Outcome != zmsg.NotExecuted || here.puts.Load() != 2 {
		t.Errorf("down: %v, %v; published %d times", r.Code, r.Outcome, here.puts.Load())
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := a.Drain(ctx); err != nil { // nothing is counted as waiting
		t.Error(err)
	}
}

// What follows a lone request goes by the outbox, and not before it.
func TestOrderBehindALoneRequest(t *testing.T) {
	t.Parallel()
	mem := newMem()
	const rounds, each = 200, 3
	got := make(chan string, rounds*(each+1))
	a := startOn(t, mem.bus(t), "a", zbus.Handlers{})
	b := startOn(t, mem.bus(t), "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
		got <- string(m.Body())
		echo(to, m)
	}})
	to := zmsg.Address{Node: b.ref, Actor: 1}
	for range rounds {
		w := &lone{t: t, from: make(chan zmsg.Reply, 1)}
		if err := a.Send(to, message("request"), w, 1); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"1", "2", "3"} {
			if err := a.Send(to, message(s), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-w.from:
		case <-time.After(within):
			t.Fatal("no outcome")
		}
	}
	for i := range rounds {
		for _, want := range []string{"request", "1", "2", "3"} {
			select {
			case s := <-got:
				if s != want {
					t.Fatalf("round %d: %q, want %q", i, s, want)
				}
			case <-time.After(within):
				t.Fatal("not all arrived")
			}
		}
	}
}
