package ztest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// none is an app without actors.
var none = znode.App{Name: "test"}

const patience = time.Minute

// quick leaves out the gates.
func quick(_ int, s *znode.Settings) { s.Gate.Enabled = false }

// quickMember is quick for a cluster with the option Faulty whose nodes are not to lose their leases, on a busy machine.
func quickMember(k int, s *znode.Settings) {
	quick(k, s)
	s.Etcd.Lease = patience
}

// actor is an Actor of functions.
type actor struct {
	handlers []zactor.Handler
	start    func(c *zactor.Context) error
}

func (a *actor) Handlers() []zactor.Handler { return a.handlers }

func (a *actor) OnStart(c *zactor.Context) error {
	if a.start == nil {
		return nil
	}
	return a.start(c)
}

func spawn(t *testing.T, n *znode.Node, a actor, opts ...zactor.SpawnOption) zactor.Ref {
	t.Helper()
	ref, err := n.Spawn("", func() zactor.Actor { b := a; return &b }, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// watch starts an actor on n that watches, and returns what it is told.
func watch(t *testing.T, n *znode.Node, refs ...zactor.Ref) (zactor.Ref, <-chan zactor.Down) {
	t.Helper()
	downs := make(chan zactor.Down, 1000)
	started := make(chan struct{})
	ref := spawn(t, n, actor{start: func(c *zactor.Context) error {
		for _, ref := range refs {
			c.Watch(c.Group().Ref(ref.Address()), func(_ *zactor.Context, d zactor.Down) { downs <- d })
		}
		close(started)
		return nil
	}})
	<-started
	return ref, downs
}

// known waits until the node of ref has all watches that n sent to it before: a request goes the same way behind them.
func known(t *testing.T, n *znode.Node, ref zactor.Ref) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := zactor.Ask[chatpb.Members](ctx, n.Group().Ref(ref.Address()), &chatpb.Who{}); !errors.Is(err, zmsg.ErrNoRoute) {
		t.Fatalf("a request for which there is no handler ended with %v, want %v", err, zmsg.ErrNoRoute)
	}
}

func isDown(t *testing.T, downs <-chan zactor.Down, of zactor.Ref, reasons ...zactor.Reason) {
	t.Helper()
	select {
	case d := <-downs:
		for _, why := range reasons {
			if d.Reason == why && d.Ref.Address() == of.Address() {
				return
			}
		}
		t.Errorf("got Down of %v, %v; want %v, %v", d.Ref.Address(), d.Reason, of.Address(), reasons)
	case <-time.After(patience):
		t.Fatalf("no Down of %v", of.Address())
	}
}

func watchesWith(n *znode.Node, nodes int) func() bool {
	return func() bool { return len(n.Group().PeersWatched()) == nodes }
}

var never = zactor.WithPolicy(zactor.Policy{MaxRestarts: -1})

// panics has every Say end the actor.
func panics() actor {
	return actor{handlers: []zactor.Handler{
		zactor.HandleTell(func(*zactor.Context, *chatpb.Say) error { panic("told to") }),
	}}
}

// Watches cross nodes, the reason too, and leave nothing.
func TestWatchAcrossNodes(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	stops, fails, stays := spawn(t, a, actor{}), spawn(t, a, panics(), never), spawn(t, a, actor{})
	gone := spawn(t, a, actor{})
	if err := a.Group().StopWait(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	_, downs := watch(t, b, stops)
	_, downs2 := watch(t, b, fails)
	watcher, downs3 := watch(t, b, stays, stops, fails)
	_, downs4 := watch(t, b, gone)
	isDown(t, downs4, gone, zactor.UnknownActor)
	known(t, b, stays)
	if err := a.Group().Stop(stops); err != nil {
		t.Fatal(err)
	}
	isDown(t, downs, stops, zactor.StopRequested)
	isDown(t, downs3, stops, zactor.StopRequested)
	if err := fails.Tell(&chatpb.Say{}); err != nil {
		t.Fatal(err)
	}
	isDown(t, downs2, fails, zactor.StopFailed)
	isDown(t, downs3, fails, zactor.StopFailed)
	// The watcher ends: its watch with it.
	if err := b.Group().Stop(watcher); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "nothing is left", func() bool { return watchesWith(a, 0)() && watchesWith(b, 0)() })
	if len(downs)+len(downs2)+len(downs3)+len(downs4) > 0 {
		t.Error("a Down came twice")
	}
}

// A node that stops in order tells its watchers why: shutdown. Should the list of nodes be faster than the bus, they learn
// that the node is gone instead; one of the two, once.
func TestWatchedNodeStops(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, none, ztest.Settings(quick))
	target := spawn(t, c.Node(0), actor{})
	_, downs1 := watch(t, c.Node(1), target)
	watcher, downs2 := watch(t, c.Node(2), target)
	ztest.Eventually(t, "n1 knows that it is watched", watchesWith(c.Node(0), 2))
	_, own := watch(t, c.Node(0), watcher)
	c.Stop(0)
	for _, downs := range []<-chan zactor.Down{downs1, downs2} {
		isDown(t, downs, target, zactor.StopShutdown, zactor.LostNode)
	}
	c.Settle()
	ztest.Eventually(t, "nothing is left", func() bool { return watchesWith(c.Node(1), 0)() && watchesWith(c.Node(2), 0)() })
	if len(downs1)+len(downs2)+len(own) > 0 {
		t.Error("a Down came twice")
	}
}

// A node that is killed ends: watches of its actors with LostNode, requests to them with CodeNodeLost, and its own watches
// are forgotten.
func TestWatchedNodeIsKilled(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, none, ztest.Settings(quick))
	held := make(chan zactor.Deferred, 1)
	target := spawn(t, c.Node(0), actor{handlers: []zactor.Handler{
		zactor.Handle(func(c *zactor.Context, _ *chatpb.Who) (*chatpb.Members, error) {
			held <- c.Defer()
			return nil, zactor.ErrDeferred
		}),
	}})
	watch(t, c.Node(0), spawn(t, c.Node(2), actor{}))
	ztest.Eventually(t, "n3 knows that it is watched", watchesWith(c.Node(2), 1))
	_, downs1 := watch(t, c.Node(1), target)
	_, downs2 := watch(t, c.Node(2), target)
	asked := make(chan error, 1)
	go func() { // ends with the outcome
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := zactor.Ask[chatpb.Members](ctx, c.Node(1).Group().Ref(target.Address()), &chatpb.Who{})
		asked <- err
	}()
	<-held // the handler runs; it never answers
	c.Kill(0)
	for _, downs := range []<-chan zactor.Down{downs1, downs2} {
		isDown(t, downs, target, zactor.LostNode)
	}
	if err := <-asked; !errors.Is(err, zmsg.ErrNodeLost) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("the request ended with %v (%v), want node_lost, unknown", err, zmsg.OutcomeOf(err))
	}
	ztest.Eventually(t, "nothing is left", func() bool { return watchesWith(c.Node(1), 0)() && watchesWith(c.Node(2), 0)() })
	// The list says so by now: at once.
	_, downs := watch(t, c.Node(1), target)
	isDown(t, downs, target, zactor.LostNode)
}

// The bus is away when a watch begins, when one is taken back, and when actors end: all is made up for, with its reason.
func TestWatchesOverABusRestart(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	stops, fails, late, stays := spawn(t, a, actor{}), spawn(t, a, panics(), never), spawn(t, a, actor{}), spawn(t, a, actor{})
	_, downs := watch(t, b, stops)
	_, downs2 := watch(t, b, fails)
	watcher, downs3 := watch(t, b, stays)
	known(t, b, stays)
	for range 3 {
		c.SetBus(false)
		c.SetBus(true)
	}
	c.SetBus(false)
	_, downs4 := watch(t, b, late)
	if err := errors.Join(a.Group().Stop(stops), fails.Tell(&chatpb.Say{}), b.Group().StopWait(t.Context(), watcher)); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "the actor is gone", func() bool { return errors.Is(fails.Tell(&chatpb.Say{}), zmsg.ErrStopped) })
	if len(downs)+len(downs2)+len(downs3)+len(downs4) > 0 {
		t.Error("a Down came without a bus")
	}
	c.SetBus(true)
	isDown(t, downs, stops, zactor.StopRequested)
	isDown(t, downs2, fails, zactor.StopFailed)
	if err := a.Group().Stop(late); err != nil {
		t.Fatal(err)
	}
	isDown(t, downs4, late, zactor.StopRequested, zactor.UnknownActor)
	ztest.Eventually(t, "nothing is left", func() bool { return watchesWith(a, 0)() && watchesWith(b, 0)() })
}

// An actor that fails past its limit is gone everywhere: from the routes of its node and the lists of the others, watchers here
// and there are told, whoever waits for an answer gets one, its children are gone, and its name is free.
func TestPastTheLimitGoneEverywhere(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.Settings(quick))
	a, b := c.Node(0), c.Node(1)
	var starts atomic.Int32
	running, goOn := make(chan struct{}, 10), make(chan struct{})
	room := func() zactor.Actor {
		return &actor{
			start: func(c *zactor.Context) error {
				starts.Add(1)
				_, err := c.Spawn("child", func() zactor.Actor { return &actor{} })
				return err
			},
			handlers: []zactor.Handler{
				zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) { return &chatpb.Members{}, nil }),
				zactor.HandleTell(func(*zactor.Context, *chatpb.Say) error {
					running <- struct{}{}
					<-goOn
					panic("told to")
				}),
			},
		}
	}
	ref, err := a.Spawn("room", room, zactor.WithPolicy(zactor.Policy{MaxRestarts: 2, MinBackoff: -1}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(to zactor.Ref) error {
		_, err := zactor.Ask[chatpb.Members](t.Context(), to, &chatpb.Who{})
		return err
	}
	ztest.Eventually(t, "b routes to the room", func() bool { return ask(b.Group().ByID()) == nil })
	_, far := watch(t, b, ref)
	_, near := watch(t, a, ref)
	ztest.Eventually(t, "a knows that it is watched", watchesWith(a, 1))

	// Two failures of the allowed ones, then the last, with askers that wait behind it.
	for range 3 {
		if err := ref.Tell(&chatpb.Say{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		<-running
		goOn <- struct{}{}
	}
	<-running
	if starts.Load() != 3 {
		t.Errorf("%d instances, want 3", starts.Load())
	}
	child, ok := a.Group().Lookup("room/child") // of the last instance
	if !ok {
		t.Fatal("no child")
	}
	askers := make(chan error, 3)
	for _, to := range []zactor.Ref{ref, b.Group().Ref(ref.Address()), b.Group().ByID()} {
		go func() { askers <- ask(to) }() // ends with the outcome
	}
	ztest.Eventually(t, "all three wait", func() bool { return ref.Load() == 3 })
	close(goOn)

	isDown(t, near, ref, zactor.StopFailed)
	isDown(t, far, ref, zactor.StopFailed)
	for range 3 {
		if err := <-askers; zmsg.CodeOf(err) != zmsg.CodeStopped && zmsg.CodeOf(err) != zmsg.CodeUnavailable && zmsg.CodeOf(err) != zmsg.CodeNoRoute || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("an asker got %v (%v)", err, zmsg.OutcomeOf(err))
		}
	}
	if err := child.Tell(&chatpb.Who{}); !errors.Is(err, zmsg.ErrStopped) {
		t.Errorf("the child: %v", err)
	}
	if err := ask(a.Group().ByID()); zmsg.CodeOf(err) != zmsg.CodeNoRoute {
		t.Errorf("by id on its node: %v", err)
	}
	ztest.Eventually(t, "the lists have no actor", func() bool {
		for _, n := range []*znode.Node{a, b} {
			for _, r := range n.Nodes() {
				if len(r.Actors) > 0 {
					return false
				}
			}
		}
		return true
	})
	if err := ask(b.Group().ByID()); zmsg.CodeOf(err) != zmsg.CodeNoRoute {
		t.Errorf("by id on the other node: %v", err)
	}
	if err := ask(b.Group().Ref(ref.Address())); zmsg.CodeOf(err) != zmsg.CodeUnknownActor {
		t.Errorf("by address on the other node: %v", err)
	}
	for _, name := range []string{"room", "room/child"} {
		if _, ok := a.Group().Lookup(name); ok {
			t.Errorf("%q has a ref", name)
		}
	}
	if _, err := a.Spawn("room", room); err != nil {
		t.Errorf("its name is not free: %v", err)
	}
	ztest.Eventually(t, "b routes to the new room", func() bool { return ask(b.Group().ByID()) == nil })
}
