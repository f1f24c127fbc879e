package zstoretest

import (
	"errors"

	"zgame/zmsg"
	"zgame/zstore"
)

func testCreate(b *bench) {
	k := b.key()
	wid := id()
	rec, err := b.s.Create(b.ctx, k, ann, state("one"), wid)
	if err != nil {
		b.Fatal(err)
	}
	b.wantRecord(rec, k, zstore.Own{Node: ann, Version: 1}, 1, "one")
	if rec.WID != wid || rec.Schema != 2 {
		b.Fatalf("write id %s schema %d, want %s and 2", rec.WID, rec.Schema, wid)
	}
	b.unchanged(rec)
	_, err = b.s.Create(b.ctx, k, ann, state("two"), id())
	b.wantErr("Create again", err, zstore.ErrConflict)
	b.unchanged(rec)

	free := b.key()
	rec = b.create(free, zmsg.NodeRef{}, "nobody's")
	b.wantRecord(rec, free, zstore.Own{Version: 1}, 1, "nobody's")
	b.unchanged(rec)
	rec = b.create(b.key(), ann, "") // an empty state is a state
	b.wantRead(rec.Key, zstore.Own{Node: ann, Version: 1}, 1, "")
}

func testClaim(b *bench) {
	rec := b.create(b.key(), zmsg.NodeRef{}, "one")
	next := b.claim(rec, ann)
	b.wantRecord(next, rec.Key, zstore.Own{Node: ann, Version: 2}, 2, "one")
	b.unchanged(next)

	// Exactly as seen: any other owner, epoch, version or revision is a conflict and changes nothing.
	for name, seen := range wrong(next) {
		_, err := b.s.Claim(b.ctx, rec.Key, seen.Own, seen.Rev, bob, id())
		b.wantErr("Claim with another "+name, err, zstore.ErrConflict)
		b.unchanged(next)
	}
	again := b.claim(next, ann) // an earlier self, or the same one: the version rises all the same
	b.wantRecord(again, rec.Key, zstore.Own{Node: ann, Version: 3}, 3, "one")
	taken := b.claim(again, bob)
	b.wantRead(rec.Key, zstore.Own{Node: bob, Version: 4}, 4, "one")
	if taken.Schema != 2 {
		b.Fatalf("Claim changed the schema to %d", taken.Schema)
	}
}

// wrong returns rec's owner and revision with one thing changed each.
func wrong(rec zstore.Record) map[string]zstore.Record {
	out := map[string]zstore.Record{}
	change := func(name string, f func(*zstore.Record)) {
		r := rec
		f(&r)
		out[name] = r
	}
	change("owner", func(r *zstore.Record) { r.Own.Node.ID = "zoe" })
	change("epoch", func(r *zstore.Record) { r.Own.Node.Epoch++ })
	change("nobody", func(r *zstore.Record) { r.Own.Node = zmsg.NodeRef{} })
	change("lower version", func(r *zstore.Record) { r.Own.Version-- })
	change("higher version", func(r *zstore.Record) { r.Own.Version++ })
	change("lower revision", func(r *zstore.Record) { r.Rev-- })
	change("higher revision", func(r *zstore.Record) { r.Rev++ })
	return out
}

func testSave(b *bench) {
	rec := b.create(b.key(), ann, "one")
	rec = b.save(rec, "two")
	if rec.Rev != 2 {
		b.Fatalf("revision %d, want 2", rec.Rev)
	}
	for name, seen := range wrong(rec) {
		_, err := b.s.Save(b.ctx, rec.Key, seen.Own, seen.Rev, state("bad"), id())
		b.wantErr("Save with another "+name, err, zstore.ErrConflict)
		b.unchanged(rec)
	}
	rec = b.save(rec, "three")
	b.wantRead(rec.Key, zstore.Own{Node: ann, Version: 1}, 3, "three")

	free := b.create(b.key(), zmsg.NodeRef{}, "one") // nobody's record can be saved by who knows its numbers
	b.save(free, "two")
}

func testMove(b *bench) {
	rec := b.create(b.key(), ann, "one")
	for name, seen := range wrong(rec) {
		_, _, err := b.s.Move(b.ctx, rec.Key, seen.Own, seen.Rev, state("bad"), bob, id())
		b.wantErr("Move with another "+name, err, zstore.ErrConflict)
		b.unchanged(rec)
	}
	own, rev, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("moved"), bob, id())
	if err != nil || own != (zstore.Own{Node: bob, Version: 2, Pending: true}) || rev != 2 {
		b.Fatalf("Move: %+v %d %v", own, rev, err)
	}
	rec = b.wantRead(rec.Key, own, rev, "moved")
	own, rev, err = b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("free"), zmsg.NodeRef{}, id())
	if err != nil || own != (zstore.Own{Version: 3}) || rev != 3 {
		b.Fatalf("Move to nobody: %+v %d %v", own, rev, err)
	}
	b.wantRead(rec.Key, own, rev, "free")
}

// testAttachment: what a Move hands over besides the state is there for whoever comes to own the record, until that one writes.
func testAttachment(b *bench) {
	move := func(rec zstore.Record, to zmsg.NodeRef, attachment string) zstore.Record {
		b.Helper()
		w := state("moved")
		w.Attachment = []byte(attachment)
		if _, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, w, to, id()); err != nil {
			b.Fatalf("Move: %v", err)
		}
		return b.read(rec.Key)
	}
	want := func(rec zstore.Record, where, attachment string) {
		b.Helper()
		if string(rec.Attachment) != attachment {
			b.Fatalf("%s: the attachment is %q, want %q", where, rec.Attachment, attachment)
		}
	}
	rec := move(b.create(b.key(), ann, "one"), bob, "timers")
	want(rec, "Move", "timers")
	claimed := b.claim(rec, ann)
	want(claimed, "what Claim returns", "timers")
	want(b.read(rec.Key), "Claim", "timers")
	want(b.save(claimed, "two"), "Save", "")
	want(move(move(b.read(rec.Key), bob, "again"), zmsg.NodeRef{}, ""), "a Move without one", "")
	free := move(b.read(rec.Key), zmsg.NodeRef{}, "nobody's")
	want(b.claim(free, bob), "Claim of what is nobody's", "nobody's")

	rec = move(b.create(b.key(), ann, "one"), bob, "deleted")
	b.delete(rec)
	want(b.create(rec.Key, ann, "new"), "Create after Delete", "")
	want(b.read(rec.Key), "Create after Delete", "")

	rec = b.create(b.key(), ann, "one")
	w := state("two")
	w.Attachment = []byte("x")
	_, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, w, id())
	b.wantErr("Save with an attachment", err, zstore.ErrInvalid)
	_, err = b.s.Create(b.ctx, b.key(), ann, w, id())
	b.wantErr("Create with an attachment", err, zstore.ErrInvalid)
	w.Attachment = make([]byte, b.s.MaxState()-len(w.State)+1)
	_, _, err = b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, w, bob, id())
	b.wantErr("Move with an attachment above the limit", err, zstore.ErrTooLarge)
	b.unchanged(rec)
}

func testDelete(b *bench) {
	rec := b.create(b.key(), ann, "one")
	for name, seen := range wrong(rec) {
		err := b.s.Delete(b.ctx, rec.Key, seen.Own, seen.Rev, id())
		b.wantErr("Delete with another "+name, err, zstore.ErrConflict)
		b.unchanged(rec)
	}
	wid := id()
	if err := b.s.Delete(b.ctx, rec.Key, rec.Own, rec.Rev, wid); err != nil {
		b.Fatal(err)
	}
	gone, err := b.s.Read(b.ctx, rec.Key)
	b.wantErr("Read", err, zstore.ErrNotFound)
	want := zstore.Record{Key: rec.Key, Own: zstore.Own{Version: 2}, Rev: 2, WID: wid, Deleted: true}
	if !equal(gone, want) {
		b.Fatalf("tombstone is %+v, want %+v", gone, want)
	}
	// Nothing but Create brings it back (D25).
	_, err = b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state("x"), id())
	b.wantErr("Save", err, zstore.ErrConflict)
	_, err = b.s.Save(b.ctx, rec.Key, gone.Own, gone.Rev, state("x"), id())
	b.wantErr("Save of the tombstone", err, zstore.ErrConflict)
	_, _, err = b.s.Move(b.ctx, rec.Key, gone.Own, gone.Rev, state("x"), bob, id())
	b.wantErr("Move of the tombstone", err, zstore.ErrConflict)
	err = b.s.Delete(b.ctx, rec.Key, gone.Own, gone.Rev, id())
	b.wantErr("Delete of the tombstone", err, zstore.ErrConflict)
	_, err = b.s.Claim(b.ctx, rec.Key, gone.Own, gone.Rev, bob, id())
	b.wantErr("Claim of the tombstone", err, zstore.ErrNotFound)
	b.unchanged(gone)

	back := b.create(rec.Key, bob, "again")
	b.wantRecord(back, rec.Key, zstore.Own{Node: bob, Version: 3}, 3, "again")
	b.unchanged(back)
	_, err = b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state("from before"), id())
	b.wantErr("Save of the owner before the deletion", err, zstore.ErrConflict)
	b.unchanged(back)
}

func testNotFound(b *bench) {
	k := b.key()
	own := zstore.Own{Node: ann, Version: 1}
	rec, err := b.s.Read(b.ctx, k)
	b.wantErr("Read", err, zstore.ErrNotFound)
	if rec.Rev != 0 || rec.Own.Version != 0 || rec.Deleted {
		b.Fatalf("Read of nothing returned %+v", rec)
	}
	_, err = b.s.Claim(b.ctx, k, own, 1, ann, id())
	b.wantErr("Claim", err, zstore.ErrNotFound)
	_, err = b.s.Claim(b.ctx, k, zstore.Own{}, 0, ann, id())
	b.wantErr("Claim of nothing", err, zstore.ErrNotFound)
	_, err = b.s.Save(b.ctx, k, own, 1, state("x"), id())
	b.wantErr("Save", err, zstore.ErrConflict)
	_, err = b.s.Save(b.ctx, k, zstore.Own{}, 0, state("x"), id())
	b.wantErr("Save of nothing", err, zstore.ErrConflict)
	_, _, err = b.s.Move(b.ctx, k, own, 1, state("x"), bob, id())
	b.wantErr("Move", err, zstore.ErrConflict)
	b.wantErr("Delete", b.s.Delete(b.ctx, k, own, 1, id()), zstore.ErrConflict)
	_, err = b.s.Read(b.ctx, k)
	b.wantErr("Read after all that", err, zstore.ErrNotFound) // absent is not a match
}

// testNumbers walks one record through a life: the revision rises by one at each write, the route version at each
// change of owner, and a deletion resets neither.
func testNumbers(b *bench) {
	rec := b.create(b.key(), ann, "a")
	var version zmsg.RouteVersion = 1
	rev := uint64(1)
	check := func(what string, ownerChanged bool) {
		b.Helper()
		rev++
		if ownerChanged {
			version++
		}
		var err error
		rec, err = b.s.Read(b.ctx, rec.Key)
		if err != nil && !errors.Is(err, zstore.ErrNotFound) {
			b.Fatal(err)
		}
		if rec.Rev != rev || rec.Own.Version != version {
			b.Fatalf("after %s: revision %d version %d, want %d and %d", what, rec.Rev, rec.Own.Version, rev, version)
		}
	}
	for range 3 {
		b.save(rec, "b")
		check("Save", false)
		b.save(rec, "c")
		check("Save", false)
		if _, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("d"), bob, id()); err != nil {
			b.Fatal(err)
		}
		check("Move", true)
		b.save(rec, "e")
		check("Save of the new owner", false)
		b.claim(rec, ann)
		check("Claim", true)
		b.delete(rec)
		check("Delete", true)
		b.create(rec.Key, ann, "f")
		check("Create", true)
	}
}

// testFenced is the life of a zombie (D23, D24): whatever happened since, even that the record is nobody's or its own
// again, its numbers are old and nothing of it lands.
func testFenced(b *bench) {
	rec := b.create(b.key(), ann, "ann's")
	stale := rec
	attempts := func() {
		b.Helper()
		before := b.read(rec.Key)
		_, err := b.s.Save(b.ctx, rec.Key, stale.Own, stale.Rev, state("zombie"), id())
		b.wantErr("Save", err, zstore.ErrConflict)
		_, err = b.s.Save(b.ctx, rec.Key, stale.Own, before.Rev, state("zombie"), id())
		b.wantErr("Save with the right revision", err, zstore.ErrConflict)
		_, _, err = b.s.Move(b.ctx, rec.Key, stale.Own, before.Rev, state("zombie"), ann, id())
		b.wantErr("Move", err, zstore.ErrConflict)
		b.wantErr("Delete", b.s.Delete(b.ctx, rec.Key, stale.Own, before.Rev, id()), zstore.ErrConflict)
		b.unchanged(before)
	}
	rec = b.claim(rec, bob)
	attempts()
	rec = b.save(rec, "bob's")
	attempts()
	if _, _, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("free"), zmsg.NodeRef{}, id()); err != nil {
		b.Fatal(err)
	}
	attempts()
	rec = b.claim(b.read(rec.Key), ann) // the same node and epoch own it again, two versions later
	attempts()
}

func testPending(b *bench) {
	rec := b.create(b.key(), ann, "a")
	own, rev, err := b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("b"), bob, id())
	if err != nil || !own.Pending {
		b.Fatalf("Move: %+v %v", own, err)
	}
	// The first save of the new owner confirms. It need not say that it is pending.
	rev, err = b.s.Save(b.ctx, rec.Key, zstore.Own{Node: bob, Version: own.Version}, rev, state("c"), id())
	if err != nil {
		b.Fatal(err)
	}
	rec = b.wantRead(rec.Key, zstore.Own{Node: bob, Version: 2}, rev, "c")

	// A claim ends it too, and so does a move to nobody.
	own, rev, err = b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("d"), ann, id())
	if err != nil {
		b.Fatal(err)
	}
	rec, err = b.s.Claim(b.ctx, rec.Key, own, rev, bob, id())
	if err != nil || rec.Own != (zstore.Own{Node: bob, Version: 4}) {
		b.Fatalf("Claim of a pending record: %+v %v", rec, err)
	}
	own, rev, err = b.s.Move(b.ctx, rec.Key, rec.Own, rec.Rev, state("e"), ann, id())
	if err != nil {
		b.Fatal(err)
	}
	own, rev, err = b.s.Move(b.ctx, rec.Key, own, rev, state("f"), zmsg.NodeRef{}, id())
	if err != nil || own.Pending {
		b.Fatalf("Move to nobody: %+v %v", own, err)
	}
	b.wantRead(rec.Key, zstore.Own{Version: 6}, rev, "f")
}
