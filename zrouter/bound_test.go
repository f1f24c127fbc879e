package zrouter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter/internal/handoffpb"
)

func sessionAt(gate string, id uint64) zmsg.SessionRef {
	return zmsg.SessionRef{Gate: zmsg.NodeRef{ID: gate, Epoch: 3}, ID: id, Gen: uint32(id % 3)}
}

// The set of bound sessions against a map, with sessions that come and go, and after each step the way over the wire.
func TestBoundModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		b, model := new(bound), map[zmsg.SessionRef]bool{}
		for range 60 {
			s := sessionAt(fmt.Sprint("g", rnd.IntN(3)), rnd.Uint64N(8)+1)
			switch {
			case !model[s] && rnd.IntN(3) > 0:
				b.add(s, 4).last += rnd.Uint64N(5)
				model[s] = true
			case (b.remove(s) != nil) != model[s]:
				t.Fatalf("seed %d: removed %v, which was bound: %v", seed, s, model[s])
			default:
				delete(model, s)
			}
			r := &residence{bound: b}
			again, err := boundOf(r.seal())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			r.unseal()
			for _, c := range []*bound{b, again} {
				if c == nil && len(model) == 0 {
					continue
				}
				if got := c.sessions(); c.count != len(model) || len(got) != len(model) {
					t.Fatalf("seed %d: %d sessions, counted %d, want %d", seed, len(got), c.count, len(model))
				}
				for s := range model {
					if !c.has(s) {
						t.Fatalf("seed %d: %v is missing", seed, s)
					}
				}
				for _, g := range c.gates {
					if was := b.gate(g.node); was.last != g.last || was.since != g.since || was.base != g.base || len(g.list) == 0 {
						t.Fatalf("seed %d: %+v became %+v", seed, was, g)
					}
				}
			}
		}
	}
}

func TestBoundOf(t *testing.T) {
	t.Parallel()
	if b, err := boundOf(nil); b != nil || err != nil {
		t.Errorf("of nothing: %v, %v", b, err)
	}
	gate := func(change func(*handoffpb.BoundGate)) []*handoffpb.BoundGate {
		g := &handoffpb.BoundGate{Node: "g", Epoch: 1, Sessions: []uint64{1, 2}, Generations: []uint32{1, 1}, Pushes: 5, Base: 2, Since: 3}
		change(g)
		return []*handoffpb.BoundGate{g}
	}
	if b, err := boundOf(gate(func(*handoffpb.BoundGate) {})); err != nil || b.count != 2 {
		t.Errorf("%v, %v", b, err)
	}
	for name, gates := range map[string][]*handoffpb.BoundGate{
		"no node":            gate(func(g *handoffpb.BoundGate) { g.Node, g.Epoch = "", 0 }),
		"generation missing": gate(func(g *handoffpb.BoundGate) { g.Generations = g.Generations[:1] }),
		"session twice":      gate(func(g *handoffpb.BoundGate) { g.Sessions[1] = 1 }),
		"nobody":             gate(func(g *handoffpb.BoundGate) { g.Sessions, g.Generations = nil, nil }),
		"base above":         gate(func(g *handoffpb.BoundGate) { g.Base = 6 }),
		"too many": gate(func(g *handoffpb.BoundGate) {
			g.Sessions, g.Generations = make([]uint64, MaxBound+1), make([]uint32, MaxBound+1)
		}),
		"gate twice": append(gate(func(*handoffpb.BoundGate) {}), gate(func(*handoffpb.BoundGate) {})...),
	} {
		if b, err := boundOf(gates); !errors.Is(err, errGates) || b != nil {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}

func FuzzBoundOf(f *testing.F) {
	r := &residence{bound: new(bound)}
	for i := range uint64(5) {
		r.bound.add(sessionAt(fmt.Sprint("g", i%2), i), 2)
	}
	raw, err := attach(nil, true, nil, r.seal())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a handoffpb.Attachment
		if proto.Unmarshal(raw, &a) != nil {
			return
		}
		b, err := boundOf(a.GetGates())
		if err != nil {
			return
		}
		r := &residence{bound: b}
		if again, err := boundOf(r.seal()); err != nil || !slices.Equal(again.sessions(), b.sessions()) {
			t.Errorf("%v, then %v, %v", b.sessions(), again.sessions(), err)
		}
	})
}

// What is handed over changes no more, until it is known that it stays.
func TestSealed(t *testing.T) {
	t.Parallel()
	asked := &askedGates{}
	r := &residence{o: &object{key: zmsg.Key{Type: 1, ID: "k"}}, sh: &shard{set: &ManagerSet{gates: asked}}, version: 5, actor: 9}
	a, b := sessionAt("g", 1), sessionAt("g", 2)
	for range 2 {
		if err := r.bind(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.bind(zmsg.SessionRef{}); zmsg.CodeOf(err) != zmsg.CodeBadRequest {
		t.Errorf("no session: %v", err)
	}
	r.bound.gate(a.Gate).last = 7
	if err := r.bind(b); err != nil {
		t.Fatal(err)
	}
	gates := r.seal()
	if len(gates) != 1 || gates[0].GetPushes() != 7 || gates[0].GetBase() != 0 || gates[0].GetSince() != 5 || len(gates[0].GetSessions()) != 2 {
		t.Errorf("handed over: %v", gates)
	}
	for what, err := range map[string]error{
		"bind": r.bind(sessionAt("g", 3)), "unbind": r.unbind(a), "push": r.pushTo(nil, &zmsg.Push{}), "push to one": r.pushTo([]zmsg.SessionRef{a}, &zmsg.Push{}),
	} {
		if !errors.Is(err, ErrHandoff) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.unseal()
	if err := r.unbind(a); err != nil {
		t.Error(err)
	}
	r.sessionClosed(b)
	if n := r.boundCount.Load(); n != 0 || len(r.bound.gates) != 0 {
		t.Errorf("%d are bound, at %d gates", n, len(r.bound.gates))
	}
	want := []string{"bind [1] last 0 base 0 since 5", "bind [2] last 7 base 7 since 5", "unbind [1] last 7 base 0 since 5"}
	if !slices.Equal(asked.of, want) {
		t.Errorf("asked for %q, want %q", asked.of, want)
	}
}

// askedGates keeps what it is asked for.
type askedGates struct {
	noGates
	of []string
}

func (g *askedGates) note(what string, b *zmsg.Binding) {
	var ids []uint64
	for _, s := range b.Sessions {
		ids = append(ids, s.ID)
	}
	if b.Version != 5 || b.Owner.Actor != 9 || !reflect.DeepEqual(b.Key, zmsg.Key{Type: 1, ID: "k"}) {
		what = fmt.Sprintf("%s of %+v", what, b)
	}
	g.of = append(g.of, fmt.Sprint(what, " ", ids, " last ", b.Last, " base ", b.Base, " since ", b.Since))
}

func (g *askedGates) Bind(b *zmsg.Binding)   { g.note("bind", b) }
func (g *askedGates) Unbind(b *zmsg.Binding) { g.note("unbind", b) }

// A panic while the sessions are on their way to another node: the stay behind it pushes to them, for they have not gone.
func TestSealedByAPanic(t *testing.T) {
	t.Parallel()
	asked := &askedGates{}
	o := &object{key: zmsg.Key{Type: 1, ID: "k"}}
	r := &residence{o: o, sh: &shard{set: &ManagerSet{gates: asked}}, version: 5, actor: 9}
	if err := r.bind(sessionAt("g", 1)); err != nil {
		t.Fatal(err)
	}
	r.seal()
	r.left(Panicked)
	next := &residence{o: o, sh: r.sh, version: 5, actor: 9, bound: o.orphans}
	if err := next.bind(sessionAt("g", 2)); err != nil {
		t.Errorf("behind the panic: %v", err)
	}
}
