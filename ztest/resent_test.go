package ztest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
	"zgame/zuser"
)

const ledgerType = 11

func ledger(id string) zmsg.Key { return zmsg.Key{Type: ledgerType, ID: id} }

// ledgers is an App whose objects, ledgers, note each request that they run, and remember their clients' requests. Of a request whose text begins with "late" or
// "running" the answer is held back.
type ledgers struct {
	durable zrouter.Switch

	mu   sync.Mutex
	held map[string][]func() // answers, by how the text begins
	ran  atomic.Int64
}

type ledgerContext = zrouter.Context[*chatpb.Joined]

func (a *ledgers) app() znode.App {
	return znode.App{Name: "ledgers", Objects: func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.Joined]{
			Type: ledgerType, Name: "ledger", Version: 1, Settings: zrouter.Settings{ClientDedup: 256, Durable: a.durable},
			Create: func(k zmsg.Key) (*chatpb.Joined, error) { return &chatpb.Joined{Room: k.ID}, nil },
			Handlers: []zrouter.Handler[*chatpb.Joined]{
				zrouter.Handle(a.say, zrouter.FromClients()),
				zrouter.Handle(func(c *ledgerContext, _ *chatpb.Who) (*chatpb.Members, error) {
					return &chatpb.Members{Members: slices.Clone(c.State().GetMembers())}, nil
				}, zrouter.FromMemory()),
			},
		}}
	}}
}

func (a *ledgers) say(c *ledgerContext, req *chatpb.Say) (*chatpb.Said, error) {
	s := c.State()
	s.Members = append(s.Members, req.GetText())
	c.Dirty()
	a.ran.Add(1)
	answer := &chatpb.Said{Room: s.GetRoom(), Seq: uint64(len(s.GetMembers()))}
	how, _, _ := strings.Cut(req.GetText(), " ")
	if how == "plain" || how == "lost" {
		return answer, nil
	}
	d := c.Defer()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[how] = append(a.held[how], func() { d.Reply(answer) })
	return nil, nil
}

// answer gives the answers that are held back.
func (a *ledgers) answer(how string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.held[how] {
		f()
	}
	delete(a.held, how)
}

func (a *ledgers) holds(how string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held[how])
}

// ledgerApart returns the id of a ledger that one client's request has made, which lives neither with the client's user nor at its gate.
func ledgerApart(t *testing.T, c *ztest.Nodes, r *roamer, user string) string {
	t.Helper()
	for i := range 100 {
		id := fmt.Sprint("ledger-", i)
		if err := sayTo(t, r.Client, id, "plain first"); err != nil {
			t.Fatal(err)
		}
		if at := c.OwnerOf(ledger(id)); at > 1 && at != c.OwnerOf(zuser.Key(user)) {
			return id
		}
	}
	t.Fatal("all ledgers live in one place")
	return ""
}

func sayTo(t *testing.T, c *zclient.Client, id, text string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	said, err := zclient.Call[chatpb.Said](ctx, c, &chatpb.Say{Room: id, Text: text})
	if err == nil && said.GetRoom() != id {
		t.Errorf("%s answers for %s", said.GetRoom(), id)
	}
	return err
}

// written returns what a ledger has run.
func written(t *testing.T, n *znode.Node, id string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zrouter.Call[chatpb.Members](ctx, n.Objects(), ledger(id), &chatpb.Who{Room: id})
	if err != nil {
		t.Fatal(err)
	}
	return m.GetMembers()
}

// saved returns when what a ledger has acknowledged is in the store.
func saved(t *testing.T, n *znode.Node, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zrouter.ManagerOf[*chatpb.Joined](n.Objects(), ledgerType)
	if err == nil {
		err = m.Save(ctx, ledger(id))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A gate is killed while a client has many requests to an object under way: some never reached it, some run, some have run and their answers are lost. The client goes on at
// another gate, and each ends as it would have: with its answer, having run once. With the object's node killed too, the same is so for what is durable.
func TestRequestsOfAKilledGateRunOnce(t *testing.T) {
	t.Parallel()
	for _, owner := range []bool{false, true} {
		t.Run(fmt.Sprint("with the owner ", owner), func(t *testing.T) {
			t.Parallel()
			a := &ledgers{held: make(map[string][]func()), durable: zrouter.Off}
			if owner {
				a.durable = zrouter.On
			}
			c := ztest.Cluster(t, 5, a.app(), ztest.Settings(func(k int, s *znode.Settings) {
				if k < 2 { // gates alone
					s.Logic.Router.Hosts = []string{}
				}
			}))
			r := roam(t, c, "ann", 0)
			id := ledgerApart(t, c, r, "ann")
			at := c.OwnerOf(ledger(id))
			want := map[string]bool{"plain first": true}
			var mu sync.Mutex // of what follows
			failed := make(map[string]error)
			var all sync.WaitGroup
			ask := func(how string, n int) {
				for i := range n {
					text := fmt.Sprint(how, " ", i)
					want[text] = true
					all.Go(func() {
						if err := sayTo(t, r.Client, id, text); err != nil {
							mu.Lock()
							defer mu.Unlock()
							failed[text] = err
						}
					})
				}
			}
			ask("late", 20)
			running := 0
			if !owner { // what runs when its owner dies nobody knows
				running = 20
			}
			ask("running", running)
			ask("plain", 20)
			ztest.Eventually(t, "they run", func() bool { return a.holds("late") == 20 && a.holds("running") == running })
			ztest.Eventually(t, "the others have run", func() bool { return a.ran.Load() >= int64(41+running) })
			c.Hold(0, at) // for ever
			before, sent := a.ran.Load(), metric(t, c.Node(0), "zgame_router_forwards_total")
			ask("lost", 20)
			ztest.Eventually(t, "they are on their way", func() bool { return metric(t, c.Node(0), "zgame_router_forwards_total") >= sent+20 })
			r.cut() // what is killed here lives on, and would tell its client that the bus is gone
			c.Kill(0)
			a.answer("late") // to a gate that is gone
			if owner {
				saved(t, c.Node(at), id)
				c.Kill(at)
			}
			if a.ran.Load() != before {
				t.Fatal("what was held on its way has run")
			}
			r.lead(c, 1)
			if !owner {
				ztest.Eventually(t, "what runs is asked for again", func() bool {
					return metric(t, c.Node(at), "zgame_router_resent_total") >= 40
				})
				a.answer("running")
			}
			all.Wait()
			for text, err := range failed {
				t.Errorf("%q: %v (%v)", text, err, zmsg.OutcomeOf(err))
			}
			if s := r.Session(); !s.Resumed || r.lost.Load() != 0 {
				t.Errorf("the session is %+v, lost %d times", s, r.lost.Load())
			}
			got := written(t, c.Node(1), id)
			times := make(map[string]int)
			for _, text := range got {
				if times[text]++; times[text] > 1 || !want[text] {
					t.Errorf("%q has run %d times", text, times[text])
				}
			}
			if len(times) != len(want) {
				t.Errorf("%d have run, want %d", len(times), len(want))
			}
			if err := sayTo(t, r.Client, id, "plain last"); err != nil {
				t.Error(err)
			}
		})
	}
}
