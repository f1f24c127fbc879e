package zstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/memstore"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	key = zmsg.Key{Type: 1, Zone: 2, ID: "k"}
	ann = zmsg.NodeRef{ID: "ann", Epoch: 3}
	bob = zmsg.NodeRef{ID: "bob", Epoch: 4}
)

func TestDecide(t *testing.T) {
	mine := zstore.NewWriteID()
	base := zstore.Record{Key: key, Own: zstore.Own{Node: ann, Version: 5}, Rev: 9, WID: zstore.NewWriteID()}
	save := zstore.Change{Op: zstore.OpSave, Key: key, Own: base.Own, Rev: base.Rev, WID: mine}
	with := func(f func(*zstore.Record)) zstore.Record { r := base; f(&r); return r }
	create := zstore.Change{Op: zstore.OpCreate, Key: key, Node: ann, WID: mine}
	claim := zstore.Change{Op: zstore.OpClaim, Key: key, Own: base.Own, Rev: base.Rev, Node: bob, WID: mine}
	remove := zstore.Change{Op: zstore.OpDelete, Key: key, Own: base.Own, Rev: base.Rev, WID: mine}
	tomb := zstore.Record{Key: key, Own: zstore.Own{Version: 6}, Rev: 10, WID: mine, Deleted: true}
	for _, c := range []struct {
		name  string
		c     zstore.Change
		cur   zstore.Record
		found bool
		want  zstore.Verdict
	}{
		{"save as before", save, base, true, zstore.Reissue},
		{"save landed", save, with(func(r *zstore.Record) { r.Rev = 10; r.WID = mine }), true, zstore.Landed},
		{"save after another's", save, with(func(r *zstore.Record) { r.Rev = 10 }), true, zstore.Overtaken},
		{"save fenced", save, with(func(r *zstore.Record) { r.Rev = 10; r.Own = zstore.Own{Node: bob, Version: 6} }), true, zstore.Overtaken},
		{"save of what is gone", save, zstore.Record{}, false, zstore.Overtaken},
		{"save of what is deleted", save, tomb, true, zstore.Overtaken},
		{"create not there", create, zstore.Record{}, false, zstore.Reissue},
		{"create on a tombstone", create, with(func(r *zstore.Record) { r.Deleted = true }), true, zstore.Reissue},
		{"create landed", create, with(func(r *zstore.Record) { r.WID = mine }), true, zstore.Landed},
		{"create lost", create, base, true, zstore.Overtaken},
		{"claim as before", claim, base, true, zstore.Reissue},
		{"claim landed", claim, zstore.Record{Key: key, Own: zstore.Own{Node: bob, Version: 6}, Rev: 10, WID: mine}, true, zstore.Landed},
		{"claim of what is gone", claim, zstore.Record{}, false, zstore.Overtaken},
		{"delete landed", remove, tomb, true, zstore.Landed},
		{"delete as before", remove, base, true, zstore.Reissue},
	} {
		if got := zstore.Decide(&c.c, c.cur, c.found); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A write in the air lands after a read has said that it has not: Resolve has issued it again by then, with the same
// id, so one of the two finds the other's work.
func TestResolveLateWrite(t *testing.T) {
	db := memstore.New()
	s := db.Share()
	rec, err := db.Create(t.Context(), key, ann, zstore.Write{}, zstore.NewWriteID())
	if err != nil {
		t.Fatal(err)
	}
	var land func()
	tries := 0
	s.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
		if tries++; op == zstore.OpSave && land == nil {
			return memstore.Fault{Kind: memstore.UnknownLate, Later: func(f func()) { land = f }}
		} else if op == zstore.OpSave {
			land() // just before the second try arrives
		}
		return memstore.Fault{}
	})
	c := zstore.Change{Op: zstore.OpSave, Key: key, Own: rec.Own, Rev: rec.Rev, Write: zstore.Write{State: []byte("x")}, WID: zstore.NewWriteID()}
	got, err := zstore.Resolve(t.Context(), s, &c)
	if err != nil || got.Rev != 2 || tries != 3 {
		t.Fatalf("%+v %v after %d calls", got, err, tries)
	}
}

func TestResolve(t *testing.T) {
	down := errors.New("down")
	save := func(rec zstore.Record) *zstore.Change {
		return &zstore.Change{Op: zstore.OpSave, Key: key, Own: rec.Own, Rev: rec.Rev, WID: zstore.NewWriteID()}
	}
	for _, c := range []struct {
		name   string
		faults []memstore.FaultKind // one for each call, then none
		steal  bool                 // bob claims after the first call
		want   error
	}{
		{"at once", nil, false, nil},
		{"definite at once", []memstore.FaultKind{memstore.Unavailable}, false, zstore.ErrUnavailable},
		{"landed", []memstore.FaultKind{memstore.UnknownLanded}, false, nil},
		{"not landed", []memstore.FaultKind{memstore.UnknownNotLanded}, false, nil},
		{"read fails too", []memstore.FaultKind{memstore.UnknownLanded, memstore.Unavailable, memstore.Unavailable}, false, nil},
		{"again and again", []memstore.FaultKind{memstore.UnknownNotLanded, memstore.None, memstore.UnknownNotLanded, memstore.None, memstore.UnknownLanded}, false, nil},
		{"second try not sent", []memstore.FaultKind{memstore.UnknownNotLanded, memstore.None, memstore.Unavailable}, false, nil},
		{"overtaken", []memstore.FaultKind{memstore.UnknownNotLanded}, true, zstore.ErrConflict},
		{"landed, then overtaken", []memstore.FaultKind{memstore.UnknownLanded}, true, zstore.ErrConflict},
		{"down for good", []memstore.FaultKind{memstore.UnknownNotLanded}, false, down},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, down)
				defer cancel()
				db := memstore.New()
				s := db.Share()
				rec, err := db.Create(ctx, key, ann, zstore.Write{}, zstore.NewWriteID())
				if err != nil {
					t.Fatal(err)
				}
				calls := 0
				s.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
					calls++
					if c.steal && calls == 2 {
						now, _ := db.Read(ctx, key)
						if _, err := db.Claim(ctx, key, now.Own, now.Rev, bob, zstore.NewWriteID()); err != nil {
							t.Error(err)
						}
					}
					if errors.Is(c.want, down) && calls > 1 {
						return memstore.Fault{Kind: memstore.Unavailable}
					}
					if calls <= len(c.faults) {
						return memstore.Fault{Kind: c.faults[calls-1]}
					}
					return memstore.Fault{}
				})
				got, err := zstore.Resolve(ctx, s, save(rec))
				if !errors.Is(err, c.want) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				if err == nil && got.Rev != 2 {
					t.Fatalf("revision %d", got.Rev)
				}
				if errors.Is(c.want, down) && (!errors.Is(err, zstore.ErrUnknown) || ctx.Err() == nil) {
					t.Fatalf("gave up with %v", err)
				}
			})
		})
	}
}

func TestMeter(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := memstore.NewWith(memstore.Config{MaxState: 100, Metrics: zmetrics.NewStore(reg)})
	ctx := t.Context()
	_, _ = s.Create(ctx, key, ann, zstore.Write{State: make([]byte, 51)}, zstore.NewWriteID())
	_, _ = s.Create(ctx, key, ann, zstore.Write{}, zstore.NewWriteID())
	_, _ = s.Create(ctx, key, ann, zstore.Write{State: make([]byte, 101)}, zstore.NewWriteID())
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if v := m.GetCounter().GetValue(); v > 0 {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = v
			}
		}
	}
	want := map[string]float64{
		"zgame_store_large_states_total":         1,
		"zgame_store_ops_total create ok":        1,
		"zgame_store_ops_total create conflict":  1,
		"zgame_store_ops_total create too_large": 1,
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v (all: %v)", name, got[name], v, got)
		}
	}
}

func TestWriteID(t *testing.T) {
	a, b := zstore.NewWriteID(), zstore.NewWriteID()
	if a == b || a.IsZero() || len(a.String()) != 32 || !(zstore.WriteID{}).IsZero() {
		t.Fatalf("%s %s", a, b)
	}
}
