package zroute_test

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target takes messages, or refuses them with err.
type target struct {
	mu   sync.Mutex
	err  error
	got  []*zmsg.Message
	load int
}

func (t *target) Deliver(m *zmsg.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	t.got = append(t.got, m)
	return nil
}

func (t *target) Load() int { return t.load }

// link is a Sender: answer says what becomes of a send.
type link struct {
	mu     sync.Mutex
	sent   []zmsg.Address
	fences bool // answer gets those too
	answer func(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error
}

func (l *link) Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	if m.ID == zmsg.FenceID && !l.fences { // nothing waits anywhere
		r.Reply(token, &zmsg.Reply{})
		return nil
	}
	l.mu.Lock()
	l.sent = append(l.sent, to)
	l.mu.Unlock()
	if l.answer == nil {
		return nil
	}
	return l.answer(to, m, r, token)
}

// answering is a link whose requests are answered at once.
type answering struct{ reply zmsg.Reply }

func (a *answering) Send(_ zmsg.Address, _ *zmsg.Message, r zmsg.Replier, token uint64) error {
	if r != nil {
		r.Reply(token, &a.reply)
	}
	return nil
}

// replies takes outcomes.
type replies chan zmsg.Reply

func (r replies) Reply(_ uint64, v *zmsg.Reply) { r <- *v }

var self = zmsg.NodeRef{ID: "m", Epoch: 1}

func node(id string, actors ...zdiscovery.Actor) zdiscovery.Node {
	return zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: 1}, State: zdiscovery.Ready, Actors: actors}
}

func remoteActor(id uint64, ads ...zmsg.Advert) zdiscovery.Actor {
	return zdiscovery.Actor{ID: id, Type: "t", Adverts: ads}
}

func remotes(tb testing.TB, nodes ...zdiscovery.Node) *zroute.Remote {
	tb.Helper()
	var r zroute.Remote
	r.Apply(&zdiscovery.Snapshot{Nodes: nodes}, self)
	return &r
}

func register(tb testing.TB, l *zroute.Local, actor uint64, t zroute.Target, ads ...zmsg.Advert) {
	tb.Helper()
	if err := l.Register(actor, "t", t, ads); err != nil {
		tb.Fatal(err)
	}
}

func dispatcher(tb testing.TB, cfg zroute.Config) *zroute.Dispatcher {
	tb.Helper()
	cfg.Node = self
	d, err := zroute.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func message(id uint32) *zmsg.Message { return zmsg.NewMessage(id) }
