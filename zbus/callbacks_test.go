package zbus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/zmsg"
)

// replierFunc is a Replier that is a function.
type replierFunc func()

func (f replierFunc) Reply(uint64, *zmsg.Reply) { f() }

// TestStopAndDrainFromCallbacks is fault N11: a link and its bus are drained and closed at once, from all that they call: no deadlock, no
// panic, no goroutine left.
func TestStopAndDrainFromCallbacks(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			var wg sync.WaitGroup
			var a, b *node
			var ended atomic.Int64
			end := func() { // from a callback, which must not wait for it
				for _, f := range []func(context.Context) error{b.Drain, b.Close, b.bus.Close} {
					wg.Go(func() {
						_ = f(ctx) // drain: what is not sent when the bus is closed under it
						ended.Add(1)
					})
				}
			}
			ready := make(chan struct{})
			b = c.start(t, "b", zbus.Handlers{
				Actor:   func(to uint64, m *zmsg.Message) { <-ready; end(); echo(to, m) },
				Session: func(*zmsg.Envelope, zmsg.NodeRef) { <-ready; end() },
			})
			a = c.start(t, "a", zbus.Handlers{Actor: echo})
			stop := b.bus.Observe(zbus.Events{Down: func(error) { end() }})
			to := zmsg.Address{Node: b.ref, Actor: 1}
			if err := a.SendSession(b.ref, &zmsg.Envelope{Body: []byte("x")}); err != nil {
				t.Error(err)
			}
			o := newOutcomes(1)
			m := message("x")
			for again := true; again; {
				m.Deadline = time.Now().Add(200 * time.Millisecond) // it may be lost
				err := a.Send(to, m, o, 1)
				if again = errors.Is(err, zmsg.ErrTimeout); err != nil && !again { // on a busy machine it may be late already
					t.Error(err)
				}
			}
			m.Release()
			done := make(chan struct{})
			if err := b.Send(zmsg.Address{Node: a.ref, Actor: 1}, message("x"), replierFunc(func() { end(); close(done) }), 1); err != nil {
				t.Error(err)
			}
			close(ready)
			receiveWithin(t, done)
			o.next(t)
			if x := a.send(to); x != nil && zmsg.CodeOf(x) != zmsg.CodeUnavailable {
				t.Error(x)
			}
			wg.Wait()
			stop()
			if ctx.Err() != nil {
				t.Errorf("%d ends, and some took more than %v", ended.Load(), within)
			}
			cancel()
			if err := a.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func (n *node) send(to zmsg.Address) error {
	m := message("x")
	defer m.Release()
	return n.Send(to, m, nil, 0)
}

// TestGroupsLeaveNothing is fault N7: groups that come and go leave no subscription and no memory of them.
func TestGroupsLeaveNothing(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	bus, err := natsbus.New(natsbus.Config{URL: srv.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	a := startOn(t, bus, "a", zbus.Handlers{})
	base := srv.Subscriptions()
	const groups, at = 10_000, 20
	var wg sync.WaitGroup
	for w := range at {
		wg.Go(func() {
			for i := range groups / at {
				g := fmt.Sprint("room-", w, "-", i)
				if err := a.JoinGroup(ctx, g); err != nil {
					t.Errorf("join: %v", err)
					return
				}
				if err := a.LeaveGroup(g); err != nil {
					t.Errorf("leave: %v", err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "subscriptions are back to base", func() bool { return srv.Subscriptions() == base })
	if n := a.count(t, "groups"); n != 0 {
		t.Errorf("%d groups counted", n)
	}
}

// TestLameDuckUnderLoad is fault N5: a server that is going to stop, and does, under load. Each call has one outcome, none waits for
// its deadline, "not executed" is true, and those that are made when the next server is there are answered.
func TestLameDuckUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv, err := embedded.StartNATS(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Stop() })
	url, port := srv.URL(), srv.Port()
	c := cluster{bus: func(tb testing.TB) zbus.Bus { tb.Helper(); return connectTo(tb, url) }}
	var ran sync.Map
	b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
		ran.Store(string(m.Body()), true)
		echo(to, m)
	}})
	a := c.start(t, "a", zbus.Handlers{})
	leaving := make(chan struct{})
	defer a.bus.Observe(zbus.Events{Leaving: func() { close(leaving) }})()
	var restarted atomic.Bool
	var ok, notRun, unknown atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			after := 0 // calls that began after the restart
			for i := 0; after < 100; i++ {
				late := restarted.Load()
				o := newOutcomes(1)
				m := message(fmt.Sprint(w, "-", i))
				m.Deadline = time.Now().Add(10 * within)
				err := a.Send(zmsg.Address{Node: b.ref, Actor: 1}, m, o, 1)
				m.Release()
				x := outcome{code: zmsg.CodeOf(err), out: zmsg.OutcomeOf(err)}
				if err == nil {
					x = o.next(t)
				}
				_, did := ran.Load(fmt.Sprint(w, "-", i))
				switch {
				case x.code == zmsg.CodeOK:
					ok.Add(1)
				case x.code != zmsg.CodeUnavailable || late:
					t.Errorf("after the restart %v: outcome %+v", late, x)
				case x.out == zmsg.NotExecuted:
					notRun.Add(1)
					if did {
						t.Errorf("it ran, but: %+v", x)
					}
					time.Sleep(time.Millisecond)
				default:
					unknown.Add(1)
				}
				if late {
					after++
				}
			}
		})
	}
	eventually(t, "calls are answered", func() bool { return ok.Load() > 1000 })
	srv.LameDuck()
	receiveWithin(t, leaving)
	eventually(t, "down is seen", func() bool { return !a.Up() && !b.Up() })
	if srv, err = embedded.StartNATS(dir, port); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are up", func() bool { return a.Up() && b.Up() })
	restarted.Store(true)
	wg.Wait()
	t.Logf("%d calls answered, %d not run, %d unknown", ok.Load(), notRun.Load(), unknown.Load())
}
