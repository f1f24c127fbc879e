package zroute_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zroute"
)

// world is a cluster of actors that handle one message when they are told to; it is a Sender, and makes Targets.
type world struct {
	queues map[zmsg.Address]*[]queued // of local actors the node is zero
	down   error
}

type queued struct {
	m     zmsg.Message // a copy
	r     zmsg.Replier
	token uint64
}

func (w *world) queue(at zmsg.Address) *[]queued {
	if w.queues == nil {
		w.queues = map[zmsg.Address]*[]queued{}
	}
	if w.queues[at] == nil {
		w.queues[at] = new([]queued)
	}
	return w.queues[at]
}

func (w *world) Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	if w.down != nil {
		return w.down
	}
	q := w.queue(to)
	*q = append(*q, queued{m: *m, r: r, token: token})
	return nil
}

// here is a local actor.
type here struct {
	w  *world
	at zmsg.Address
}

func (h here) Load() int { return 0 }

func (h here) Deliver(m *zmsg.Message) error {
	q := h.w.queue(h.at)
	r, token := m.TakeReplier()
	*q = append(*q, queued{m: *m, r: r, token: token})
	return nil
}

// handle handles the oldest message of an actor: a fence is answered.
func (w *world) handle(at zmsg.Address) (m zmsg.Message, ok bool) {
	q := w.queue(at)
	if len(*q) == 0 {
		return m, false
	}
	it := (*q)[0]
	*q = (*q)[1:]
	if it.m.ID == zmsg.FenceID {
		it.r.Reply(it.token, &zmsg.Reply{})
		return m, false
	}
	return it.m, true
}

// lose has a node end with all that waits there.
func (w *world) lose(node string) {
	for at, q := range w.queues {
		if at.Node.ID != node {
			continue
		}
		list := *q
		*q = nil
		for _, it := range list {
			if it.r != nil {
				it.r.Reply(it.token, &zmsg.Reply{Code: zmsg.CodeNodeLost, Outcome: zmsg.Unknown})
			}
		}
	}
}

// Any order of joins, drains, losses and local actors, of sending and handling: what one sender sends with one key is handled in order,
// once, and what is missing has ended with an error: it waited at a lost node, or nobody is left.
func TestMovesModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, movesModel) // not t itself, whose Deadline a bubble forbids
	})
}

func movesModel(t *rapid.T) {
	sharded := rapid.Bool().Draw(t, "sharded")
	ad := zmsg.Advert{ID: 5, Sharded: sharded}
	w := &world{}
	var local zroute.Local
	var remote zroute.Remote
	s := zroute.Rendezvous(nil)
	switch rapid.IntRange(0, 3).Draw(t, "strategy") {
	case 1:
		s = zroute.ZoneFirst("z", zroute.WeightedRendezvous(nil))
	case 2:
		s = zroute.Strategies{ByType: map[string]zroute.RemoteStrategy{"t": zroute.NewCanary("v", 0.5, s)}}
	}
	metrics := zmetrics.NewRoute(nil)
	d, err := zroute.New(zroute.Config{
		Node: self, Local: &local, Remote: &remote, Sender: w, Strategy: s, LocalRouter: zroute.LocalRendezvous(nil), NextBest: true, Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]zdiscovery.Node{}
	apply := func() {
		var list []zdiscovery.Node
		for _, n := range nodes {
			list = append(list, n)
		}
		remote.Apply(&zdiscovery.Snapshot{Nodes: list}, self)
	}
	epoch := uint64(0)
	sent, got := map[uint64]uint64{}, map[uint64]uint64{}
	over := ends{} // requests that ended with an error, by key and number
	upTo := func(key, n uint64) {
		for i := got[key] + 1; i < n; i++ {
			if !over[[2]uint64{key, i}] {
				t.Fatalf("key %d: %d comes after %d", key, n, got[key])
			}
		}
		got[key] = max(got[key], n)
	}
	taken := func(m zmsg.Message) {
		key := m.Session.ID
		if m.Seq <= got[key] {
			t.Fatalf("key %d: %d comes after %d", key, m.Seq, got[key])
		}
		upTo(key, m.Seq)
	}
	places := func() []zmsg.Address {
		all := make([]zmsg.Address, 0, len(w.queues))
		for at, q := range w.queues {
			if len(*q) > 0 {
				all = append(all, at)
			}
		}
		slices.SortFunc(all, func(a, b zmsg.Address) int {
			return slices.Compare([]uint64{uint64(len(a.Node.ID)), a.Node.Epoch, a.Actor}, []uint64{uint64(len(b.Node.ID)), b.Node.Epoch, b.Actor})
		})
		return all
	}
	names := rapid.SampledFrom([]string{"a", "bb", "ccc", "dddd"})
	t.Repeat(map[string]func(*rapid.T){
		"send": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "messages") {
				key := rapid.Uint64Range(1, 4).Draw(t, "key")
				m := message(5)
				m.Session.ID, m.Seq = key, sent[key]+1
				m.SetReplier(over, key<<32|m.Seq)
				res, _, err := d.Dispatch(m)
				switch res {
				case zroute.OnLocal, zroute.OnRemote, zroute.Parked:
					sent[key]++
				case zroute.NoRoute:
				default:
					t.Fatal(res, err)
				}
			}
		},
		"handle": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "messages") {
				if all := places(); len(all) > 0 {
					if m, ok := w.handle(rapid.SampledFrom(all).Draw(t, "at")); ok {
						taken(m)
					}
				}
			}
		},
		"join": func(t *rapid.T) {
			name := names.Draw(t, "node")
			if _, there := nodes[name]; !there {
				epoch++
				n := node(name, remoteActor(1, ad), remoteActor(2, ad))
				n.Ref.Epoch = epoch
				n.Zone, n.Version = rapid.SampledFrom([]string{"z", "y"}).Draw(t, "zone"), rapid.SampledFrom([]string{"v", "u"}).Draw(t, "version")
				nodes[name] = n
				apply()
			}
		},
		"drain": func(t *rapid.T) {
			name := names.Draw(t, "node")
			if n, there := nodes[name]; there {
				n.State = zdiscovery.Draining
				nodes[name] = n
				apply()
			}
		},
		"load": func(t *rapid.T) {
			name := names.Draw(t, "node")
			if n, there := nodes[name]; there {
				n.Load++
				nodes[name] = n
				apply()
			}
		},
		"lose": func(t *rapid.T) {
			name := names.Draw(t, "node")
			delete(nodes, name)
			apply()
			w.lose(name)
		},
		"local": func(t *rapid.T) {
			actor := rapid.Uint64Range(1, 2).Draw(t, "actor")
			if slices.ContainsFunc(local.Adverts(), func(e zroute.Entry) bool { return e.Actor == actor }) {
				local.Unregister(actor) // what waits there is handled all the same
				return
			}
			if err := local.Register(actor, "t", here{w, zmsg.Address{Actor: actor}}, []zmsg.Advert{ad}); err != nil {
				t.Fatal(err)
			}
		},
		// No longer than messages wait in all: order is not promised for those that are older.
		"time passes": func(t *rapid.T) {
			for all := places(); len(all) > 0; all = places() {
				for _, at := range all {
					if m, ok := w.handle(at); ok {
						taken(m)
					}
				}
			}
			time.Sleep(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
		},
	})
	for all := places(); len(all) > 0; all = places() {
		for _, at := range all {
			if m, ok := w.handle(at); ok {
				taken(m)
			}
		}
	}
	for key, n := range sent {
		upTo(key, n+1) // all that were handed over were handled, or ended
	}
}

// ends takes outcomes of requests; token is the key and the number.
type ends map[[2]uint64]bool

func (e ends) Reply(token uint64, r *zmsg.Reply) {
	if r.Code != zmsg.CodeOK {
		e[[2]uint64{token >> 32, token & (1<<32 - 1)}] = true
	}
}

// twoNodes are a dispatcher with a key at node a that moves to node b.
func twoNodes(t *testing.T, cfg zroute.Config) (w *world, d *zroute.Dispatcher, send func(n uint64, r zmsg.Replier) (zroute.Result, error), move func()) {
	t.Helper()
	w = &world{}
	var r zroute.Remote
	ad := zmsg.Advert{ID: 5}
	a := node("a", remoteActor(1, ad))
	r.Apply(&zdiscovery.Snapshot{Nodes: []zdiscovery.Node{a}}, self)
	cfg.Remote, cfg.Sender, cfg.Strategy = &r, w, zroute.Rendezvous(nil)
	d = dispatcher(t, cfg)
	send = func(n uint64, to zmsg.Replier) (zroute.Result, error) {
		m := message(5)
		m.Session.ID, m.Seq = 7, n
		m.SetBody(make([]byte, 100))
		if to != nil {
			m.SetReplier(to, 1)
		}
		res, _, err := d.Dispatch(m)
		return res, err
	}
	move = func() {
		a.State = zdiscovery.Draining
		r.Apply(&zdiscovery.Snapshot{Nodes: []zdiscovery.Node{a, node("b", remoteActor(1, ad))}}, self)
	}
	if res, err := send(1, nil); res != zroute.OnRemote {
		t.Fatal(res, err)
	}
	move()
	return w, d, send, move
}

var atA, atB = zmsg.Address{Node: zmsg.NodeRef{ID: "a", Epoch: 1}, Actor: 1}, zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: 1}

// How a wait ends, and what becomes of what waited.
func TestHowMovesEnd(t *testing.T) {
	t.Parallel()
	reply := func(w *world, r zmsg.Reply) {
		q := w.queue(atA)
		it := (*q)[len(*q)-1]
		*q = (*q)[:len(*q)-1]
		it.r.Reply(it.token, &r)
	}
	nobody := zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted}
	for _, c := range []struct {
		name string
		end  func(w *world)
		code zmsg.Code // of what waited
	}{
		{"passed", func(w *world) { w.handle(atA); w.handle(atA) }, zmsg.CodeOK},
		{"actor gone", func(w *world) { reply(w, zmsg.Reply{Code: zmsg.CodeUnknownActor, Outcome: zmsg.NotExecuted}) }, zmsg.CodeOK},
		{"node lost", func(w *world) { w.lose("a") }, zmsg.CodeOK},
		{"nobody, twice", func(w *world) { reply(w, nobody); reply(w, nobody) }, zmsg.CodeOK},
		{"nobody, then somebody", func(w *world) { reply(w, nobody); w.handle(atA); w.handle(atA) }, zmsg.CodeOK},
		{"bus lost", func(w *world) { reply(w, zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown}) }, zmsg.CodeUnavailable},
		{"expired", func(*world) { time.Sleep(5*time.Second + time.Millisecond) }, zmsg.CodeUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, _, send, _ := twoNodes(t, zroute.Config{})
				got := make(replies, 10)
				for n := uint64(2); n <= 4; n++ {
					if res, err := send(n, got); res != zroute.Parked || err != nil {
						t.Fatal(res, err)
					}
				}
				if len(*w.queue(atA)) != 2 || len(*w.queue(atB)) != 0 {
					t.Fatalf("at a %d, want a message and one fence; at b %d, want none", len(*w.queue(atA)), len(*w.queue(atB)))
				}
				c.end(w)
				synctest.Wait()
				want := []uint64{2, 3, 4, 5}
				if c.code != zmsg.CodeOK {
					want = want[3:]
					for range 3 {
						if r := <-got; r.Code != c.code || r.Outcome != zmsg.NotExecuted || !r.Code.Retry() {
							t.Errorf("what waited ended with %+v", r)
						}
					}
				}
				if res, err := send(5, nil); res != zroute.OnRemote {
					t.Fatalf("after that: %v, %v", res, err)
				}
				var at []uint64
				for _, q := range *w.queue(atB) {
					at = append(at, q.m.Seq)
				}
				if !slices.Equal(at, want) || len(got) > 0 {
					t.Errorf("b got %v, want %v; outcomes left %d", at, want, len(got))
				}
			})
		})
	}
}

// What waits is bounded, and who sends more is told at once; the bus that is away too. A request whose deadline is over does not
// go on.
func TestMovesAreBounded(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]zroute.Config{"count": {MoveQueue: 2}, "bytes": {MoveBytes: 800}} {
		_, _, send, _ := twoNodes(t, cfg)
		for n := uint64(2); n <= 4; n++ {
			res, err := send(n, nil)
			if full := n == 4; full != (res == zroute.Busy) || full != errors.Is(err, zmsg.ErrBusy) {
				t.Errorf("%s: message %d: %v, %v", name, n, res, err)
			}
		}
	}
	w, _, send, _ := twoNodes(t, zroute.Config{})
	w.down = zmsg.ErrUnavailable
	got := make(replies, 1)
	if res, err := send(2, got); res != zroute.Parked {
		t.Fatal(res, err)
	}
	if r := <-got; r.Code != zmsg.CodeUnavailable || r.Outcome != zmsg.NotExecuted {
		t.Errorf("with the bus away: %+v", r)
	}
	synctest.Test(t, func(t *testing.T) {
		w, d, _, _ := twoNodes(t, zroute.Config{})
		got := make(replies, 1)
		m := message(5)
		m.Session.ID, m.Deadline = 7, time.Now().Add(time.Second)
		m.SetReplier(got, 1)
		if res, _, err := d.Dispatch(m); res != zroute.Parked {
			t.Fatal(res, err)
		}
		time.Sleep(2 * time.Second)
		w.handle(atA)
		w.handle(atA)
		if r := <-got; r.Code != zmsg.CodeTimeout || r.Outcome != zmsg.NotExecuted || len(*w.queue(atB)) > 0 {
			t.Errorf("got %+v, and b has %d", r, len(*w.queue(atB)))
		}
	})
}

// Other senders, other keys, messages without a key, strategies without keys, and MoveWait below 0 do not wait.
func TestWhoDoesNotWait(t *testing.T) {
	t.Parallel()
	w, _, send, _ := twoNodes(t, zroute.Config{MoveWait: -1})
	if res, err := send(2, nil); res != zroute.OnRemote || len(*w.queue(atB)) != 1 {
		t.Errorf("MoveWait -1: %v, %v", res, err)
	}
	w, d, _, _ := twoNodes(t, zroute.Config{})
	if res, _, err := d.Dispatch(message(5)); res != zroute.OnRemote || len(*w.queue(atB)) != 1 {
		t.Errorf("without a key: %v, %v", res, err)
	}
	for _, s := range []zroute.RemoteStrategy{nil, zroute.RoundRobin(), zroute.Weighted(), zroute.LeastLoaded(), zroute.ZoneFirst("z", nil)} {
		w := &world{}
		var r zroute.Remote
		fleet(t, &r, []string{"b"})
		d := dispatcher(t, zroute.Config{Remote: &r, Sender: w, Strategy: s})
		for i, nodes := range [][]string{{"b"}, {"a", "b"}, {"a"}} {
			fleet(t, &r, nodes)
			m := message(5)
			m.Session.ID = 7
			if res, _, err := d.Dispatch(m); res != zroute.OnRemote {
				t.Errorf("%T, state %d: %v, %v", s, i, res, err)
			}
		}
	}
}

// An application's own strategy by key is one too.
func TestKeyedStrategyOfAnApplication(t *testing.T) {
	t.Parallel()
	w := &world{}
	var r zroute.Remote
	fleet(t, &r, []string{"b"})
	d := dispatcher(t, zroute.Config{Remote: &r, Sender: w, Strategy: zroute.ZoneFirst("z", byRoom{})})
	for i, want := range []zroute.Result{zroute.OnRemote, zroute.Parked} {
		m := message(5)
		m.User = "room"
		if res, _, err := d.Dispatch(m); res != want {
			t.Errorf("%d: %v, %v, want %v", i, res, err, want)
		}
		fleet(t, &r, []string{"a", "b"})
	}
}

// byRoom sends all to the first node.
type byRoom struct{}

func (byRoom) Pick(*zmsg.Message, []zroute.RemoteCandidate) int { return 0 }

func (byRoom) Key(m *zmsg.Message) (uint64, bool) { return zmsg.HashBytes(m.User), m.User != "" }
