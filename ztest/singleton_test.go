package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
	"zgame/ztest/faultproxy"
)

// throne is the oracle of a singleton: one at a time, and each with a greater term than the one before.
type throne struct {
	t *testing.T

	mu     sync.Mutex
	holder string // "" for nobody
	term   uint64 // the greatest
	starts []string
	acts   int
	refuse map[string]bool // nodes on which it does not start
	dead   map[string]bool // nodes that were killed, of which nothing counts any more
}

func newThrone(t *testing.T) *throne {
	t.Helper()
	return &throne{t: t, refuse: make(map[string]bool), dead: make(map[string]bool)}
}

func (o *throne) enter(node string, term uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holder != "" {
		o.t.Errorf("%s starts in term %d while %s is there", node, term, o.holder)
	}
	if term <= o.term {
		o.t.Errorf("%s starts in term %d after term %d", node, term, o.term)
	}
	o.term = term
	o.starts = append(o.starts, node)
	if o.refuse[node] {
		return errors.New("not here")
	}
	o.holder = node
	return nil
}

func (o *throne) act(node string, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.dead[node] && (o.holder != node || o.term != term) {
		o.t.Errorf("%s acts in term %d; the throne is %q's in term %d", node, term, o.holder, o.term)
	}
	o.acts++
}

func (o *throne) leave(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holder == node {
		o.holder = ""
	}
}

// bury takes a node that is about to be killed out of the books.
func (o *throne) bury(node string) {
	o.leave(node)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dead[node] = true
}

func (o *throne) now() (holder string, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holder, o.term
}

// king is the singleton: it acts whenever it is asked, and by itself. Of a room "die" it dies, of "hold" it works until it is told to
// stop.
type king struct {
	o    *throne
	node string
	term uint64
	held chan struct{}
}

func (k *king) OnStart(c *zactor.Context) error {
	if err := k.o.enter(k.node, k.term); err != nil {
		return err
	}
	c.Every(time.Millisecond, func(*zactor.Context) { k.o.act(k.node, k.term) })
	return nil
}

func (k *king) OnStop(*zactor.Context, zactor.Reason) { k.o.leave(k.node) }

func (k *king) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(c *zactor.Context, m *chatpb.Who) (*chatpb.Members, error) {
		k.o.act(k.node, k.term)
		switch m.GetRoom() {
		case "die":
			panic("the king is dead")
		case "hold":
			close(k.held)
			<-c.Context().Done()
			return nil, c.Context().Err()
		}
		return &chatpb.Members{Room: fmt.Sprint(k.term), Members: []string{k.node}}, nil
	})}
}

// app has the singleton on every node.
func (o *throne) app(held chan struct{}) znode.App {
	return znode.App{Name: "throne", Setup: func(n *znode.Node) error {
		id := n.Settings().Node.ID
		return n.Singleton("throne", func(term uint64) zactor.Actor { return &king{o, id, term, held} },
			zactor.WithPolicy(zactor.Policy{MaxRestarts: -1}))
	}}
}

// reigns waits until somebody holds the throne in a later term than after, and everybody reaches it.
func (o *throne) reigns(c *ztest.Nodes, after uint64, nodes ...int) (k int, term uint64) {
	o.t.Helper()
	var holder string
	ztest.Eventually(o.t, "a later term", func() bool {
		holder, term = o.now()
		return holder != "" && term > after
	})
	for _, k := range nodes {
		n := c.Node(k)
		ztest.Eventually(o.t, fmt.Sprintf("n%d reaches the one", k+1), func() bool {
			ctx, cancel := context.WithTimeout(o.t.Context(), time.Second)
			defer cancel()
			m, err := zactor.Ask[chatpb.Members](ctx, n.Group().ByID(), &chatpb.Who{})
			return err == nil && m.GetMembers()[0] == holder && m.GetRoom() == fmt.Sprint(term)
		})
		if l, err := n.Leader(o.t.Context(), "throne"); err != nil || l.Node.ID != holder || l.Term != term {
			o.t.Errorf("n%d: the leader is %+v, %v, want %s in term %d", k+1, l, err, holder, term)
		}
	}
	_, err := fmt.Sscanf(holder, "n%d", &k)
	if err != nil {
		o.t.Fatal(err)
	}
	return k - 1, term
}

// others are the running nodes but k.
func others(c *ztest.Nodes, k int) (list []int) {
	for i := range c.Len() {
		if i != k && c.Node(i) != nil {
			list = append(list, i)
		}
	}
	return list
}

// P12: one of the nodes runs the singleton, and exactly one again after it left, was killed, or the actor failed.
func TestSingleton(t *testing.T) {
	t.Parallel()
	o := newThrone(t)
	c := ztest.Cluster(t, 4, o.app(nil))
	k, term := o.reigns(c, 0, others(c, -1)...)

	c.Stop(k)
	k, term = o.reigns(c, term, others(c, k)...)

	dead := c.Node(k)
	o.bury(dead.Self().ID)
	c.Kill(k)
	k, term = o.reigns(c, term, others(c, k)...)
	if l, err := dead.Leader(t.Context(), "throne"); !errors.Is(err, zdiscovery.ErrClosed) {
		t.Errorf("the dead see %+v, %v", l, err)
	}

	// Past its restarts: the next in line takes it.
	_, err := zactor.Ask[chatpb.Members](t.Context(), c.Node(k).Group().ByID(), &chatpb.Who{Room: "die"})
	if !errors.Is(err, zmsg.ErrPanicked) {
		t.Errorf("asked to die: %v", err)
	}
	failed := k
	if k, term = o.reigns(c, term, others(c, -1)...); k == failed {
		t.Errorf("n%d leads again at once after it failed, though another one waits", k+1)
	}

	// Where it does not start the other one goes on trying, and the last node has it in the end.
	last := others(c, k)[0]
	o.mu.Lock()
	o.refuse[c.Node(last).Self().ID] = true
	o.mu.Unlock()
	c.Stop(k)
	ztest.Eventually(t, "a try", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.starts[len(o.starts)-1] == c.Node(last).Self().ID
	})
	o.mu.Lock()
	clear(o.refuse)
	o.mu.Unlock()
	if k, _ = o.reigns(c, term, last); k != last {
		t.Errorf("n%d reigns, want n%d", k+1, last+1)
	}
}

// What Singleton refuses.
func TestSingletonErrors(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 1, none)
	n := c.Node(0)
	f := func(uint64) zactor.Actor { return &actor{} }
	if err := n.Singleton("a/b", f); err == nil {
		t.Error("a name with a slash was taken")
	}
	if err := n.Singleton("a", f); err != nil {
		t.Error(err)
	}
	if err := n.Singleton("a", f); !errors.Is(err, zactor.ErrExists) {
		t.Errorf("twice: %v, want ErrExists", err)
	}
	ztest.Eventually(t, "it runs", func() bool { _, there := n.Group().Lookup("singleton:a"); return there })
	c.Stop(0)
	if err := n.Singleton("b", f); !errors.Is(err, zactor.ErrClosed) {
		t.Errorf("after the stop: %v, want ErrClosed", err)
	}
}

// The node that runs the singleton is cut off from etcd: it ends the actor itself, also a handler that is busy, before another node starts it.
func TestSingletonIsCutOff(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	o := newThrone(t)
	held := make(chan struct{})
	c := ztest.Cluster(t, 3, o.app(held), ztest.Faulty(), ztest.Settings(func(k int, s *znode.Settings) {
		quick(k, s)
		s.Etcd.Lease = lease
	}))
	k, term := o.reigns(c, 0, 0, 1, 2)
	hole := faultproxy.Fault{Swallow: true}

	busy := ask(t, c.Node(k).Group().ByID(), "hold", patience)
	<-held
	cut := time.Now()
	c.EtcdProxy(k).Set(faultproxy.Both, hole)
	if got := <-busy; got.err == nil || zmsg.OutcomeOf(got.err) == zmsg.NotExecuted {
		t.Errorf("the handler that ran: %v (%v)", got.err, zmsg.OutcomeOf(got.err))
	}
	ztest.Eventually(t, "the old one ended by itself", func() bool { holder, now := o.now(); return holder == "" || now > term })
	ended := time.Since(cut)
	// Here nobody handles it any more, and nobody is known who does.
	if got := <-ask(t, c.Node(k).Group().ByID(), "", patience); zmsg.OutcomeOf(got.err) != zmsg.NotExecuted {
		t.Errorf("asked on the node that is cut off: %v (%v), want NotExecuted", got.err, zmsg.OutcomeOf(got.err))
	}
	old := k
	k, term = o.reigns(c, term, others(c, old)...)
	if k == old {
		t.Fatal("the node that is cut off leads")
	}
	t.Logf("it ended %v after the cut, and runs elsewhere %v after the cut; the lease is %v", ended.Round(time.Millisecond), time.Since(cut).Round(time.Millisecond), lease)
	c.EtcdProxy(old).Heal()
	ztest.Eventually(t, "the node that was cut off is back", func() bool { return c.Node(old).Ready(t.Context()) == nil })
	var same uint64
	if k, same = o.reigns(c, term-1, 0, 1, 2); same != term {
		t.Logf("the singleton moved meanwhile: a lease was not renewed in time on this machine")
	}
	term = same

	// Dead: both connections are gone. What is left of it in this process has to obey the rule too.
	killed := time.Now()
	dead := k
	c.Kill(k)
	k, term = o.reigns(c, term, others(c, dead)...)
	t.Logf("runs again %v after the death", time.Since(killed).Round(time.Millisecond))

	left := time.Now()
	c.Stop(k)
	k, _ = o.reigns(c, term, others(c, k)...)
	t.Logf("runs again %v after its node began to leave", time.Since(left).Round(time.Millisecond))
	if n := o.acted(); n < 100 {
		t.Errorf("it acted %d times only", n)
	}
	_ = k
}

func (o *throne) acted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acts
}

// A node that drains lets the singleton handle what waits, and starts no other.
func TestSingletonDrains(t *testing.T) {
	t.Parallel()
	var terms atomic.Uint64
	open := make(chan struct{})
	c := ztest.Cluster(t, 2, znode.App{Name: "test", Setup: func(n *znode.Node) error {
		return n.Singleton("one", func(term uint64) zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) {
				if terms.Add(1) == 1 {
					<-open
				}
				return &chatpb.Members{Room: fmt.Sprint(term)}, nil
			})}}
		})
	}})
	host := -1
	ztest.Eventually(t, "it runs", func() bool {
		for k := range 2 {
			if _, there := c.Node(k).Group().Lookup("singleton:one"); there {
				host = k
			}
		}
		return host >= 0
	})
	g := c.Node(host).Group()
	ref, _ := g.Lookup("singleton:one")
	var waiting []<-chan outcome
	for range 20 {
		waiting = append(waiting, ask(t, ref, "", patience))
	}
	// Whoever asks when the actor stops already is refused, rightly.
	ztest.Eventually(t, "the first is being handled, and all others wait", func() bool { return terms.Load() == 1 && ref.Load() == len(waiting)-1 })
	stopped := make(chan struct{})
	go func() { // ends with Stop
		defer close(stopped)
		c.Stop(host)
	}()
	ztest.Eventually(t, "the node drains", func() bool {
		for _, n := range c.Node(1 - host).Nodes() {
			if n.State == zdiscovery.Draining {
				return true
			}
		}
		return false
	})
	if _, there := c.Node(1 - host).Group().Lookup("singleton:one"); there {
		t.Error("the other one runs while this one works off what waits")
	}
	close(open)
	for _, w := range waiting {
		if got := <-w; got.err != nil {
			t.Errorf("waited: %v", got.err)
		}
	}
	ztest.Eventually(t, "it runs on the other node", func() bool {
		_, there := c.Node(1 - host).Group().Lookup("singleton:one")
		return there
	})
	<-stopped
}

// lines counts the lines of a log that have a text.
type lines struct {
	slog.Handler
	text string
	n    *atomic.Int32
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, l.text) {
		l.n.Add(1)
	}
	return nil
}

func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// A handler that nothing ends outlives its term: another node starts the singleton, and what the old one writes then is refused by its
// term; its own node starts no other beside it.
func TestSingletonThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	busy := make(chan uint64, 1)
	var told atomic.Int32
	var mu sync.Mutex
	var fence, refused uint64 // the greatest term that has written; the one that was refused
	write := func(term uint64) {
		mu.Lock()
		defer mu.Unlock()
		if term < fence {
			refused = term
			return
		}
		fence = term
	}
	written := func() (uint64, uint64) {
		mu.Lock()
		defer mu.Unlock()
		return fence, refused
	}
	c := ztest.Cluster(t, 2, znode.App{Name: "test", Setup: func(n *znode.Node) error {
		return n.Singleton("one", func(term uint64) zactor.Actor {
			return &actor{
				start: func(*zactor.Context) error { write(term); return nil },
				handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *chatpb.Say) error {
					busy <- term
					<-open // looks at no context
					write(term)
					return nil
				})},
			}
		})
	}}, ztest.Logger(slog.New(lines{slog.DiscardHandler, "does not return", &told})))
	runs := func(k int) bool { _, there := c.Node(k).Group().Lookup("singleton:one"); return there }
	host := 0
	ztest.Eventually(t, "it runs", func() bool {
		for k := range 2 {
			if runs(k) {
				host = k
				return true
			}
		}
		return false
	})
	ref, _ := c.Node(host).Group().Lookup("singleton:one")
	if err := ref.Tell(&chatpb.Say{}); err != nil {
		t.Fatal(err)
	}
	old := <-busy
	c.Expire(host)
	ztest.Eventually(t, "a later term has written", func() bool { f, _ := written(); return f > old && runs(1-host) })
	c.Settle()
	if g := c.Node(host).Group(); g.Ref(ref.Address()).Tell(&chatpb.Say{}) == nil {
		t.Error("the old one takes messages still")
	}
	ztest.Eventually(t, "the log tells of it", func() bool { return told.Load() == 1 })
	close(open)
	ztest.Eventually(t, "the old one is gone", func() bool { return !runs(host) })
	f, r := written()
	if f <= old || r != old {
		t.Errorf("term %d wrote last, %d was refused; want a later one than %d, and that one", f, r, old)
	}
	c.Stop(1 - host)
	ztest.Eventually(t, "it runs on the first node again", func() bool { f2, _ := written(); return f2 > f && runs(host) })
}
