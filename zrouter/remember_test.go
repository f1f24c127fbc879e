package zrouter_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// stays notes where objects came into memory, and when.
type stays struct {
	mu sync.Mutex
	at map[string][]zmsg.NodeRef
	by []time.Time
}

// kinds are two for a node: a log that is remembered, and a note (type 8) that is not.
func (s *stays) kinds(w *world) []zrouter.AnyKind {
	log := logs()
	log.Settings.Remember = zrouter.On
	w.epoch++ // as start does next
	ref := zmsg.NodeRef{Epoch: w.epoch}
	w.epoch--
	log.OnActivate = func(c *logContext) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.at == nil {
			s.at = make(map[string][]zmsg.NodeRef)
		}
		s.at[c.Key().ID] = append(s.at[c.Key().ID], ref)
		s.by = append(s.by, time.Now())
		return nil
	}
	note := logs()
	note.Type, note.Name, note.Handlers = 8, "note", []zrouter.Handler[*testpb.Log]{zrouter.Handle(boom)}
	log.Handlers = slices.Delete(log.Handlers, 3, 4)
	return []zrouter.AnyKind{log, note}
}

// last says which epoch had each object in memory last, and how often all came there.
func (s *stays) last() (last map[string]uint64, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last = make(map[string]uint64)
	for id, at := range s.at {
		last[id] = at[len(at)-1].Epoch
		times += len(at)
	}
	return last, times
}

func (s *stays) start(w *world, id string, set zrouter.Settings) *testNode {
	return w.start(id, set, s.kinds(w)...)
}

// own has a node own objects of both kinds.
func (n *testNode) own(tb testing.TB, ids int) {
	tb.Helper()
	m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
	if err != nil {
		tb.Fatal(err)
	}
	notes, err := zrouter.ManagerOf[*testpb.Log](n.set, 8)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range ids {
		if _, err := m.MutableObject(tb.Context(), key(fmt.Sprint(i))); err != nil {
			tb.Fatal(err)
		}
		if _, err := notes.MutableObject(tb.Context(), zmsg.Key{Type: 8, ID: fmt.Sprint(i)}); err != nil {
			tb.Fatal(err)
		}
	}
}

// die ends a node: the others learn of it by the list, if they are there.
func (w *world) die(n *testNode) {
	n.until.Store(1)
	n.down.Store(true)
	w.remove(n)
	for _, o := range w.all() {
		o.set.NodeGone(n.ref)
	}
}

func (w *world) owner(tb testing.TB, typ uint32, id int) zstore.Own {
	tb.Helper()
	rec, err := w.db.Read(tb.Context(), zmsg.Key{Type: typ, ID: fmt.Sprint(id)})
	if err != nil {
		tb.Fatal(err)
	}
	return rec.Own
}

// After its node's death each object of a kind with Remember is in memory at its home, once, without a request; those of other kinds stay
// as they are. Looking for them costs the store nothing before and afterwards, and goes no faster than it may.
func TestRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 60
		var s stays
		w := newWorld(t)
		set := zrouter.Settings{RememberRate: 20, ObjectFreeTimeout: 100 * time.Hour}
		dead, a, b := s.start(w, "dead", set), s.start(w, "a", set), s.start(w, "b", set)
		dead.own(t, ids)
		ca, cb := a.counting(nil), b.counting(nil)
		time.Sleep(time.Hour)
		if n := ca.Load() + cb.Load(); n != 0 {
			t.Errorf("%d calls of the store while all live", n)
		}
		a.set.NodeGone(dead.ref) // somebody says so, and the list does not
		time.Sleep(time.Minute)
		if _, times := s.last(); times != ids {
			t.Fatalf("taken over from one that lives: %d", times)
		}
		w.die(dead)
		w.die(dead)
		began := time.Now()
		time.Sleep(2 * time.Minute)
		last, times := s.last()
		if len(last) != ids || times != 2*ids {
			t.Errorf("%d objects came into memory %d times, want %d and %d", len(last), times, ids, 2*ids)
		}
		at := map[uint64]int{}
		for i := range ids {
			own := w.owner(t, 7, i)
			if own.Node.Epoch != last[fmt.Sprint(i)] || own.Version != 2 {
				t.Errorf("%d is %v's since version %d", i, own.Node, own.Version)
			}
			at[own.Node.Epoch]++
			if own := w.owner(t, 8, i); own.Node != dead.ref {
				t.Errorf("%d of a kind that is not remembered is %v's", i, own.Node)
			}
		}
		if len(at) != 2 || at[dead.ref.Epoch] != 0 {
			t.Errorf("at %v", at)
		}
		most := max(at[a.ref.Epoch], at[b.ref.Epoch])
		if took := s.by[len(s.by)-1].Sub(began); took < time.Duration(most-2)*time.Second/20 {
			t.Errorf("%d at one node within %v", most, took)
		}
		ca.Store(0)
		cb.Store(0)
		time.Sleep(time.Hour)
		if n := ca.Load() + cb.Load(); n != 0 {
			t.Errorf("%d calls of the store afterwards", n)
		}
	})
}

// The store does not answer when the node dies: it is asked again, and so are single objects.
func TestRememberWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 20
		var s stays
		w := newWorld(t)
		dead, a := s.start(w, "dead", zrouter.Settings{}), s.start(w, "a", zrouter.Settings{})
		dead.own(t, ids)
		var mu sync.Mutex
		failed := map[zstore.Op]int{}
		a.counting(func(op zstore.Op) memstore.Fault {
			mu.Lock()
			defer mu.Unlock()
			if failed[op]++; failed[op] <= 3 {
				return memstore.Fault{Kind: memstore.Unavailable}
			}
			return memstore.Fault{}
		})
		w.die(dead)
		time.Sleep(time.Minute)
		if last, times := s.last(); times != 2*ids {
			t.Errorf("%d came into memory again: %v", times-ids, last)
		}
	})
}

// A node that is started again under its id takes its objects back when it is asked for them: at once, whoever is their home, and although
// nobody else knows yet that the old one is dead.
func TestRestartedNodeTakesItsObjectsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 20
		w := newWorld(t, "other", "n")
		dead := w.all()[1]
		dead.fill(t, ids)
		if _, err := dead.keep("0", "saved"); err != nil {
			t.Fatal(err)
		}
		dead.until.Store(1)
		dead.down.Store(true)
		fresh := w.start("n", zrouter.Settings{}, logs())
		began := time.Now()
		for id := range ids { // half of which have their home at the other
			if got, err := fresh.lines(fmt.Sprint(id)); err != nil || id == 0 && !slices.Equal(got, []string{"saved"}) {
				t.Errorf("%d, asked at once: %q, %v", id, got, err)
			}
			if own := w.owner(t, 7, id); own.Node != fresh.ref || own.Version != 2 {
				t.Errorf("%d is %v's since version %d", id, own.Node, own.Version)
			}
		}
		if took := time.Since(began); took > time.Second { // of a clock that stands while something runs
			t.Errorf("it took %v", took)
		}
	})
}

// A node that is started again under its id has the remembered objects whose home it is without requests: the others tell it whom it
// replaces.
func TestRestartedNodeRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 30
		var s stays
		w := newWorld(t)
		other, dead := s.start(w, "other", zrouter.Settings{}), s.start(w, "n", zrouter.Settings{})
		dead.own(t, ids)
		if _, err := dead.keep("0", "saved"); err != nil {
			t.Fatal(err)
		}
		dead.until.Store(1)
		dead.down.Store(true)
		w.remove(dead) // one of an id is on a list, and here the new one is at once
		fresh := s.start(w, "n", zrouter.Settings{})
		if got, err := fresh.lines("0"); err != nil || !slices.Equal(got, []string{"saved"}) {
			t.Errorf("asked at once: %q, %v", got, err)
		}
		other.set.NodeGone(dead.ref)
		time.Sleep(time.Minute)
		last, times := s.last()
		if times != 2*ids {
			t.Errorf("%d came into memory again, want %d", times-ids, ids)
		}
		at := map[uint64]int{}
		for _, e := range last {
			at[e]++
		}
		if at[fresh.ref.Epoch] == 0 || at[other.ref.Epoch] == 0 || at[dead.ref.Epoch] != 0 {
			t.Errorf("at %v", at)
		}
	})
}

// All nodes were killed, and nobody who is there now has seen that: the first request that has an object claimed brings the others too.
func TestRememberAfterAllWereKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 30
		var s stays
		w := newWorld(t)
		old := []*testNode{s.start(w, "a", zrouter.Settings{}), s.start(w, "b", zrouter.Settings{})}
		old[0].own(t, ids)
		for _, n := range old {
			w.die(n)
		}
		a, b := s.start(w, "a", zrouter.Settings{}), s.start(w, "b", zrouter.Settings{})
		time.Sleep(time.Minute)
		if _, times := s.last(); times != ids {
			t.Fatalf("%d came into memory, and nobody knows of them", times-ids)
		}
		if _, err := a.lines("3"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		last, times := s.last()
		if times != 2*ids {
			t.Errorf("%d came into memory again, want %d", times-ids, ids)
		}
		nodes := slices.Sorted(maps.Values(last))
		if nodes[0] != a.ref.Epoch || nodes[len(nodes)-1] != b.ref.Epoch {
			t.Errorf("at %v", nodes)
		}
	})
}

// A node that drains brings nothing back.
func TestDrainingNodeRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids = 10
		var s stays
		w := newWorld(t)
		dead, a := s.start(w, "dead", zrouter.Settings{}), s.start(w, "a", zrouter.Settings{})
		dead.own(t, ids)
		if _, err := a.set.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := a.counting(nil)
		w.die(dead)
		time.Sleep(time.Minute)
		if _, times := s.last(); times != ids || calls.Load() != 0 {
			t.Errorf("%d came into memory, %d calls of the store", times-ids, calls.Load())
		}
	})
}
