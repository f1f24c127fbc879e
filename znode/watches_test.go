package znode

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zmsg"
)

// wireNet joins the watches of some nodes, and loses what lose says.
type wireNet struct {
	t    *testing.T
	list chan struct{} // a lock over all below that a bubble may wait for
	lose func() error  // nil: it arrives; errLostOnTheWay: not; else the sender is told
	gone map[zmsg.NodeRef]bool
	ends map[zmsg.NodeRef]*wireEnd
	sent int
}

var errLostOnTheWay = errors.New("lost on the way")

// wireEnd is one node of a wireNet.
type wireEnd struct {
	net   *wireNet
	self  zmsg.NodeRef
	in    chan func()
	w     *watches
	group *zactor.Group
}

func newWireNet(t *testing.T, ids ...string) *wireNet {
	t.Helper()
	n := &wireNet{t: t, list: make(chan struct{}, 1), gone: map[zmsg.NodeRef]bool{}, ends: map[zmsg.NodeRef]*wireEnd{}, lose: func() error { return nil }}
	for _, id := range ids {
		e := &wireEnd{net: n, self: zmsg.NodeRef{ID: id, Epoch: 1}, in: make(chan func(), 1<<16)}
		e.w = newWatches(e, n.state)
		var err error
		if e.group, err = zactor.NewGroup(zactor.Config{Node: e.self, Watches: e.w}); err != nil {
			t.Fatal(err)
		}
		e.w.group = e.group
		n.ends[e.self] = e
		go func() { // in place of a link's receiving goroutine; ends with the test
			for f := range e.in {
				f()
			}
		}()
	}
	t.Cleanup(func() {
		for _, e := range n.ends {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = e.group.Shutdown(ctx)
			cancel()
			e.w.close()
		}
		synctest.Wait() // nobody sends any more
		for _, e := range n.ends {
			close(e.in)
		}
	})
	return n
}

func (n *wireNet) lock() func() {
	n.list <- struct{}{}
	return func() { <-n.list }
}

func (n *wireNet) state(ref zmsg.NodeRef) nodeState {
	defer n.lock()()
	switch {
	case n.gone[ref]:
		return nodeGone
	case n.ends[ref] == nil:
		return nodeUnseen
	}
	return nodeAlive
}

// kill takes a node off the list and tells the others.
func (n *wireNet) kill(ref zmsg.NodeRef) {
	unlock := n.lock()
	n.gone[ref] = true
	unlock()
	for _, e := range n.ends {
		if e.self != ref {
			e.w.prune()
		}
	}
}

func (n *wireNet) setLose(f func() error) {
	defer n.lock()()
	n.lose = f
}

// SendControl is the link's.
func (e *wireEnd) SendControl(to zmsg.NodeRef, env *zmsg.Envelope) error {
	defer e.net.lock()()
	e.net.sent++
	if err := e.net.lose(); err != nil {
		if errors.Is(err, errLostOnTheWay) {
			return nil
		}
		return err
	}
	there := e.net.ends[to]
	if there == nil || e.net.gone[to] {
		return nil
	}
	c := *env
	there.in <- func() {
		if !there.w.control(&c, e.self) {
			e.net.t.Errorf("%v does not understand %+v", to, c)
		}
	}
	return nil
}

func (e *wireEnd) tables(t *testing.T, owed, nodes int) {
	t.Helper()
	e.w.mu.Lock()
	n := len(e.w.owed)
	e.w.mu.Unlock()
	if got := len(e.group.PeersWatched()); n != owed || got != nodes {
		t.Errorf("%v: %d owed and watches with %d nodes, want %d and %d", e.self, n, got, owed, nodes)
	}
}

// quiet is an actor that handles nothing.
type quiet struct{ start func(c *zactor.Context) error }

func (quiet) Handlers() []zactor.Handler        { return nil }
func (q quiet) OnStart(c *zactor.Context) error { return q.start(c) }
func quietly(f func(c *zactor.Context)) zactor.Actor {
	return quiet{func(c *zactor.Context) error { f(c); return nil }}
}

func spawnQuiet(t *testing.T, g *zactor.Group, f func(c *zactor.Context)) zactor.Ref {
	t.Helper()
	ref, err := g.Spawn("", func() zactor.Actor { return quietly(f) })
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func idle(*zactor.Context) {}

// Over a bus that loses a third of all messages, and is down now and then, each watch ends as it should: with the right reason,
// once, and nothing is left on either side.
func TestWatchesOverALossyBus(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd, pause := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			n := newWireNet(t, "a", "b")
			a, b := n.ends[zmsg.NodeRef{ID: "a", Epoch: 1}], n.ends[zmsg.NodeRef{ID: "b", Epoch: 1}]
			n.setLose(func() error {
				switch rnd.IntN(6) {
				case 0, 1:
					return errLostOnTheWay
				case 2:
					return zmsg.ErrUnavailable
				}
				return nil
			})
			const count = 30
			var mu sync.Mutex
			downs := map[zmsg.Address][]zactor.Reason{}
			var targets []zactor.Ref
			for range count {
				targets = append(targets, spawnQuiet(t, b.group, idle))
			}
			unwatched := map[int]bool{}
			spawnQuiet(t, a.group, func(c *zactor.Context) {
				for i, target := range targets {
					w := c.Watch(c.Group().Ref(target.Address()), func(_ *zactor.Context, d zactor.Down) {
						mu.Lock()
						defer mu.Unlock()
						downs[d.Ref.Address()] = append(downs[d.Ref.Address()], d.Reason)
					})
					if i%5 == 0 {
						unwatched[i] = true
						w.Stop()
					}
				}
			})
			for i, target := range targets {
				if i%2 == 0 {
					continue
				}
				time.Sleep(time.Duration(pause.IntN(2000)) * time.Millisecond)
				if err := b.group.Stop(target); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			for i, target := range targets {
				got := downs[target.Address()]
				switch {
				case i%2 == 0 || unwatched[i]:
					if len(got) > 0 {
						t.Errorf("seed %d: actor %d lives or is not watched, but %v came", seed, i, got)
					}
				case len(got) != 1 || got[0] != zactor.StopRequested && got[0] != zactor.UnknownActor:
					t.Errorf("seed %d: actor %d: got %v, want one Down", seed, i, got)
				}
			}
			a.tables(t, 0, 1)
			b.tables(t, 0, 1)
		})
	}
}

// A node that is gone ends the watches both ways; before it was on the list it is asked again and again.
func TestWatchesOfANodeThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWireNet(t, "a", "b")
		a, b := n.ends[zmsg.NodeRef{ID: "a", Epoch: 1}], n.ends[zmsg.NodeRef{ID: "b", Epoch: 1}]
		downs := make(chan zactor.Down, 10)
		onDown := func(_ *zactor.Context, d zactor.Down) { downs <- d }
		unseen := zmsg.Address{Node: zmsg.NodeRef{ID: "c", Epoch: 9}, Actor: 1}
		target, other := spawnQuiet(t, b.group, idle), spawnQuiet(t, a.group, idle)
		spawnQuiet(t, a.group, func(c *zactor.Context) {
			c.Watch(c.Group().Ref(target.Address()), onDown)
			c.Watch(c.Group().Ref(unseen), onDown)
		})
		spawnQuiet(t, b.group, func(c *zactor.Context) { c.Watch(c.Group().Ref(other.Address()), onDown) })
		time.Sleep(time.Minute)
		a.tables(t, 1, 2)
		b.tables(t, 0, 1)
		if len(downs) > 0 {
			t.Fatalf("%v came while all live", <-downs)
		}
		n.setLose(func() error { return errLostOnTheWay }) // b is dead: it says nothing more
		n.kill(b.self)
		if d := <-downs; d.Reason != zactor.LostNode || d.Ref.Address() != target.Address() {
			t.Errorf("got %v of %v", d.Reason, d.Ref)
		}
		a.tables(t, 1, 1)
		n.kill(unseen.Node)
		if d := <-downs; d.Reason != zactor.LostNode || d.Ref.Address() != unseen {
			t.Errorf("got %v of %v", d.Reason, d.Ref)
		}
		a.tables(t, 0, 0)
		// At once: the list says so already.
		spawnQuiet(t, a.group, func(c *zactor.Context) { c.Watch(c.Group().Ref(target.Address()), onDown) })
		if d := <-downs; d.Reason != zactor.LostNode {
			t.Errorf("got %v", d.Reason)
		}
		// What it had sent before arrives late.
		a.w.control(&zmsg.Envelope{ID: controlWatch, Request: 77, To: other.Address().Actor}, b.self)
		a.tables(t, 0, 0)
		time.Sleep(time.Minute)
		before := n.sent
		time.Sleep(time.Hour)
		if n.sent != before {
			t.Errorf("%d messages of nothing", n.sent-before)
		}
	})
}

// Fault F2: what makes no sense is refused, changes nothing and is answered by nothing.
func TestBrokenControlsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWireNet(t, "a", "b", "c")
		a, b, c := n.ends[zmsg.NodeRef{ID: "a", Epoch: 1}], n.ends[zmsg.NodeRef{ID: "b", Epoch: 1}], zmsg.NodeRef{ID: "c", Epoch: 1}
		downs := make(chan zactor.Down, 10)
		target := spawnQuiet(t, b.group, idle)
		spawnQuiet(t, a.group, func(c *zactor.Context) {
			c.Watch(c.Group().Ref(target.Address()), func(_ *zactor.Context, d zactor.Down) { downs <- d })
		})
		synctest.Wait()
		before := n.sent
		for _, e := range []zmsg.Envelope{
			{},
			{ID: 2, Request: 1},
			{ID: 99, Request: 1},
			{ID: controlWatch, To: 1},
			{ID: controlWatch, Request: 1},
			{ID: controlUnwatch},
			{ID: controlDown, Code: 1},
			{ID: controlDown, Request: 1},
			{ID: controlDown, Request: 1, Code: zmsg.Code(zactor.LostNode)},
			{ID: controlDown, Request: 1, Code: 8},
			{ID: controlDown, Request: 1, Code: 257},
			{ID: controlNoted, Seq: controlWatch},
			{ID: controlNoted, Request: 1},
			{ID: controlNoted, Request: 1, Seq: controlNoted},
			{ID: controlNoted, Request: 1, Seq: 1<<32 + controlWatch},
		} {
			if a.w.control(&e, b.self) {
				t.Errorf("taken: %+v", e)
			}
		}
		if n.sent != before {
			t.Error("answered")
		}
		// Of another node than the one that is watched: understood, and of no effect.
		a.w.control(&zmsg.Envelope{ID: controlDown, Request: 1, Code: 1}, c)
		a.w.control(&zmsg.Envelope{ID: controlUnwatch, Request: 1}, c)
		b.w.control(&zmsg.Envelope{ID: controlUnwatch, Request: 1}, c)
		synctest.Wait()
		if len(downs) > 0 {
			t.Errorf("a forged %v came through", (<-downs).Reason)
		}
		if err := b.group.Stop(target); err != nil {
			t.Fatal(err)
		}
		if d := <-downs; d.Reason != zactor.StopRequested {
			t.Errorf("got %v", d.Reason)
		}
	})
}
