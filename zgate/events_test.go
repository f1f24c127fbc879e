package zgate

import (
	"slices"
	"sync"
	"testing"

	"zgame/zmsg"
)

// toldStates is what actors were told of a session's client: the ids of the messages.
type toldStates struct {
	mu sync.Mutex
	of map[uint64][]uint32
}

func (x *toldStates) tell(to zmsg.Address, m *zmsg.Message) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[to.Actor] = append(x.of[to.Actor], m.ID)
	m.Release()
	return nil
}

func (x *toldStates) read(actor uint64) []uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.of[actor])
}

// Who begins to watch while the client is away is told once, however often it begins, also where it has the session bound besides.
func TestAwayIsToldOnce(t *testing.T) {
	t.Parallel()
	x := &toldStates{of: map[uint64][]uint32{}}
	r := newRig(t, func(c *Config) { c.Tell = x.tell })
	c := r.kept("ann")
	at := func(n uint64) zmsg.Address { return zmsg.Address{Node: testNode, Actor: n} }
	bind := func(owner uint64, version zmsg.RouteVersion) {
		t.Helper()
		err := r.Bind(&zmsg.Binding{Key: zmsg.Key{Type: 1, ID: "x"}, Version: version, Gate: testNode, Owner: at(owner), Sessions: []zmsg.SessionRef{c.ref()}})
		if err != nil {
			t.Fatal(err)
		}
	}
	watch := func(n uint64) {
		t.Helper()
		if err := r.Watch(c.ref(), at(n)); err != nil {
			t.Fatal(err)
		}
	}
	watch(1)
	bind(2, 1)
	r.cut(c)
	eventually(t, "they are told", func() bool { return len(x.read(1)) == 1 && len(x.read(2)) == 1 })
	watch(1)
	watch(2) // which has it bound
	watch(3)
	watch(3)
	bind(2, 1)
	bind(3, 2) // which watches; another owner
	bind(4, 3)
	back := r.again("ann", c.welcome.GetResume(), 0)
	want := []uint32{zmsg.SessionSuspendedID, zmsg.SessionResumedID}
	eventually(t, "they are told that it is back", func() bool {
		return len(x.read(1)) >= 2 && len(x.read(2)) >= 2 && len(x.read(3)) >= 2 && len(x.read(4)) >= 2
	})
	for n := range uint64(5) {
		if got := x.read(n); n > 0 && !slices.Equal(got, want) {
			t.Errorf("number %d was told %v, want %v", n, got, want)
		}
	}
	back.ws.end()
}

// However watching and the client's going and coming fall together, what is told begins with that it is away, and goes to and fro.
func TestWatchingWhileItGoes(t *testing.T) {
	t.Parallel()
	x := &toldStates{of: map[uint64][]uint32{}}
	r := newRig(t, func(c *Config) { c.Tell = x.tell })
	c := r.kept("ann")
	const rounds = 100
	for n := range uint64(rounds) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Watch(c.ref(), zmsg.Address{Node: testNode, Actor: n + 1}); err != nil {
				t.Error(err)
			}
		})
		c.ws.end()
		next := r.again("ann", c.welcome.GetResume(), 0)
		wg.Wait()
		c = next
	}
	for n := range uint64(rounds) {
		for i, id := range x.read(n + 1) {
			if want := [...]uint32{zmsg.SessionSuspendedID, zmsg.SessionResumedID}[i%2]; id != want {
				t.Fatalf("number %d was told %v", n+1, x.read(n+1))
			}
		}
	}
	c.ws.end()
}
