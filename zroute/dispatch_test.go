package zroute_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zroute"
)

func TestDispatchOrder(t *testing.T) {
	t.Parallel()
	ad := zmsg.Advert{ID: 5, Client: true}
	far := node("z", remoteActor(1, ad, zmsg.Advert{ID: 6}))
	for _, c := range []struct {
		name    string
		router  zroute.LocalRouter
		refuse  error // of the local target; nil: it takes it
		local   bool  // there is a local target
		id      uint32
		client  bool
		want    zroute.Result
		tried   int
		wantErr error
	}{
		{name: "local first", local: true, id: 5, client: true, want: zroute.OnLocal},
		{name: "no local", id: 5, client: true, want: zroute.OnRemote, tried: 1},
		{name: "nobody", id: 7, want: zroute.NoRoute, wantErr: zmsg.ErrNoRoute},
		{name: "not for clients", id: 6, client: true, want: zroute.NoRoute, wantErr: zmsg.ErrNoRoute},
		{name: "for actors", id: 6, want: zroute.OnRemote, tried: 1},
		{name: "a full mailbox is busy", local: true, refuse: zmsg.ErrBusy, id: 5, want: zroute.Busy, wantErr: zmsg.ErrBusy},
		{name: "a stopped target is none", local: true, refuse: zmsg.ErrStopped, id: 5, want: zroute.OnRemote, tried: 1},
		{name: "a draining target is none", local: true, refuse: zmsg.ErrDraining, id: 5, want: zroute.OnRemote, tried: 1},
		{
			name: "router says not here", local: true, id: 5, want: zroute.OnRemote, tried: 1,
			router: pick(0, fmt.Errorf("no shard: %w", zroute.ErrNotFound)),
		},
		{name: "router fails", local: true, id: 5, want: zroute.Failed, wantErr: errShard, router: pick(0, errShard)},
		{name: "router out of range", local: true, id: 5, want: zroute.OnLocal, router: pick(9, nil)},
		{name: "router below range", local: true, id: 5, want: zroute.OnLocal, router: pick(-1, nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var l zroute.Local
			here := &target{err: c.refuse}
			if c.local {
				register(t, &l, 1, here, ad)
			}
			var sender link
			d := dispatcher(t, zroute.Config{Local: &l, Remote: remotes(t, far), Sender: &sender, LocalRouter: c.router})
			m := message(c.id)
			m.Client = c.client
			m.SetReplier(make(replies, 1), 7)
			res, tried, err := d.Dispatch(m)
			if res != c.want || tried != c.tried || !errors.Is(err, c.wantErr) || (err == nil) != (c.wantErr == nil) {
				t.Errorf("got %v, %d tried, %v; want %v, %d, %v", res, tried, err, c.want, c.tried, c.wantErr)
			}
			if res > zroute.OnRemote && !m.Wants() {
				t.Error("the caller keeps the message, but its reply slot is gone")
			}
			if (res == zroute.OnLocal) != (len(here.got) == 1) || (res == zroute.OnRemote) != (len(sender.sent) == 1) {
				t.Errorf("%v, but %d local and %d remote", res, len(here.got), len(sender.sent))
			}
		})
	}
}

// objects takes messages of id 5.
type objects struct {
	err error
	got []*zmsg.Message
}

func (o *objects) Owns(id uint32) bool { return id == 5 }

func (o *objects) Deliver(m *zmsg.Message) error {
	if o.err == nil {
		o.got = append(o.got, m)
	}
	return o.err
}

// An id of objects goes to them, whoever else handles it and whatever becomes of it; others are none of their business.
func TestDispatchToObjects(t *testing.T) {
	t.Parallel()
	ads := []zmsg.Advert{{ID: 5, Client: true}, {ID: 6, Client: true}}
	for _, c := range []struct {
		id   uint32
		err  error
		want zroute.Result
	}{
		{5, nil, zroute.OnObject},
		{6, nil, zroute.OnLocal},
		{5, zmsg.ErrBusy, zroute.Busy},
		{5, zmsg.ErrNoRoute, zroute.NoRoute},
		{5, zmsg.ErrBadRequest, zroute.Failed},
		{5, zmsg.ErrDraining, zroute.Failed},
		{5, errShard, zroute.Failed},
	} {
		var l zroute.Local
		here, o := &target{}, &objects{err: c.err}
		register(t, &l, 1, here, ads...)
		d := dispatcher(t, zroute.Config{Local: &l, Remote: remotes(t, node("z", remoteActor(1, ads...))), Sender: &link{}, Objects: o})
		m := message(c.id)
		res, tried, err := d.Dispatch(m)
		if res != c.want || tried != 0 || !errors.Is(err, c.err) {
			t.Errorf("%d, %v: got %v, %d tried, %v; want %v", c.id, c.err, res, tried, err, c.want)
		}
		if (res == zroute.OnObject) != (len(o.got) == 1 && o.got[0] == m) || (res == zroute.OnLocal) != (len(here.got) == 1) {
			t.Errorf("%v, but %d for objects and %d local", res, len(o.got), len(here.got))
		}
	}
}

var errShard = errors.New("no such shard")

func pick(i int, err error) zroute.LocalRouter {
	return zroute.LocalRouterFunc(func(*zmsg.Message, []zroute.LocalCandidate) (int, error) { return i, err })
}

// Against a model: the preferred first, the others in list order; each try has one outcome; the asker gets exactly one.
func TestFallbackModel(t *testing.T) {
	t.Parallel()
	again := []zmsg.Code{zmsg.CodeUnavailable, zmsg.CodeUnknownActor, zmsg.CodeDraining, zmsg.CodeNoRoute, zmsg.CodeStopped, zmsg.CodeNodeLost}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "candidates")
		preferred := rapid.IntRange(-2, n+1).Draw(t, "preferred")
		oneWay := rapid.Bool().Draw(t, "one way")
		// What each candidate does: 0 sends fail, 1 an outcome that goes on, 2 the answer, 3 an error that ends it, 4 its outcome
		// is not known, 5 too large.
		does := rapid.SliceOfN(rapid.IntRange(0, 5), n, n).Draw(t, "does")
		code := rapid.SampledFrom(again).Draw(t, "code")
		var actors []zdiscovery.Actor
		for i := range n {
			actors = append(actors, remoteActor(uint64(i+1), zmsg.Advert{ID: 5}))
		}
		var r zroute.Remote
		r.Apply(&zdiscovery.Snapshot{Nodes: []zdiscovery.Node{node("z", actors...)}}, self)
		l := &link{answer: func(to zmsg.Address, _ *zmsg.Message, r zmsg.Replier, token uint64) error {
			reply := func(v zmsg.Reply) error {
				if r != nil {
					r.Reply(token, &v)
					r.Reply(token, &zmsg.Reply{ID: 666}) // doubled: it meets nobody
				}
				return nil
			}
			switch does[to.Actor-1] {
			case 0:
				return zmsg.ErrUnavailable
			case 1:
				return reply(zmsg.Reply{Code: code, Outcome: zmsg.NotExecuted})
			case 2:
				return reply(zmsg.Reply{ID: uint32(to.Actor)})
			case 3:
				return reply(zmsg.Reply{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted})
			case 4:
				return reply(zmsg.Reply{Code: code, Outcome: zmsg.Unknown})
			default:
				return zmsg.ErrTooLarge
			}
		}}
		d, err := zroute.New(zroute.Config{
			Node: self, Remote: &r, Sender: l,
			Strategy: zroute.RemoteStrategyFunc(func(*zmsg.Message, []zroute.RemoteCandidate) int { return preferred }),
		})
		if err != nil {
			t.Fatal(err)
		}
		m := message(5)
		got := make(replies, 10)
		if !oneWay {
			m.SetReplier(got, 3)
		}
		res, tried, err := d.Dispatch(m)

		order := []int{max(0, preferred)}
		if preferred < 0 || preferred >= n {
			order[0] = 0
		}
		for i := range n {
			if i != order[0] {
				order = append(order, i)
			}
		}
		if preferred == -1 {
			order = nil
		}
		var wantSent []uint64
		wantRes, wantTried := zroute.NoRoute, 0
		var want *zmsg.Reply
		exhausted := &zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted}
	walk:
		for _, i := range order {
			wantSent = append(wantSent, uint64(i+1))
			first := wantRes != zroute.OnRemote
			if first {
				wantTried++
			}
			switch does[i] {
			case 0:
				continue
			case 5:
				if first {
					wantRes = zroute.Failed
					break walk
				}
				continue // a further candidate is tried, whatever the bus said of this one
			}
			wantRes = zroute.OnRemote
			if oneWay {
				break
			}
			switch does[i] {
			case 1:
				want = exhausted // unless another answers
				continue
			case 2:
				want = &zmsg.Reply{ID: uint32(i + 1)}
			case 3:
				want = &zmsg.Reply{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted}
			case 4:
				want = &zmsg.Reply{Code: code, Outcome: zmsg.Unknown}
			}
			break
		}
		var sent []uint64
		for _, a := range l.sent {
			sent = append(sent, a.Actor)
		}
		if res != wantRes || tried != wantTried || !slices.Equal(sent, wantSent) {
			t.Fatalf("got %v, %d tried, %v, sent to %v; want %v, %d, %v", res, tried, err, sent, wantRes, wantTried, wantSent)
		}
		if oneWay || wantRes != zroute.OnRemote {
			if len(got) != 0 {
				t.Fatalf("an outcome came: %+v", <-got)
			}
			return
		}
		if len(got) != 1 {
			t.Fatalf("%d outcomes", len(got))
		}
		if want == exhausted && does[order[len(order)-1]] == 1 && code == zmsg.CodeNoRoute {
			exhausted.Code = code // the last one said that he does not handle it
		}
		if r := <-got; r.ID != want.ID || r.Code != want.Code || r.Outcome != want.Outcome {
			t.Fatalf("got %+v, want %+v", r, *want)
		} else if want == exhausted && r.Outcome == zmsg.NotExecuted && !strings.Contains(r.Text, fmt.Sprintf("%d tried", len(wantSent))) {
			t.Fatalf("text %q, want how many were tried", r.Text)
		}
	})
}

// Outcomes come from other goroutines, twice each and late, while futures are used again: every request has one outcome,
// its own.
func TestFallbackRaces(t *testing.T) {
	t.Parallel()
	r := remotes(t, node("y", remoteActor(1, zmsg.Advert{ID: 5})), node("z", remoteActor(1, zmsg.Advert{ID: 5})))
	type try struct {
		r     zmsg.Replier
		token uint64
		reply zmsg.Reply
	}
	tries := make(chan try, 1<<16)
	l := &link{answer: func(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
		v := zmsg.Reply{ID: uint32(m.Seq)}
		if to.Node.ID == "y" {
			v = zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted}
		}
		tries <- try{r, token, v}
		tries <- try{r, token, v}
		return nil
	}}
	reg := prometheus.NewRegistry()
	d := dispatcher(t, zroute.Config{Remote: r, Sender: l, Metrics: zmetrics.NewRoute(reg)})
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case x := <-tries:
					x.r.Reply(x.token, &x.reply)
				case <-quit:
					return
				}
			}
		})
	}
	const n = 5000
	got := make([]replies, n)
	for i := range n {
		m := message(5)
		m.Seq = uint64(i + 1)
		m.Deadline = time.Now().Add(time.Hour)
		got[i] = make(replies, 4)
		m.SetReplier(got[i], 1)
		if res, _, err := d.Dispatch(m); res != zroute.OnRemote || err != nil {
			t.Fatalf("got %v, %v", res, err)
		}
	}
	for i := range got {
		select {
		case v := <-got[i]:
			if v.ID != uint32(i+1) || v.Code != zmsg.CodeOK {
				t.Fatalf("request %d got %+v", i+1, v)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("request %d has no outcome", i+1)
		}
	}
	close(quit)
	wg.Wait()
	for i := range got {
		if len(got[i]) != 0 {
			t.Fatalf("request %d has two outcomes", i+1)
		}
	}
}

// plainLocal and plainRemote offer the copying lookup only.
type plainLocal struct{ l *zroute.Local }

func (p plainLocal) Lookup(id uint32) []zroute.LocalCandidate { return p.l.Lookup(id) }

type plainRemote struct{ r *zroute.Remote }

func (p plainRemote) Candidates() []zroute.RemoteCandidate { return p.r.Candidates() }

// With views and without, on each node of the cluster: the same pick. A sharded id goes to the actor that the model picks, and
// when that one is gone, to the second.
func TestPicksAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		field := uint32(rapid.IntRange(0, 1).Draw(t, "field"))
		sharded := rapid.Bool().Draw(t, "sharded")
		ids := []string{"a", "m", "z"}
		var nodes []zdiscovery.Node
		var places []zmsg.Address
		for _, id := range ids {
			n := node(id)
			for a := range rapid.IntRange(0, 3).Draw(t, "actors") {
				ad := zmsg.Advert{ID: 5, Sharded: sharded, KeyField: field, Client: rapid.Bool().Draw(t, "client")}
				n.Actors = append(n.Actors, remoteActor(uint64(a+1), ad))
			}
			nodes = append(nodes, n)
		}
		client := rapid.Bool().Draw(t, "from a client")
		for _, n := range nodes {
			for _, a := range n.Actors {
				if !client || a.Adverts[0].Client {
					places = append(places, zmsg.Address{Node: n.Ref, Actor: a.ID})
				}
			}
		}
		m := message(5)
		m.Client = client
		m.Session.ID = rapid.Uint64Range(0, 3).Draw(t, "session")
		m.Seq = rapid.Uint64Range(0, 3).Draw(t, "seq")
		room := rapid.StringN(0, 5, -1).Draw(t, "room")
		if room != "" {
			m.SetBody(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), room))
		}
		refuse := -1 // the place that is gone
		seen := map[zmsg.Address]int{}
		run := func(views bool) (got []zmsg.Address) {
			for i, id := range ids {
				var l zroute.Local
				var r zroute.Remote
				r.Apply(&zdiscovery.Snapshot{Nodes: nodes}, nodes[i].Ref)
				var at zmsg.Address
				gone := func(to zmsg.Address) bool { return refuse >= 0 && to == places[refuse] }
				for _, a := range nodes[i].Actors {
					place := zmsg.Address{Node: nodes[i].Ref, Actor: a.ID}
					if err := l.Register(a.ID, "t", takes(func() error {
						if gone(place) {
							return zmsg.ErrStopped
						}
						at = place
						return nil
					}), a.Adverts); err != nil {
						t.Fatal(err)
					}
				}
				sender := &link{answer: func(to zmsg.Address, _ *zmsg.Message, _ zmsg.Replier, _ uint64) error {
					if gone(to) {
						return zmsg.ErrUnavailable
					}
					at = to
					return nil
				}}
				cfg := zroute.Config{Node: zmsg.NodeRef{ID: id}, Local: &l, Remote: &r, Sender: sender, Strategy: zroute.Rendezvous(nil), LocalRouter: zroute.LocalRendezvous(nil)}
				if !views {
					cfg.Local, cfg.Remote = plainLocal{&l}, plainRemote{&r}
				}
				d, err := zroute.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				c := message(5)
				c.CopyHead(m)
				c.SetBody(m.Body())
				if _, _, err := d.Dispatch(c); (err == nil) == at.IsZero() {
					t.Fatalf("at %v with %v", at, err)
				}
				got = append(got, at)
			}
			return got
		}
		views, copies := run(true), run(false)
		if !slices.Equal(views, copies) {
			t.Fatalf("with views %v, with copies %v", views, copies)
		}
		if !sharded || len(places) == 0 {
			return
		}
		for _, at := range views {
			seen[at]++
		}
		if len(seen) != 1 {
			t.Fatalf("the nodes do not agree: %v", views)
		}
		if m.Session.ID == 0 && m.Seq == 0 && field == 0 && views[0] != places[0] {
			t.Fatalf("without a key: %v, want the first, %v", views[0], places[0])
		}
		if len(places) < 2 {
			return
		}
		refuse = slices.Index(places, views[0])
		second := run(true)
		refuse = -1
		for i := range nodes { // the first leaves: the key moves to where the fallback went
			nodes[i].Actors = slices.DeleteFunc(nodes[i].Actors, func(a zdiscovery.Actor) bool {
				return zmsg.Address{Node: nodes[i].Ref, Actor: a.ID} == views[0]
			})
		}
		if after := run(true); !slices.Equal(second, after) {
			t.Fatalf("fallback %v, owner after the change %v", second, after)
		}
	})
}

// takes is a target that is a function.
type takes func() error

func (f takes) Deliver(*zmsg.Message) error { return f() }
func (f takes) Load() int                   { return 0 }

// A full shard is busy: its key is not handed to another.
func TestShardBusy(t *testing.T) {
	t.Parallel()
	var l zroute.Local
	ad := zmsg.Advert{ID: 5, Sharded: true}
	register(t, &l, 1, &target{err: zmsg.ErrBusy}, ad)
	d := dispatcher(t, zroute.Config{Local: &l, Remote: remotes(t, node("z", remoteActor(1, ad))), Sender: &link{}})
	busy, remote := 0, 0
	for k := range uint64(100) {
		m := message(5)
		m.Session.ID = k + 1
		switch res, _, err := d.Dispatch(m); res {
		case zroute.Busy:
			if !errors.Is(err, zmsg.ErrBusy) {
				t.Errorf("got %v", err)
			}
			busy++
		case zroute.OnRemote:
			remote++
		default:
			t.Errorf("got %v, %v", res, err)
		}
	}
	if busy < 20 || remote < 20 {
		t.Errorf("%d busy and %d remote of 100 keys", busy, remote)
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := zroute.New(zroute.Config{Remote: &zroute.Remote{}})
	if err == nil || !strings.Contains(err.Error(), "Sender") || !strings.Contains(err.Error(), "Node") {
		t.Errorf("got %v", err)
	}
	d := dispatcher(t, zroute.Config{})
	if res, _, err := d.Dispatch(message(5)); res != zroute.NoRoute || !errors.Is(err, zmsg.ErrNoRoute) {
		t.Errorf("got %v, %v", res, err)
	}
	if err := d.Router().Dispatch(message(5)); !errors.Is(err, zmsg.ErrNoRoute) {
		t.Errorf("got %v", err)
	}
}
