// Package zdiscoverytest holds drivers of zdiscovery.Discovery to the contract. A driver's test calls Run with a function
// that starts a service (or what stands for it) of its own for each test.
package zdiscoverytest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// within bounds every wait of the suite: generous, for busy machines.
const within = 60 * time.Second

// Features is a service and what the suite may do with it.
type Features struct {
	// Open makes a client whose leases are about ttl long. The suite closes it.
	Open func(tb testing.TB, ttl time.Duration) zdiscovery.Discovery
	// TTL is the shortest of leases, 1 s to 3 s. Leases that a test waits for are a few times as long, all others long: a busy
	// machine may renew none for seconds.
	TTL time.Duration
	// Expire ends the lease of a node, as the service does when it is not renewed.
	Expire func(tb testing.TB, ref zmsg.NodeRef)
	// Delete removes a node's record behind its back. Nil leaves out the test.
	Delete func(tb testing.TB, ref zmsg.NodeRef)
	// SetUp takes the service away (false) and brings it back (true). Nil leaves out the tests that need it.
	SetUp func(tb testing.TB, up bool)
	// Cut cuts a client that Open made off from the service, so that both think the other is silent (true), and ends that
	// (false). Nil leaves out the tests that need it.
	Cut func(tb testing.TB, d zdiscovery.Discovery, cut bool)
}

type test struct {
	name string
	f    func(t *testing.T, f Features)
}

// Run runs the suite; open is called once for each test, and cleans up by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Features) {
	t.Helper()
	tests := []test{
		{"JoinUpdateLeave", testJoinUpdateLeave},
		{"ListIsSorted", testListIsSorted},
		{"Taken", testTaken},
		{"OneWinner", testOneWinner},
		{"DeadHolder", testDeadHolder},
		{"Expire", testExpire},
		{"Gone", testGone},
		{"Delete", testDelete},
		{"ServeUntil", testServeUntil},
		{"UpdateAndLeaveRace", testUpdateAndLeaveRace},
		{"SlowReader", testSlowReader},
		{"WatchEnds", testWatchEnds},
		{"BadIDs", testBadIDs},
		{"Closed", testClosed},
		{"ServiceAway", testServiceAway},
		{"ExpiredWhileAway", testExpiredWhileAway},
	}
	for _, tt := range append(tests, electionTests...) {
		t.Run(tt.name, func(t *testing.T) { t.Parallel(); tt.f(t, open(t)) })
	}
}

// long is the time of leases whose end no test waits for; middle that of members who learn, when they renew it, that somebody has
// ended it.
const (
	long   = time.Minute
	middle = 15 * time.Second
)

// connect makes a client whose leases do not end by themselves during a test.
func connect(t *testing.T, f Features) zdiscovery.Discovery {
	t.Helper()
	return connectTTL(t, f, long)
}

func connectTTL(t *testing.T, f Features, ttl time.Duration) zdiscovery.Discovery {
	t.Helper()
	d := f.Open(t, ttl)
	t.Cleanup(func() { closeDisc(t, d) })
	return d
}

func closeDisc(t *testing.T, d zdiscovery.Discovery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

func sample(id string) zdiscovery.Node {
	return zdiscovery.Node{
		Ref: zmsg.NodeRef{ID: id}, State: zdiscovery.Starting, Version: "v1",
		Zone: "z1", Weight: 50, Load: 310, Labels: map[string]string{"role": "a"},
		Actors: []zdiscovery.Actor{{ID: 1<<63 + 1, Type: "chat", Adverts: []zmsg.Advert{{ID: 1001, Client: true, KeyField: 2}, {ID: 1002, Sharded: true}}}},
		Kinds:  []zdiscovery.Kind{{Type: 7, Name: "room", Adverts: []zmsg.Advert{{ID: 1003, Client: true, KeyField: 1}, {ID: 1004}}}, {Type: 8, Name: "league", OnDemand: true, Recalls: true}},
	}
}

func join(t *testing.T, d zdiscovery.Discovery, id string) zdiscovery.Member {
	t.Helper()
	m, err := d.Join(bounded(t), sample(id))
	if err != nil {
		t.Fatalf("join %s: %v", id, err)
	}
	if m.Ref().ID != id || m.Ref().Epoch == 0 {
		t.Fatalf("joined %s as %v", id, m.Ref())
	}
	return m
}

// view follows a watch.
type view struct {
	ch   <-chan *zdiscovery.Snapshot
	last *zdiscovery.Snapshot
}

func watch(t *testing.T, d zdiscovery.Discovery) *view {
	t.Helper()
	ch, err := d.Watch(bounded(t))
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return &view{ch: ch}
}

// until reads lists until ok.
func (v *view) until(t *testing.T, what string, ok func(nodes map[string]zdiscovery.Node) bool) {
	t.Helper()
	timeout := time.After(within)
	for {
		if v.last != nil && ok(byID(v.last)) {
			return
		}
		select {
		case s, open := <-v.ch:
			if !open {
				t.Fatalf("the watch ended while waiting for: %s", what)
			}
			if v.last != nil && s.Revision <= v.last.Revision {
				t.Errorf("revision %d after %d", s.Revision, v.last.Revision)
			}
			for _, n := range s.Nodes {
				if n.Ref.Epoch > uint64(s.Revision) || zdiscovery.Gone(n.Ref, s) {
					t.Errorf("revision %d lists %v", s.Revision, n.Ref)
				}
			}
			v.last = s
		case <-timeout:
			t.Fatalf("never seen: %s; the last list is %+v", what, v.last)
		}
	}
}

// isUp waits until the service answers: a busy machine may have missed a sign of life.
func isUp(t *testing.T, d zdiscovery.Discovery) {
	t.Helper()
	for end := time.Now().Add(within); !d.Up(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not up")
		}
	}
}

func byID(s *zdiscovery.Snapshot) map[string]zdiscovery.Node {
	nodes := make(map[string]zdiscovery.Node, len(s.Nodes))
	for _, n := range s.Nodes {
		nodes[n.Ref.ID] = n
	}
	return nodes
}

func wait(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(within):
		t.Fatalf("never happened: %s", what)
	}
}

func testJoinUpdateLeave(t *testing.T, f Features) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	v := watch(t, b)
	v.until(t, "the empty list", func(n map[string]zdiscovery.Node) bool { return len(n) == 0 })
	m := join(t, a, "n1")
	isUp(t, a)
	isUp(t, b)
	want := sample("n1")
	want.Ref = m.Ref()
	v.until(t, "the new node, whole", func(n map[string]zdiscovery.Node) bool { return reflect.DeepEqual(n["n1"], want) })

	ctx := bounded(t)
	want.State, want.Gate, want.Admin, want.Actors = zdiscovery.Ready, "ws://h:7000/ws", "h:9090", nil
	change := want
	change.Ref = zmsg.NodeRef{ID: "somebody else", Epoch: 99}
	if err := m.Update(ctx, change); err != nil {
		t.Fatal(err)
	}
	v.until(t, "the update, with the same identity", func(n map[string]zdiscovery.Node) bool { return reflect.DeepEqual(n["n1"], want) })
	if late, err := a.Watch(ctx); err != nil {
		t.Error(err)
	} else if s := <-late; !reflect.DeepEqual(s.Nodes, []zdiscovery.Node{want}) {
		t.Errorf("a later watch begins with %+v", s.Nodes)
	}

	for range 2 {
		if err := m.Leave(ctx); err != nil {
			t.Errorf("leave: %v", err)
		}
	}
	v.until(t, "that it left", func(n map[string]zdiscovery.Node) bool { return len(n) == 0 })
	if err := m.Update(ctx, want); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("update after leave: %v, want ErrLost", err)
	}
	again := join(t, a, "n1")
	if again.Ref().Epoch <= m.Ref().Epoch {
		t.Errorf("epoch %d after %d", again.Ref().Epoch, m.Ref().Epoch)
	}
	v.until(t, "the new start", func(n map[string]zdiscovery.Node) bool { return n["n1"].Ref == again.Ref() })
	if err := m.Leave(ctx); err != nil {
		t.Errorf("leave of the old start: %v", err)
	}
	if err := again.Update(ctx, want); err != nil {
		t.Errorf("the old start's leave touched the new: %v", err)
	}
}

func testListIsSorted(t *testing.T, f Features) {
	t.Helper()
	d := connect(t, f)
	for _, id := range []string{"c", "a", "b-2", "b-10"} {
		join(t, d, id)
	}
	v := watch(t, d)
	v.until(t, "four nodes", func(n map[string]zdiscovery.Node) bool { return len(n) == 4 })
	var ids []string
	for _, n := range v.last.Nodes {
		ids = append(ids, n.Ref.ID)
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids %v", ids)
	}
}

func testTaken(t *testing.T, f Features) {
	t.Helper()
	a, b := connectTTL(t, f, 3*f.TTL), connect(t, f)
	n := sample("n1")
	n.Admin, n.Gate = "192.0.2.1:9090", "ws://192.0.2.1:7000/ws" // nobody answers there: the lease alone shows the life
	m, err := a.Join(bounded(t), n)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Join(bounded(t), sample("n1"))
	var taken *zdiscovery.TakenError
	if !errors.Is(err, zdiscovery.ErrTaken) || !errors.As(err, &taken) || taken.Holder.Ref != m.Ref() || !strings.Contains(err.Error(), "192.0.2.1:9090") {
		t.Errorf("second join: %v, want ErrTaken with the holder", err)
	}
	if err := m.Update(bounded(t), n); err != nil {
		t.Errorf("the holder afterwards: %v", err)
	}
}

func testOneWinner(t *testing.T, f Features) {
	t.Helper()
	d := connect(t, f)
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := 0
	for range 8 {
		wg.Go(func() {
			_, err := d.Join(ctx, sample("n1"))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners++
				time.AfterFunc(2*time.Second, cancel) // the others would wait to see whether the lease ends
			} else if !errors.Is(err, zdiscovery.ErrTaken) && ctx.Err() == nil {
				t.Errorf("join: %v", err)
			}
		})
	}
	wg.Wait()
	if winners != 1 {
		t.Errorf("%d winners", winners)
	}
}

// testDeadHolder: a process that died without leaving is off the list within its lease, and its id is free then; a
// new start of it waits for that.
func testDeadHolder(t *testing.T, f Features) {
	t.Helper()
	a, b := f.Open(t, 2*f.TTL), connect(t, f)
	v := watch(t, b)
	m := join(t, a, "n1")
	v.until(t, "the node", func(n map[string]zdiscovery.Node) bool { return len(n) == 1 })
	closeDisc(t, a) // as a killed process: renews no more
	ctx, cancel := context.WithTimeout(t.Context(), f.TTL/10)
	defer cancel()
	if _, err := b.Join(ctx, sample("n1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("join with little time: %v, want the context's error", err)
	}
	again := join(t, b, "n1")
	if again.Ref().Epoch <= m.Ref().Epoch {
		t.Errorf("epoch %d after %d", again.Ref().Epoch, m.Ref().Epoch)
	}
	v.until(t, "the new start", func(n map[string]zdiscovery.Node) bool { return n["n1"].Ref == again.Ref() })
	if until := m.ServeUntil(); until.After(time.Now()) {
		t.Errorf("the dead may serve for another %v", time.Until(until))
	}
}

func testExpire(t *testing.T, f Features) {
	t.Helper()
	a, b := connectTTL(t, f, middle), connect(t, f)
	v := watch(t, b)
	m := join(t, a, "n1")
	other := join(t, a, "n2")
	v.until(t, "both", func(n map[string]zdiscovery.Node) bool { return len(n) == 2 })
	f.Expire(t, m.Ref())
	wait(t, "the member learns of it", m.Lost())
	v.until(t, "one is left", func(n map[string]zdiscovery.Node) bool { return len(n) == 1 && n["n2"].Ref == other.Ref() })
	ctx := bounded(t)
	if err := m.Update(ctx, sample("n1")); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("update: %v, want ErrLost", err)
	}
	again := join(t, a, "n1")
	if again.Ref().Epoch <= m.Ref().Epoch {
		t.Errorf("epoch %d after %d", again.Ref().Epoch, m.Ref().Epoch)
	}
	if err := m.Update(ctx, sample("n1")); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("update of the old start: %v, want ErrLost", err)
	}
	if err := m.Leave(ctx); err != nil {
		t.Errorf("leave of a lost member: %v", err)
	}
	select {
	case <-other.Lost():
		t.Error("the other was lost too")
	case <-again.Lost():
		t.Error("the new start was lost too")
	default:
	}
	if err := again.Update(ctx, sample("n1")); err != nil {
		t.Errorf("the new start: %v", err)
	}
}

// testGone: a list proves of a node that it has ended, never of one that is there or comes later; also of one that came and went
// while the reader could not look.
func testGone(t *testing.T, f Features) {
	t.Helper()
	a, b := connectTTL(t, f, middle), connect(t, f)
	v := watch(t, b)
	v.until(t, "the empty list", func(map[string]zdiscovery.Node) bool { return true })
	gone := func(m zdiscovery.Member, what string) {
		t.Helper()
		v.until(t, what, func(map[string]zdiscovery.Node) bool { return zdiscovery.Gone(m.Ref(), v.last) })
		if m.ServeUntil().After(time.Now()) {
			t.Errorf("%s: %v is gone, and may serve for another %v", what, m.Ref(), time.Until(m.ServeUntil()))
		}
	}
	before := v.last
	left, expires := join(t, a, "n1"), join(t, a, "n2")
	for _, m := range []zdiscovery.Member{left, expires} {
		if m.Ref().Epoch <= uint64(before.Revision) || zdiscovery.Gone(m.Ref(), before) {
			t.Errorf("%v joined after revision %d", m.Ref(), before.Revision)
		}
	}
	v.until(t, "both", func(n map[string]zdiscovery.Node) bool { return len(n) == 2 })
	if err := left.Leave(bounded(t)); err != nil {
		t.Fatal(err)
	}
	gone(left, "the one that left")
	f.Expire(t, expires.Ref())
	wait(t, "the member learns of it", expires.Lost())
	gone(expires, "the one whose lease has ended")
	before = v.last
	again := join(t, a, "n1")
	if zdiscovery.Gone(again.Ref(), before) {
		t.Errorf("a list proves that %v is gone, which joined after it", again.Ref())
	}
	v.until(t, "the new start", func(n map[string]zdiscovery.Node) bool { return n["n1"].Ref == again.Ref() })
	if !zdiscovery.Gone(left.Ref(), v.last) {
		t.Error("with the new start listed the old one is not gone")
	}
	if f.Cut == nil {
		t.Log("the rest is left out: a client cannot be cut off")
		return
	}
	f.Cut(t, b, true)
	brief := join(t, a, "n3")
	if err := brief.Leave(bounded(t)); err != nil {
		t.Fatal(err)
	}
	f.Cut(t, b, false)
	gone(brief, "the one that came and went")
}

func testDelete(t *testing.T, f Features) {
	t.Helper()
	if f.Delete == nil {
		t.Log("left out: records cannot be deleted by hand")
		return
	}
	d := connectTTL(t, f, middle)
	m := join(t, d, "n1")
	f.Delete(t, m.Ref())
	wait(t, "the member learns of it", m.Lost())
	if err := m.Update(bounded(t), sample("n1")); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("update: %v, want ErrLost", err)
	}
}

func testServeUntil(t *testing.T, f Features) {
	t.Helper()
	ttl := 2 * f.TTL
	d := connectTTL(t, f, ttl)
	before := time.Now()
	m := join(t, d, "n1")
	first := m.ServeUntil()
	if !first.After(before) || first.After(time.Now().Add(ttl)) {
		t.Errorf("may serve until %v from the start, of a lease of %v", first.Sub(before), ttl)
	}
	for end := time.Now().Add(within); !m.ServeUntil().After(first.Add(f.TTL)); {
		if time.Now().After(end) {
			t.Fatal("never renewed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case <-m.Lost():
		t.Error("lost while it renews")
	default:
	}
}

// testUpdateAndLeaveRace is fault E8: whatever an update does at the same time, after Leave the node is off the list.
func testUpdateAndLeaveRace(t *testing.T, f Features) {
	t.Helper()
	const workers, times = 4, 100
	d := connect(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 5*within)
	defer cancel()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range times {
				id := fmt.Sprintf("n%d-%d", w, i)
				m, err := d.Join(ctx, sample(id))
				if err != nil {
					t.Errorf("join: %v", err)
					return
				}
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						if err := m.Update(ctx, sample(id)); err != nil && !errors.Is(err, zdiscovery.ErrLost) {
							t.Errorf("update: %v", err)
						}
					})
				}
				if err := m.Leave(ctx); err != nil {
					t.Errorf("leave: %v", err)
				}
				wg.Wait()
			}
		})
	}
	all.Wait()
	v := watch(t, d)
	if s := <-v.ch; len(s.Nodes) != 0 {
		t.Errorf("%d nodes stayed: %+v", len(s.Nodes), s.Nodes)
	}
}

func testSlowReader(t *testing.T, f Features) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	v := watch(t, b)
	fast := watch(t, b)
	m := join(t, a, "n1")
	n := sample("n1")
	for i := range 50 {
		n.Version = fmt.Sprint(i)
		if err := m.Update(bounded(t), n); err != nil {
			t.Fatal(err)
		}
	}
	fast.until(t, "the last update", func(n map[string]zdiscovery.Node) bool { return n["n1"].Version == "49" })
	// The slow reader has read nothing so far, and was waited for by nobody. It gets the newest in the end.
	v.until(t, "the last update", func(n map[string]zdiscovery.Node) bool { return n["n1"].Version == "49" })
}

// No node joins under an id of which no key, or no subject of a bus, can be made.
func testBadIDs(t *testing.T, f Features) {
	t.Helper()
	d := connect(t, f)
	for _, id := range []string{"", "a/b", strings.Repeat("x", zdiscovery.MaxID+1)} {
		if _, err := d.Join(bounded(t), sample(id)); err == nil {
			t.Errorf("an id of %d bytes joined: %.20q", len(id), id)
		}
	}
}

func testWatchEnds(t *testing.T, f Features) {
	t.Helper()
	d := f.Open(t, long)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := d.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	drained := func(what string, ch <-chan *zdiscovery.Snapshot) {
		t.Helper()
		timeout := time.After(within)
		for {
			select {
			case _, ok := <-ch:
				if !ok {
					return
				}
			case <-timeout:
				t.Fatalf("%s did not end", what)
			}
		}
	}
	drained("the watch whose context ended", first)
	closeDisc(t, d)
	drained("the watch of a closed driver", second)
}

func testClosed(t *testing.T, f Features) {
	t.Helper()
	d := f.Open(t, long)
	ctx := bounded(t)
	m := join(t, d, "n1")
	closeDisc(t, d)
	closeDisc(t, d)
	if _, err := d.Join(ctx, sample("n2")); !errors.Is(err, zdiscovery.ErrClosed) {
		t.Errorf("join: %v, want ErrClosed", err)
	}
	if _, err := d.Watch(ctx); !errors.Is(err, zdiscovery.ErrClosed) {
		t.Errorf("watch: %v, want ErrClosed", err)
	}
	if err := m.Update(ctx, sample("n1")); err == nil {
		t.Error("updated after close")
	}
	if d.Up() {
		t.Error("up after close")
	}
}

// testServiceAway: away for less than the lease, everything goes on as before.
func testServiceAway(t *testing.T, f Features) {
	t.Helper()
	if f.SetUp == nil {
		t.Log("left out: the service cannot be taken away")
		return
	}
	a, b := connect(t, f), connect(t, f)
	m := join(t, a, "n1")
	v := watch(t, b)
	v.until(t, "the node", func(n map[string]zdiscovery.Node) bool { return len(n) == 1 })
	f.SetUp(t, false)
	ctx := bounded(t)
	n := sample("n1")
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for what, call := range map[string]func() error{
		"update": func() error { return m.Update(short, n) },
		"watch":  func() error { _, err := b.Watch(short); return err },
		"join":   func() error { _, err := b.Join(short, sample("n2")); return err },
	} {
		calls.Go(func() {
			if err := call(); !errors.Is(err, zdiscovery.ErrUnavailable) {
				t.Errorf("%s while away: %v, want ErrUnavailable", what, err)
			}
		})
	}
	calls.Wait()
	if a.Up() {
		t.Error("up while away")
	}
	f.SetUp(t, true)
	n.State = zdiscovery.Ready
	for end := time.Now().Add(within); ; {
		err := m.Update(ctx, n)
		if err == nil {
			break
		}
		if errors.Is(err, zdiscovery.ErrLost) {
			// Longer than the lease on this machine: then it is a new start.
			m = join(t, a, "n1")
		} else if time.Now().After(end) {
			t.Fatalf("update after it came back: %v", err)
		}
	}
	v.until(t, "the update, by the old watch", func(nodes map[string]zdiscovery.Node) bool {
		return nodes["n1"].State == zdiscovery.Ready && nodes["n1"].Ref == m.Ref()
	})
	join(t, b, "n2")
	v.until(t, "another node, by the old watch", func(nodes map[string]zdiscovery.Node) bool { return len(nodes) == 2 })
	isUp(t, a)
}

// testExpiredWhileAway: a lease that ended while the member could not reach the service is lost when it can again, and
// the time to serve had passed before.
func testExpiredWhileAway(t *testing.T, f Features) {
	t.Helper()
	if f.SetUp == nil {
		t.Log("left out: the service cannot be taken away")
		return
	}
	a := connectTTL(t, f, f.TTL)
	m := join(t, a, "n1")
	v := watch(t, a)
	v.until(t, "the node", func(n map[string]zdiscovery.Node) bool { return len(n) == 1 })
	begin := time.Now()
	f.SetUp(t, false)
	// A real server that takes long to stop may see the lease end while it does, and say so.
	quick := time.Since(begin) < f.TTL*4/10
	for time.Now().Before(m.ServeUntil()) {
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case s, ok := <-v.ch:
		if quick {
			t.Errorf("the list changed while the service was away: %+v, %v", s, ok)
		}
	default: // the last known list stands
	}
	f.SetUp(t, true)
	f.Expire(t, m.Ref())
	wait(t, "the member learns of it", m.Lost())
	again := join(t, a, "n1")
	v.until(t, "the new start", func(n map[string]zdiscovery.Node) bool { return n["n1"].Ref == again.Ref() })
}
