package ferret_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"zgame/test/ferret"
	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/mongostore"
	"zgame/zstore/zstoretest"
)

func TestMain(m *testing.M) {
	// The other drivers run the model a hundred times; this server takes a second for one. A flag given overrules it.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var collections atomic.Int64

// place is a server and collections on it.
type place struct {
	uri string
	db  string
	raw *mongo.Client // behind the store's back
}

func newPlace(t *testing.T, uri string) *place {
	t.Helper()
	raw, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	p := &place{uri: uri, db: fmt.Sprintf("zgame_test_%d", time.Now().UnixNano()), raw: raw}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := raw.Database(p.db).Drop(ctx); err != nil {
			t.Error(err)
		}
		if err := raw.Disconnect(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func startFerret(t *testing.T) *ferret.Server {
	t.Helper()
	srv, err := ferret.Start(t.TempDir())
	if err != nil {
		t.Fatal(err) // its absence is a failure: nothing else proves the driver against foreign code
	}
	t.Cleanup(srv.Stop)
	return srv
}

func (p *place) config() mongostore.Config {
	return mongostore.Config{
		URI: p.uri, Database: p.db, Collection: fmt.Sprintf("c%d", collections.Add(1)), Timeout: time.Minute,
	}
}

func open(t *testing.T, cfg mongostore.Config) *mongostore.Store {
	t.Helper()
	s, err := mongostore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func idOf(k zmsg.Key) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "t", Value: int64(k.Type)}, {Key: "z", Value: int64(k.Zone)}, {Key: "i", Value: k.ID}}}}
}

// suite runs the conformance suite; f adds what the server allows.
func suite(t *testing.T, p *place, f zstoretest.Features) {
	t.Helper()
	var cfg mongostore.Config
	coll := func() *mongo.Collection { return p.raw.Database(cfg.Database).Collection(cfg.Collection) }
	f.Second = func(t *testing.T, _ zstore.Store) zstore.Store { t.Helper(); return open(t, cfg) }
	f.AddUnknown = func(t *testing.T, _ zstore.Store, k zmsg.Key) {
		t.Helper()
		res, err := coll().UpdateOne(t.Context(), idOf(k), bson.D{{Key: "$set", Value: bson.D{{Key: "future", Value: 1}, {Key: "own.future", Value: "x"}}}})
		if err != nil || res.MatchedCount != 1 {
			t.Fatalf("%+v %v", res, err)
		}
	}
	f.HasUnknown = func(t *testing.T, _ zstore.Store, k zmsg.Key) {
		t.Helper()
		var d bson.Raw
		if err := coll().FindOne(t.Context(), idOf(k)).Decode(&d); err != nil {
			t.Fatal(err)
		}
		if d.Lookup("future").IsZero() || d.Lookup("own", "future").IsZero() {
			t.Fatalf("fields of a newer version are lost: %s", d)
		}
	}
	f.Prune = func(t *testing.T, _ zstore.Store) {
		t.Helper()
		// What the TTL index goes by must be there.
		res, err := coll().DeleteMany(t.Context(), bson.D{{Key: "del", Value: true}, {Key: "mt", Value: bson.D{{Key: "$type", Value: "date"}}}})
		if err != nil || res.DeletedCount != 1 {
			t.Fatalf("pruned %+v, %v; want one tombstone with a date", res, err)
		}
	}
	zstoretest.Run(t, f, func(t *testing.T) zstore.Store {
		t.Helper()
		cfg = p.config()
		return open(t, cfg)
	})
}

// TestFerretDB is mongostore against FerretDB.
func TestFerretDB(t *testing.T) {
	suite(t, newPlace(t, startFerret(t).URI()), zstoretest.Features{Rounds: 20})
}

// TestMongoDB is mongostore against the server of TEST_MONGO_URI, where there is one.
func TestMongoDB(t *testing.T) {
	uri := os.Getenv("TEST_MONGO_URI")
	if uri == "" {
		t.Skip("TEST_MONGO_URI names no server; TestFerretDB has run the suite against FerretDB")
	}
	suite(t, newPlace(t, uri), zstoretest.Features{})
}

// TestDocument looks at what is stored, as router.md describes it.
func TestDocument(t *testing.T) {
	p := newPlace(t, startFerret(t).URI())
	cfg := p.config()
	s := open(t, cfg)
	ctx := t.Context()
	k := zmsg.Key{Type: 4, Zone: 1, ID: "room"}
	w := zstore.Write{Schema: 3, State: []byte("state"), Done: []zstore.Done{{Origin: "c", Seq: 5, Reply: []byte("r")}}}
	rec, err := s.Create(ctx, k, zmsg.NodeRef{ID: "ann", Epoch: 42}, w, zstore.NewWriteID())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = s.Move(ctx, k, rec.Own, rec.Rev, w, zmsg.NodeRef{ID: "bob", Epoch: 43}, zstore.NewWriteID()); err != nil {
		t.Fatal(err)
	}
	var d bson.Raw
	if err := p.raw.Database(cfg.Database).Collection(cfg.Collection).FindOne(ctx, idOf(k)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	elements, err := d.Elements()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range elements {
		switch e.Key() {
		case "wid", "st", "mt":
			got = append(got, e.Key()+": "+e.Value().Type.String())
		default:
			got = append(got, e.Key()+": "+strings.ReplaceAll(e.Value().String(), `"`, ""))
		}
	}
	want := []string{
		`_id: {t: {$numberLong:4},z: {$numberLong:1},i: room}`,
		`own: {n: bob,e: {$numberLong:43},t: {$numberLong:2},p: {$numberLong:1}}`,
		`rev: {$numberLong:2}`, `wid: binary`, `sv: {$numberLong:3}`, `st: binary`,
		`dd: [{o: c,s: {$numberLong:5},r: {$binary:{base64:cg==,subType:00}}}]`,
		`del: false`, `mt: UTC datetime`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the document is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFaults is M3 as far as one server can show it: a thousand saves over a server that says it is no primary, cuts
// connections before and after it has done the work, and cuts answers half-way. Resolve brings each to one end, and the
// revision counts each save once.
func TestFaults(t *testing.T) {
	srv := startFerret(t)
	p := newPlace(t, srv.URI())
	s := open(t, p.config())
	ctx := t.Context()
	const objects, saves = 8, 125
	const every = 29 // after a fault the client waits up to half a second before it looks at the server again
	var n atomic.Uint64
	var injected [5]atomic.Int64
	recs := make([]zstore.Record, objects)
	for i := range recs {
		rec, err := s.Create(ctx, zmsg.Key{Type: 1, ID: fmt.Sprint(i)}, zmsg.NodeRef{ID: "n", Epoch: 1}, zstore.Write{}, zstore.NewWriteID())
		if err != nil {
			t.Fatal(err)
		}
		recs[i] = rec
	}
	srv.SetFaults(func(command string) ferret.Fault {
		if command != "update" && command != "find" {
			return ferret.Pass
		}
		if i := n.Add(1); i%every == 0 {
			f := ferret.NotPrimary + ferret.Fault(i/every%4)
			injected[f].Add(1)
			return f
		}
		return ferret.Pass
	})
	var wg sync.WaitGroup
	for _, rec := range recs {
		wg.Go(func() { // ends after its saves; the test waits
			for range saves {
				c := zstore.Change{Op: zstore.OpSave, Key: rec.Key, Own: rec.Own, Rev: rec.Rev, Write: zstore.Write{State: []byte{1}}, WID: zstore.NewWriteID()}
				next, err := zstore.Resolve(ctx, s, &c)
				for errors.Is(err, zstore.ErrUnavailable) { // definite: nothing was sent
					next, err = zstore.Resolve(ctx, s, &c)
				}
				if err != nil {
					t.Errorf("save of %s at %d: %v", rec.Key, rec.Rev, err)
					return
				}
				if next.Rev != rec.Rev+1 {
					t.Errorf("revision %d after %d", next.Rev, rec.Rev)
				}
				rec = next
			}
		})
	}
	wg.Wait()
	srv.SetFaults(nil)
	for _, rec := range recs {
		got, err := s.Read(ctx, rec.Key)
		if err != nil || got.Rev != saves+1 || got.Own.Version != 1 {
			t.Errorf("at the end %+v %v, want revision %d", got, err, saves+1)
		}
	}
	for f := ferret.NotPrimary; f <= ferret.DropReply; f++ {
		if injected[f].Load() == 0 {
			t.Errorf("fault %d was never injected", f)
		}
	}
	t.Logf("%d saves over %d commands with %d not primary, %d cut before, %d cut half-way, %d cut after",
		objects*saves, n.Load(), injected[1].Load(), injected[2].Load(), injected[3].Load(), injected[4].Load())
}
