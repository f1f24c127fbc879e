package zstoretest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
	"zgame/zstore"
)

// clients returns n clients, at most four of them different: enough for one to be out of date, cheap enough to open.
func (b *bench) clients(n int) []zstore.Store {
	out := []zstore.Store{b.s}
	for len(out) < min(n, 4) {
		out = append(out, b.second())
	}
	for len(out) < n {
		out = append(out, out[len(out)%4])
	}
	return out
}

// race runs f once for each writer, all at once, and waits.
func (b *bench) race(clients []zstore.Store, f func(i int, s zstore.Store)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, s := range clients {
		wg.Go(func() { // ends when f does; race waits
			<-start
			f(i, s)
		})
	}
	close(start)
	wg.Wait()
}

// testFreshReads: what one client was told is written, another one reads.
func testFreshReads(b *bench) {
	other := b.second()
	rec := b.create(b.key(), ann, "0")
	for i := range b.f.Rounds {
		s, r := b.s, other
		if i%2 == 1 {
			s, r = other, b.s
		}
		rev, err := s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state(strconv.Itoa(i)), id())
		if err != nil {
			b.Fatal(err)
		}
		rec, err = r.Read(b.ctx, rec.Key)
		if err != nil || rec.Rev != rev || string(rec.State) != strconv.Itoa(i) {
			b.Fatalf("round %d: read %+v %v, written was revision %d", i, rec, err, rev)
		}
	}
}

// testOneWinner: of all writers that save one revision, one wins each round, and the record is the winner's.
func testOneWinner(b *bench) {
	clients := b.clients(b.f.Writers)
	rec := b.create(b.key(), ann, "start")
	for round := range b.f.Rounds {
		var won atomic.Int64
		var winner atomic.Int64
		b.race(clients, func(i int, s zstore.Store) {
			rev, err := s.Save(b.ctx, rec.Key, rec.Own, rec.Rev, state(strconv.Itoa(i)), id())
			switch {
			case err == nil:
				won.Add(1)
				winner.Store(int64(i))
				if rev != rec.Rev+1 {
					b.Errorf("revision %d after %d", rev, rec.Rev)
				}
			case !errors.Is(err, zstore.ErrConflict):
				b.Errorf("writer %d: %v", i, err)
			}
		})
		if won.Load() != 1 {
			b.Fatalf("round %d has %d winners", round, won.Load())
		}
		rec = b.wantRead(rec.Key, rec.Own, rec.Rev+1, strconv.Itoa(int(winner.Load())))
	}
}

func testOneCreator(b *bench) {
	clients := b.clients(b.f.Writers)
	for range max(b.f.Rounds/10, 3) {
		b.oneCreator(clients, b.key(), 0, 0)
	}
}

func testOneCreatorAfterDelete(b *bench) {
	clients := b.clients(b.f.Writers)
	k := b.key()
	b.create(k, ann, "first")
	for i := range max(b.f.Rounds/10, 3) {
		rec := b.read(k)
		b.delete(rec)
		b.oneCreator(clients, k, uint64(2*i+2), zmsg.RouteVersion(2*i+2))
	}
}

func (b *bench) oneCreator(clients []zstore.Store, k zmsg.Key, rev uint64, version zmsg.RouteVersion) {
	b.Helper()
	var won atomic.Int64
	var winner atomic.Int64
	b.race(clients, func(i int, s zstore.Store) {
		rec, err := s.Create(b.ctx, k, zmsg.NodeRef{ID: "n" + strconv.Itoa(i), Epoch: 1}, state(strconv.Itoa(i)), id())
		switch {
		case err == nil:
			won.Add(1)
			winner.Store(int64(i))
			if rec.Rev != rev+1 || rec.Own.Version != version+1 {
				b.Errorf("created %+v, want revision %d version %d", rec, rev+1, version+1)
			}
		case !errors.Is(err, zstore.ErrConflict):
			b.Errorf("creator %d: %v", i, err)
		}
	})
	if won.Load() != 1 {
		b.Fatalf("%d creators", won.Load())
	}
	w := strconv.Itoa(int(winner.Load()))
	b.wantRead(k, zstore.Own{Node: zmsg.NodeRef{ID: "n" + w, Epoch: 1}, Version: version + 1}, rev+1, w)
}

// testOneClaimer: nobody's record is claimed by all at once, again and again; each route version has one owner (I3).
func testOneClaimer(b *bench) {
	clients := b.clients(b.f.Writers)
	rec := b.create(b.key(), zmsg.NodeRef{}, "s")
	for range max(b.f.Rounds/4, 3) {
		var won atomic.Int64
		var next atomic.Value
		b.race(clients, func(i int, s zstore.Store) {
			r, err := s.Claim(b.ctx, rec.Key, rec.Own, rec.Rev, zmsg.NodeRef{ID: "n" + strconv.Itoa(i), Epoch: 9}, id())
			switch {
			case err == nil:
				won.Add(1)
				next.Store(r)
			case !errors.Is(err, zstore.ErrConflict):
				b.Errorf("claimer %d: %v", i, err)
			}
		})
		if won.Load() != 1 {
			b.Fatalf("%d claimers won", won.Load())
		}
		before := rec
		rec = next.Load().(zstore.Record)
		if rec.Rev != before.Rev+1 || rec.Own.Version != before.Own.Version+1 {
			b.Fatalf("claimed %+v after %+v", rec, before)
		}
		b.unchanged(rec)
	}
}

// testFirstSaves is M1: fifty first saves of one id, each "create, else read and save". All end well, one inserted, and
// no error is the server's own.
func testFirstSaves(b *bench) {
	clients := b.clients(50)
	k := b.key()
	var created, saved atomic.Int64
	b.race(clients, func(i int, s zstore.Store) {
		for {
			_, err := s.Create(b.ctx, k, zmsg.NodeRef{}, state(strconv.Itoa(i)), id())
			if err == nil {
				created.Add(1)
				return
			}
			if !errors.Is(err, zstore.ErrConflict) {
				b.Errorf("Create: %v", err)
				return
			}
			rec, err := s.Read(b.ctx, k)
			if err != nil {
				b.Errorf("Read: %v", err)
				return
			}
			_, err = s.Save(b.ctx, k, rec.Own, rec.Rev, state(strconv.Itoa(i)), id())
			if err == nil {
				saved.Add(1)
				return
			}
			if !errors.Is(err, zstore.ErrConflict) {
				b.Errorf("Save: %v", err)
				return
			}
		}
	})
	if created.Load() != 1 || saved.Load() != 49 {
		b.Fatalf("%d created and %d saved, want 1 and 49", created.Load(), saved.Load())
	}
	if rec := b.read(k); rec.Rev != 50 || rec.Own.Version != 1 {
		b.Fatalf("after 50 first saves: %+v", rec)
	}
}

// testSum is M7: twenty clients add to one number by compare-and-set, through Resolve and a client that loses answers.
// The sum is right.
func testSum(b *bench) {
	clients := b.clients(20)
	each := max(b.f.Rounds/10, 2)
	k := b.key()
	b.create(k, zmsg.NodeRef{}, "0")
	b.race(clients, func(i int, s zstore.Store) {
		if i%5 == 0 {
			s = &lossy{Store: s}
		}
		for n := 0; n < each; {
			rec, err := s.Read(b.ctx, k)
			if err != nil {
				b.Errorf("Read: %v", err)
				return
			}
			sum, err := strconv.Atoi(string(rec.State))
			if err != nil {
				b.Errorf("state %q", rec.State)
				return
			}
			c := zstore.Change{Op: zstore.OpSave, Key: k, Own: rec.Own, Rev: rec.Rev, Write: state(fmt.Sprint(sum + 1)), WID: id()}
			// An answer that is lost and then overtaken by another writer leaves the outcome open for good, so each
			// counts what it knows from a mark of its own in Done.
			c.Done = append(slices.Clip(rec.Done), zstore.Done{Origin: strconv.Itoa(i), Seq: uint64(n)})
			if slices.ContainsFunc(rec.Done, func(d zstore.Done) bool { return d.Origin == strconv.Itoa(i) && d.Seq == uint64(n) }) {
				n++
				continue
			}
			if _, err = zstore.Resolve(b.ctx, s, &c); err == nil {
				n++
			} else if !errors.Is(err, zstore.ErrConflict) {
				b.Errorf("Resolve: %v", err)
				return
			}
		}
	})
	rec := b.read(k)
	want := 20 * each
	if string(rec.State) != strconv.Itoa(want) || rec.Rev != uint64(want)+1 || len(rec.Done) != want {
		b.Fatalf("sum %s at revision %d with %d marks, want %d", rec.State, rec.Rev, len(rec.Done), want)
	}
}
