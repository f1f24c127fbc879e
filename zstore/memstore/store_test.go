package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/memstore"
	"zgame/zstore/zstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	zstoretest.Run(t, zstoretest.Features{
		Second: func(_ *testing.T, s zstore.Store) zstore.Store { return s.(*memstore.Store).Share() },
		Prune:  func(_ *testing.T, s zstore.Store) { s.(*memstore.Store).Prune() },
	}, func(*testing.T) zstore.Store { return memstore.New() })
}

var (
	key  = zmsg.Key{Type: 1, ID: "k"}
	node = zmsg.NodeRef{ID: "n", Epoch: 1}
)

func TestFaults(t *testing.T) {
	ctx := t.Context()
	db := memstore.New()
	s := db.Share()
	var kind memstore.FaultKind
	var late []func()
	s.SetFaults(func(zstore.Op, zmsg.Key) memstore.Fault {
		return memstore.Fault{Kind: kind, Later: func(land func()) { late = append(late, land) }}
	})
	create := func() error {
		_, err := s.Create(ctx, key, node, zstore.Write{State: []byte("a")}, zstore.NewWriteID())
		return err
	}
	landed := func() bool {
		_, err := db.Read(ctx, key)
		return err == nil
	}

	kind = memstore.Unavailable
	if err := create(); !errors.Is(err, zstore.ErrUnavailable) || landed() {
		t.Fatalf("unavailable: %v, landed %t", err, landed())
	}
	kind = memstore.UnknownNotLanded
	if err := create(); !errors.Is(err, zstore.ErrUnknown) || landed() {
		t.Fatalf("unknown, not landed: %v, landed %t", err, landed())
	}
	if _, err := s.Read(ctx, key); !errors.Is(err, zstore.ErrUnavailable) {
		t.Fatalf("a read under an unknown fault: %v", err)
	}
	kind = memstore.UnknownLate
	if err := create(); !errors.Is(err, zstore.ErrUnknown) || landed() {
		t.Fatalf("unknown, late: %v, landed %t", err, landed())
	}
	late[0]()
	if !landed() {
		t.Fatal("the late write did not land")
	}
	rec, _ := db.Read(ctx, key)
	kind = memstore.UnknownLanded
	if _, err := s.Save(ctx, key, rec.Own, rec.Rev, zstore.Write{State: []byte("b")}, zstore.NewWriteID()); !errors.Is(err, zstore.ErrUnknown) {
		t.Fatal(err)
	}
	if rec, _ = db.Read(ctx, key); string(rec.State) != "b" {
		t.Fatalf("unknown, landed: state %q", rec.State)
	}
}

func TestDelayIsVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		s.SetFaults(func(zstore.Op, zmsg.Key) memstore.Fault { return memstore.Fault{Delay: time.Minute} })
		start := time.Now()
		if err := s.Ping(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Fatalf("Ping: %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Create(ctx, key, node, zstore.Write{}, zstore.NewWriteID()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Create: %v", err)
		}
		s.SetFaults(nil)
		if _, err := s.Read(t.Context(), key); !errors.Is(err, zstore.ErrNotFound) {
			t.Fatalf("the delayed write landed: %v", err)
		}
	})
}

func TestSetMaxState(t *testing.T) {
	s := memstore.NewWith(memstore.Config{MaxState: 10})
	s.Share().SetMaxState(4)
	if s.MaxState() != 4 || s.Len() != 0 {
		t.Fatalf("limit %d", s.MaxState())
	}
	if _, err := s.Create(t.Context(), key, node, zstore.Write{State: []byte("12345")}, zstore.NewWriteID()); !errors.Is(err, zstore.ErrTooLarge) {
		t.Fatal(err)
	}
}
