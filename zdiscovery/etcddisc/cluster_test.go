package etcddisc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"zgame/internal/embedded"
	"zgame/zdiscovery"
	"zgame/zdiscovery/etcddisc"
	"zgame/zmsg"
)

// TestLeaderChange is fault E3 with an etcd of three members: when the one that leads them goes, nodes stay who they are, watches
// go on, and so do leaderships. When two have gone nobody answers, and the list stands.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second // etcd's new leader knows how long leases have left, and gives them their full time again
	members, err := embedded.StartEtcdCluster(t.TempDir(), 3, func(cfg *embed.Config) { cfg.MaxRequestBytes = 64 << 10 })
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, e := range members {
		t.Cleanup(e.Stop)
		endpoints = append(endpoints, e.Endpoint())
	}
	dial := func() *etcddisc.Disc {
		d, err := etcddisc.New(etcddisc.Config{
			Endpoints: endpoints, TTL: ttl, RequestTimeout: busy, Heartbeat: 300 * time.Millisecond,
			Alive: func(context.Context, zdiscovery.Node) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a, b := dial(), dial()
	defer closeDisc(t, a)
	defer closeDisc(t, b)
	m := join(t, a, "a")
	ch, err := b.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until(t, ch, "a")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	l, err := m.Campaign(ctx, "cup")
	if err != nil {
		t.Fatal(err)
	}
	other := join(t, b, "b")
	next := campaign(ctx, other, "cup")
	until(t, ch, "a", "b")
	if err := m.Update(ctx, zdiscovery.Node{Version: strings.Repeat("x", 128<<10)}); !errors.Is(err, zdiscovery.ErrTooLarge) {
		t.Errorf("above the server's own limit: %v, want ErrTooLarge", err)
	}

	stop := func(leads bool) {
		i := slices.IndexFunc(members, func(e *embedded.Etcd) bool { return e.Leads() == leads })
		if i < 0 {
			t.Fatal("etcd has no such member")
		}
		members[i].Stop()
		members = slices.Delete(members, i, i+1)
	}
	stop(true)
	renewed := m.ServeUntil()
	eventually(t, "the lease is renewed", func() bool { return m.ServeUntil().After(renewed.Add(ttl / 4)) })
	var c zdiscovery.Member
	eventually(t, "another node joins", func() bool {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var err error
		c, err = a.Join(short, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "c"}})
		return err == nil
	})
	until(t, ch, "a", "b", "c")
	select {
	case <-m.Lost():
		t.Error("a is lost")
	case <-l.Lost():
		t.Error("a does not lead any more")
	case <-next:
		t.Error("b leads")
	default:
	}
	resign(t, l)
	if w := <-next; w.err != nil || w.Term() <= l.Term() {
		t.Errorf("b: %v", w.err)
	}

	stop(false)
	eventually(t, "nobody answers", func() bool { return !a.Up() && !b.Up() })
	short, done := context.WithTimeout(ctx, time.Second)
	defer done()
	if err := c.Leave(short); !errors.Is(err, zdiscovery.ErrUnavailable) {
		t.Errorf("leave without etcd: %v, want ErrUnavailable", err)
	}
	select {
	case s := <-ch:
		t.Errorf("the list changed: %+v", s.Nodes)
	default:
	}
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
