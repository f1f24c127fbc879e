package znode_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/zuser"
)

// shelf is a kind of objects that remember what was said.
func shelf(typ uint32, name string, n *znode.Node) zrouter.AnyKind {
	type state = *chatpb.Members
	return zrouter.Kind[state]{
		Type: typ, Name: name, Version: 1,
		Create: func(k zmsg.Key) (state, error) { return &chatpb.Members{Room: k.ID}, nil },
		Handlers: []zrouter.Handler[state]{
			zrouter.Handle(func(c *zrouter.Context[state], req *chatpb.Say) (*chatpb.Members, error) {
				c.State().Members = append(c.State().Members, req.GetText())
				c.Dirty()
				return &chatpb.Members{Room: n.Self().String(), Members: slices.Clone(c.State().GetMembers())}, nil
			}, zrouter.FromClients()),
		},
	}
}

var shelves = znode.App{Name: "shelves", Objects: func(n *znode.Node) []zrouter.AnyKind {
	return []zrouter.AnyKind{shelf(7, "shelf", n)}
}}

func shelfKey(id string) zmsg.Key { return zmsg.Key{Type: 7, ID: id} }

// say asks the object at a node and returns who has it, and what was said.
func say(t *testing.T, n *znode.Node, id, text string) (node string, said []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zrouter.Call[chatpb.Members](ctx, n.Objects(), shelfKey(id), &chatpb.Say{Room: id, Text: text})
	return m.GetRoom(), m.GetMembers(), err
}

// One object is reached in each way: by the set, by a ref, by the id of the message from an actor and from a client; from the node that
// has it and from one that hosts none.
func TestObjects(t *testing.T) {
	t.Parallel()
	r := newRig()
	host := start(t, r.config("host", shelves))
	cfg := r.config("gate", shelves)
	cfg.Settings.Logic.Router.Hosts = nil
	gate := start(t, cfg)
	for _, n := range []*znode.Node{host, gate} {
		eventually(t, "it knows that host hosts them", func() bool {
			for _, x := range n.Nodes() {
				if x.Ref == host.Self() && len(x.Kinds) == 2 && x.Kinds[0].Name == "shelf" && x.Kinds[0].OnDemand && x.Kinds[1].Name == zuser.Name {
					return len(n.Nodes()) == 2
				}
			}
			return false
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var want []string
	for _, n := range []*znode.Node{gate, host} {
		cl, err := zclient.Dial(ctx, zclient.Config{URL: n.GateURL(), Token: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		ways := map[string]func(text string) (*chatpb.Members, error){
			"set": func(text string) (*chatpb.Members, error) {
				return zrouter.Call[chatpb.Members](ctx, n.Objects(), shelfKey("x"), &chatpb.Say{Room: "x", Text: text})
			},
			"ref": func(text string) (*chatpb.Members, error) {
				return zactor.Ask[chatpb.Members](ctx, n.Group().Object(shelfKey("x")), &chatpb.Say{Text: text})
			},
			"by id": func(text string) (*chatpb.Members, error) {
				return zactor.Ask[chatpb.Members](ctx, n.Group().ByID(), &chatpb.Say{Room: "x", Text: text})
			},
			"client": func(text string) (*chatpb.Members, error) {
				m := new(chatpb.Members)
				return m, cl.Request(ctx, &chatpb.Say{Room: "x", Text: text}, m)
			},
		}
		for _, way := range []string{"set", "ref", "by id", "client"} {
			text := n.Self().ID + " " + way
			want = append(want, text)
			m, err := ways[way](text)
			if err != nil || m.GetRoom() != host.Self().String() || !slices.Equal(m.GetMembers(), want) {
				t.Errorf("%s: at %v, %q, %v; want %q", text, m.GetRoom(), m.GetMembers(), err, want)
			}
		}
		_ = cl.Close()
		<-cl.Done()
	}
	var m chatpb.Members
	cl, err := zclient.Dial(ctx, zclient.Config{URL: host.GateURL(), Token: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Request(ctx, &chatpb.Who{Room: "x"}, &m); !errors.Is(err, zmsg.ErrNoRoute) {
		t.Errorf("an id that the kind does not handle: %v", err)
	}
	_ = cl.Close()
	<-cl.Done()

	base := "http://" + gate.AdminAddr()
	status, body, _ := get(t, base+"/objects/7/0/x")
	if want := fmt.Sprintf(`{"owner":"host","epoch":%d,"version":1}`+"\n", host.Self().Epoch); status != http.StatusOK || body != want {
		t.Errorf("the admin page: %d %q, want %q", status, body, want)
	}
	for path, want := range map[string]int{"7/0/nobody": http.StatusNotFound, "8/0/x": http.StatusNotFound, "x/0/x": http.StatusBadRequest} {
		if status, body, _ := get(t, base+"/objects/"+path); status != want {
			t.Errorf("%s: %d %q, want %d", path, status, body, want)
		}
	}
	if _, body, _ := get(t, base+"/objects/7/0/nobody"); !strings.Contains(body, "the first request to it makes it") {
		t.Errorf("the advice for what is not there yet, on a node that does not host the kind: %q", body)
	}
	_, metrics, _ := get(t, "http://"+host.AdminAddr()+"/metrics")
	if !strings.Contains(metrics, `zgame_router_residents{kind="shelf"} 1`) {
		t.Error("the object in memory is not counted")
	}

	// It is given up when its node stops, with all that was told.
	stop(t, host)
	if rec, err := gate.Store().Read(ctx, shelfKey("x")); err != nil || !rec.Own.Node.IsZero() || rec.Own.Version != 2 {
		t.Errorf("the record says %+v, %v", rec.Own, err)
	}
	if _, _, err := say(t, gate, "x", "nobody"); !errors.Is(err, zrouter.ErrNoNode) && !errors.Is(err, zmsg.ErrUnavailable) {
		t.Errorf("with nobody who hosts the kind: %v", err)
	}
	host = start(t, r.config("host", shelves))
	eventually(t, "the new start has it", func() bool {
		at, said, err := say(t, gate, "x", "again")
		return err == nil && at == host.Self().String() && slices.Equal(said, append(want, "again"))
	})
}

// A node whose lease ended drops its objects; under its new epoch it finds them again, with what was saved.
func TestObjectsAfterRejoining(t *testing.T) {
	t.Parallel()
	r := newRig()
	n := start(t, r.config("n1", shelves))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := say(t, n, "x", "saved"); err != nil {
		t.Fatal(err)
	}
	m, err := zrouter.ManagerOf[*chatpb.Members](n.Objects(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Save(ctx, shelfKey("x")); err != nil {
		t.Fatal(err)
	}
	if _, said, err := say(t, n, "x", "not saved"); err != nil || len(said) != 2 {
		t.Fatal(said, err)
	}
	before := n.Self()
	r.disc.Expire("n1")
	eventually(t, "it is in the cluster again", func() bool { return n.Self().Epoch > before.Epoch })
	eventually(t, "it has the object again", func() bool {
		at, said, err := say(t, n, "x", "again")
		return err == nil && at == n.Self().String() && slices.Equal(said[:2], []string{"saved", "again"})
	})
	if rec, err := n.Store().Read(ctx, shelfKey("x")); err != nil || rec.Own.Node != n.Self() || rec.Own.Version != 2 {
		t.Errorf("the record says %+v, %v; want %v since version 2", rec.Own, err, n.Self())
	}
}

// shortLeases has members whose lease is short, and over at once on demand.
type shortLeases struct {
	zdiscovery.Discovery
	over atomic.Bool
}

func (d *shortLeases) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
	m, err := d.Discovery.Join(ctx, n)
	return shortLease{m, d}, err
}

type shortLease struct {
	zdiscovery.Member
	d *shortLeases
}

func (m shortLease) ServeUntil() time.Time {
	if m.d.over.Load() {
		return time.Now().Add(-time.Millisecond)
	}
	return time.Now().Add(100 * time.Millisecond)
}

// While its discovery does not answer, and its lease is over, the node is not ready, and its objects do not serve; they go on when it is
// back in time.
func TestObjectsWithoutALease(t *testing.T) {
	t.Parallel()
	r := newRig()
	cfg := r.config("n1", shelves)
	leases := &shortLeases{Discovery: cfg.Backends.Discovery}
	cfg.Backends.Discovery = leases
	n := start(t, cfg)
	if _, _, err := say(t, n, "x", "a"); err != nil {
		t.Fatal(err)
	}
	leases.over.Store(true)
	eventually(t, "it does not serve", func() bool {
		_, _, err := say(t, n, "x", "b")
		return errors.Is(err, zmsg.ErrUnavailable) && zmsg.OutcomeOf(err) == zmsg.NotExecuted
	})
	if err := n.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "objects do not serve") {
		t.Errorf("ready: %v", err)
	}
	leases.over.Store(false)
	eventually(t, "it serves again, with all that it had", func() bool {
		_, said, err := say(t, n, "x", "c")
		return err == nil && said[0] == "a"
	})
	if err := n.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

func TestObjectSettings(t *testing.T) {
	t.Parallel()
	r := newRig()
	for what, c := range map[string]struct {
		set  func(s *znode.RouterSettings)
		want []string
	}{
		"kinds that the program has not": {
			func(s *znode.RouterSettings) {
				s.Hosts = []string{"shelf", "shelv"}
				s.Kinds = map[string]zrouter.Settings{"room": {SaveDelay: time.Second}}
			},
			[]string{`logic.router.hosts: the program has no kind "shelv", did you mean shelf?`, `logic.router.kinds: the program has no kind "room"`, "[shelf zuser]"},
		},
		"what is of the node": {
			func(s *znode.RouterSettings) { s.Kinds = map[string]zrouter.Settings{"shelf": {MaxHops: 5}} },
			[]string{"shelf", "max_hops", "of the node"},
		},
		"values": {
			func(s *znode.RouterSettings) { s.MaxQueue, s.StoreOps = -1, -1 },
			[]string{"logic.router.max_queue -1", "logic.router.store_ops -1"},
		},
	} {
		cfg := r.config("n1", shelves)
		c.set(&cfg.Settings.Logic.Router)
		n, err := znode.New(cfg)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err = n.Start(ctx)
			cancel()
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q in it", what, err, want)
			}
		}
	}
	cfg := r.config("n1", shelves)
	cfg.App.Objects = func(*znode.Node) []zrouter.AnyKind { return []zrouter.AnyKind{nil} }
	if n, err := znode.New(cfg); err != nil {
		t.Error(err)
	} else if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "kind 1 of 1: expected a zrouter.Kind") {
		t.Errorf("a kind that is nil: %v", err)
	}
	cfg = r.config("n1", shelves)
	cfg.Settings.Logic.Router.Hosts, cfg.Settings.Logic.Router.Kinds = nil, map[string]zrouter.Settings{"shelf": {SaveDelay: time.Second}}
	n := start(t, cfg) // hosts none of it: its settings are no fault
	if k := n.Objects().Kinds(); len(k) != 0 {
		t.Errorf("hosts %v", k)
	}
}
