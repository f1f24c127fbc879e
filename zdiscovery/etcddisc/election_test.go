package etcddisc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"zgame/zdiscovery"
	"zgame/ztest/faultproxy"
)

// keys returns the keys under a prefix.
func (s *server) keys(prefix string) []string {
	s.t.Helper()
	r, err := s.raw.Get(s.ctx(), prefix, clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, kv := range r.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// eventually waits until so many keys are under the prefix.
func (s *server) eventually(prefix string, n int) []string {
	s.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		keys := s.keys(prefix)
		if len(keys) == n {
			return keys
		}
		if time.Now().After(end) {
			s.t.Fatalf("under %s: %q, want %d keys", prefix, keys, n)
		}
	}
}

type campaigned struct {
	zdiscovery.Leadership
	err error
}

func campaign(ctx context.Context, m zdiscovery.Member, name string) <-chan campaigned {
	ch := make(chan campaigned, 1)
	go func() { // ends with the campaign, which ctx bounds
		l, err := m.Campaign(ctx, name)
		ch <- campaigned{l, err}
	}()
	return ch
}

func (s *server) won(ch <-chan campaigned) zdiscovery.Leadership {
	s.t.Helper()
	select {
	case c := <-ch:
		if c.err != nil {
			s.t.Fatalf("campaign: %v", c.err)
		}
		return c.Leadership
	case <-time.After(within):
		s.t.Fatal("nobody leads")
		return nil
	}
}

func resign(t *testing.T, l zdiscovery.Leadership) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := l.Resign(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestCandidacyWithoutAnswer is fault E8 of elections: etcd wrote the key, and the answer was lost. A campaign that goes on finds
// its key; one that gives up takes it away, and rules out that the write arrives later.
func TestCandidacyWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := faultproxy.Start(t, s.etcd.Endpoint())
	d, err := newDisc(p.Addr(), time.Minute, busy)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, d)
	m := join(t, d, "a")
	const line, guards = "/zgame/leaders/cup/", "/zgame/withdrawn/"
	answersVanish := func() {
		t.Helper()
		if _, err := d.Leader(s.ctx(), "cup"); err != nil { // there is a connection
			t.Fatal(err)
		}
		p.Set(faultproxy.Down, faultproxy.Fault{Swallow: true})
	}
	for round := range 3 {
		before := int64(0) // what this round's write expects of the guard
		for _, guard := range s.keys(guards) {
			r, err := s.raw.Get(s.ctx(), guard)
			if err != nil {
				t.Fatal(err)
			}
			before = r.Kvs[0].ModRevision
		}
		answersVanish()
		ctx, cancel := context.WithCancel(s.ctx())
		ch := campaign(ctx, m, "cup")
		key := s.eventually(line, 1)[0]
		cancel()
		if c := <-ch; !errors.Is(c.err, context.Canceled) {
			t.Fatalf("gave up: %v", c.err)
		}
		p.Heal()
		s.eventually(line, 0)
		guard := s.eventually(guards, 1)[0]
		// The write once more, as if the network had held it back.
		r, err := s.raw.Txn(s.ctx()).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(guard), "=", before)).
			Then(clientv3.OpPut(key, "late")).Commit()
		if err != nil || r.Succeeded {
			t.Fatalf("round %d: a late write arrived: %v", round, err)
		}

		resign(t, s.won(campaign(s.ctx(), m, "cup"))) // the withdrawal has got its answer too
		answersVanish()
		ch = campaign(s.ctx(), m, "cup")
		s.eventually(line, 1)
		p.Heal()
		l := s.won(ch)
		if leader, err := d.Leader(s.ctx(), "cup"); err != nil || leader != (zdiscovery.Leader{Node: m.Ref(), Term: l.Term()}) {
			t.Errorf("leader: %+v, %v; the term is %d", leader, err, l.Term())
		}
		resign(t, l)
		s.eventually(line, 0)
	}
	if err := m.Leave(s.ctx()); err != nil {
		t.Fatal(err)
	}
	s.eventually("/zgame/", 0)
}

// TestElectionWatch: what can happen to the watch of a candidate, and of a leader, does not keep them from what happened to
// the key (fault E1).
func TestElectionWatch(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := faultproxy.Start(t, s.etcd.Endpoint())
	near, err := newDisc(s.etcd.Endpoint(), time.Minute, busy)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, near)
	far, err := newDisc(p.Addr(), time.Minute, busy)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, far)
	a, b := join(t, near, "a"), join(t, far, "b")
	faults := map[string]func(){
		"compacted": func() {
			p.Set(faultproxy.Both, stalled)
			p.Reset()
		},
		"stalled":   func() { p.Set(faultproxy.Both, stalled) },
		"swallowed": func() { p.Set(faultproxy.Down, faultproxy.Fault{Swallow: true}) },
		"cut":       p.Cut,
	}
	for what, fault := range faults {
		l := s.won(campaign(s.ctx(), a, "cup"))
		ch := campaign(s.ctx(), b, "cup")
		s.eventually("/zgame/leaders/cup/", 2)
		fault()
		resign(t, l)
		r, err := s.raw.Put(s.ctx(), "/other", "x")
		if err != nil {
			t.Fatal(err)
		}
		if what == "compacted" {
			if _, err := s.raw.Compact(s.ctx(), r.Header.Revision); err != nil {
				t.Fatal(err)
			}
		}
		p.Heal()
		next := s.won(ch)
		if next.Term() <= l.Term() {
			t.Errorf("%s: term %d after %d", what, next.Term(), l.Term())
		}

		// Fault E10: the leader's key is deleted by hand, while its watch is broken.
		fault()
		if _, err := s.raw.Delete(s.ctx(), s.keys("/zgame/leaders/cup/")[0]); err != nil {
			t.Fatal(err)
		}
		p.Heal()
		select {
		case <-next.Lost():
		case <-time.After(within):
			t.Fatalf("%s: a leader without a key leads on", what)
		}
		if next.Until().After(time.Now()) {
			t.Errorf("%s: the lost leader may act until %v", what, next.Until())
		}
	}
}

// TestKeysDeletedByHand is fault E10 for candidates: one whose key is gone is at the end of the line; one whose node's key is
// gone is no member any more and leads nothing, and its key goes with the lease.
func TestKeysDeletedByHand(t *testing.T) {
	t.Parallel()
	s := start(t)
	const ttl = 6 * time.Second // the end of c's is waited for
	d, other := openTTL(t, s.etcd.Endpoint(), ttl), openTTL(t, s.etcd.Endpoint(), ttl)
	defer closeDisc(t, d)
	defer closeDisc(t, other)
	a, b, c := join(t, d, "a"), join(t, d, "b"), join(t, other, "c")
	l := s.won(campaign(s.ctx(), a, "cup"))
	wonB := campaign(s.ctx(), b, "cup")
	second := s.eventually("/zgame/leaders/cup/", 2)
	wonC := campaign(s.ctx(), c, "cup")
	s.eventually("/zgame/leaders/cup/", 3)
	leader, err := s.raw.Get(s.ctx(), "/zgame/leaders/cup/", clientv3.WithFirstCreate()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range second {
		if key != string(leader.Kvs[0].Key) {
			if _, err := s.raw.Delete(s.ctx(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	resign(t, l)
	next := s.won(wonC) // b stands behind c now, or has not noticed yet that its key is gone
	s.remove(t, c.Ref())
	select {
	case <-next.Lost():
	case <-time.After(within):
		t.Fatal("a node that is off the list leads on")
	}
	until := next.Until()
	if last := s.won(wonB); !until.Before(time.Now()) || last.Term() <= next.Term() {
		t.Errorf("b leads with term %d after %d; c may act for another %v", last.Term(), next.Term(), time.Until(until))
	}
	if _, err := c.Campaign(s.ctx(), "cup"); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("c campaigns: %v, want ErrLost", err)
	}
}

// TestOneLease is fault E11: whatever a node leads is under its one lease.
func TestOneLease(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := open(t, s.etcd.Endpoint())
	m := join(t, d, "a")
	const names = 50
	for i := range names {
		s.won(campaign(s.ctx(), m, fmt.Sprint("cup", i)))
	}
	leases, err := s.raw.Leases(s.ctx())
	if err != nil || len(leases.Leases) != 1 || len(s.keys("/zgame/leaders/")) != names {
		t.Errorf("%d leases: %v", len(leases.Leases), err)
	}
	closeDisc(t, d)                                                       // as a killed process
	if _, err := s.raw.Revoke(s.ctx(), leases.Leases[0].ID); err != nil { // as etcd does in the end
		t.Fatal(err)
	}
	s.eventually("/zgame/", 0)
}

// Keys in a line that nobody of ours has written, for they have no lease, hold nobody up.
func TestForeignKeysInALine(t *testing.T) {
	t.Parallel()
	s := start(t)
	d, err := newDisc(s.etcd.Endpoint(), time.Minute, busy)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDisc(t, d)
	for i := range 3 {
		if _, err := s.raw.Put(s.ctx(), fmt.Sprintf("/zgame/leaders/cup/foreign%d", i), "not json"); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := d.Leader(s.ctx(), "cup"); err != nil || !l.Node.IsZero() {
		t.Errorf("before: %+v, %v; want nobody", l, err)
	}
	a, b := join(t, d, "a"), join(t, d, "b")
	first := s.won(campaign(s.ctx(), a, "cup"))
	second := campaign(s.ctx(), b, "cup")
	s.eventually("/zgame/leaders/cup/", 5)
	if _, err := s.raw.Put(s.ctx(), "/zgame/leaders/cup/foreign3", ""); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Leader(s.ctx(), "cup"); err != nil || l.Node != a.Ref() || l.Term != first.Term() {
		t.Errorf("%+v, %v; want %v in term %d", l, err, a.Ref(), first.Term())
	}
	resign(t, first)
	if l := s.won(second); l.Term() <= first.Term() {
		t.Errorf("term %d after %d", l.Term(), first.Term())
	}
}
