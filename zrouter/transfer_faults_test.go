package zrouter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// Known faults of handing objects over: the rows P5 to P10 of docs/faults.md.

// lanes carry what one node sends others: in order to each, as zbus does, and in no order between lanes.
type lanes struct {
	mu sync.Mutex
	to map[zmsg.NodeRef]*lane
}

type lane struct {
	mu    sync.Mutex
	queue []func()
	runs  bool
}

func (l *lanes) in(to zmsg.NodeRef, f func()) {
	l.mu.Lock()
	x := l.to[to]
	if x == nil {
		x = new(lane)
		l.to[to] = x
	}
	l.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.queue = append(x.queue, f); !x.runs {
		x.runs = true
		go x.run() // ends when nothing waits
	}
}

func (x *lane) run() {
	for {
		x.mu.Lock()
		if len(x.queue) == 0 {
			x.runs = false
			x.mu.Unlock()
			return
		}
		f := x.queue[0]
		x.queue = x.queue[1:]
		x.mu.Unlock()
		f()
	}
}

// P5: ten thousand numbered messages, requests and one-way ones, from every node, none of which waits for the one before, to an object that
// is moved twenty times meanwhile: all are handled, once, each caller's in order.
func TestMovesLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ordered = true
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{MaxQueue: 1 << 16, MaxQueueBytes: 1 << 28}, logs())
	}
	if _, err := w.own(w.order[0], "k"); err != nil {
		t.Fatal(err)
	}
	const callers, each, moves, burst = 10, 1000, 20, 50
	var wg sync.WaitGroup
	var failed, sent atomic.Int64
	for c := range callers {
		wg.Go(func() {
			n := w.order[c%3]
			done := make(outcomes, each)
			for i := range each {
				line := fmt.Sprintf("%c%d", 'A'+c, i)
				m := message(&testpb.Note{Log: "k", Line: line})
				if c%2 == 0 {
					m = message(&testpb.Append{Log: "k", Line: line})
					m.SetReplier(done, 0)
				}
				if err := n.set.DeliverObject(key("k"), m); err != nil {
					t.Error(err)
					return
				}
				sent.Add(1)
				if c%2 == 0 && i%burst == burst-1 {
					for range burst {
						if r := <-done; r.Code != zmsg.CodeOK {
							failed.Add(1)
						}
					}
				}
			}
		})
	}
	for i := range moves {
		eventually(t, "more is sent", func() bool { return sent.Load() >= int64(i*callers*each/(2*moves)) })
		w.order[i%3].transfer("k", w.order[(i+1)%3])
	}
	wg.Wait()
	eventually(t, "all are handled", func() bool {
		lines, err := w.order[0].lines("k")
		return err == nil && len(lines) >= callers*each
	})
	lines, err := w.order[0].lines("k")
	if err != nil {
		t.Fatal(err)
	}
	next := map[byte]int{}
	for _, l := range lines {
		if want := fmt.Sprintf("%c%d", l[0], next[l[0]]); l != want {
			t.Fatalf("%q stands where %q should", l, want)
		}
		next[l[0]]++
	}
	if len(lines) != callers*each || failed.Load() > 0 {
		t.Errorf("%d of %d, %d failed", len(lines), callers*each, failed.Load())
	}
	if r, err := w.record("k"); err != nil || r.Own.Version != moves+1 {
		t.Errorf("version %d after %d moves, %v", r.Own.Version, moves, err)
	}
}

// P6: the target dies with the commit, while 500 requests wait: each ends once, with its answer or with an error that is true.
func TestMoveToADyingNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ordered = true
	k := logs()
	frozen, goOn := make(chan struct{}), make(chan struct{})
	k.BeforeRemove = func(*logContext) error { close(frozen); <-goOn; return nil }
	a := w.start("a", zrouter.Settings{}, k)
	b := w.start("b", zrouter.Settings{}, logs())
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	moved := a.transferring("k", b.ref)
	<-frozen
	const requests = 500
	done := make(outcomes, requests)
	for i := range requests {
		m := message(&testpb.Append{Log: "k", Line: fmt.Sprint(i)})
		m.SetReplier(done, uint64(i))
		if err := a.set.DeliverObject(key("k"), m); err != nil {
			t.Fatal(err)
		}
	}
	b.down.Store(true)
	w.remove(b)
	close(goOn)
	if err := <-moved; err != nil && !errors.Is(err, zrouter.ErrUnknownOutcome) {
		t.Error(err)
	}
	acked, refused := 0, 0
	for range requests {
		switch r := <-done; {
		case r.Code == zmsg.CodeOK:
			acked++
		case r.Outcome == zmsg.NotExecuted:
			refused++
		default:
			t.Errorf("%s %s %s", r.Code, r.Outcome, r.Text)
		}
	}
	lines, err := a.lines("k")
	if err != nil || len(lines) != acked || acked+refused != requests {
		t.Errorf("%d lines, %d acknowledged, %d refused, %v", len(lines), acked, refused, err)
	}
	if r, err := w.record("k"); err != nil || r.Own.Node != a.ref || r.Own.Version != 3 {
		t.Errorf("reclaimed: %+v, %v", r.Own, err)
	}
	t.Logf("%d acknowledged, %d refused", acked, refused)
}

// P8: nothing waits for a clock while an object moves: the pause of 100 KiB of state is told, and far below the interval of any retry.
func TestMovePause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ordered = true
	for _, id := range []string{"a", "b"} {
		w.start(id, zrouter.Settings{}, logs())
	}
	if _, err := w.own(w.order[0], "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.order[0].append("k", strings.Repeat("x", 100<<10)); err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	for i := range 40 {
		from, to := w.order[i%2], w.order[(i+1)%2]
		moved := make(chan struct{})
		go func() { from.transfer("k", to); close(moved) }()
		worst := time.Duration(0)
		for over := false; !over; {
			select {
			case <-moved:
				over = true
			default:
			}
			began := time.Now()
			if _, err := from.lines("k"); err != nil {
				t.Error(err)
			}
			worst = max(worst, time.Since(began))
		}
		pauses = append(pauses, worst)
	}
	slices.Sort(pauses)
	t.Logf("the longest request of a move: p50 %v, p90 %v, worst %v", pauses[20], pauses[36], pauses[39])
	if pauses[20] > patience/6 {
		t.Errorf("half of the moves held a request up for more than %v", pauses[20])
	}
}

// P9: what waits for an object that is handed over is bounded, by number and by bytes; one more is told that it is too much, not executed.
func TestMoveBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settings zrouter.Settings
		line     int
		most     int
	}{
		{"number", zrouter.Settings{MaxQueue: 20}, 1, 20},
		{"bytes", zrouter.Settings{MaxQueueBytes: 16 << 10}, 3500, 4},
	} {
		w := newWorld(t)
		w.ordered = true
		k := logs()
		frozen, goOn := make(chan struct{}), make(chan struct{})
		k.BeforeRemove = func(*logContext) error { close(frozen); <-goOn; return nil }
		a := w.start("a", c.settings, k)
		b := w.start("b", c.settings, logs())
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		moved := a.transferring("k", b.ref)
		<-frozen
		const requests = 200
		done := make(outcomes, requests)
		for range requests {
			m := message(&testpb.Append{Log: "k", Line: strings.Repeat("x", c.line)})
			m.SetReplier(done, 0)
			if err := a.set.DeliverObject(key("k"), m); err != nil {
				t.Fatal(err)
			}
		}
		busy := 0
		for range requests - c.most {
			if r := <-done; r.Code == zmsg.CodeBusy && r.Outcome == zmsg.NotExecuted {
				busy++
			}
		}
		if n := zrouter.Waiting(a.set); busy != requests-c.most || n != c.most {
			t.Errorf("%s: %d are told busy, %d wait", c.name, busy, n)
		}
		close(goOn)
		if err := <-moved; err != nil {
			t.Error(err)
		}
		for range c.most {
			if r := <-done; r.Code != zmsg.CodeOK {
				t.Errorf("%s: %s %s", c.name, r.Code, r.Text)
			}
		}
		if lines, err := b.lines("k"); err != nil || len(lines) != c.most {
			t.Errorf("%s: %d lines, %v", c.name, len(lines), err)
		}
	}
}

// P10: what runs for longer than quiesce_timeout is not cut off: the transfer ends, is told so, and the object serves on. A slow
// OnDeactivate holds nobody up: the new owner serves.
func TestMoveOfABusyObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ordered = true
	k := logs()
	began, end, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	k.OnDeactivate = func(_ *logContext, why zrouter.Reason) {
		if why == zrouter.Moved {
			<-stop
		}
	}
	a := w.start("a", zrouter.Settings{QuiesceTimeout: 20 * time.Millisecond}, k)
	b := w.start("b", zrouter.Settings{}, logs())
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	worked := make(chan error, 1)
	go func() {
		worked <- m.Do(t.Context(), key("k"), func(c *logContext) error { close(began); <-end; add(c, "long"); return nil })
	}()
	<-began
	answered := make(chan error, 1)
	moved := a.transferring("k", b.ref)
	go func() { _, err := b.append("k", "waited"); answered <- err }()
	if err := <-moved; !errors.Is(err, zrouter.ErrHandoff) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Error(err)
	}
	close(end)
	if err := errors.Join(<-worked, <-answered); err != nil {
		t.Error(err)
	}
	if r, err := w.record("k"); err != nil || r.Own.Node != a.ref || r.Own.Version != 1 {
		t.Errorf("%+v, %v", r.Own, err)
	}
	a.transfer("k", b)
	if got, err := b.lines("k"); err != nil || !slices.Equal(got, []string{"long", "waited"}) {
		t.Errorf("%q, %v", got, err)
	}
	close(stop)
}

// A request with a key that has run is not run again by the new owner, whether it learns that by the hint or by the record.
func TestMoveRemembersRequests(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		w := newWorld(t)
		w.ordered = true
		a := w.start("a", zrouter.Settings{Dedup: 8}, logs())
		b := w.start("b", zrouter.Settings{Dedup: 8}, logs())
		if _, err := w.own(a, "k"); err != nil {
			t.Fatal(err)
		}
		if n, err := a.once("payment 1", "k", "paid"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var opts []zrouter.TransferOption
		if silent {
			opts = append(opts, zrouter.WithoutNotify())
		}
		a.transfer("k", b, opts...)
		for _, n := range []*testNode{a, b} {
			if got, err := n.once("payment 1", "k", "paid twice"); got != 1 || err != nil {
				t.Errorf("%s: %d, %v", n.ref, got, err)
			}
		}
		if got, err := b.lines("k"); err != nil || len(got) != 1 {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// outcomes collects outcomes.
type outcomes chan zmsg.Reply

// Reply implements zmsg.Replier.
func (c outcomes) Reply(_ uint64, r *zmsg.Reply) { c <- *r }

// message makes the message of a request.
func message(v proto.Message) *zmsg.Message {
	id, _ := zmsg.IDOf(v)
	m := zmsg.NewMessage(id)
	m.Value = v
	return m
}
