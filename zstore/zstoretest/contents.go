package zstoretest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"

	"zgame/zmsg"
	"zgame/zstore"
)

// testKeys stores under ids of every ugly kind, each its own record, in every type and zone.
func testKeys(b *bench) {
	ids := []string{
		"a", "A", "0", "a.b", "a/b", "a b", "a.b.c", ".", "..", "*", ">", "a.>", "a.*", "$", "$where", "_", "-", "=", "%2e",
		" ", "  ", "\t", "\n", "\r\n", "\x00", "a\x00b", "\x7f", `"`, `'`, `\`, "{}", "null", "grün", "日本語", "👾👾", "\u200b",
		"é", "e\u0301", // one look, two spellings, two keys
		strings.Repeat("x", 300), strings.Repeat("x", 299) + "y", strings.Repeat("é", 150),
		strings.Repeat("z", zstore.MaxID),
	}
	for i, s := range ids {
		k := zmsg.Key{Type: 1, Zone: 2, ID: s}
		b.wantRecord(b.create(k, ann, fmt.Sprint(i)), k, zstore.Own{Node: ann, Version: 1}, 1, fmt.Sprint(i))
	}
	for i, s := range ids {
		k := zmsg.Key{Type: 1, Zone: 2, ID: s}
		rec := b.wantRead(k, zstore.Own{Node: ann, Version: 1}, 1, fmt.Sprint(i))
		if i%8 == 0 {
			b.save(rec, "saved")
		}
	}
	seen := map[string]bool{}
	err := b.s.Scan(b.ctx, ann, func(k zmsg.Key, own zstore.Own) bool {
		if k.Type != 1 || k.Zone != 2 || seen[k.ID] {
			b.Errorf("Scan gave %q in %d/%d, seen before: %t", k.ID, k.Type, k.Zone, seen[k.ID])
		}
		seen[k.ID] = true
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range ids {
		if !seen[s] {
			b.Errorf("Scan did not give %q", s)
		}
	}

	for _, k := range []zmsg.Key{
		{ID: "a"},
		{Type: 2, Zone: 1, ID: "a"},
		{Type: 12, ID: "a"},
		{Zone: 12, ID: "a"},
		{Type: math.MaxUint32, Zone: math.MaxUint32, ID: "a"},
		{Type: math.MaxInt32 + 1, ID: "a"},
	} {
		b.create(k, ann, k.String())
		b.wantRead(k, zstore.Own{Node: ann, Version: 1}, 1, k.String())
	}
}

func testInvalid(b *bench) {
	good := zstore.Change{Op: zstore.OpClaim, Key: b.key(), Node: ann, Own: zstore.Own{Node: ann, Version: 1}, Rev: 1, WID: id()}
	for name, f := range map[string]func(*zstore.Change){
		"empty id":      func(c *zstore.Change) { c.Key.ID = "" },
		"long id":       func(c *zstore.Change) { c.Key.ID = strings.Repeat("x", zstore.MaxID+1) },
		"id not UTF-8":  func(c *zstore.Change) { c.Key.ID = "\xff" },
		"no write id":   func(c *zstore.Change) { c.WID = zstore.WriteID{} },
		"half a node":   func(c *zstore.Change) { c.Node = zmsg.NodeRef{Epoch: 1} },
		"half an owner": func(c *zstore.Change) { c.Own.Node = zmsg.NodeRef{Epoch: 1} },
		"long node":     func(c *zstore.Change) { c.Node.ID = strings.Repeat("x", zstore.MaxID+1) },
	} {
		for op := zstore.OpCreate; op <= zstore.OpDelete; op++ {
			c := good
			c.Op = op
			f(&c)
			usesNode := op == zstore.OpCreate || op == zstore.OpClaim || op == zstore.OpMove
			if (strings.Contains(name, "node") && !usesNode) || (strings.Contains(name, "owner") && op == zstore.OpCreate) {
				continue
			}
			_, err := c.Do(b.ctx, b.s)
			b.wantErr(fmt.Sprintf("%s with %s", op, name), err, zstore.ErrInvalid)
		}
	}
	c := good
	c.Node = zmsg.NodeRef{}
	_, err := c.Do(b.ctx, b.s)
	b.wantErr("Claim by nobody", err, zstore.ErrInvalid)
	for _, s := range []string{"", strings.Repeat("x", zstore.MaxID+1), "\xff"} {
		_, err := b.s.Read(b.ctx, zmsg.Key{ID: s})
		b.wantErr("Read", err, zstore.ErrInvalid)
	}
	never := func(zmsg.Key, zstore.Own) bool { b.Error("Scan gave a record"); return false }
	b.wantErr("Scan of nobody", b.s.Scan(b.ctx, zmsg.NodeRef{}, never), zstore.ErrInvalid)
	b.wantErr("Scan of half a node", b.s.Scan(b.ctx, zmsg.NodeRef{Epoch: 1}, never), zstore.ErrInvalid)
}

// testLimits writes a state of exactly MaxState, with as much remembered as may be, and one byte more of each (M4).
func testLimits(b *bench) {
	limit := b.s.MaxState()
	if limit < 512<<10 {
		b.Fatalf("MaxState is %d: too small to be of use", limit)
	}
	k := zmsg.Key{Type: math.MaxUint32, Zone: math.MaxUint32, ID: strings.Repeat("l", zstore.MaxID)}
	node := zmsg.NodeRef{ID: strings.Repeat("n", zstore.MaxID), Epoch: math.MaxUint64}
	full := zstore.Write{Schema: math.MaxUint32, Done: []zstore.Done{{Origin: "o", Seq: math.MaxUint64}}}
	full.Done[0].Reply = make([]byte, zstore.MaxDone-48-1)
	rec, err := b.s.Create(b.ctx, k, node, full, id())
	if err != nil {
		b.Fatalf("Create with remembered requests at the limit: %v", err)
	}
	more := zstore.Write{Done: []zstore.Done{{Origin: "oo", Reply: full.Done[0].Reply}}}
	_, err = b.s.Save(b.ctx, k, rec.Own, rec.Rev, more, id())
	b.wantErr("Save with too much remembered", err, zstore.ErrTooLarge)

	big := make([]byte, limit+1)
	for i := range big {
		big[i] = byte(i * 2654435761 >> 13) // not compressible to nothing
	}
	over := zstore.Write{State: big}
	_, err = b.s.Create(b.ctx, b.key(), ann, over, id())
	b.wantErr("Create", err, zstore.ErrTooLarge)
	_, err = b.s.Save(b.ctx, k, rec.Own, rec.Rev, over, id())
	b.wantErr("Save", err, zstore.ErrTooLarge)
	_, _, err = b.s.Move(b.ctx, k, rec.Own, rec.Rev, over, bob, id())
	b.wantErr("Move", err, zstore.ErrTooLarge)
	b.unchanged(rec)
	if b.f.SmallStates {
		return
	}
	full.State = big[:limit]
	if _, err = b.s.Save(b.ctx, k, rec.Own, rec.Rev, full, id()); err != nil {
		b.Fatalf("Save of a state at the limit: %v", err)
	}
	got := b.read(k)
	if !bytes.Equal(got.State, full.State) || !bytes.Equal(got.Done[0].Reply, full.Done[0].Reply) || got.Rev != 2 {
		b.Fatalf("a state at the limit came back with %d bytes at revision %d", len(got.State), got.Rev)
	}
	claimed := b.claim(got, ann) // the driver may write the whole document again
	if !bytes.Equal(claimed.State, full.State) {
		b.Fatal("Claim changed a state at the limit")
	}
	b.save(claimed, "small again") // and the store goes on
}

// testCopies: what is given in may be changed after the call, what comes out belongs to the caller.
func testCopies(b *bench) {
	w := zstore.Write{State: []byte("abc"), Done: []zstore.Done{{Origin: "o", Seq: 1, Reply: []byte("yes")}}}
	rec, err := b.s.Create(b.ctx, b.key(), ann, w, id())
	if err != nil {
		b.Fatal(err)
	}
	spoil := func(state []byte, done []zstore.Done) {
		state[0] = 'X'
		done[0].Reply[0] = 'X'
		done[0].Origin = "X"
	}
	want := func() zstore.Record {
		b.Helper()
		rec := b.read(rec.Key)
		if string(rec.State) != "abc" || len(rec.Done) != 1 || rec.Done[0].Origin != "o" || string(rec.Done[0].Reply) != "yes" {
			b.Fatalf("the record is %+v", rec)
		}
		return rec
	}
	spoil(w.State, w.Done)
	spoiled := want()
	spoil(spoiled.State, spoiled.Done)
	rec = b.claim(want(), bob)
	spoil(rec.State, rec.Done)
	want()
	w = zstore.Write{State: []byte("abc"), Done: []zstore.Done{{Origin: "o", Seq: 1, Reply: []byte("yes")}}}
	if _, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, w, id()); err != nil {
		b.Fatal(err)
	}
	spoil(w.State, w.Done)
	want()
}

// testContents: every field comes back, at both ends of its range, through every write.
func testContents(b *bench) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	w := zstore.Write{Schema: math.MaxUint32, State: all, Done: []zstore.Done{
		{Origin: "first", Seq: math.MaxUint64, Reply: all},
		{Origin: "", Seq: 0, Reply: nil},
		{Origin: "o\x00.$é", Seq: 1, Reply: []byte{0}},
	}}
	far := zmsg.NodeRef{ID: "n.$ \x00é", Epoch: math.MaxUint64}
	rec, err := b.s.Create(b.ctx, b.key(), far, w, id())
	if err != nil {
		b.Fatal(err)
	}
	check := func(what string, rec zstore.Record, n int) {
		b.Helper()
		if rec.Schema != w.Schema || !bytes.Equal(rec.State, w.State) || len(rec.Done) != n {
			b.Fatalf("%s: %+v", what, rec)
		}
		for i, d := range rec.Done {
			if d.Origin != w.Done[i].Origin || d.Seq != w.Done[i].Seq || !bytes.Equal(d.Reply, w.Done[i].Reply) {
				b.Fatalf("%s: remembered request %d is %+v", what, i, d)
			}
		}
		b.unchanged(rec)
	}
	check("Create", rec, 3)
	check("Claim", b.claim(rec, ann), 3)
	rec = b.read(rec.Key)
	if _, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, w, id()); err != nil {
		b.Fatal(err)
	}
	check("Save", b.read(rec.Key), 3)
	rec = b.read(rec.Key)
	w.Done = w.Done[:1]
	if _, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, w, far, id()); err != nil {
		b.Fatal(err)
	}
	rec = b.read(rec.Key)
	check("Move", rec, 1)
	w = zstore.Write{} // a write replaces all three
	if _, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, w, id()); err != nil {
		b.Fatal(err)
	}
	check("Save of nothing", b.read(rec.Key), 0)
}

func testScan(b *bench) {
	want := map[zmsg.Key]zstore.Own{}
	for i := range 40 {
		rec := b.create(b.key(), ann, strings.Repeat("x", 100))
		switch i % 8 {
		case 1:
			rec = b.claim(rec, bob)
		case 2:
			b.delete(rec)
		case 3:
			if _, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state(""), zmsg.NodeRef{}, id()); err != nil {
				b.Fatal(err)
			}
		case 4:
			rec = b.claim(rec, old) // the same id, another epoch
		case 5:
			own, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state(""), bob, id())
			if err != nil {
				b.Fatal(err)
			}
			rec.Own = own // pending counts as owned
		case 6:
			rec = b.save(rec, "saved")
		}
		if rec.Own.Node == ann && i%8 != 2 && i%8 != 3 {
			want[rec.Key] = rec.Own
		}
	}
	got := map[zmsg.Key]zstore.Own{}
	collect := func(k zmsg.Key, own zstore.Own) bool {
		if _, twice := got[k]; twice {
			b.Errorf("Scan gave %s twice", k)
		}
		got[k] = own
		return true
	}
	if err := b.s.Scan(b.ctx, ann, collect); err != nil {
		b.Fatal(err)
	}
	for k, own := range want {
		if got[k] != own {
			b.Errorf("Scan gave %s as %+v, want %+v", k, got[k], own)
		}
	}
	if len(got) != len(want) {
		b.Errorf("Scan gave %d records, want %d", len(got), len(want))
	}
	clear(got)
	if err := b.s.Scan(b.ctx, bob, collect); err != nil || len(got) != 10 {
		b.Errorf("Scan of bob gave %d records and %v, want 10", len(got), err)
	}
	pending := 0
	for _, own := range got {
		if own.Pending {
			pending++
		}
	}
	if pending != 5 {
		b.Errorf("Scan of bob gave %d pending records, want 5", pending)
	}
	n := 0
	if err := b.s.Scan(b.ctx, ann, func(zmsg.Key, zstore.Own) bool { n++; return n < 3 }); err != nil || n != 3 {
		b.Errorf("a Scan stopped at the third gave %d and %v", n, err)
	}
	clear(got)
	if err := b.s.Scan(b.ctx, zmsg.NodeRef{ID: "nobody-here", Epoch: 1}, collect); err != nil || len(got) != 0 {
		b.Errorf("Scan of a stranger gave %d and %v", len(got), err)
	}
}

// testContext: a context that is over stops a call before it is sent.
func testContext(b *bench) {
	rec := b.create(b.key(), ann, "a")
	over, cancel := context.WithCancel(b.ctx)
	cancel()
	k := b.key()
	for _, c := range life(k) {
		_, err := c.Do(over, b.s)
		b.wantErr(c.Op.String(), err, context.Canceled)
	}
	_, err := b.s.Save(over, rec.Key, rec.Own, rec.Rev, state("b"), id())
	b.wantErr("save", err, context.Canceled)
	_, err = b.s.Read(over, rec.Key)
	b.wantErr("read", err, context.Canceled)
	b.wantErr("scan", b.s.Scan(over, ann, func(zmsg.Key, zstore.Own) bool { return true }), context.Canceled)
	b.wantErr("ping", b.s.Ping(over), context.Canceled)
	b.unchanged(rec)
	_, err = b.s.Read(b.ctx, k)
	b.wantErr("read", err, zstore.ErrNotFound)
}

func testPingClose(b *bench) {
	rec := b.create(b.key(), ann, "a")
	if err := b.s.Ping(b.ctx); err != nil {
		b.Fatal(err)
	}
	for range 2 {
		if err := b.s.Close(b.ctx); err != nil {
			b.Fatalf("Close: %v", err)
		}
	}
	b.wantErr("Ping", b.s.Ping(b.ctx), zstore.ErrUnavailable)
	_, err := b.s.Read(b.ctx, rec.Key)
	b.wantErr("Read", err, zstore.ErrUnavailable)
	for _, c := range life(b.key()) {
		_, err := c.Do(b.ctx, b.s)
		b.wantErr(c.Op.String(), err, zstore.ErrUnavailable)
	}
	b.wantErr("Scan", b.s.Scan(b.ctx, ann, func(zmsg.Key, zstore.Own) bool { return true }), zstore.ErrUnavailable)
}

// testUnknownFields: what a newer version put into the document survives every write of this one (M5).
func testUnknownFields(b *bench) {
	if b.f.AddUnknown == nil {
		return
	}
	for _, remembered := range []bool{true, false} {
		rec := b.create(b.key(), ann, "a")
		if remembered {
			rec = b.save(rec, "b") // the driver knows the document, and then it changes behind its back
		}
		b.f.AddUnknown(b.T, b.s, rec.Key)
		b.unchanged(rec)
		rec = b.save(rec, "c")
		b.f.HasUnknown(b.T, b.s, rec.Key)
		rec = b.save(rec, "d")
		rec = b.claim(rec, bob)
		b.f.HasUnknown(b.T, b.s, rec.Key)
		own, rev, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("e"), ann, id())
		if err != nil {
			b.Fatal(err)
		}
		b.f.HasUnknown(b.T, b.s, rec.Key)
		if err := b.s.Delete(b.ctx, rec.Key, own, rev, id()); err != nil {
			b.Fatal(err)
		}
		b.create(rec.Key, ann, "f")
	}
}

// testPrune: when the server has forgotten a tombstone, the key is as good as new for a client that remembers it.
func testPrune(b *bench) {
	if b.f.Prune == nil {
		return
	}
	rec := b.create(b.key(), ann, "a")
	kept := b.create(b.key(), ann, "kept")
	b.delete(rec)
	b.f.Prune(b.T, b.s)
	gone, err := b.s.Read(b.ctx, rec.Key)
	b.wantErr("Read", err, zstore.ErrNotFound)
	if gone.Rev != 0 {
		b.Fatalf("after pruning Read gave %+v", gone)
	}
	b.wantRecord(b.create(rec.Key, bob, "new"), rec.Key, zstore.Own{Node: bob, Version: 1}, 1, "new")
	b.unchanged(kept)
}
