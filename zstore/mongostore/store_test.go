package mongostore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.uber.org/goleak"

	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/mongostore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

var (
	key = zmsg.Key{Type: 4, Zone: 1, ID: "room"}
	ann = zmsg.NodeRef{ID: "ann", Epoch: 1 << 63}
	bob = zmsg.NodeRef{ID: "bob", Epoch: 8}
	wid = zstore.WriteID{0: 1, 15: 2}
	own = zstore.Own{Node: ann, Version: 17}
	wr  = zstore.Write{Schema: 3, State: []byte("state"), Done: []zstore.Done{{Origin: "c", Seq: 1 << 63, Reply: []byte("r")}}}
)

func stored(o zstore.Own, rev int64, w zstore.WriteID, deleted bool) bson.D {
	d := bson.D{
		{Key: "_id", Value: bson.D{{Key: "t", Value: int64(4)}, {Key: "z", Value: int64(1)}, {Key: "i", Value: "room"}}},
		{Key: "own", Value: bson.D{{Key: "n", Value: o.Node.ID}, {Key: "e", Value: int64(o.Node.Epoch)}, {Key: "t", Value: int64(o.Version)}, {Key: "p", Value: int64(0)}}},
		{Key: "rev", Value: rev},
		{Key: "wid", Value: bson.Binary{Data: w[:]}},
		{Key: "del", Value: deleted},
	}
	return d
}

func found(docs ...any) answer {
	return answer{doc: bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: "zgame.objects"}, {Key: "firstBatch", Value: append(bson.A{}, docs...)},
	}}}}
}

func updated(n int32) answer {
	return answer{doc: bson.D{{Key: "n", Value: n}, {Key: "nModified", Value: n}}}
}

var duplicate = answer{doc: bson.D{{Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{
	bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(11000)}, {Key: "errmsg", Value: "E11000 duplicate key error"}},
}}}}

// recorder collects the commands that the client sends.
type recorder struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (r *recorder) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "endSessions" {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		var cmd bson.D
		if err := bson.Unmarshal(e.Command, &cmd); err != nil {
			fmt.Fprintln(&r.out, err)
			return
		}
		for i := range cmd {
			switch cmd[i].Key { // what differs from run to run; that it is there is what counts
			case "lsid":
				cmd[i].Value = "a session"
			case "maxTimeMS":
				cmd[i].Value = "the context's"
			case "txnNumber":
				cmd[i].Value = "retryable"
			}
		}
		b, err := bson.MarshalExtJSONIndent(cmd, false, false, "", "  ")
		if err != nil {
			fmt.Fprintln(&r.out, err)
			return
		}
		fmt.Fprintf(&r.out, "%s\n", b)
	}}
}

func (r *recorder) section(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.out, "\n## "+format+"\n", args...)
}

func open(t *testing.T, cfg mongostore.Config) *mongostore.Store {
	t.Helper()
	s, err := mongostore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestGoldenCommands holds every command to testdata/commands.golden: filter, update, read and write concern, session and
// transaction number (which make a retry safe), indexes.
func TestGoldenCommands(t *testing.T) {
	f := startFake(t)
	var r recorder
	r.section("New")
	// The URI tries to weaken what the store promises.
	s := open(t, mongostore.Config{
		URI:     f.uri() + "&w=1&journal=false&readConcernLevel=local&readPreference=secondary&retryWrites=false",
		Monitor: r.monitor(), Timeout: time.Minute,
	})
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f.answer(func(name string, _ bson.Raw) answer {
		switch name {
		case "insert", "update":
			return updated(1)
		case "find":
			return found(stored(own, 5, wid, false))
		case "findAndModify":
			return answer{doc: bson.D{{Key: "value", Value: stored(zstore.Own{Node: bob, Version: 18}, 6, wid, false)}}}
		}
		return answer{}
	})
	r.section("Read")
	_, err := s.Read(ctx, key)
	ok(err)
	r.section("Create")
	_, err = s.Create(ctx, key, ann, wr, wid)
	ok(err)
	r.section("Create, owned by nobody, nothing remembered")
	_, err = s.Create(ctx, key, zmsg.NodeRef{}, zstore.Write{}, wid)
	ok(err)
	r.section("Claim")
	_, err = s.Claim(ctx, key, own, 5, bob, wid)
	ok(err)
	r.section("Claim of what nobody owns")
	_, err = s.Claim(ctx, key, zstore.Own{Version: 17}, 5, bob, wid)
	ok(err)
	r.section("Save")
	_, err = s.Save(ctx, key, own, 5, wr, wid)
	ok(err)
	r.section("Move")
	_, _, err = s.Move(ctx, key, own, 5, wr, bob, wid)
	ok(err)
	r.section("Move with an attachment")
	carrying := wr
	carrying.Attachment = []byte("timers")
	_, _, err = s.Move(ctx, key, own, 5, carrying, bob, wid)
	ok(err)
	r.section("Move to nobody")
	_, _, err = s.Move(ctx, key, own, 5, wr, zmsg.NodeRef{}, wid)
	ok(err)
	r.section("Delete")
	ok(s.Delete(ctx, key, own, 5, wid))
	r.section("Scan")
	ok(s.Scan(ctx, ann, func(zmsg.Key, zstore.Own) bool { return true }))
	r.section("Ping")
	ok(s.Ping(ctx))

	f.answer(func(name string, _ bson.Raw) answer {
		switch name {
		case "insert":
			return duplicate
		case "find":
			return found(stored(zstore.Own{Version: 18}, 6, zstore.WriteID{9}, true))
		}
		return updated(1)
	})
	r.section("Create on a tombstone")
	rec, err := s.Create(ctx, key, bob, wr, wid)
	ok(err)
	if rec.Rev != 7 || rec.Own.Version != 19 {
		t.Errorf("on a tombstone of revision 6 and version 18 Create made %+v", rec)
	}

	const golden = "testdata/commands.golden"
	if *rewrite {
		ok(os.WriteFile(golden, r.out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	ok(err)
	if !bytes.Equal(want, r.out.Bytes()) {
		t.Errorf("commands differ from %s (go test -rewrite ./zstore/mongostore writes it anew):\n%s", golden, firstDifference(want, r.out.Bytes()))
	}
}

func firstDifference(want, got []byte) string {
	w, g := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	section := ""
	for i := range min(len(w), len(g)) {
		if strings.HasPrefix(w[i], "## ") {
			section = w[i]
		}
		if w[i] != g[i] {
			return fmt.Sprintf("%s, line %d\nwant %s\ngot  %s", section, i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

func failed(code int32, name string, labels ...any) answer {
	d := bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: name}}
	if len(labels) > 0 {
		d = append(d, bson.E{Key: "errorLabels", Value: bson.A(labels)})
	}
	return answer{doc: d}
}

// TestErrors goes through what a server and a network can answer to a write, and what that means.
func TestErrors(t *testing.T) {
	f := startFake(t)
	s := open(t, mongostore.Config{URI: f.uri(), Timeout: time.Minute})
	landed := found(stored(own, 6, wid, false))
	concern := func(code int32, name string) answer {
		a := updated(1)
		a.doc = append(a.doc, bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: name}}})
		return a
	}
	for _, c := range []struct {
		name    string
		answers []answer // in turn, to update and find; the last one for ever
		want    error
	}{
		{"matched", []answer{updated(1)}, nil},
		{"not matched, another revision", []answer{updated(0), found(stored(own, 9, zstore.WriteID{9}, false))}, zstore.ErrConflict},
		{"not matched, another owner", []answer{updated(0), found(stored(zstore.Own{Node: bob, Version: 18}, 6, zstore.WriteID{9}, false))}, zstore.ErrConflict},
		{"not matched, gone", []answer{updated(0), found()}, zstore.ErrConflict},
		{"not matched, landed before", []answer{updated(0), landed}, nil},
		{"not matched, cannot read", []answer{updated(0), failed(10107, "NotWritablePrimary")}, zstore.ErrUnknown},
		{"not matched, though it should", []answer{updated(0), found(stored(own, 5, zstore.WriteID{9}, false)), updated(1)}, nil},
		{"cut, the retry matched", []answer{{half: true}, updated(1)}, nil},
		{"cut, and cut again", []answer{{half: true}, {half: true}}, zstore.ErrUnknown},
		{"no answer, and again none", []answer{{drop: true}, {drop: true}}, zstore.ErrUnknown},
		{"cut, then a definite no", []answer{{half: true}, failed(10107, "NotWritablePrimary", "RetryableWriteError", "NoWritesPerformed")}, zstore.ErrUnknown},
		{"not primary, an old server", []answer{failed(10107, "NotWritablePrimary", "RetryableWriteError")}, zstore.ErrUnknown},
		{"not primary, nothing written", []answer{failed(10107, "NotWritablePrimary", "RetryableWriteError", "NoWritesPerformed")}, zstore.ErrUnknown},
		{"stepped down under way", []answer{failed(11602, "InterruptedDueToReplStateChange", "RetryableWriteError")}, zstore.ErrUnknown},
		{"time is up", []answer{failed(50, "MaxTimeMSExpired")}, zstore.ErrUnknown},
		{"no majority", []answer{concern(64, "WriteConcernTimeout")}, zstore.ErrUnknown},
		{"shutdown before the majority", []answer{concern(91, "ShutdownInProgress")}, zstore.ErrUnknown},
		{"too large after the update", []answer{{doc: bson.D{{Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{
			bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(17419)}, {Key: "errmsg", Value: "too large"}},
		}}}}}, zstore.ErrTooLarge},
		{"refused by a validator", []answer{{doc: bson.D{{Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{
			bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(121)}, {Key: "errmsg", Value: "validation"}},
		}}}}}, errDefinite},
		{"not allowed", []answer{failed(13, "Unauthorized")}, errDefinite},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			n := 0
			f.answer(func(name string, _ bson.Raw) answer {
				mu.Lock()
				defer mu.Unlock()
				if name != "update" && name != "find" {
					return answer{}
				}
				n++
				return c.answers[min(n, len(c.answers))-1]
			})
			save := func() (uint64, error) {
				ctx := t.Context()
				if errors.Is(c.want, zstore.ErrUnknown) { // the client retries what may pass until the time is up
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				return s.Save(ctx, key, own, 5, wr, wid)
			}
			sent := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return n > 0
			}
			rev, err := save()
			for end := time.Now().Add(time.Minute); !sent() && time.Now().Before(end); { // on a busy machine the time may be up before
				rev, err = save()
			}
			wantError(t, err, c.want)
			if err == nil && rev != 6 {
				t.Errorf("revision %d", rev)
			}
		})
	}

	t.Run("claim without a majority", func(t *testing.T) {
		f.answer(func(string, bson.Raw) answer {
			return answer{doc: bson.D{
				{Key: "value", Value: stored(zstore.Own{Node: bob, Version: 18}, 6, wid, false)},
				{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: int32(64)}, {Key: "errmsg", Value: "waiting for replication timed out"}}},
			}}
		})
		_, err := s.Claim(t.Context(), key, own, 5, bob, wid)
		wantError(t, err, zstore.ErrUnknown)
	})
	t.Run("create refused as a duplicate of itself", func(t *testing.T) {
		f.answer(func(name string, _ bson.Raw) answer {
			if name == "find" {
				return found(stored(zstore.Own{Node: ann, Version: 1}, 1, wid, false))
			}
			return duplicate
		})
		rec, err := s.Create(t.Context(), key, ann, wr, wid)
		wantError(t, err, nil)
		if rec.Rev != 1 {
			t.Errorf("%+v", rec)
		}
	})
	t.Run("create, tombstones that come and go", func(t *testing.T) {
		n := 0
		f.answer(func(name string, _ bson.Raw) answer {
			switch name {
			case "find": // a tombstone, and gone at the next look
				if n++; n%2 == 1 {
					return found(stored(zstore.Own{Version: 2}, 2, zstore.WriteID{9}, true))
				}
				return found()
			case "insert":
				return duplicate
			}
			return updated(0)
		})
		_, err := s.Create(t.Context(), key, ann, wr, wid)
		wantError(t, err, zstore.ErrUnavailable)
	})
	t.Run("the caller's time is up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f.answer(func(string, bson.Raw) answer { cancel(); <-ctx.Done(); return answer{drop: true} })
		_, err := s.Save(ctx, key, own, 5, wr, wid)
		wantError(t, err, zstore.ErrUnknown)
		wantError(t, err, context.Canceled)
	})
	t.Run("read", func(t *testing.T) {
		short := open(t, mongostore.Config{URI: f.uri(), Timeout: time.Second})
		for name, c := range map[string]struct {
			a    answer
			want error
		}{
			"cut":            {answer{half: true}, zstore.ErrUnavailable},
			"not primary":    {failed(13435, "NotPrimaryNoSecondaryOk"), zstore.ErrUnavailable},
			"not ours":       {found(bson.D{{Key: "_id", Value: "x"}}), errDefinite},
			"no replica set": {failed(123, "NotAReplicaSet"), errDefinite},
		} {
			f.answer(func(string, bson.Raw) answer { return c.a })
			reader := s
			if errors.Is(c.want, zstore.ErrUnavailable) { // its own time-out, not the caller's
				reader = short
			}
			_, err := reader.Read(t.Context(), key)
			t.Log(name)
			wantError(t, err, c.want)
		}
	})
}

// errDefinite stands for an error that is none of zstore's.
var errDefinite = errors.New("a definite failure")

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if errors.Is(want, errDefinite) {
		for _, e := range []error{zstore.ErrConflict, zstore.ErrNotFound, zstore.ErrUnknown, zstore.ErrUnavailable, zstore.ErrTooLarge, zstore.ErrInvalid} {
			if err == nil || errors.Is(err, e) {
				t.Errorf("error %v, want one that is none of zstore's", err)
			}
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestNoServer(t *testing.T) {
	start := time.Now()
	_, err := mongostore.New(mongostore.Config{URI: "mongodb://u:secret@127.0.0.1:1/?replicaSet=rs0", Timeout: 300 * time.Millisecond})
	if !errors.Is(err, zstore.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") {
		t.Fatalf("New without a server: %v", err)
	}
	if d := time.Since(start); d > time.Minute {
		t.Fatalf("it took %s", d)
	}

	f := startFake(t)
	s := open(t, mongostore.Config{URI: f.uri(), Timeout: 500 * time.Millisecond})
	f.stop()
	// The client notices by its own: until then a write may be cut.
	for {
		_, err := s.Save(t.Context(), key, own, 5, wr, wid)
		if errors.Is(err, zstore.ErrUnavailable) {
			break
		}
		if !errors.Is(err, zstore.ErrUnknown) {
			t.Fatalf("Save: %v", err)
		}
	}
	if _, err := s.Read(t.Context(), key); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("Read: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("Ping: %v", err)
	}
}

func TestConfig(t *testing.T) {
	_, err := mongostore.New(mongostore.Config{URI: "http://x", Database: "a.b", Collection: "system.x", Timeout: -1, TombstoneTTL: time.Hour})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 5 {
		t.Fatalf("faults: %v", err)
	}
}
