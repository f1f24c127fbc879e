package ztest_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/znode"
	"zgame/zroute"
	"zgame/ztest"
)

// movesWait is what zroute keeps order with; below 0 this test must fail.
const movesWait = 10 * time.Second

// numbered are the messages of one sender with one key: he numbers them, and does not run far ahead of who handles them.
type numbered struct {
	oracle    ztest.Oracle
	sent      uint64 // by the sender alone
	handled   atomic.Uint64
	refused   atomic.Uint64
	handledBy sync.Map // node ids
}

const ahead = 30 // messages of a lane that wait somewhere

func (l *numbered) mayGo() bool { return l.sent-l.handled.Load() < ahead }

// slow handles messages slowly: while the next may be on its way elsewhere.
func (l *numbered) slow(node string, n uint64) {
	time.Sleep(time.Duration(rand.IntN(3)) * 500 * time.Microsecond) // the work
	l.oracle.Got("sender", n)
	l.handledBy.Store(node, true)
	l.handled.Add(1)
}

// pumps sends what its lanes allow, by key, until it is told to stop.
type pumps struct {
	lanes map[string]*numbered
	stop  *atomic.Bool
	done  func()
}

func (p *pumps) Handlers() []zactor.Handler { return []zactor.Handler{zactor.HandleTell(p.pump)} }

func (p *pumps) pump(c *zactor.Context, _ *chatpb.Leave) error {
	p.tick(c)
	return nil
}

func (p *pumps) tick(c *zactor.Context) {
	if p.stop.Load() {
		p.done()
		return
	}
	for key, l := range p.lanes {
		for l.mayGo() {
			if err := c.Tell(c.Group().ByID(), &chatpb.Line{Room: key, Seq: l.sent + 1}); err != nil {
				l.refused.Add(1)
				break
			}
			l.sent++
		}
	}
	c.After(time.Millisecond, p.tick)
}

// P19, and issue 4: numbered messages of one key from one sender, an actor or a session, while nodes with slow actors join, drain
// and leave: none is lost, doubled or swapped. By rendezvous among other nodes, and as shards on all nodes.
func TestKeysMoveInOrder(t *testing.T) {
	t.Parallel()
	const keys, clients = 6, 4
	lanes := map[string]*numbered{} // not changed once the cluster runs
	for i := range keys {
		lanes[fmt.Sprint("a", i)], lanes[fmt.Sprint("b", i)] = &numbered{}, &numbered{}
	}
	for i := range clients {
		lanes[fmt.Sprint("client", i)] = &numbered{}
	}
	app := znode.App{
		Routing: func(*znode.Node) znode.Routing {
			return znode.Routing{Remote: zroute.Rendezvous(zroute.FieldKey(1)), NextBest: true, MoveWait: movesWait}
		},
		Setup: func(n *znode.Node) error {
			id := n.Self().ID
			specs := []zactor.Spec{{Name: "shard", New: func() zactor.Actor {
				return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(_ *zactor.Context, m *chatpb.Say) error {
					number, err := strconv.ParseUint(m.GetText(), 10, 64)
					lanes[m.GetRoom()].slow(id, number)
					return err
				}, zactor.FromClients(), zactor.Sharded())}}
			}}}
			if id != "n1" { // n1 has the senders
				specs = append(specs, zactor.Spec{Name: "worker", New: func() zactor.Actor {
					return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(_ *zactor.Context, m *chatpb.Line) error {
						lanes[m.GetRoom()].slow(id, m.GetSeq())
						return nil
					})}}
				}})
			}
			_, err := n.Group().SpawnAll(specs...)
			return err
		},
	}
	c := ztest.Cluster(t, 3, app, ztest.RealServers())
	var stop atomic.Bool
	var ended sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		p := &pumps{lanes: map[string]*numbered{}, stop: &stop}
		for i := range keys {
			key := fmt.Sprint(name, i)
			p.lanes[key] = lanes[key]
		}
		ended.Add(1)
		p.done = sync.OnceFunc(ended.Done)
		ref, err := c.Node(0).Spawn(name, func() zactor.Actor { return p }, zactor.Private())
		if err != nil {
			t.Fatal(err)
		}
		if err := ref.Tell(&chatpb.Leave{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range clients {
		key := fmt.Sprint("client", i)
		client := c.Client(key, 0)
		ended.Go(func() { // ends when stop is set
			for l := lanes[key]; !stop.Load(); {
				if !l.mayGo() {
					time.Sleep(time.Millisecond) // a load, not a flood
				} else if err := client.Send(&chatpb.Say{Room: key, Text: fmt.Sprint(l.sent + 1)}); err != nil {
					t.Error(err)
					return
				} else {
					l.sent++
				}
			}
		})
	}
	t.Cleanup(func() { stop.Store(true) })
	// Every lane goes on in each state of the cluster.
	goOn := func(what string) {
		t.Helper()
		marks := map[string]uint64{}
		for key, l := range lanes {
			marks[key] = l.handled.Load()
		}
		for key, l := range lanes {
			ztest.Eventually(t, what+": "+key+" goes on", func() bool { return l.handled.Load() >= marks[key]+ahead })
		}
	}
	goOn("at first")
	oldest := 1
	for range 3 {
		c.Add()
		goOn("after a join")
		c.Stop(oldest)
		oldest++
		goOn("after a drain")
	}
	stop.Store(true)
	ended.Wait()
	moved := 0
	for key, l := range lanes {
		ztest.Eventually(t, key+" is worked off", func() bool { return l.handled.Load() >= l.sent || t.Failed() })
		if err := l.oracle.Check(l.sent, "sender"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		at := 0
		l.handledBy.Range(func(any, any) bool { at++; return true })
		if at > 1 {
			moved++
		}
		if n := l.refused.Load(); n > 0 {
			t.Logf("%s: %d refused, and sent again", key, n)
		}
	}
	if moved < len(lanes)/2 {
		t.Errorf("%d of %d keys moved: this shows little", moved, len(lanes))
	}
}
