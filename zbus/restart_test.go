package zbus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zbus"
	"zgame/zmsg"
)

// TestRestartsOfTheBroker is fault R9: numbered messages of two senders through 20 restarts of NATS. None is swapped, none comes
// twice; what is lost is what the counters say: refused by the bus, or gone with batches whose numbers are missing. Every 100th is a
// request: it has one outcome, and "not executed" is true.
func TestRestartsOfTheBroker(t *testing.T) {
	t.Parallel()
	total, restarts, ahead := 1_000_000, 20, uint64(5000)
	if raceEnabled || testing.Short() {
		total /= 10
	}
	each := total / 2
	c := newNATS(t)
	var got [2][]bool // by sender and number; owned by c's receive goroutine until all is quiet
	var last [2]uint64
	var mu sync.Mutex // guards both
	for i := range got {
		got[i] = make([]bool, each+1)
	}
	target := c.start(t, "c", zbus.Handlers{Actor: func(sender uint64, m *zmsg.Message) {
		if len(m.Body()) == 0 {
			echo(sender, m)
			return
		}
		n := binary.BigEndian.Uint64(m.Body())
		mu.Lock()
		switch {
		case got[sender][n]:
			t.Errorf("sender %d: %d came twice", sender, n)
		case n < last[sender]:
			t.Errorf("sender %d: %d after %d", sender, n, last[sender])
		}
		got[sender][n], last[sender] = true, n
		mu.Unlock()
		echo(sender, m)
	}})

	var sent atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for k := range restarts {
			for sent.Load() < int64(total*(k+1)/(restarts+1)) {
				time.Sleep(100 * time.Microsecond)
			}
			c.setUp(t, false)
			c.setUp(t, true)
		}
	})
	senders := [2]*node{c.start(t, "a", zbus.Handlers{}), c.start(t, "b", zbus.Handlers{})}
	var outs [2]*outcomes
	highest := func(sender int) uint64 {
		mu.Lock()
		defer mu.Unlock()
		return last[sender]
	}
	for i, n := range senders {
		outs[i] = newOutcomes(each)
		wg.Go(func() {
			m := zmsg.NewMessage(1)
			defer m.Release()
			for k := 1; k <= each; k++ {
				m.SetBody(binary.BigEndian.AppendUint64(nil, uint64(k)))
				var r zmsg.Replier
				if k%100 == 0 {
					r = outs[i]
					m.Deadline = time.Now().Add(10 * within) // none is to end by it
				}
				for {
					err := n.Send(zmsg.Address{Node: target.ref, Actor: uint64(i)}, m, r, uint64(k))
					if err == nil {
						break
					}
					if !errors.Is(err, zmsg.ErrBusy) && !errors.Is(err, zmsg.ErrUnavailable) {
						t.Errorf("send: %v", err)
						return
					}
					time.Sleep(100 * time.Microsecond)
				}
				m.Deadline = time.Time{}
				sent.Add(1)
				// Not more than the buffers of sockets hold, all of which a restart loses. The wait is bounded: it may be lost already.
				for tries := 0; k%1000 == 0 && tries < 100 && uint64(k) > highest(i)+ahead; tries++ {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range []*node{senders[0], senders[1], target} {
		eventually(t, "it has the last server", func() bool { // what says Up may not have seen yet that the one before is gone
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return n.bus.Flush(ctx) == nil && n.Up()
		})
	}

	for _, n := range senders { // behind all others, so that what is missing is seen
		if x := n.request(t, zmsg.Address{Node: target.ref}, "", within); x.code != zmsg.CodeOK {
			t.Errorf("the last: %+v", x)
		}
	}

	var missing, replies, notRun, unknown int
	for i := range senders {
		for range each / 100 {
			x := outs[i].next(t)
			mu.Lock()
			ran := got[i][x.token]
			mu.Unlock()
			switch {
			case x.code == zmsg.CodeOK:
				replies++
			case x.code == zmsg.CodeTimeout:
				t.Errorf("request %d ended by its deadline", x.token)
			case x.out == zmsg.NotExecuted:
				notRun++
				if ran {
					t.Errorf("request %d: %+v, but it ran", x.token, x)
				}
			default:
				unknown++
			}
		}
		mu.Lock()
		for k := 1; k <= each; k++ {
			if !got[i][k] {
				missing++
			}
		}
		mu.Unlock()
	}
	// The last request was answered in its handler; what counts it comes behind that.
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, n := range []*node{senders[0], senders[1], target} {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	sentN := senders[0].count(t, "envelopes_sent_total", "actor") + senders[1].count(t, "envelopes_sent_total", "actor")
	onTheWay := sentN - target.count(t, "envelopes_received_total", "actor")
	refused := missing - onTheWay
	lost := target.count(t, "batch_gaps_total", "lost")
	t.Logf("%d messages, %d missing: %d refused by the bus, %d lost on the way in %d batches; requests: %d answered, %d not run, %d unknown",
		total, missing, refused, onTheWay, lost, replies, notRun, unknown)
	if (onTheWay > 0) != (lost > 0) {
		t.Errorf("%d messages lost on the way, but %d batches missing", onTheWay, lost)
	}
	counted := 0
	for _, n := range senders {
		counted += n.count(t, "dropped_total") - n.count(t, "dropped_total", "no_responders")
	}
	if refused < 0 || refused > counted+notRun+unknown {
		t.Errorf("%d messages were refused, but %d are counted, and %d requests were told", refused, counted, notRun+unknown)
	}
	for _, kind := range []string{"double", "swapped"} {
		if n := target.count(t, "batch_gaps_total", kind); n != 0 {
			t.Errorf("%d batches %s", n, kind)
		}
	}
}
