package znode_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zbus/membus"
	"zgame/zdiscovery/memdisc"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zstore/memstore"
)

var errStale = errors.New("a later term has written")

// ledger stands for a database that refuses what a singleton of the past writes.
// In SQL: UPDATE season SET term = $1, line = $2 WHERE term <= $1, and no row changed is an error.
type ledger struct {
	mu   sync.Mutex
	term uint64
}

func (l *ledger) write(term uint64, line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term < l.term {
		return errStale
	}
	l.term = term
	if line != "" {
		fmt.Println("term", term, "writes", line)
	}
	return nil
}

type season struct {
	term   uint64
	ledger *ledger
}

func (s *season) OnStart(*zactor.Context) error {
	return s.ledger.write(s.term, "") // from now on an older term writes nothing, so what is read now stays true
}

func (s *season) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.Handle(func(_ *zactor.Context, m *chatpb.Say) (*chatpb.Said, error) {
			return &chatpb.Said{Seq: s.term}, s.ledger.write(s.term, m.GetText())
		}),
	}
}

func ExampleNode_Singleton() {
	db := &ledger{}
	app := znode.App{Name: "game", Setup: func(n *znode.Node) error {
		return n.Singleton("season", func(term uint64) zactor.Actor {
			return &season{term: term, ledger: db}
		})
	}}

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	bus, disc, store := membus.New(), memdisc.New(), memstore.New()
	start := func(id string) *znode.Node {
		s := znode.DefaultSettings()
		s.Node.ID, s.Gate.Enabled, s.Admin.Address = id, false, ""
		n, err := znode.New(znode.Config{
			Settings: s, App: app, Backends: znode.Backends{Bus: bus.Bus(), Discovery: disc.Discovery(), Store: store.Share()},
		})
		if err == nil {
			err = n.Start(ctx)
		}
		if err != nil {
			panic(err)
		}
		return n
	}
	say := func(n *znode.Node, text string) {
		for { // between two terms nobody handles it
			if _, err := zactor.Ask[chatpb.Said](ctx, n.Group().ByID(), &chatpb.Say{Text: text}); zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	one, two := start("one"), start("two")
	say(one, "spring")
	say(two, "summer") // the same actor, wherever it runs
	leader, _ := two.Leader(ctx, "season")
	fmt.Println("it ran on a node, in term", leader.Term)
	first, second := one, two
	if leader.Node.ID == "two" {
		first, second = two, one
	}
	_ = first.Stop(ctx)
	say(second, "autumn")
	fmt.Println("a write of the past:", db.write(1, "winter"))
	_ = second.Stop(ctx)
	// Output:
	// term 1 writes spring
	// term 1 writes summer
	// it ran on a node, in term 1
	// term 2 writes autumn
	// a write of the past: a later term has written
}
