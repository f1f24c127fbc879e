package zroute_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zroute"
)

// Against a plain list: what is registered, first, middle, last and itself taken out; views never change; a change builds new
// slices for the ids it touches only.
func TestLocalModel(t *testing.T) {
	t.Parallel()
	type row struct {
		actor uint64
		ads   []zmsg.Advert
	}
	rapid.Check(t, func(t *rapid.T) {
		var l zroute.Local
		var model []row
		changes, wantChanges := 0, 0
		l.OnChange(func() { changes++ })
		const ids = 6
		next := uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := map[uint32][]zroute.LocalCandidate{}
			copies := map[uint32][]zroute.LocalCandidate{}
			for id := range uint32(ids) {
				before[id], copies[id] = l.View(id), l.Lookup(id)
			}
			touched := map[uint32]bool{}
			if len(model) == 0 || rapid.Bool().Draw(t, "register") {
				var ads []zmsg.Advert
				for id := range uint32(ids) {
					if rapid.IntRange(0, 2).Draw(t, "has") == 0 {
						ads = append(ads, zmsg.Advert{ID: id, Client: rapid.Bool().Draw(t, "client"), Sharded: rapid.Bool().Draw(t, "sharded"), KeyField: uint32(rapid.IntRange(0, 3).Draw(t, "field"))})
						touched[id] = true
					}
				}
				if err := l.Register(next, "t", &target{}, slices.Clone(ads)); err != nil {
					t.Fatal(err)
				}
				if len(ads) > 0 {
					model = append(model, row{next, ads})
					wantChanges++
				}
				next++
			} else {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				for _, ad := range model[i].ads {
					touched[ad.ID] = true
				}
				l.Unregister(model[i].actor)
				l.Unregister(model[i].actor) // twice is no fault
				l.Unregister(next + 100)
				model = slices.Delete(model, i, i+1)
				wantChanges++
			}
			for id := range uint32(ids) {
				var want, wantClient []uint64
				sharded, field := false, uint32(0)
				for _, r := range model {
					for _, ad := range r.ads {
						if ad.ID != id {
							continue
						}
						want = append(want, r.actor)
						if ad.Client {
							wantClient = append(wantClient, r.actor)
						}
						if ad.Sharded {
							sharded, field = true, max(field, ad.KeyField)
						}
					}
				}
				if got := actors(l.View(id)); !slices.Equal(got, want) {
					t.Fatalf("id %d: view %v, want %v", id, got, want)
				}
				if got := actors(l.Lookup(id)); !slices.Equal(got, want) {
					t.Fatalf("id %d: lookup %v, want %v", id, got, want)
				}
				if got := actors(l.ClientView(id)); !slices.Equal(got, wantClient) {
					t.Fatalf("id %d: client view %v, want %v", id, got, wantClient)
				}
				if f, s := l.Shard(id); f != field || s != sharded {
					t.Fatalf("id %d: shard %d %v, want %d %v", id, f, s, field, sharded)
				}
				if !slices.Equal(before[id], copies[id]) {
					t.Fatalf("id %d: a view changed", id)
				}
				if len(want) > 0 && len(before[id]) > 0 && touched[id] == (&before[id][0] == &l.View(id)[0]) && len(want) == len(before[id]) {
					t.Fatalf("id %d: touched %v, but the slice says otherwise", id, touched[id])
				}
				if !touched[id] && len(want) > 0 && &before[id][0] != &l.View(id)[0] {
					t.Fatalf("id %d: a new slice though nothing touched it", id)
				}
			}
			if got := l.Adverts(); len(got) != len(model) {
				t.Fatalf("%d announced, want %d", len(got), len(model))
			}
		}
		if changes != wantChanges {
			t.Fatalf("told %d times, want %d", changes, wantChanges)
		}
	})
}

func actors(cs []zroute.LocalCandidate) (ids []uint64) {
	for _, c := range cs {
		ids = append(ids, c.Actor)
	}
	return ids
}

func TestLocalErrors(t *testing.T) {
	t.Parallel()
	var l zroute.Local
	register(t, &l, 1, &target{}, zmsg.Advert{ID: 5})
	if err := l.Register(1, "t", &target{}, []zmsg.Advert{{ID: 6}}); !errors.Is(err, zroute.ErrRegistered) {
		t.Errorf("got %v", err)
	}
	if err := l.Register(2, "t", &target{}, []zmsg.Advert{{ID: 6}, {ID: 6}}); err == nil || !strings.Contains(err.Error(), "message id 6 twice") {
		t.Errorf("got %v", err)
	}
	// An actor may take itself out while it is told of a change.
	l.OnChange(func() { l.Unregister(1) })
	register(t, &l, 3, &target{}, zmsg.Advert{ID: 7})
	if l.View(5) != nil || len(l.View(7)) != 1 {
		t.Error("the table is wrong after a change within a change")
	}
}

// Against sorting and filtering the snapshot each time; slices of ids that did not change are kept.
func TestRemoteModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r zroute.Remote
		const ids = 5
		states := []zdiscovery.State{zdiscovery.Ready, zdiscovery.Ready, zdiscovery.Ready, zdiscovery.Starting, zdiscovery.Draining}
		views := map[uint32][]zroute.RemoteCandidate{}
		nodes := map[string]zdiscovery.Node{}
		for range rapid.IntRange(1, 15).Draw(t, "rounds") {
			// One node changes, then all are applied in any order.
			id := rapid.SampledFrom([]string{"a", "b", "m", "z"}).Draw(t, "node")
			n := zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: uint64(rapid.IntRange(1, 2).Draw(t, "epoch"))}, State: rapid.SampledFrom(states).Draw(t, "state")}
			for a := range rapid.IntRange(0, 3).Draw(t, "actors") {
				actor := zdiscovery.Actor{ID: uint64(9 - a), Type: "t"}
				for _, id := range rapid.SliceOfNDistinct(rapid.Uint32Range(0, ids-1), 0, ids, func(v uint32) uint32 { return v }).Draw(t, "ids") {
					actor.Adverts = append(actor.Adverts, zmsg.Advert{ID: id, Client: id%2 == 0})
				}
				n.Actors = append(n.Actors, actor)
			}
			nodes[id] = n
			var s zdiscovery.Snapshot
			for _, n := range nodes {
				s.Nodes = append(s.Nodes, n)
			}
			r.Apply(&s, self)

			var all []string
			want := map[uint32][]string{}
			for _, id := range []string{"a", "b", "z"} {
				n := nodes[id]
				if n.State != zdiscovery.Ready {
					continue
				}
				as := slices.SortedFunc(slices.Values(n.Actors), func(x, y zdiscovery.Actor) int { return cmp.Compare(x.ID, y.ID) })
				for _, a := range as {
					place := fmt.Sprintf("%v/%d", n.Ref, a.ID)
					all = append(all, place)
					for _, ad := range a.Adverts {
						want[ad.ID] = append(want[ad.ID], place)
					}
				}
			}
			if got := places(r.Candidates()); !slices.Equal(got, all) {
				t.Fatalf("candidates %v, want %v", got, all)
			}
			for id := range uint32(ids) {
				v := r.ByID(id)
				if got := places(v); !slices.Equal(got, want[id]) {
					t.Fatalf("id %d: %v, want %v", id, got, want[id])
				}
				if client := r.ClientByID(id); id%2 == 0 && len(client) != len(v) || id%2 == 1 && len(client) != 0 {
					t.Fatalf("id %d: %d for clients of %d", id, len(client), len(v))
				}
			}
			// The same snapshot again changes nothing at all.
			for id := range uint32(ids) {
				views[id] = r.ByID(id)
			}
			slices.Reverse(s.Nodes)
			r.Apply(&s, self)
			for id, v := range views {
				if len(v) > 0 && &v[0] != &r.ByID(id)[0] {
					t.Fatalf("id %d: a new slice though nothing changed", id)
				}
			}
		}
	})
}

func TestRemoteKeepsUntouchedIDs(t *testing.T) {
	t.Parallel()
	var r zroute.Remote
	apply := func(b zdiscovery.Node) {
		r.Apply(&zdiscovery.Snapshot{Nodes: []zdiscovery.Node{node("a", remoteActor(1, zmsg.Advert{ID: 5})), b}}, self)
	}
	apply(node("b", remoteActor(1, zmsg.Advert{ID: 6})))
	five, six := r.ByID(5), r.ByID(6)
	apply(node("b", remoteActor(1, zmsg.Advert{ID: 6}), remoteActor(2, zmsg.Advert{ID: 6})))
	if &five[0] != &r.ByID(5)[0] {
		t.Error("id 5 has a new slice, only id 6 changed")
	}
	if len(six) != 1 || len(r.ByID(6)) != 2 {
		t.Errorf("id 6: %d before, %d now", len(six), len(r.ByID(6)))
	}
}

func places(cs []zroute.RemoteCandidate) (out []string) {
	for i := range cs {
		out = append(out, cs[i].Address().String())
	}
	return out
}
