//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/notes"
	"zgame/test/chaos/oracle"
	"zgame/zmsg"
	"zgame/zrouter"
)

// requestTime is the deadline of one request, calmTime that where nothing may fail, however busy the machine is. An operation that was
// not executed is asked again for retryTime.
const (
	requestTime = 4 * time.Second
	calmTime    = 30 * time.Second
	retryTime   = 30 * time.Second
)

// pace is how long a client waits between two operations at most, where there are few.
const pace = 30 * time.Millisecond

// load is clients at work: some through the bus, from the node in this process, some through the gate.
type load struct {
	w     *world
	pause time.Duration
	keys  []string
	fresh bool // some operations make a list of their own
	stop  chan struct{}
	wg    sync.WaitGroup

	mu       sync.Mutex
	ops      []oracle.Op       // guarded by mu
	last     map[string]int64  // when the last success of each list began; guarded by mu
	asks     map[string][]*ask // of each client, in order; guarded by mu
	failures []string          // the first requests that failed, in words; guarded by mu
	failed   map[zmsg.Code]int // how many, by code; guarded by mu
	users    []*gateClient
	lists    oracle.Final // in the end
}

// ask is one request on its way: it counts how often it ends.
type ask struct {
	times atomic.Int32
	first chan zmsg.Reply
}

// Reply implements zmsg.Replier.
func (a *ask) Reply(_ uint64, r *zmsg.Reply) {
	if a.times.Add(1) == 1 {
		c := *r
		c.Body = bytes.Clone(r.Body)
		a.first <- c
	}
}

// any draws a list.
func (l *load) any() string { return l.keys[l.w.rng.IntN(len(l.keys))] }

// begin has clients work on lists until end is called. Each waits up to pause between two operations.
func (w *world) begin(lists, throughBus, throughGate int, pause time.Duration) *load {
	w.t.Helper()
	l := &load{w: w, pause: pause, fresh: w.opt.calm, stop: make(chan struct{}), last: map[string]int64{}, asks: map[string][]*ask{}, failed: map[zmsg.Code]int{}}
	for i := range lists {
		l.keys = append(l.keys, fmt.Sprintf("list-%d", i))
	}
	for i := range throughBus {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		l.wg.Go(func() { l.work(i+1, r, &busClient{l, fmt.Sprint("bus-", i+1)}) })
	}
	for i := range throughGate {
		n := throughBus + i + 1
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		c := w.dial(n)
		if w.opt.calm {
			c.watch(w.t, l.keys[i%lists])
		}
		l.users = append(l.users, c)
		l.wg.Go(func() { l.work(n, r, c) })
	}
	return l
}

// asker makes one request. once, if not "", is its key: asked again it does not run again.
type asker interface {
	ask(ctx context.Context, key string, req, resp proto.Message, once string) error
}

// work does one operation after the other until the load is stopped.
func (l *load) work(client int, r *rand.Rand, by asker) {
	_, keyed := by.(*busClient)
	for n := uint64(1); ; n++ {
		op := oracle.Op{Client: client, Key: l.keys[r.IntN(len(l.keys))]}
		if l.fresh && r.IntN(20) == 0 {
			op.Key = fmt.Sprintf("fresh-%d-%d", client, n)
		}
		once := ""
		if r.IntN(4) > 0 {
			op.Append = uint64(client)<<32 | n
			if keyed && r.IntN(4) > 0 {
				once = fmt.Sprintf("%x", op.Append)
			}
		}
		work := uint32(r.IntN(3) * r.IntN(1000))
		l.do(&op, by, once, work)
		l.mu.Lock()
		l.ops = append(l.ops, op)
		if op.Outcome == oracle.OK {
			l.last[op.Key] = max(l.last[op.Key], op.Call)
		}
		l.mu.Unlock()
		select {
		case <-l.stop:
			return
		case <-time.After(time.Duration(r.Int64N(int64(l.pause)))):
		}
	}
}

// do does one operation, with as many requests as it takes to know its outcome, if that can be known.
func (l *load) do(op *oracle.Op, by asker, once string, work uint32) {
	op.Call, op.Outcome = notes.Now(), oracle.NotExecuted
	giveUp := time.Now().Add(retryTime)
	for {
		err := l.try(op, by, once, work)
		l.note(op, err)
		switch o := zmsg.OutcomeOf(err); {
		case err == nil:
			op.Outcome = oracle.OK
		case o == zmsg.NotExecuted:
			// What the tries before have left open stays open.
		case o == zmsg.Executed: // the lists' handlers refuse nothing
			l.w.t.Errorf("client %d: %v: a request was executed and failed", op.Client, err)
			op.Outcome = oracle.Unknown
		default:
			op.Outcome = oracle.Unknown
		}
		op.Return = notes.Now()
		if op.Outcome == oracle.OK || op.Outcome == oracle.Unknown && once == "" || time.Now().After(giveUp) {
			return
		}
		select {
		case <-l.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// note keeps what failed.
func (l *load) note(op *oracle.Op, err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[zmsg.CodeOf(err)]++
	if len(l.failures) < 10 {
		l.failures = append(l.failures, fmt.Sprintf("client %d, %s, entry %x: %v (%v)", op.Client, op.Key, op.Append, err, zmsg.OutcomeOf(err)))
	}
}

// noFailures fails the test if one request has failed: there was nothing that might excuse it.
func (l *load) noFailures(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) > 0 {
		t.Errorf("requests failed without any fault: %v; the first: %q", l.failed, l.failures)
	}
}

func (l *load) try(op *oracle.Op, by asker, once string, work uint32) error {
	limit := requestTime
	if l.w.opt.calm {
		limit = calmTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if op.Append == 0 {
		var c chaospb.Content
		err := by.ask(ctx, op.Key, &chaospb.Read{List: op.Key}, &c, "")
		op.Len, op.Hash, op.Version = c.GetLen(), c.GetHash(), c.GetVersion()
		return err
	}
	var a chaospb.Appended
	err := by.ask(ctx, op.Key, &chaospb.Append{List: op.Key, Op: op.Append, WorkUs: work}, &a, once)
	op.Len, op.Hash, op.Version = a.GetLen(), a.GetHash(), a.GetVersion()
	return err
}

// busClient asks from the node in this process.
type busClient struct {
	l    *load
	name string
}

func (b *busClient) ask(ctx context.Context, key string, req, resp proto.Message, once string) error {
	id, _ := zmsg.IDOf(req)
	m := zmsg.NewMessage(id)
	m.Value, m.Once = req, once
	m.Deadline, _ = ctx.Deadline()
	a := &ask{first: make(chan zmsg.Reply, 1)}
	m.SetReplier(a, 0)
	if err := b.l.w.client.Objects().DeliverObject(chaospb.Key(key), m); err != nil {
		m.TakeReplier()
		m.Release()
		return &zrouter.RouteError{Outcome: zmsg.NotExecuted, Cause: err}
	}
	b.l.mu.Lock()
	b.l.asks[b.name] = append(b.l.asks[b.name], a)
	b.l.mu.Unlock()
	select {
	case r := <-a.first:
		if err := r.Err(); err != nil {
			return err
		}
		return proto.Unmarshal(r.Body, resp)
	case <-ctx.Done():
		return &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.Unknown}
	}
}

// served waits until each list has answered somebody who asked after now.
func (l *load) served() {
	l.w.t.Helper()
	from, deadline := notes.Now(), time.Now().Add(patience)
	for {
		l.mu.Lock()
		var silent []string
		for _, k := range l.keys {
			if l.last[k] < from {
				silent = append(silent, k)
			}
		}
		l.mu.Unlock()
		if len(silent) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.w.t.Fatalf("within %v nobody was answered by %v", patience, silent)
		}
		wait(10 * time.Millisecond)
	}
}

// end stops the clients, waits for what is under way, and returns how often each request has ended.
func (l *load) end(t *testing.T) (ends []oracle.Ended) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	deadline := time.Now().Add(patience)
	for _, name := range slices.Sorted(maps.Keys(l.asks)) {
		for i, a := range l.asks[name] {
			for a.times.Load() == 0 && time.Now().Before(deadline) { // its deadline has passed or will
				wait(10 * time.Millisecond)
			}
			ends = append(ends, oracle.Ended{Client: name, Number: uint64(i) + 1, Times: int(a.times.Load())})
		}
	}
	return ends
}
