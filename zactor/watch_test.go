package zactor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// puppet is an actor that does, in turns of its own, what a test says.
type puppet struct {
	zactor.Ref
	tb   testing.TB
	jobs chan func(c *zactor.Context)
}

// puppetFactory makes instances of p; hooks may be nil.
func (p *puppet) factory(start func(*zactor.Context) error, stop func(*zactor.Context, zactor.Reason)) func() zactor.Actor {
	return func() zactor.Actor {
		return &actor{start: start, stop: stop, handlers: []zactor.Handler{
			zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { (<-p.jobs)(c); return nil }),
			zactor.Handle(echo),
		}}
	}
}

func newPuppet(tb testing.TB) *puppet {
	tb.Helper()
	return &puppet{tb: tb, jobs: make(chan func(c *zactor.Context), 1<<12)}
}

func spawnPuppet(tb testing.TB, g *zactor.Group, name string, opts ...zactor.SpawnOption) *puppet {
	tb.Helper()
	p := newPuppet(tb)
	p.Ref = spawn(tb, g, name, p.factory(nil, nil), opts...)
	return p
}

// later has f done in a turn of the actor.
func (p *puppet) later(f func(c *zactor.Context)) {
	p.tb.Helper()
	p.jobs <- f
	if err := p.Tell(&testpb.Note{}); err != nil {
		p.tb.Fatal(err)
	}
}

// do is later, and waits until it is done.
func (p *puppet) do(f func(c *zactor.Context)) {
	p.tb.Helper()
	done := make(chan struct{})
	p.later(func(c *zactor.Context) { defer close(done); f(c) })
	receive(p.tb, done)
}

// watch has p watch a ref; its Downs come by the channel.
func (p *puppet) watch(refs ...zactor.Ref) <-chan zactor.Down {
	p.tb.Helper()
	ch := make(chan zactor.Down, 1<<12)
	p.do(func(c *zactor.Context) {
		for _, ref := range refs {
			c.Watch(ref, func(_ *zactor.Context, d zactor.Down) { ch <- d })
		}
	})
	return ch
}

func (p *puppet) panics() { p.later(func(*zactor.Context) { panic("told to") }) }

func isDown(tb testing.TB, ch <-chan zactor.Down, ref zactor.Ref, why zactor.Reason) {
	tb.Helper()
	if d := receive(tb, ch); d.Ref != ref || d.Reason != why {
		tb.Errorf("got Down of %v, %v; want %v, %v", d.Ref, d.Reason, ref, why)
	}
}

func noDown(tb testing.TB, p *puppet, ch <-chan zactor.Down) {
	tb.Helper()
	p.do(func(*zactor.Context) {}) // whatever was in the lane has run
	select {
	case d := <-ch:
		tb.Errorf("got Down of %v, %v", d.Ref, d.Reason)
	default:
	}
}

func stopWait(tb testing.TB, g *zactor.Group, ref zactor.Ref) {
	tb.Helper()
	if err := g.StopWait(testContext(tb), ref); err != nil {
		tb.Fatal(err)
	}
}

var never = zactor.WithPolicy(zactor.Policy{MaxRestarts: -1})

// Each way to end has its reason.
func TestDownTellsTheReason(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w := spawnPuppet(t, g, "watcher")

	t.Run("stop", func(t *testing.T) {
		a, b := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
		downs := w.watch(a.Ref, b.Ref)
		if err := g.Stop(a.Ref); err != nil {
			t.Fatal(err)
		}
		isDown(t, downs, a.Ref, zactor.StopRequested)
		b.do(func(c *zactor.Context) { c.Stop() })
		isDown(t, downs, b.Ref, zactor.StopRequested)
	})
	t.Run("drained", func(t *testing.T) {
		a := spawnPuppet(t, g, "")
		downs := w.watch(a.Ref)
		if err := g.StopDrained(a.Ref); err != nil {
			t.Fatal(err)
		}
		isDown(t, downs, a.Ref, zactor.StopRequested)
	})
	t.Run("past the limit", func(t *testing.T) {
		a := spawnPuppet(t, g, "", zactor.WithPolicy(zactor.Policy{MaxRestarts: 2, MinBackoff: -1}))
		downs := w.watch(a.Ref)
		for range 2 {
			a.panics()
		}
		noDown(t, w, downs) // a restart is no end
		a.do(func(*zactor.Context) {})
		a.panics()
		isDown(t, downs, a.Ref, zactor.StopFailed)
	})
	t.Run("idle", func(t *testing.T) {
		clock := zactortest.NewClock(time.Unix(0, 0))
		g := newGroup(t, func(c *zactor.Config) { c.Clock = clock })
		w := spawnPuppet(t, g, "watcher")
		a := spawnPuppet(t, g, "", zactor.WithIdle(time.Minute))
		downs := w.watch(a.Ref)
		clock.Advance(30 * time.Second)
		noDown(t, w, downs)
		clock.Advance(5 * time.Minute)
		isDown(t, downs, a.Ref, zactor.StopIdle)
	})
	t.Run("parent", func(t *testing.T) {
		p := spawnPuppet(t, g, "p")
		var child zactor.Ref
		p.do(func(c *zactor.Context) { child, _ = c.Spawn("child", factory()) })
		downs := w.watch(child)
		if err := g.Stop(p.Ref); err != nil {
			t.Fatal(err)
		}
		isDown(t, downs, child, zactor.StopParent)
	})
	t.Run("shutdown", func(t *testing.T) { // told to another node: watchers of this one are stopped as well
		peers := &peerWatches{}
		g := newGroup(t, func(c *zactor.Config) { c.Watches = peers })
		g.PeerWatch(zmsg.NodeRef{ID: "n2", Epoch: 7}, 1, spawnPuppet(t, g, "").Address().Actor)
		if err := g.Shutdown(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if got := peers.take(); !slices.Equal(got, []string{"down n2@7 1 shutdown"}) {
			t.Errorf("said %q", got)
		}
	})
}

// What can not be watched is down at once; never before Watch has returned, since it comes in a turn of its own.
func TestWatchOfNobody(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w, gone := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
	stopWait(t, g, gone.Ref)
	unknown := g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "n1", Epoch: 1}, Actor: 1 << 50})
	far := g.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 1}, Actor: 1})
	for _, c := range []struct {
		name string
		ref  zactor.Ref
		why  zactor.Reason
	}{
		{"gone", gone.Ref, zactor.UnknownActor},
		{"zero", zactor.Ref{}, zactor.UnknownActor},
		{"by id", g.ByID(), zactor.UnknownActor},
		{"an object", g.Object(zmsg.Key{Type: 1, ID: "x"}), zactor.UnknownActor},
		{"no such actor", unknown, zactor.UnknownActor},
		{"of another node, without Config.Watches", far, zactor.LostNode},
	} {
		downs := make(chan zactor.Down, 2)
		var watched atomic.Bool
		w.do(func(ctx *zactor.Context) {
			ctx.Watch(c.ref, func(_ *zactor.Context, d zactor.Down) {
				if !watched.Load() {
					t.Errorf("%s: Down came within Watch", c.name)
				}
				downs <- d
			})
			watched.Store(true)
		})
		isDown(t, downs, c.ref, c.why)
		noDown(t, w, downs)
	}
	self := w.watch(w.Ref) // of itself: no Down, no deadlock
	stopWait(t, g, w.Ref)
	select {
	case d := <-self:
		t.Errorf("got %v of itself", d.Reason)
	default:
	}
}

// Two watches of one actor are two; each can be stopped.
func TestWatchTwiceAndStop(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w, a := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
	downs, kept := make(chan zactor.Down, 10), w.watch(a.Ref, a.Ref)
	w.do(func(c *zactor.Context) {
		x := c.Watch(a.Ref, func(_ *zactor.Context, d zactor.Down) { downs <- d })
		y := c.Watch(a.Ref, func(_ *zactor.Context, d zactor.Down) { downs <- d })
		x.Stop()
		y.Stop()
		y.Stop()
		zactor.Watch{}.Stop()
	})
	// Stopped when its Down is in the lane already, and in the Down itself.
	w.do(func(c *zactor.Context) {
		var late, own zactor.Watch
		own = c.Watch(a.Ref, func(*zactor.Context, zactor.Down) { own.Stop() })
		late = c.Watch(a.Ref, func(_ *zactor.Context, d zactor.Down) { downs <- d })
		stopWait(t, g, a.Ref)
		late.Stop()
	})
	isDown(t, kept, a.Ref, zactor.StopRequested)
	isDown(t, kept, a.Ref, zactor.StopRequested)
	noDown(t, w, kept)
	noDown(t, w, downs)
}

// Stop races with the end of the actor: fn runs once or not at all, and never after Stop.
func TestWatchStopRaces(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w := spawnPuppet(t, g, "")
	for range 500 {
		a := spawnPuppet(t, g, "")
		var stopped, bad atomic.Bool
		var ran atomic.Int32
		w.do(func(c *zactor.Context) {
			x := c.Watch(a.Ref, func(*zactor.Context, zactor.Down) {
				ran.Add(1)
				bad.Store(bad.Load() || stopped.Load())
			})
			c.After(0, func(*zactor.Context) { x.Stop(); stopped.Store(true) })
		})
		stopWait(t, g, a.Ref)
		w.do(func(*zactor.Context) {})
		if bad.Load() || ran.Load() > 1 {
			t.Fatalf("ran %d times, after its Stop: %v", ran.Load(), bad.Load())
		}
	}
}

// A watch ends with the instance that made it, OnStart of the next one watches again.
func TestWatchAndRestart(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	a := spawnPuppet(t, g, "")
	downs := make(chan int32, 10)
	var starts atomic.Int32
	w := newPuppet(t)
	w.Ref = spawn(t, g, "", w.factory(func(c *zactor.Context) error {
		n := starts.Add(1)
		c.Watch(a.Ref, func(*zactor.Context, zactor.Down) { downs <- n })
		return nil
	}, nil))
	w.panics()
	w.do(func(*zactor.Context) {})
	if n := zactor.Watchers(a.Ref); n != 1 {
		t.Errorf("the actor has %d watchers, want that of the new instance", n)
	}
	stopWait(t, g, a.Ref)
	if n := receive(t, downs); n != 2 {
		t.Errorf("Down came to instance %d", n)
	}
	// A panic in the Down is the watcher's.
	b := spawnPuppet(t, g, "")
	w.do(func(c *zactor.Context) { c.Watch(b.Ref, func(*zactor.Context, zactor.Down) { panic("in Down") }) })
	stopWait(t, g, b.Ref)
	eventually(t, func() bool { return starts.Load() == 3 })
	w.do(func(*zactor.Context) {})
	if len(downs) != 1 { // a is gone when the third instance watches it
		t.Errorf("%d Downs, want one", len(downs))
	}
}

// Nothing is left of watches whose watcher ended, or that were stopped.
func TestWatchLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	a := spawnPuppet(t, g, "")
	for range 20 {
		w := spawnPuppet(t, g, "")
		w.watch(a.Ref, a.Ref)
		stopWait(t, g, w.Ref)
	}
	w := spawnPuppet(t, g, "")
	w.do(func(c *zactor.Context) {
		for range 20 {
			c.Watch(a.Ref, func(*zactor.Context, zactor.Down) {}).Stop()
		}
	})
	if n := zactor.Watchers(a.Ref); n != 0 {
		t.Errorf("%d watchers are left", n)
	}
}

// A Down passes a backlog: the lifecycle has a lane of its own.
func TestDownPassesTheBacklog(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	w, a := spawnPuppet(t, g, "", zactor.WithMailbox(1100)), spawnPuppet(t, g, "")
	var handled, at atomic.Int32
	at.Store(-1)
	w.do(func(c *zactor.Context) {
		c.Watch(a.Ref, func(*zactor.Context, zactor.Down) { at.Store(handled.Load()) })
	})
	hold, began, last := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.later(func(*zactor.Context) { close(began); <-hold; handled.Add(1) })
	receive(t, began)
	for range 1000 {
		w.later(func(*zactor.Context) { handled.Add(1) })
	}
	w.later(func(*zactor.Context) { close(last) })
	stopWait(t, g, a.Ref)
	close(hold)
	receive(t, last)
	if n := at.Load(); n != 1 {
		t.Errorf("Down came after %d of 1,001 messages, want after the first", n)
	}
	// The same for a stop: it does not wait behind what waits.
	handled.Store(0)
	hold, began = make(chan struct{}), make(chan struct{})
	w.later(func(*zactor.Context) { close(began); <-hold; handled.Add(1) })
	receive(t, began)
	for range 1000 {
		w.later(func(*zactor.Context) { handled.Add(1) })
	}
	if err := g.Stop(w.Ref); err != nil {
		t.Fatal(err)
	}
	close(hold)
	err := g.StopWait(testContext(t), w.Ref)
	if err != nil && !errors.Is(err, zmsg.ErrUnknownActor) || handled.Load() != 1 {
		t.Errorf("%v; %d messages were handled after the stop", err, handled.Load()-1)
	}
}

// 100 watchers of 100 actors that end at once in all ways: 10,000 Downs, each once, with the right reason.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	const n = 100
	g := newGroup(t, nil)
	var targets []*puppet
	var refs []zactor.Ref
	for range n {
		p := spawnPuppet(t, g, "", never)
		targets, refs = append(targets, p), append(refs, p.Ref)
	}
	var watchers []*puppet
	downs := make([]<-chan zactor.Down, n)
	for i := range n {
		w := spawnPuppet(t, g, "")
		watchers = append(watchers, w)
		downs[i] = w.watch(refs...)
	}
	var wg sync.WaitGroup
	for i, p := range targets {
		wg.Go(func() {
			if i%2 == 0 {
				_ = g.Stop(p.Ref)
			} else {
				p.panics()
			}
		})
	}
	wg.Wait()
	for i, w := range watchers {
		got := map[zactor.Ref]zactor.Reason{}
		for range n {
			d := receive(t, downs[i])
			got[d.Ref] = d.Reason
		}
		for k, ref := range refs {
			if want := []zactor.Reason{zactor.StopRequested, zactor.StopFailed}[k%2]; got[ref] != want {
				t.Fatalf("watcher %d: actor %d: %v, want %v", i, k, got[ref], want)
			}
		}
		noDown(t, w, downs[i])
	}
}

// peerWatches notes what a group says to other nodes.
type peerWatches struct {
	mu   sync.Mutex
	said []string
	fail error
}

func (p *peerWatches) say(format string, args ...any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Sprintf(format, args...))
	return p.fail
}

func (p *peerWatches) Watch(a zmsg.Address, id uint64) error { return p.say("watch %v %d", a, id) }

func (p *peerWatches) Unwatch(a zmsg.Address, id uint64) error { return p.say("unwatch %v %d", a, id) }

func (p *peerWatches) Down(n zmsg.NodeRef, id uint64, why zactor.Reason) error {
	return p.say("down %v %d %v", n, id, why)
}

func (p *peerWatches) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said
	p.said = nil
	return said
}

// What a group says to other nodes, and takes from them.
func TestPeerWatches(t *testing.T) {
	t.Parallel()
	peers := &peerWatches{}
	g := newGroup(t, func(c *zactor.Config) { c.Watches = peers })
	n2 := zmsg.NodeRef{ID: "n2", Epoch: 7}
	far := g.Ref(zmsg.Address{Node: n2, Actor: 5})
	w, a := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
	says := func(want ...string) {
		t.Helper()
		if got := peers.take(); !slices.Equal(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	nodes := func(want int) {
		t.Helper()
		if got := g.PeersWatched(); len(got) != want {
			t.Errorf("watches with %v", got)
		}
	}
	downs := w.watch(far)
	says(fmt.Sprintf("watch %v 1", far.Address()))
	nodes(1)
	g.PeerDown(zmsg.NodeRef{ID: "n2", Epoch: 8}, 1, zactor.StopFailed) // forged, or of another life
	g.PeerDown(n2, 2, zactor.StopFailed)
	noDown(t, w, downs)
	g.PeerDown(n2, 1, zactor.StopFailed)
	g.PeerDown(n2, 1, zactor.StopRequested)
	isDown(t, downs, far, zactor.StopFailed)
	noDown(t, w, downs)
	nodes(0)
	says()

	w.do(func(c *zactor.Context) { c.Watch(far, nil).Stop() })
	says(fmt.Sprintf("watch %v 2", far.Address()), fmt.Sprintf("unwatch %v 2", far.Address()))
	g.PeerDown(n2, 2, zactor.StopFailed) // crossed the unwatch
	nodes(0)

	downs = w.watch(far)
	peers.take()
	g.PeerLost(n2)
	g.PeerLost(n2)
	isDown(t, downs, far, zactor.LostNode)
	nodes(0)
	says()

	peers.fail = errors.New("gone")
	downs = w.watch(far)
	isDown(t, downs, far, zactor.LostNode)
	nodes(0)
	peers.fail = nil
	peers.take()

	// The other way.
	actor := a.Address().Actor
	g.PeerWatch(n2, 1, actor)
	g.PeerWatch(n2, 1, actor) // said again
	g.PeerWatch(n2, 2, actor)
	g.PeerWatch(n2, 3, 1<<50)
	says("down n2@7 3 unknown_actor")
	nodes(1)
	g.PeerUnwatch(n2, 2)
	g.PeerUnwatch(n2, 2)
	g.PeerUnwatch(n2, 99)
	if n := zactor.Watchers(a.Ref); n != 1 {
		t.Errorf("%d watchers, want 1", n)
	}
	n3 := zmsg.NodeRef{ID: "n3", Epoch: 1}
	g.PeerWatch(n3, 1, actor)
	g.PeerLost(n3)
	stopWait(t, g, a.Ref)
	says("down n2@7 1 requested")
	nodes(0)

	// The watcher ends: the other node hears of it.
	w.watch(far)
	peers.take()
	stopWait(t, g, w.Ref)
	says(fmt.Sprintf("unwatch %v 5", far.Address()))
}

// A node that joined again has its watches of others asked for again, forgets those of others, and keeps its actors.
func TestPeerWatchesAfterRejoin(t *testing.T) {
	t.Parallel()
	peers := &peerWatches{}
	g := newGroup(t, func(c *zactor.Config) { c.Watches = peers })
	n2, n3 := zmsg.NodeRef{ID: "n2", Epoch: 7}, zmsg.NodeRef{ID: "n3", Epoch: 8}
	w, a := spawnPuppet(t, g, ""), spawnPuppet(t, g, "")
	before := a.Address()
	far := g.Ref(zmsg.Address{Node: n2, Actor: 5})
	downs := w.watch(far)
	g.PeerWatch(n3, 1, before.Actor)
	peers.take()

	now := zmsg.NodeRef{ID: before.Node.ID, Epoch: before.Node.Epoch + 10}
	g.Rejoin(now)
	if got, want := peers.take(), []string{fmt.Sprintf("watch %v 1", far.Address())}; !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
	if n := zactor.Watchers(a.Ref); n != 0 {
		t.Errorf("%d watchers of other nodes, want 0", n)
	}
	if got := a.Address(); got != (zmsg.Address{Node: now, Actor: before.Actor}) {
		t.Errorf("the actor is %v now", got)
	}
	for _, addr := range []zmsg.Address{before, a.Address()} {
		if g.Ref(addr) != a.Ref {
			t.Errorf("%v is not the actor", addr)
		}
	}
	stopWait(t, g, a.Ref)
	if said := peers.take(); len(said) != 0 {
		t.Errorf("said %q to one that has forgotten", said)
	}
	g.PeerDown(n2, 1, zactor.StopFailed)
	isDown(t, downs, far, zactor.StopFailed)

	downs = w.watch(far)
	peers.fail = errors.New("gone")
	g.Rejoin(zmsg.NodeRef{ID: now.ID, Epoch: now.Epoch + 1})
	isDown(t, downs, far, zactor.LostNode)
}

// A node's watches come and go while the actor ends: nothing is left.
func TestPeerWatchRaces(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(c *zactor.Config) { c.Watches = &peerWatches{} })
	n2 := zmsg.NodeRef{ID: "n2", Epoch: 7}
	for range 200 {
		a := spawnPuppet(t, g, "")
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { g.PeerWatch(n2, 1, a.Address().Actor) },
			func() { g.PeerUnwatch(n2, 1) },
			func() { g.PeerLost(n2) },
			func() { _ = g.Stop(a.Ref) },
		} {
			wg.Go(f)
		}
		wg.Wait()
		g.PeerLost(n2)
		if n := zactor.Watchers(a.Ref); n != 0 {
			t.Fatalf("%d watchers are left", n)
		}
		if n := g.PeersWatched(); len(n) != 0 {
			t.Fatalf("watches with %v are left", n)
		}
		_ = g.StopWait(testContext(t), a.Ref)
	}
}
