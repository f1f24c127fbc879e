package ztest_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/znode"
	"zgame/ztest"
)

// hall is an actor of node n3 that says lines to its members, one by one, by the names that it has of their sessions.
type hall struct {
	mu     sync.Mutex
	names  map[string]zmsg.SessionRef
	moved  []string
	closed []string
	asked  int
	last   uint64
	own    bool // no line goes to the group
}

func (h *hall) app() znode.App {
	app := none
	app.Setup = func(n *znode.Node) error {
		if n.Self().ID != "n3" {
			return nil
		}
		_, err := n.Spawn("hall", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{
				zactor.Handle(func(c *zactor.Context, req *chatpb.Join) (*chatpb.Joined, error) {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.names[c.User()] = c.Session()
					if err := c.WatchSession(c.Session()); err != nil {
						return nil, err
					}
					return &chatpb.Joined{}, c.Join(c.Session(), req.GetRoom())
				}, zactor.FromClients()),
				zactor.Handle(func(_ *zactor.Context, req *chatpb.Say) (*chatpb.Said, error) {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.asked++
					return &chatpb.Said{Seq: uint64(len(req.GetText()))}, nil
				}, zactor.FromClients()),
				zactor.HandleTell(func(_ *zactor.Context, m *wirepb.SessionMoved) error {
					h.mu.Lock()
					defer h.mu.Unlock()
					from, to := zmsg.MovedSession(m)
					for user, ref := range h.names {
						if ref == from {
							h.moved = append(h.moved, fmt.Sprint(user, " ", to.Gate.ID, " ", to.Gen))
						}
					}
					return nil
				}),
				zactor.HandleTell(func(_ *zactor.Context, m *wirepb.SessionClosed) error {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.closed = append(h.closed, m.GetUser())
					return nil
				}),
				// A line to each, by the name of when he joined; every third to their group.
				zactor.HandleTell(func(c *zactor.Context, _ *chatpb.Who) error {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.last++
					line := &chatpb.Line{Seq: h.last}
					if h.last%3 == 0 && !h.own {
						return c.Publish("go", line)
					}
					for _, ref := range h.names {
						if err := c.Push(ref, line); err != nil {
							return err
						}
					}
					return nil
				}),
			}}
		})
		return err
	}
	return app
}

// speak has the hall say lines until stop is closed, and returns how many.
func (h *hall) speak(tb testing.TB, c *ztest.Nodes, stop <-chan struct{}, every time.Duration) (said func() uint64) {
	tb.Helper()
	ref, ok := c.Node(2).Group().Lookup("hall")
	if !ok {
		tb.Fatal("there is no hall")
	}
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = ref.Tell(&chatpb.Who{})
			}
		}
	}()
	return func() uint64 {
		<-ended
		last := uint64(0)
		ztest.Eventually(tb, "the hall has said all", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			before := last
			last = h.last
			return last == before && last > 0
		})
		return last
	}
}

// keepAsking makes requests until stop is closed, one behind the other; each is to be answered by what it asked.
func keepAsking(t *testing.T, cl *zclient.Client, stop <-chan struct{}) (asked *atomic.Int64, done <-chan struct{}) {
	t.Helper()
	asked = new(atomic.Int64)
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			var said chatpb.Said
			text := fmt.Sprintf("%*d", 1+n%50, n)
			for {
				err := cl.Request(ctx, &chatpb.Say{Room: "x", Text: text}, &said)
				if err != nil && zmsg.OutcomeOf(err) == zmsg.NotExecuted && ctx.Err() == nil { // there was no connection
					<-tick.C
					continue
				}
				if err != nil || said.GetSeq() != uint64(len(text)) {
					t.Errorf("request %d: %v, %v", n, &said, err)
				}
				break
			}
			cancel()
			asked.Add(1)
		}
	}()
	return asked, ended
}

// A client roams from gate to gate, all of which live, while an actor pushes to it by the name that it knows, to its group, and its user gets pushes; and
// while it makes requests. Nothing is lost, doubled or swapped, each request runs once, the actor is told where the session went, and of its end once.
func TestSessionsRoam(t *testing.T) {
	t.Parallel()
	h := &hall{names: map[string]zmsg.SessionRef{}}
	c := users(t, h.app(), nil)
	r := roam(t, c, "ann", 0)
	before := r.Session()
	r.join("go")
	stop := make(chan struct{})
	said := h.speak(t, c, stop, time.Millisecond)
	asked, done := keepAsking(t, r.Client, stop)
	const rounds = 8
	for n := range rounds {
		heard := len(r.heard())
		ztest.Eventually(t, "more is heard", func() bool { return len(r.heard()) > heard+10 })
		k := (n + 1) % 2
		r.lead(c, k)
		ztest.Eventually(t, "it is at the other gate", func() bool {
			s := r.State()
			return s.Phase == zclient.Online && s.Session.Ref.Gate == c.Node(k).Self()
		})
	}
	close(stop)
	<-done
	last := said()
	ztest.Eventually(t, "all is heard", func() bool { return uint64(len(r.heard())) >= last })
	checkLines(t, r.heard(), last)
	after := r.Session()
	if st := r.Stats(); st.Lost != 0 || st.Gaps != 0 || after.Ref.ID != before.Ref.ID || after.Ref.Gen != before.Ref.Gen+rounds {
		t.Errorf("%+v: %+v, was %+v", st, after, before)
	}
	h.mu.Lock()
	if h.asked != int(asked.Load()) {
		t.Errorf("%d requests ran %d times", asked.Load(), h.asked)
	}
	if want := moves("ann", before.Ref.Gen, 1); len(h.moved) != 1 || h.moved[0] != want {
		t.Errorf("moved %q, not %q", h.moved, want) // it keeps the first name
	}
	h.mu.Unlock()
	heard := len(r.heard())
	if err := line(t, c, 2, "ann", 99); err != nil {
		t.Error(err)
	}
	ztest.Eventually(t, "a push to the user comes", func() bool { return len(r.heard()) == heard+1 })
	ztest.Eventually(t, "the directory has it, once", func() bool {
		got := sessionsOf(t, c, 2, "ann")
		return len(got) == 1 && got[0] == after.Ref
	})
	_ = r.Close()
	ztest.Eventually(t, "the hall hears of the end", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.closed, []string{"ann"})
	})
	ztest.Eventually(t, "the directory has nobody", func() bool { return len(sessionsOf(t, c, 2, "ann")) == 0 })
}

func moves(user string, gen uint32, n int) string { return fmt.Sprint(user, " n2 ", gen+uint32(n)) }

// checkLines wants the lines up to last, each once; those of the group, every third, may stand among the others anywhere.
func checkLines(t *testing.T, got []uint64, last uint64) {
	t.Helper()
	times := map[uint64]int{}
	var own, group uint64
	for _, n := range got {
		times[n]++
		prev := &own
		if n%3 == 0 {
			prev = &group
		}
		if n <= *prev {
			t.Errorf("%d comes behind %d", n, *prev)
		}
		*prev = max(*prev, n)
	}
	for n := range last {
		if times[n+1] != 1 {
			t.Errorf("line %d came %d times", n+1, times[n+1])
		}
	}
}

// balancer leads each connection to a gate that takes one.
func balancer(t *testing.T, c *ztest.Nodes, ks ...int) (url string) {
	t.Helper()
	var addrs []string
	for _, k := range ks {
		u := c.Node(k).GateURL()
		addrs = append(addrs, u[len("ws://"):len(u)-len("/ws")])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	var n atomic.Int64
	wg.Go(func() { // ends with the listener
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			var out net.Conn
			for range addrs {
				if out, err = net.Dial("tcp", addrs[n.Add(1)%int64(len(addrs))]); err == nil {
					break
				}
			}
			if err != nil {
				_ = in.Close()
				continue
			}
			pipe := func(a, b net.Conn) {
				_, _ = a.(*net.TCPConn).ReadFrom(b)
				_ = a.Close()
				_ = b.Close()
			}
			wg.Go(func() { pipe(in, out) }) // end with either connection
			wg.Go(func() { pipe(out, in) })
		}
	})
	return "ws://" + l.Addr().String() + "/ws"
}

// A gate is drained under load, behind a balancer: its clients go on at the other gate, and nothing is lost, doubled or swapped.
func TestDrainedGateHandsOver(t *testing.T) {
	t.Parallel()
	h := &hall{names: map[string]zmsg.SessionRef{}}
	c := users(t, h.app(), func(s *znode.Settings) { s.Drain.Timeout, s.Drain.Handover = patience, patience/2 })
	url := balancer(t, c, 0, 1)
	stop := make(chan struct{})
	const clients = 20
	var all []*listener
	var asked []*atomic.Int64
	var done []<-chan struct{}
	for n := range clients {
		cl, err := zclient.New(zclient.Config{
			URL: url, Token: fmt.Sprint("user", n), RequestTimeout: patience, MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		l := listen(t, cl)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = cl.Connect(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close(); <-cl.Done() })
		l.join("go")
		all = append(all, l)
		a, d := keepAsking(t, cl, stop)
		asked, done = append(asked, a), append(done, d)
	}
	said := h.speak(t, c, stop, time.Millisecond)
	ztest.Eventually(t, "all hear", func() bool { return !slices.ContainsFunc(all, func(l *listener) bool { return len(l.heard()) < 10 }) })
	c.Stop(0)
	ztest.Eventually(t, "all are at the other gate", func() bool {
		return !slices.ContainsFunc(all, func(l *listener) bool {
			s := l.State()
			return s.Phase != zclient.Online || s.Session.Ref.Gate != c.Node(1).Self()
		})
	})
	heard := make([]int, clients)
	for i, l := range all {
		heard[i] = len(l.heard())
	}
	ztest.Eventually(t, "all go on hearing", func() bool {
		for i, l := range all {
			if len(l.heard()) < heard[i]+10 {
				return false
			}
		}
		return true
	})
	close(stop)
	for _, d := range done {
		<-d
	}
	last := said()
	for i, l := range all {
		ztest.Eventually(t, "all is heard", func() bool { return uint64(len(l.heard())) >= last })
		if st := l.Stats(); st.Lost != 0 || st.Gaps != 0 {
			t.Errorf("client %d: %+v", i, st)
		}
		checkLines(t, l.heard(), last)
	}
	total := 0
	for _, a := range asked {
		total += int(a.Load())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked != total || len(h.closed) != 0 {
		t.Errorf("%d requests ran %d times; told of the ends of %v", total, h.asked, h.closed)
	}
}

// Two clients that are bound to an object roam from gate to gate, while it moves from node to node and says things to both: they hear all of it once, in
// order, and nobody is told of an end until they go.
func TestBoundSessionsRoam(t *testing.T) {
	t.Parallel()
	app := &stages{}
	c := ztest.Cluster(t, 3, app.app(), ztest.Settings(gateAlone))
	ann, bob := roam(t, c, "ann", 0), roam(t, c, "bob", 0)
	ann.join("go")
	bob.join("go")
	const rounds = 40
	for n := range uint64(rounds) {
		switch n % 8 {
		case 1:
			ann.lead(c, 1+int(n/8)%2)
		case 3:
			moveStage(t, c, "go", 1+int(n/8)%2)
		case 5:
			bob.lead(c, int(n/8)%3)
		}
		var said *chatpb.Said
		var err error
		ztest.Eventually(t, "a connection", func() bool { // a request while there is none is not made
			said, err = []*roamer{ann, bob}[n%2].say("") // what it is bound to
			return err == nil || zmsg.OutcomeOf(err) != zmsg.NotExecuted
		})
		if err != nil || said.GetSeq() != n+1 {
			t.Fatalf("word %d is number %d: %v", n+1, said.GetSeq(), err)
		}
	}
	for name, r := range map[string]*roamer{"ann": ann, "bob": bob} {
		ztest.Eventually(t, name+" hears all", func() bool { return len(r.heard()) >= rounds })
		if got := r.heard(); !slices.Equal(got, count(rounds)) {
			t.Errorf("%s heard %v", name, got)
		}
		if st := r.Stats(); st.Lost != 0 || st.Gaps != 0 || st.Resumes == 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if told := app.told(); len(told) != 0 {
		t.Errorf("told of the ends of %v", told)
	}
	_ = ann.Close()
	_ = bob.Close()
	ztest.Eventually(t, "the stage is told of both ends, once", func() bool {
		told := app.told()
		slices.Sort(told)
		return slices.Equal(told, []string{"ann", "bob"})
	})
}

// The word of a gate about a session that has left it comes late to the directory, which knows the session by its newer name: nothing changes.
func TestDirectoryIsToldLate(t *testing.T) {
	t.Parallel()
	h := &hall{names: map[string]zmsg.SessionRef{}}
	c := users(t, h.app(), nil)
	r := roam(t, c, "ann", 0)
	before := r.Session().Ref
	r.join("go")
	stop := make(chan struct{})
	said := h.speak(t, c, stop, time.Millisecond)
	ztest.Eventually(t, "it has shown that it has a token", func() bool { return len(r.heard()) > 100 })
	close(stop)
	said()
	r.lead(c, 1)
	ztest.Eventually(t, "the client and the directory have it by its new name", func() bool {
		got, s := sessionsOf(t, c, 2, "ann"), r.State()
		return len(got) == 1 && got[0].Gate == c.Node(1).Self() && s.Phase == zclient.Online && s.Session.Ref == got[0]
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	number, a, err := c.Node(0).Users().Bind(ctx, zmsg.Login{User: "ann", Session: before, Number: 1, Most: 1})
	if err != nil || a != zmsg.Admitted || number == 1 {
		t.Errorf("number %d, %v, %v", number, a, err)
	}
	if got := sessionsOf(t, c, 2, "ann"); len(got) != 1 || got[0] != r.Session().Ref {
		t.Errorf("%v", got)
	}
	if r.State().Phase == zclient.Closed {
		t.Errorf("%v", r.State().Reason)
	}
}

// A node whose bus is away while a session goes to another gate, and is back later, hears of it then: its actors are told that the session has gone, and
// of its end.
func TestNodeThatMissesTheMove(t *testing.T) {
	t.Parallel()
	h := &hall{names: map[string]zmsg.SessionRef{}}
	c := users(t, h.app(), func(s *znode.Settings) { s.Etcd.Lease = time.Minute }, ztest.Faulty())
	r := roam(t, c, "ann", 0)
	r.join("go")
	stop := make(chan struct{})
	said := h.speak(t, c, stop, time.Millisecond)
	ztest.Eventually(t, "the client has shown that it is there", func() bool { return len(r.heard()) > 100 })
	close(stop)
	said()
	c.NATSProxy(2).Cut()
	r.lead(c, 1)
	ztest.Eventually(t, "the session is at n2", func() bool {
		s := r.State()
		return s.Phase == zclient.Online && s.Session.Ref.Gate == c.Node(1).Self()
	})
	c.NATSProxy(2).Accept()
	told := func(what string, list func() int) {
		t.Helper()
		ztest.Eventually(t, "the watcher at n3 hears that the session "+what, func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return list() == 1
		})
	}
	told("has gone to n2", func() int { return len(h.moved) })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	told("has ended", func() int { return len(h.closed) })
}
