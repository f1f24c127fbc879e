package zstoretest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zstore"
)

// Features says what the suite cannot find out through zstore.Store.
type Features struct {
	// Second returns another client of the same records, which the suite closes. Nil: the races run through one client.
	Second func(t *testing.T, s zstore.Store) zstore.Store
	// AddUnknown puts fields into the document of k that this version does not know, behind the driver's back and
	// without a change of revision; HasUnknown fails the test when they are not there any more. Nil: not tested.
	AddUnknown func(t *testing.T, s zstore.Store, k zmsg.Key)
	HasUnknown func(t *testing.T, s zstore.Store, k zmsg.Key)
	// Prune makes the server forget its tombstones, as time does. Nil: not tested.
	Prune func(t *testing.T, s zstore.Store)
	// Writers is the number of concurrent writers. Defaults to 16.
	Writers int
	// Rounds is how many revisions they fight for. Defaults to 100.
	Rounds int
	// SmallStates skips the test that writes a state of MaxState, where the server takes it but the machine would not.
	SmallStates bool
}

func (f Features) withDefaults() Features {
	if f.Writers == 0 {
		f.Writers = 16
	}
	if f.Rounds == 0 {
		f.Rounds = 100
	}
	return f
}

// Open opens an empty store for one test. The suite closes it.
type Open func(t *testing.T) zstore.Store

// Run runs the suite. Names of subtests are stable: `-run TestConformance/claim`.
func Run(t *testing.T, f Features, open Open) {
	t.Helper()
	f = f.withDefaults()
	for _, c := range []struct {
		name string
		test func(*bench)
	}{
		{"create", testCreate},
		{"claim", testClaim},
		{"save", testSave},
		{"move", testMove},
		{"delete", testDelete},
		{"not_found", testNotFound},
		{"numbers", testNumbers},
		{"fenced", testFenced},
		{"pending", testPending},
		{"attachment", testAttachment},
		{"repeat", testRepeat},
		{"repeat_after_others", testRepeatAfterOthers},
		{"repeat_with_other_arguments", testRepeatMisused},
		{"resolve", testResolve},
		{"keys", testKeys},
		{"invalid", testInvalid},
		{"limits", testLimits},
		{"copies", testCopies},
		{"contents", testContents},
		{"scan", testScan},
		{"context", testContext},
		{"ping_close", testPingClose},
		{"unknown_fields", testUnknownFields},
		{"prune", testPrune},
		{"fresh_reads", testFreshReads},
		{"one_winner", testOneWinner},
		{"one_creator", testOneCreator},
		{"one_creator_after_delete", testOneCreatorAfterDelete},
		{"one_claimer", testOneClaimer},
		{"first_saves", testFirstSaves},
		{"sum", testSum},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { closeStore(t, s) })
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c.test(&bench{T: t, s: s, f: f, ctx: ctx})
		})
	}
	t.Run("model", func(t *testing.T) { Model(t, open) })
}

func closeStore(t *testing.T, s zstore.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// bench is one test with its store. Its methods make the call and fail the test when the result is not as wanted.
type bench struct {
	*testing.T
	s   zstore.Store
	f   Features
	ctx context.Context //nolint:containedctx // one test's
	ids int
}

var (
	ann = zmsg.NodeRef{ID: "ann", Epoch: 7}
	bob = zmsg.NodeRef{ID: "bob", Epoch: 1 << 63} // epochs use all 64 bits
	old = zmsg.NodeRef{ID: "ann", Epoch: 6}       // ann's start before
)

// second returns another client of the same records, or the same one.
func (b *bench) second() zstore.Store {
	if b.f.Second == nil {
		return b.s
	}
	s := b.f.Second(b.T, b.s)
	b.Cleanup(func() { closeStore(b.T, s) })
	return s
}

// key returns a key that this test has not used.
func (b *bench) key() zmsg.Key {
	b.ids++
	return zmsg.Key{Type: 3, Zone: 1, ID: "k" + strconv.Itoa(b.ids)}
}

// id returns a write id.
func id() zstore.WriteID { return zstore.NewWriteID() }

func state(s string) zstore.Write { return zstore.Write{Schema: 2, State: []byte(s)} }

func (b *bench) create(k zmsg.Key, me zmsg.NodeRef, text string) zstore.Record {
	b.Helper()
	rec, err := b.s.Create(b.ctx, k, me, state(text), id())
	if err != nil {
		b.Fatalf("Create(%s): %v", k, err)
	}
	return rec
}

func (b *bench) claim(rec zstore.Record, me zmsg.NodeRef) zstore.Record {
	b.Helper()
	next, err := b.s.Claim(b.ctx, rec.Key, rec.Own, rec.Rev, me, id())
	if err != nil {
		b.Fatalf("Claim(%s): %v", rec.Key, err)
	}
	return next
}

func (b *bench) save(rec zstore.Record, text string) zstore.Record {
	b.Helper()
	rev, err := b.s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state(text), id())
	if err != nil {
		b.Fatalf("Save(%s): %v", rec.Key, err)
	}
	return b.wantRead(rec.Key, zstore.Own{Node: rec.Own.Node, Version: rec.Own.Version}, rev, text)
}

func (b *bench) delete(rec zstore.Record) {
	b.Helper()
	if err := b.s.Delete(b.ctx, rec.Key, rec.Own, rec.Rev, id()); err != nil {
		b.Fatalf("Delete(%s): %v", rec.Key, err)
	}
}

func (b *bench) read(k zmsg.Key) zstore.Record {
	b.Helper()
	rec, err := b.s.Read(b.ctx, k)
	if err != nil {
		b.Fatalf("Read(%s): %v", k, err)
	}
	return rec
}

func (b *bench) wantRead(k zmsg.Key, own zstore.Own, rev uint64, text string) zstore.Record {
	b.Helper()
	rec := b.read(k)
	b.wantRecord(rec, k, own, rev, text)
	return rec
}

func (b *bench) wantRecord(rec zstore.Record, k zmsg.Key, own zstore.Own, rev uint64, text string) {
	b.Helper()
	if rec.Key != k || rec.Own != own || rec.Rev != rev || string(rec.State) != text || rec.Deleted {
		b.Fatalf("record is %+v state %q, want key %s own %+v revision %d state %q", rec, rec.State, k, own, rev, text)
	}
}

// wantErr fails unless err is want; where names the call.
func (b *bench) wantErr(where string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("%s: error %v, want %v", where, err, want)
	}
}

// unchanged fails unless the record is what before says, to the last field.
func (b *bench) unchanged(before zstore.Record) {
	b.Helper()
	now, err := b.s.Read(b.ctx, before.Key)
	if err != nil && (!before.Deleted || !errors.Is(err, zstore.ErrNotFound)) {
		b.Fatalf("Read(%s): %v", before.Key, err)
	}
	if !equal(now, before) {
		b.Fatalf("record changed\n from %+v\n to   %+v", before, now)
	}
}

func equal(a, b zstore.Record) bool {
	if a.Key != b.Key || a.Own != b.Own || a.Rev != b.Rev || a.WID != b.WID || a.Schema != b.Schema || a.Deleted != b.Deleted ||
		!bytes.Equal(a.State, b.State) || !bytes.Equal(a.Attachment, b.Attachment) || len(a.Done) != len(b.Done) {
		return false
	}
	for i := range a.Done {
		if a.Done[i].Origin != b.Done[i].Origin || a.Done[i].Seq != b.Done[i].Seq || !bytes.Equal(a.Done[i].Reply, b.Done[i].Reply) {
			return false
		}
	}
	return true
}
