package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"zgame/internal/embedded"
	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/kvstore"
	"zgame/zstore/zstoretest"
	"zgame/ztest/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a NATS server with a plain client of its own.
type server struct {
	*embedded.NATS
	nc      *nats.Conn
	js      jetstream.JetStream
	buckets atomic.Int64
}

func start(tb testing.TB) *server {
	tb.Helper()
	srv, err := embedded.StartNATS(tb.TempDir(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Stop)
	nc, err := nats.Connect(srv.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return &server{NATS: srv, nc: nc, js: js}
}

func (s *server) config() kvstore.Config {
	return kvstore.Config{URL: s.URL(), Bucket: fmt.Sprintf("b%d", s.buckets.Add(1)), Timeout: time.Minute}
}

func open(tb testing.TB, cfg kvstore.Config) *kvstore.Store {
	tb.Helper()
	s, err := kvstore.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// A bucket that is gone, as after a start of the server without its data, is named, and there again when a node starts.
func TestBucketGone(t *testing.T) {
	srv := start(t)
	cfg := srv.config()
	s := open(t, cfg)
	if err := srv.js.DeleteKeyValue(t.Context(), cfg.Bucket); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, zstore.ErrUnavailable) || !strings.Contains(err.Error(), "the bucket "+cfg.Bucket+" is gone") {
		t.Errorf("got %v", err)
	}
	open(t, cfg)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// While the server takes connections and then is silent, a call ends at once, or at least with its context; a bound of the client's
// own would be cfg.Timeout for each connection that it tries. When the server speaks again, calls are answered.
func TestSilentServer(t *testing.T) {
	srv := start(t)
	p := faultproxy.Start(t, strings.TrimPrefix(srv.URL(), "nats://"))
	cfg := srv.config()
	cfg.URL = "nats://" + p.Addr()
	s := open(t, cfg)
	p.SetNew(faultproxy.Both, faultproxy.Fault{Stall: true})
	before := p.Accepted()
	p.Reset()
	for p.Accepted() == before { // the client waits for the server's first line now
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		ended := make(chan error, 1)
		go func() { // ends with the call
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			ended <- s.Ping(ctx)
		}()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a silent server answers")
			}
		case <-time.After(30 * time.Second): // the client gives its try up after a minute
			t.Fatal("the call goes on long after its context has ended")
		}
	}
	p.Heal()
	p.Reset() // the connection that is silent
	for end := time.Now().Add(30 * time.Second); s.Ping(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no answer after the server is back")
		}
	}
}

func TestConformance(t *testing.T) {
	for _, v := range []struct {
		name             string
		remember, rounds int
	}{{"remember", 0, 100}, {"forget", -1, 10}} {
		t.Run(v.name, func(t *testing.T) {
			srv := start(t)
			var cfg kvstore.Config
			zstoretest.Run(t, zstoretest.Features{
				Rounds:      v.rounds,
				SmallStates: v.remember < 0, // once is enough
				Second:      func(t *testing.T, _ zstore.Store) zstore.Store { t.Helper(); return open(t, cfg) },
				AddUnknown:  func(t *testing.T, _ zstore.Store, k zmsg.Key) { t.Helper(); srv.addUnknown(t, cfg.Bucket, k) },
				HasUnknown:  func(t *testing.T, _ zstore.Store, k zmsg.Key) { t.Helper(); srv.hasUnknown(t, cfg.Bucket, k) },
				Prune:       func(t *testing.T, _ zstore.Store) { t.Helper(); srv.prune(t, cfg.Bucket) },
			}, func(t *testing.T) zstore.Store {
				t.Helper()
				cfg = srv.config()
				cfg.Remember = v.remember
				return open(t, cfg)
			})
		})
	}
}

// subject of a key, spelled out apart from the driver's code.
func subject(bucket string, k zmsg.Key) string {
	return kvstore.Subject(bucket, k)
}

// unknownField is field 900 of the record, of a version to come.
func unknownField() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), "from the future")
}

func (s *server) addUnknown(t *testing.T, bucket string, k zmsg.Key) {
	t.Helper()
	msg := s.last(t, bucket, k)
	out := nats.NewMsg(msg.Subject)
	out.Data = append(msg.Data, unknownField()...)
	// Inside Own too: a second piece of the same message field is merged by protobuf.
	own := protowire.AppendString(protowire.AppendTag(nil, 901, protowire.BytesType), "owner of the future")
	out.Data = protowire.AppendBytes(protowire.AppendTag(out.Data, 2, protowire.BytesType), own)
	if o := msg.Header.Get("Zgame-Own"); o != "" {
		out.Header.Set("Zgame-Own", o)
	}
	if _, err := s.js.PublishMsg(t.Context(), out); err != nil {
		t.Fatal(err)
	}
}

func (s *server) last(t *testing.T, bucket string, k zmsg.Key) *jetstream.RawStreamMsg {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(t.Context(), subject(bucket, k))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func (s *server) hasUnknown(t *testing.T, bucket string, k zmsg.Key) {
	t.Helper()
	top, inOwn := false, false
	eachField(t, s.last(t, bucket, k).Data, func(n protowire.Number, v []byte) {
		top = top || n == 900
		if n == 2 {
			eachField(t, v, func(n protowire.Number, _ []byte) { inOwn = inOwn || n == 901 })
		}
	})
	if !top || !inOwn {
		t.Fatalf("fields of a newer version are lost: record's kept %t, owner's kept %t", top, inOwn)
	}
}

func eachField(t *testing.T, b []byte, f func(protowire.Number, []byte)) {
	t.Helper()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		v := b[n : n+m]
		if typ == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(v)
		}
		f(num, v)
		b = b[n+m:]
	}
}

// prune removes tombstones as their TTL would.
func (s *server) prune(t *testing.T, bucket string) {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for subj := range info.State.Subjects {
		msg, err := stream.GetLastMsgForSubject(t.Context(), subj)
		if err != nil {
			t.Fatal(err)
		}
		if ttl := msg.Header.Get("Nats-TTL"); ttl != "" {
			if ttl != "86400s" {
				t.Fatalf("a tombstone lives for %s", ttl)
			}
			n++
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(subj)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n == 0 {
		t.Fatal("no tombstone has a time to live")
	}
}

var (
	key  = zmsg.Key{Type: 1, Zone: 2, ID: "k"}
	node = zmsg.NodeRef{ID: "n", Epoch: 1}
)

func TestStreamIsReadThroughItsLeader(t *testing.T) {
	srv := start(t)
	cfg := srv.config()
	open(t, cfg)
	stream, err := srv.js.Stream(t.Context(), "KV_"+cfg.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	if c.AllowDirect || c.MaxMsgsPerSubject != 1 || !c.AllowMsgTTL || c.Discard != jetstream.DiscardNew || c.Storage != jetstream.FileStorage {
		t.Fatalf("stream is %+v", c)
	}

	// A bucket made by somebody's KV client is put right, with its contents.
	other := srv.config()
	if _, err := srv.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: other.Bucket, Storage: jetstream.MemoryStorage, History: 5}); err != nil {
		t.Fatal(err)
	}
	s := open(t, other)
	stream, err = srv.js.Stream(t.Context(), "KV_"+other.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; c.AllowDirect || c.MaxMsgsPerSubject != 1 || !c.AllowMsgTTL {
		t.Fatalf("stream is %+v", c)
	}
	// And a KV client reads what the store writes.
	if _, err := s.Create(t.Context(), key, node, zstore.Write{State: []byte("a")}, zstore.NewWriteID()); err != nil {
		t.Fatal(err)
	}
	kv, err := srv.js.KeyValue(t.Context(), other.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), "1.2.aw"); err != nil || len(e.Value()) == 0 {
		t.Fatalf("KV client: %v %v", e, err)
	}
	// Which should not delete there: the numbers would begin anew. The store says so.
	if err := kv.Delete(t.Context(), "1.2.aw"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), key); err == nil || errors.Is(err, zstore.ErrNotFound) || errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("Read of a key that a KV client deleted: %v", err)
	}
}

func TestServerGone(t *testing.T) {
	if _, err := kvstore.New(kvstore.Config{URL: "nats://127.0.0.1:1", Timeout: time.Second}); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("New without a server: %v", err)
	}
	srv := start(t)
	cfg := srv.config()
	s := open(t, cfg)
	ctx := t.Context()
	rec, err := s.Create(ctx, key, node, zstore.Write{State: []byte("a")}, zstore.NewWriteID())
	if err != nil {
		t.Fatal(err)
	}

	// Calls under way when the connection goes: each write ends by itself, unknown or not sent, long before its timeout.
	stop, ended := make(chan struct{}), make(chan error)
	go func() { // ended by stop; the test waits for it
		var last error
		for k := 0; ; k++ {
			select {
			case <-stop:
				ended <- last
				return
			default:
			}
			_, err := s.Create(ctx, zmsg.Key{ID: fmt.Sprint(k)}, node, zstore.Write{}, zstore.NewWriteID())
			if err != nil && !errors.Is(err, zstore.ErrUnknown) && !errors.Is(err, zstore.ErrUnavailable) {
				last = err
			}
		}
	}()
	srv.Stop()
	for s.Ping(ctx) == nil {
	}
	if _, err := s.Save(ctx, key, rec.Own, rec.Rev, zstore.Write{}, zstore.NewWriteID()); !errors.Is(err, zstore.ErrUnavailable) && !errors.Is(err, zstore.ErrUnknown) {
		t.Fatalf("Save: %v", err)
	}
	if _, err := s.Read(ctx, key); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("Read: %v", err)
	}
	if err := s.Scan(ctx, node, func(zmsg.Key, zstore.Own) bool { return true }); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("Scan: %v", err)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatalf("a write under way ended with %v", err)
	}
}

// A server that takes the write and does not answer: the outcome is unknown, and the same write again finds it landed.
func TestAnswerLost(t *testing.T) {
	srv := start(t)
	cfg := srv.config()
	s := open(t, cfg)
	ctx := t.Context()
	rec, err := s.Create(ctx, key, node, zstore.Write{State: []byte("a")}, zstore.NewWriteID())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	// A second subscriber of the subject sees the write at the same time as the stream and cancels its caller.
	sub, err := srv.nc.Subscribe(subject(cfg.Bucket, key), func(*nats.Msg) { cancel() })
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := zstore.Change{Op: zstore.OpSave, Key: key, Own: rec.Own, Rev: rec.Rev, Write: zstore.Write{State: []byte("b")}, WID: zstore.NewWriteID()}
	if _, err = c.Do(short, s); err != nil && (!errors.Is(err, zstore.ErrUnknown) || !errors.Is(err, context.Canceled)) {
		t.Fatalf("Save: %v", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Do(ctx, s)
	if err != nil || got.Rev != 2 {
		t.Fatalf("the same again: %+v %v", got, err)
	}
	if rec, err = s.Read(ctx, key); err != nil || rec.Rev != 2 || string(rec.State) != "b" {
		t.Fatalf("%+v %v", rec, err)
	}
}

// A bucket that is full refuses the write; with the server's storage failing as the other reading of that answer, the
// outcome is unknown rather than wrong.
func TestBucketFull(t *testing.T) {
	srv := start(t)
	cfg := srv.config()
	s := open(t, cfg)
	stream, err := srv.js.Stream(t.Context(), "KV_"+cfg.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxBytes = 4096
	if _, err := srv.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(t.Context(), key, node, zstore.Write{State: make([]byte, 8192)}, zstore.NewWriteID())
	if !errors.Is(err, zstore.ErrUnknown) {
		t.Fatalf("Create in a full bucket: %v", err)
	}
	if _, err := s.Create(t.Context(), key, node, zstore.Write{}, zstore.NewWriteID()); err != nil {
		t.Fatalf("a smaller one: %v", err)
	}
}

func TestScanSeesSavedRecords(t *testing.T) {
	srv := start(t)
	s := open(t, srv.config())
	ctx := t.Context()
	const n = 2500 // more than two batches
	recs := make([]zstore.Record, n)
	for i := range recs {
		rec, err := s.Create(ctx, zmsg.Key{Type: 1, ID: fmt.Sprint(i)}, node, zstore.Write{}, zstore.NewWriteID())
		if err != nil {
			t.Fatal(err)
		}
		recs[i] = rec
	}
	// Records that the scan has not reached yet are saved meanwhile, and so move to the end.
	other := open(t, kvstore.Config{URL: srv.URL(), Bucket: fmt.Sprintf("b%d", srv.buckets.Load())})
	got, saved := 0, false
	err := s.Scan(ctx, node, func(zmsg.Key, zstore.Own) bool {
		got++
		if !saved {
			saved = true
			for i := n - 300; i < n; i++ {
				if _, err := other.Save(ctx, recs[i].Key, recs[i].Own, recs[i].Rev, zstore.Write{}, zstore.NewWriteID()); err != nil {
					t.Error(err)
				}
			}
		}
		return true
	})
	if err != nil || got != n {
		t.Fatalf("Scan gave %d records of %d, %v", got, n, err)
	}
}

func TestConfig(t *testing.T) {
	_, err := kvstore.New(kvstore.Config{Bucket: "a.b", Replicas: 9, TombstoneTTL: time.Hour, Timeout: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 4 {
		t.Fatalf("faults: %v", err)
	}
}

func TestGivenConnectionStaysOpen(t *testing.T) {
	srv := start(t)
	cfg := srv.config()
	cfg.URL, cfg.Conn = "", srv.nc
	s := open(t, cfg)
	if _, err := s.Create(t.Context(), key, node, zstore.Write{}, zstore.NewWriteID()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil || !srv.nc.IsConnected() {
		t.Fatalf("Close: %v, connected %t", err, srv.nc.IsConnected())
	}
}
