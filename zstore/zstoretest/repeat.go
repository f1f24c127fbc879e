package zstoretest

import (
	"errors"

	"zgame/zmsg"
	"zgame/zstore"
)

// life returns every kind of write, each on top of the one before, on key k.
func life(k zmsg.Key) []zstore.Change {
	done := []zstore.Done{{Origin: "client-1", Seq: 9, Reply: []byte("ok")}}
	w := func(text string) zstore.Write { return zstore.Write{Schema: 3, State: []byte(text), Done: done} }
	return []zstore.Change{
		{Op: zstore.OpCreate, Key: k, Node: ann, Write: w("a"), WID: id()},
		{Op: zstore.OpSave, Key: k, Own: zstore.Own{Node: ann, Version: 1}, Rev: 1, Write: w("b"), WID: id()},
		{Op: zstore.OpMove, Key: k, Own: zstore.Own{Node: ann, Version: 1}, Rev: 2, Write: w("c"), Node: bob, WID: id()},
		{Op: zstore.OpMove, Key: k, Own: zstore.Own{Node: bob, Version: 2, Pending: true}, Rev: 3, Write: w("d"), WID: id()},
		{Op: zstore.OpClaim, Key: k, Own: zstore.Own{Version: 3}, Rev: 4, Node: ann, WID: id()},
		{Op: zstore.OpDelete, Key: k, Own: zstore.Own{Node: ann, Version: 4}, Rev: 5, WID: id()},
		{Op: zstore.OpCreate, Key: k, Node: bob, Write: w("e"), WID: id()},
	}
}

// testRepeat issues every write three times, the third time through another client: the same result, and the record
// as after the first.
func testRepeat(b *bench) {
	other := b.second()
	k := b.key()
	for _, c := range life(k) {
		first, err := c.Do(b.ctx, b.s)
		if err != nil {
			b.Fatalf("%s: %v", c.Op, err)
		}
		after, _ := b.s.Read(b.ctx, k)
		if after.Rev != first.Rev || after.Own != first.Own || after.WID != c.WID {
			b.Fatalf("%s returned %+v, the record is %+v", c.Op, first, after)
		}
		for _, s := range []zstore.Store{b.s, other} {
			again, err := c.Do(b.ctx, s)
			if err != nil {
				b.Fatalf("%s again: %v", c.Op, err)
			}
			if !equal(again, first) {
				b.Fatalf("%s again returned %+v, first %+v", c.Op, again, first)
			}
		}
		b.unchanged(after)
	}
}

// testRepeatAfterOthers repeats a write on top of which another one was made: a conflict, and nothing changes.
func testRepeatAfterOthers(b *bench) {
	k := b.key()
	var before *zstore.Change
	for _, c := range life(k) {
		if _, err := c.Do(b.ctx, b.s); err != nil {
			b.Fatalf("%s: %v", c.Op, err)
		}
		if before != nil {
			now, _ := b.s.Read(b.ctx, k)
			_, err := before.Do(b.ctx, b.s)
			if before.Op == zstore.OpClaim && c.Op == zstore.OpDelete {
				b.wantErr("Claim again", err, zstore.ErrNotFound)
			} else if before.Op == zstore.OpCreate && c.Op == zstore.OpDelete {
				b.Fatal("the life has no such step")
			} else {
				b.wantErr(before.Op.String()+" again", err, zstore.ErrConflict)
			}
			b.unchanged(now)
		}
		before = &c
	}
}

// testRepeatMisused uses one id for two writes: the second is no success of the first.
func testRepeatMisused(b *bench) {
	rec := b.create(b.key(), ann, "a")
	wid := id()
	rev, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state("b"), wid)
	if err != nil {
		b.Fatal(err)
	}
	before := b.read(rec.Key)
	_, err = b.s.Claim(b.ctx, rec.Key, rec.Own, rec.Rev, bob, wid)
	b.wantErr("Claim", err, zstore.ErrConflict)
	b.wantErr("Delete", b.s.Delete(b.ctx, rec.Key, rec.Own, rec.Rev, wid), zstore.ErrConflict)
	_, err = b.s.Create(b.ctx, rec.Key, bob, state("c"), wid)
	b.wantErr("Create", err, zstore.ErrConflict)
	_, err = b.s.Save(b.ctx, rec.Key, zstore.Own{Node: bob, Version: 1}, rec.Rev, state("c"), wid)
	b.wantErr("Save of another owner", err, zstore.ErrConflict)
	b.unchanged(before)
	if rev != 2 {
		b.Fatalf("revision %d", rev)
	}
}

// testResolve carries a life through Resolve over a store whose answers get lost, landed and not landed in turn.
func testResolve(b *bench) {
	k := b.key()
	lossy := &lossy{Store: b.s}
	for _, c := range life(k) {
		rec, err := zstore.Resolve(b.ctx, lossy, &c)
		if err != nil {
			b.Fatalf("%s: %v", c.Op, err)
		}
		now, err := b.s.Read(b.ctx, k)
		if err != nil && !errors.Is(err, zstore.ErrNotFound) {
			b.Fatal(err)
		}
		if !equal(rec, now) {
			b.Fatalf("%s resolved to %+v, the record is %+v", c.Op, rec, now)
		}
	}
	if rec := b.read(k); rec.Rev != 7 || rec.Own.Version != 6 {
		b.Fatalf("at the end revision %d version %d, want 7 and 6", rec.Rev, rec.Own.Version)
	}
}
