package zroute_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"zgame/zmsg"
	"zgame/zroute"
)

func hundred() []zroute.RemoteCandidate {
	cs := make([]zroute.RemoteCandidate, 100)
	for i := range cs {
		cs[i] = zroute.RemoteCandidate{Node: zmsg.NodeRef{ID: string(rune('a' + i/10))}, Actor: uint64(i % 10)}
	}
	return cs
}

func TestRendezvous(t *testing.T) {
	t.Parallel()
	cs := hundred()
	s := zroute.Rendezvous(nil)
	m := message(5)
	if got := s.Pick(m, cs); got != 0 {
		t.Errorf("without a key: %d, want 0", got)
	}
	m.Seq = 77
	bySeq := s.Pick(m, cs)
	m.Seq, m.Session.ID = 1, 77
	if got := s.Pick(m, cs); got != bySeq {
		t.Errorf("session 77 gives %d, request 77 %d: the key is the session, else the request", got, bySeq)
	}
	counts := make([]int, len(cs))
	moved := 0
	for k := range uint64(20000) {
		m.Session.ID = k + 1
		i := s.Pick(m, cs)
		counts[i]++
		j := s.Pick(m, cs[:99]) // the last leaves
		if i != 99 && i != j {
			t.Fatalf("key %d moved from %d to %d though its candidate is there", k, i, j)
		}
		if i != j {
			moved++
		}
	}
	for i, n := range counts {
		if n < 100 || n > 320 {
			t.Errorf("candidate %d got %d of 20,000 keys", i, n)
		}
	}
	if moved != counts[99] {
		t.Errorf("%d keys moved, want those of the one that left, %d", moved, counts[99])
	}
	// Equal scores go to the lower index.
	twin := []zroute.RemoteCandidate{cs[3], cs[3], cs[3]}
	if got := s.Pick(m, twin); got != 0 {
		t.Errorf("a tie went to %d", got)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	m := message(5)
	if _, ok := zroute.UserKey(m); ok {
		t.Error("a message without user, session and seq has a key")
	}
	m.Session.ID = 3
	if k, ok := zroute.UserKey(m); !ok || k != 3 {
		t.Errorf("without a user: %d, %v, want the session", k, ok)
	}
	m.User = "ann"
	ann, _ := zroute.UserKey(m)
	m.Session.ID = 4
	if k, _ := zroute.UserKey(m); k != ann {
		t.Error("another session of the user has another key")
	}
	key := zroute.FieldKey(1)
	m.SetBody(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "lobby"))
	if k, ok := key(m); !ok || k != zmsg.HashBytes("lobby") {
		t.Errorf("got %d, %v", k, ok)
	}
	m.SetBody(nil)
	if k, ok := key(m); !ok || k != 0 {
		t.Errorf("the default value: got %d, %v", k, ok)
	}
}

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	cs := hundred()[:3]
	s := zroute.RoundRobin()
	for i := range 6 {
		for id := range uint32(4) { // in alternation: each id goes round on its own
			if got := s.Pick(message(id), cs); got != i%3 {
				t.Errorf("round %d, id %d: got %d", i, id, got)
			}
		}
	}
	l := zroute.LocalRoundRobin()
	lc := make([]zroute.LocalCandidate, 2)
	for i := range 4 {
		if got, err := l.Pick(message(5), lc); got != i%2 || err != nil {
			t.Errorf("local: got %d, %v", got, err)
		}
	}
}

func TestLocalRouters(t *testing.T) {
	t.Parallel()
	for _, r := range []zroute.LocalRouter{zroute.LocalFirst(), zroute.LocalRendezvous(nil), zroute.LocalRoundRobin(), zroute.LocalLeastLoad()} {
		if _, err := r.Pick(message(5), nil); !errors.Is(err, zroute.ErrNotFound) {
			t.Errorf("no candidates: got %v", err)
		}
	}
	cs := []zroute.LocalCandidate{{Actor: 1, Target: &target{load: 3}}, {Actor: 2, Target: &target{load: 1}}, {Actor: 3, Target: &target{load: 1}}}
	if i, err := zroute.LocalLeastLoad().Pick(message(5), cs); i != 1 || err != nil {
		t.Errorf("least load: got %d, %v", i, err)
	}
	m := message(5)
	r := zroute.LocalRendezvous(nil)
	if i, _ := r.Pick(m, cs); i != 0 {
		t.Errorf("without a key: got %d", i)
	}
	seen := map[int]bool{}
	for k := range uint64(50) {
		m.Session.ID = k + 1
		i, _ := r.Pick(m, cs)
		j, _ := r.Pick(m, cs)
		if i != j {
			t.Error("a key does not stay")
		}
		seen[i] = true
	}
	if len(seen) != 3 {
		t.Errorf("50 keys reach %d of 3", len(seen))
	}
}
