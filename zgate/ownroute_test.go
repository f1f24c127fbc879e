package zgate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
)

// delivered keeps what went where by routes of sessions, and answers it.
type delivered struct {
	mu  sync.Mutex
	err error
	log []string
}

func (d *delivered) deliver(to *zmsg.SessionRoute, m *zmsg.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.log = append(d.log, fmt.Sprintf("%d to %v%v", m.ID, to.Actor, to.Object))
	m.Reply(&zmsg.Reply{ID: m.ID + 1, Body: []byte("routed")})
	m.Release()
	return nil
}

func routeRig(tb testing.TB, change ...func(*Config)) (*rig, *delivered) {
	tb.Helper()
	d := &delivered{}
	r, _ := bindRig(tb, append(change, func(c *Config) { c.Deliver = d.deliver })...)
	return r, d
}

// A session's own route goes ahead of what handles the id otherwise, from the call on, until it is taken back; other ids and sessions know nothing
// of it. What a target that is gone says is the answer.
func TestSetRoute(t *testing.T) {
	t.Parallel()
	r, d := routeRig(t)
	c, other := r.login("ann"), r.login("bob")
	to := func(ref zmsg.SessionRef, to zmsg.SessionRoute, ids ...uint32) error {
		to.IDs = ids
		return r.SetRoute(ref, &to)
	}
	must(t, to(c.ref(), zmsg.SessionRoute{Actor: owner1}, 500, 501))
	must(t, to(c.ref(), zmsg.SessionRoute{Object: roomKey}, 501, 502))
	for _, id := range []uint32{500, 501, 502} {
		if f := c.call(id, "x"); f.Code != zmsg.CodeOK || string(f.Body) != "routed" {
			t.Errorf("%d: %+v", id, f)
		}
	}
	for _, x := range []struct {
		c  *client
		id uint32
	}{{c, 503}, {other, 500}} {
		if f := x.c.call(x.id, "x"); f.Code != zmsg.CodeNoRoute {
			t.Errorf("%d: %+v", x.id, f)
		}
	}
	d.mu.Lock()
	want := []string{fmt.Sprintf("500 to %v%v", owner1, zmsg.Key{}), fmt.Sprintf("501 to %v%v", zmsg.Address{}, roomKey), fmt.Sprintf("502 to %v%v", zmsg.Address{}, roomKey)}
	if !slices.Equal(d.log, want) {
		t.Errorf("went %q", d.log)
	}
	d.err = zmsg.ErrStopped
	d.mu.Unlock()
	if f := c.call(500, "x"); f.Code != zmsg.CodeStopped || f.Outcome != zmsg.NotExecuted {
		t.Errorf("%+v", f)
	}
	must(t, to(c.ref(), zmsg.SessionRoute{}, 500, 501, 502, 777))
	for _, id := range []uint32{500, 501, 502} {
		if f := c.call(id, "x"); f.Code != zmsg.CodeNoRoute {
			t.Errorf("%d: %+v", id, f)
		}
	}
	stale := c.ref()
	stale.Gen++
	if err := to(stale, zmsg.SessionRoute{Actor: owner1}, 500); !errors.Is(err, ErrStaleSession) {
		t.Error(err)
	}
	c.echo("hi")
}

// Of what one object says the newest owner's word counts, though an old one's comes later; also that it has taken a route back.
func TestRoutesOfObjects(t *testing.T) {
	t.Parallel()
	r, _ := routeRig(t, func(c *Config) { c.MaxRoutes = 3 })
	c := r.login("ann")
	by := func(v zmsg.RouteVersion, to zmsg.Address, ids ...uint32) error {
		return r.SetRoute(c.ref(), &zmsg.SessionRoute{IDs: ids, Actor: to, By: roomKey, Version: v})
	}
	must(t, by(2, owner1, 500))
	if err := by(1, owner2, 500); !errors.Is(err, ErrOldOwner) {
		t.Error(err)
	}
	must(t, by(3, zmsg.Address{}, 500))
	if f := c.call(500, "x"); f.Code != zmsg.CodeNoRoute {
		t.Errorf("%+v", f)
	}
	if err := by(2, owner1, 500); !errors.Is(err, ErrOldOwner) {
		t.Error(err)
	}
	must(t, by(3, owner2, 500))
	must(t, r.SetRoute(c.ref(), &zmsg.SessionRoute{IDs: []uint32{500}, Actor: owner1})) // somebody else's word counts as it comes
	must(t, by(1, owner2, 501, 502))
	if err := by(1, owner2, 503); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	must(t, by(2, zmsg.Address{}, 501))
	must(t, by(2, owner2, 503)) // what was taken back makes room
	if f := c.call(503, "x"); string(f.Body) != "routed" {
		t.Errorf("%+v", f)
	}
}

// Whatever is set and taken back, each id goes where a map says.
func TestRoutesModel(t *testing.T) {
	t.Parallel()
	r, _ := routeRig(t)
	c := r.login("ann")
	s, err := r.Session(c.ref())
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		s.routes.Store(nil)
		type said struct {
			to, by  uint64
			version zmsg.RouteVersion
		}
		model := map[uint32]said{}
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			ids := rapid.SliceOfNDistinct(rapid.Uint32Range(1, 6), 1, 1, rapid.ID).Draw(t, "ids")
			w := said{to: rapid.Uint64Range(0, 3).Draw(t, "to")}
			route := zmsg.SessionRoute{IDs: ids}
			if w.to > 0 {
				route.Actor = zmsg.Address{Node: testNode, Actor: w.to}
			}
			if w.by = rapid.Uint64Range(0, 2).Draw(t, "by"); w.by > 0 {
				w.version = zmsg.RouteVersion(rapid.Uint64Range(1, 4).Draw(t, "version"))
				route.By, route.Version = zmsg.Key{Type: uint32(w.by), ID: "x"}, w.version
			}
			err := r.SetRoute(c.ref(), &route)
			old, there := model[ids[0]]
			if stale := there && old.by == w.by && w.version < old.version; stale != errors.Is(err, ErrOldOwner) || !stale && err != nil {
				t.Fatalf("%+v after %+v: %v", w, old, err)
			} else if !stale {
				model[ids[0]] = w
				if w.to == 0 && w.by == 0 {
					delete(model, ids[0])
				}
			}
		}
		for id := range uint32(8) {
			var got uint64
			if to := s.ownRoute(id); to != nil {
				got = to.Actor.Actor
			}
			if want := model[id].to; got != want {
				t.Fatalf("%d goes to %d, expected %d", id, got, want)
			}
		}
	})
}
