package etcddisc_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"zgame/internal/embedded"
	"zgame/zdiscovery"
	"zgame/zdiscovery/etcddisc"
	"zgame/zdiscovery/zdiscoverytest"
	"zgame/zmsg"
	"zgame/ztest/faultproxy"
)

func TestMain(m *testing.M) {
	// These tests wait for leases to end more than they compute.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const within = 60 * time.Second

// server is an etcd with a client of the test's own.
type server struct {
	t    testing.TB
	dir  string
	port int
	etcd *embedded.Etcd
	raw  *clientv3.Client
}

func start(tb testing.TB) *server {
	tb.Helper()
	s := &server{t: tb, dir: tb.TempDir()}
	s.up()
	_, port, _ := net.SplitHostPort(s.etcd.Endpoint())
	s.port, _ = strconv.Atoi(port)
	var err error
	if s.raw, err = clientv3.New(clientv3.Config{Endpoints: []string{s.etcd.Endpoint()}, Logger: zap.NewNop()}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = s.raw.Close()
		s.etcd.Stop()
	})
	return s
}

func (s *server) up() {
	var err error
	if s.etcd, err = embedded.StartEtcd(s.dir, s.port); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *server) key(ref zmsg.NodeRef) string { return "/zgame/nodes/" + ref.ID }

func (s *server) expire(tb testing.TB, ref zmsg.NodeRef) {
	tb.Helper()
	r, err := s.raw.Get(s.ctx(), s.key(ref))
	if err != nil {
		tb.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return // by itself already
	}
	if _, err := s.raw.Revoke(s.ctx(), clientv3.LeaseID(r.Kvs[0].Lease)); err != nil && !strings.Contains(err.Error(), "lease not found") {
		tb.Fatal(err)
	}
}

func (s *server) remove(tb testing.TB, ref zmsg.NodeRef) {
	tb.Helper()
	if _, err := s.raw.Delete(s.ctx(), s.key(ref)); err != nil {
		tb.Fatal(err)
	}
}

func newDisc(endpoint string, ttl, timeout time.Duration) (*etcddisc.Disc, error) {
	return etcddisc.New(etcddisc.Config{
		Endpoints: []string{endpoint}, TTL: ttl, RequestTimeout: timeout, Heartbeat: 200 * time.Millisecond,
		Alive: func(context.Context, zdiscovery.Node) bool { return false },
	})
}

// busy is what etcd may take for a call on a busy machine.
const busy = 20 * time.Second

// open makes a client whose leases a busy machine does not miss to renew.
func open(tb testing.TB, endpoint string) *etcddisc.Disc {
	tb.Helper()
	return openTTL(tb, endpoint, time.Minute)
}

func openTTL(tb testing.TB, endpoint string, ttl time.Duration) *etcddisc.Disc {
	tb.Helper()
	d, err := newDisc(endpoint, ttl, busy)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	t.Parallel()
	zdiscoverytest.Run(t, func(t *testing.T) zdiscoverytest.Features {
		t.Helper()
		s := start(t)
		proxies := make(map[zdiscovery.Discovery]*faultproxy.Proxy)
		return zdiscoverytest.Features{
			Open: func(tb testing.TB, ttl time.Duration) zdiscovery.Discovery {
				tb.Helper()
				p := faultproxy.Start(tb, s.etcd.Endpoint())
				d := openTTL(tb, p.Addr(), ttl)
				proxies[d] = p
				return d
			},
			TTL:    3 * time.Second,
			Expire: s.expire,
			Delete: s.remove,
			SetUp: func(_ testing.TB, up bool) {
				for _, p := range proxies { // as if there were none
					if up {
						defer p.Heal()
					} else {
						p.Cut()
					}
				}
				if up {
					s.up()
				} else {
					s.etcd.Stop()
				}
			},
			Cut: func(_ testing.TB, d zdiscovery.Discovery, cut bool) {
				if cut {
					proxies[d].Set(faultproxy.Both, faultproxy.Fault{Swallow: true})
				} else {
					proxies[d].Heal()
				}
			},
		}
	})
}

// stalled is a network that holds everything back.
var stalled = faultproxy.Fault{Stall: true}

// join registers a node.
func join(t *testing.T, d *etcddisc.Disc, id string) zdiscovery.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	m, err := d.Join(ctx, zdiscovery.Node{Ref: zmsg.NodeRef{ID: id}, State: zdiscovery.Ready})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func closeDisc(t *testing.T, d *etcddisc.Disc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// until reads lists until one has the ids.
func until(t *testing.T, ch <-chan *zdiscovery.Snapshot, ids ...string) *zdiscovery.Snapshot {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case s, ok := <-ch:
			if !ok {
				t.Fatal("the watch ended")
			}
			var got []string
			for _, n := range s.Nodes {
				got = append(got, n.Ref.ID)
			}
			if fmt.Sprint(got) == fmt.Sprint(ids) {
				return s
			}
		case <-timeout:
			t.Fatalf("never saw %v", ids)
		}
	}
}

// TestCompaction is fault E1: while the watch's connection is away, the list changes and its history is compacted. What it shows
// then is the list, and the difference to the one before is what happened.
func TestCompaction(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := faultproxy.Start(t, s.etcd.Endpoint())
	watcher, other := open(t, p.Addr()), open(t, s.etcd.Endpoint())
	defer closeDisc(t, watcher)
	defer closeDisc(t, other)
	a := join(t, other, "a")
	b := join(t, other, "b")
	ch, err := watcher.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := until(t, ch, "a", "b")
	for round := range 3 {
		p.Set(faultproxy.Both, stalled)
		p.Reset()
		if err := a.Leave(s.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := b.Update(s.ctx(), zdiscovery.Node{State: zdiscovery.Ready, Version: fmt.Sprint("v", round)}); err != nil {
			t.Fatal(err)
		}
		c := join(t, other, fmt.Sprint("c", round))
		var last int64
		for range 20 {
			r, err := s.raw.Put(s.ctx(), "/other", "x")
			if err != nil {
				t.Fatal(err)
			}
			last = r.Header.Revision
		}
		if _, err := s.raw.Compact(s.ctx(), last); err != nil {
			t.Fatal(err)
		}
		p.Heal()
		begin := time.Now()
		now := until(t, ch, "b", fmt.Sprint("c", round))
		t.Logf("known %v after the connection was back", time.Since(begin).Round(time.Millisecond))
		joined, left, changed := zdiscovery.Diff(before, now)
		if len(joined) != 1 || joined[0].Ref != c.Ref() || len(left) != 1 || left[0].Ref != a.Ref() ||
			len(changed) != 1 || changed[0].Ref != b.Ref() || changed[0].Version != fmt.Sprint("v", round) {
			t.Errorf("joined %v, left %v, changed %v", joined, left, changed)
		}
		a, before = c, now
	}
}

// TestSilence: a connection that swallows everything without closing does not keep the list stale once it answers
// again, nor Leave and Close longer than their budget (faults E5, E6).
func TestSilence(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := faultproxy.Start(t, s.etcd.Endpoint())
	d, other := openTTL(t, p.Addr(), 9*time.Second), open(t, s.etcd.Endpoint()) // renewing it is what notices the silence
	defer closeDisc(t, other)
	m := join(t, d, "a")
	ch, err := d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until(t, ch, "a")
	p.Set(faultproxy.Both, stalled)
	b := join(t, other, "b")
	for end := time.Now().Add(within); d.Up(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("silence went unnoticed")
		}
	}
	p.Heal()
	for joined := false; !joined; {
		select {
		case snap, ok := <-ch:
			if !ok {
				t.Fatal("the watch ended")
			}
			for _, n := range snap.Nodes {
				joined = joined || n.Ref == b.Ref()
			}
		case <-time.After(within):
			t.Fatal("the watch did not heal")
		}
	}
	p.Set(faultproxy.Both, stalled)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := m.Leave(ctx); !errors.Is(err, zdiscovery.ErrUnavailable) {
		t.Errorf("leave into silence: %v, want ErrUnavailable", err)
	}
	closeDisc(t, d) // returns though nothing answers
}

// texts is a writer that several goroutines may use.
type texts struct {
	mu  sync.Mutex
	all strings.Builder
}

func (w *texts) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

func (w *texts) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// Where nobody writes anything to etcd, a watch is alive all the same.
func TestQuietClusterIsNotSilent(t *testing.T) {
	t.Parallel()
	s := start(t)
	const beat = 500 * time.Millisecond
	quiet := func() bool {
		log := &texts{}
		d, err := etcddisc.New(etcddisc.Config{
			Endpoints: []string{s.etcd.Endpoint()}, TTL: 3 * time.Second, Heartbeat: beat, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer closeDisc(t, d)
		if _, err := d.Watch(s.ctx()); err != nil {
			t.Fatal(err)
		}
		up := true
		for range 6 { // three without a sign of life, and the list would be read anew
			<-time.After(beat)
			up = up && d.Up()
		}
		return up && !strings.Contains(log.String(), "no sign of life")
	}
	for end := time.Now().Add(within); !quiet(); { // a busy machine may give none by itself
		if time.Now().After(end) {
			t.Fatal("the watch of a quiet cluster is given up, each time")
		}
	}
}

// TestWrongEndpoint is fault E7.
func TestWrongEndpoint(t *testing.T) {
	t.Parallel()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	refused := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	swallows, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer swallows.Close()
	for what, endpoint := range map[string]string{"refused": refused, "swallows": swallows.Addr().String()} {
		d, err := newDisc(endpoint, time.Minute, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = d.Join(ctx, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}})
		if !errors.Is(err, zdiscovery.ErrUnavailable) || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("%s: join: %v, want ErrUnavailable with %s", what, err, endpoint)
		}
		_, err = d.Watch(t.Context())
		if !errors.Is(err, zdiscovery.ErrUnavailable) || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("%s: watch: %v, want ErrUnavailable with %s", what, err, endpoint)
		}
		if d.Up() {
			t.Errorf("%s: up", what)
		}
		cancel()
		closeDisc(t, d)
	}
}

// TestHolderAnswers: a holder that answers at its address is found alive without waiting for its lease.
func TestHolderAnswers(t *testing.T) {
	t.Parallel()
	s := start(t)
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	d, err := etcddisc.New(etcddisc.Config{Endpoints: []string{"http://" + s.etcd.Endpoint()}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, d)
	n := zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}, Gate: "ws://" + holder.Addr().String() + "/ws"}
	ctx := s.ctx()
	if _, err := d.Join(ctx, n); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(ctx, n); !errors.Is(err, zdiscovery.ErrTaken) || !strings.Contains(err.Error(), holder.Addr().String()) {
		t.Errorf("second join: %v, want ErrTaken with the address", err)
	}
}

// TestForeignKeys: what is not a node's record is left out.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := open(t, s.etcd.Endpoint())
	defer closeDisc(t, d)
	put := func(key, value string) {
		t.Helper()
		if _, err := s.raw.Put(s.ctx(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("/zgame/nodes/bad", "not json")
	put("/zgame/nodesx", "{}")
	put("/zgame/nodes/", `{"state":"ready"}`)
	put("/zgame/nodes/good/or/bad", `{"state":"ready"}`)
	put("/zgame/nodes/"+strings.Repeat("x", zdiscovery.MaxID+1), `{"state":"ready"}`) // no bus has a subject for it
	join(t, d, "good")
	ch, err := d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until(t, ch, "good")
	put("/zgame/nodes/bad2", "[]")
	join(t, d, "good2")
	until(t, ch, "good", "good2")

	// They may be nodes that live: of a version that this one does not understand.
	read := func(id string) zmsg.NodeRef {
		t.Helper()
		r, err := s.raw.Get(s.ctx(), "/zgame/nodes/"+id)
		if err != nil || len(r.Kvs) != 1 {
			t.Fatal(id, err)
		}
		return zmsg.NodeRef{ID: id, Epoch: uint64(r.Kvs[0].CreateRevision)}
	}
	bad, bad2 := read("bad"), read("bad2")
	if _, err := s.raw.Delete(s.ctx(), "/zgame/nodes/bad2"); err != nil {
		t.Fatal(err)
	}
	for list := range ch {
		if len(list.Unreadable) == 1 {
			if zdiscovery.Gone(bad, list) || !zdiscovery.Gone(bad2, list) {
				t.Errorf("gone: %v %v, want that of the deleted key alone", zdiscovery.Gone(bad, list), zdiscovery.Gone(bad2, list))
			}
			break
		}
		if zdiscovery.Gone(bad2, list) {
			t.Error("a node whose record is not readable counts as gone")
		}
	}
}

// TestRecordsOfOtherVersions: what an older version did not write, or a newer one writes besides, is no fault.
func TestRecordsOfOtherVersions(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := open(t, s.etcd.Endpoint())
	defer closeDisc(t, d)
	for id, value := range map[string]string{
		"old": `{"ref":{"id":"old"},"state":"ready","meta":{"zone":"a"},"actors":[{"id":7,"type":"t","adverts":[{"id":5}]}]}`,
		"new": `{"ref":{"id":"new"},"state":"ready","zone":"b","weight":50,"load":310,"labels":{"k":"v"},"moon":{"phase":1},` +
			`"kinds":[{"type":7,"name":"room","adverts":[{"id":9,"client":true,"keyfield":2,"phase":1}],"phase":1}]}`,
		"before": `{"ref":{"ID":"before"},"state":"ready","actors":[{"id":7,"type":"t","adverts":[{"ID":5,"Client":true,"Sharded":true,"KeyField":3}]}]}`,
	} {
		if _, err := s.raw.Put(s.ctx(), "/zgame/nodes/"+id, value); err != nil {
			t.Fatal(err)
		}
	}
	ch, err := d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := (<-ch).Nodes
	if len(list) != 3 {
		t.Fatalf("%d nodes: %+v", len(list), list)
	}
	if b := list[0]; len(b.Actors) != 1 || b.Actors[0].Adverts[0] != (zmsg.Advert{ID: 5, Client: true, Sharded: true, KeyField: 3}) {
		t.Errorf("before the names were set: %+v", b)
	}
	if n := list[1]; len(n.Kinds) != 1 || n.Kinds[0].Type != 7 || n.Kinds[0].Name != "room" ||
		!slices.Equal(n.Kinds[0].Adverts, []zmsg.Advert{{ID: 9, Client: true, KeyField: 2}}) {
		t.Errorf("kinds: %+v", n.Kinds)
	}
	if n := list[1]; n.Zone != "b" || n.Weight != 50 || n.Load != 310 || n.Labels["k"] != "v" {
		t.Errorf("new: %+v", n)
	}
	if o := list[2]; o.State != zdiscovery.Ready || o.Weight != 0 || o.Zone != "" || len(o.Actors) != 1 || o.Actors[0].Adverts[0].ID != 5 {
		t.Errorf("old: %+v", o)
	}
}

// TestLargeRecords: 10,000 actors that handle three message ids each fit; what does not fit is refused by a clear error, and the
// record that was there stays.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := open(t, s.etcd.Endpoint())
	defer closeDisc(t, d)
	record := func(actors, ids int) zdiscovery.Node {
		n := zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}, State: zdiscovery.Ready}
		for i := range actors {
			a := zdiscovery.Actor{ID: uint64(i), Type: "main.room"}
			for id := range ids {
				a.Adverts = append(a.Adverts, zmsg.Advert{ID: uint32(1000 + id), Client: id == 0})
			}
			n.Actors = append(n.Actors, a)
		}
		return n
	}
	m, err := d.Join(s.ctx(), record(10_000, 3))
	if err != nil {
		t.Fatal(err)
	}
	ch, err := d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := (<-ch).Nodes; len(n) != 1 || len(n[0].Actors) != 10_000 {
		t.Fatal("the record is not whole")
	}
	for _, n := range []zdiscovery.Node{record(10_000, 9), record(20_000, 3)} {
		if err := m.Update(s.ctx(), n); !errors.Is(err, zdiscovery.ErrTooLarge) || !strings.Contains(err.Error(), "zactor.Private") {
			t.Errorf("too large: %v, want ErrTooLarge, and what to do", err)
		}
	}
	if _, err := d.Join(s.ctx(), zdiscovery.Node{Ref: zmsg.NodeRef{ID: "b"}, Version: strings.Repeat("x", 2<<20)}); !errors.Is(err, zdiscovery.ErrTooLarge) {
		t.Errorf("too large: %v, want ErrTooLarge", err)
	}
	eventually(t, "discovery is not down for that", d.Up)
	if err := m.Update(s.ctx(), record(1, 1)); err != nil {
		t.Fatal(err)
	}
	until(t, ch, "a")
}

func TestConfigFaultsTogether(t *testing.T) {
	t.Parallel()
	_, err := etcddisc.New(etcddisc.Config{Prefix: "/x/", TTL: 1500 * time.Millisecond, Password: "p", Heartbeat: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Endpoints", "Prefix", "TTL", "Username", "Heartbeat"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
	if _, err := etcddisc.New(etcddisc.Config{Endpoints: []string{"ftp://x:1", "nohost"}}); err == nil || !strings.Contains(err.Error(), "ftp") || !strings.Contains(err.Error(), "nohost") {
		t.Errorf("endpoints: %v", err)
	}
}

// A holder that is proven to have ended is replaced at once, whatever answers on its ports and however long its lease lasts.
func TestProvenGone(t *testing.T) {
	t.Parallel()
	s := start(t)
	first, err := newDisc(s.etcd.Endpoint(), time.Hour, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, first)
	old, err := first.Join(s.ctx(), zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}, Lock: "token"})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"other", "token"} {
		d, err := etcddisc.New(etcddisc.Config{
			Endpoints: []string{"http://" + s.etcd.Endpoint()}, TTL: time.Hour,
			Gone:  func(n zdiscovery.Node) bool { return n.Ref == old.Ref() && n.Lock == token },
			Alive: func(context.Context, zdiscovery.Node) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer closeDisc(t, d)
		m, err := d.Join(s.ctx(), zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}})
		switch {
		case token == "other" && !errors.Is(err, zdiscovery.ErrTaken):
			t.Errorf("nothing is proven: %v, want taken", err)
		case token == "token" && err != nil:
			t.Errorf("proven: %v", err)
		case token == "token" && m.Ref().Epoch <= old.Ref().Epoch:
			t.Errorf("%v after %v", m.Ref(), old.Ref())
		}
	}
}
