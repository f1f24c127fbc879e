package zrouter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore/memstore"
)

// outcome asks by message id, as a gate does, and waits.
func (n *testNode) outcome(t *testing.T, fill func(m *zmsg.Message)) (zmsg.Reply, error) {
	t.Helper()
	m := zmsg.NewMessage(0)
	fill(m)
	w := make(replies, 1)
	m.SetReplier(w, 0)
	if err := n.set.Deliver(m); err != nil {
		m.TakeReplier()
		m.Release()
		return zmsg.Reply{}, err
	}
	return <-w, nil
}

type replies chan zmsg.Reply

func (r replies) Reply(_ uint64, x *zmsg.Reply) {
	c := *x
	c.Body = append([]byte(nil), x.Body...)
	r <- c
}

// Messages come to the object that their key field names, from any node, hosting or not; clients reach what is marked for them.
func TestDeliverByID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	gate := w.start("gate", zrouter.Settings{}) // hosts nothing
	body, err := proto.Marshal(&testpb.Append{Log: "x", Line: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if !gate.set.Owns(4101) || gate.set.Owns(4102) {
		t.Error("which ids are objects'")
	}
	r, err := gate.outcome(t, func(m *zmsg.Message) { m.ID, m.Client = 4101, true; m.SetBody(body) })
	if err != nil || r.Code != zmsg.CodeOK {
		t.Errorf("%+v, %v", r, err)
	}
	for name, c := range map[string]struct {
		fill func(m *zmsg.Message)
		want error
	}{
		"not for clients": {func(m *zmsg.Message) { m.ID, m.Client = 4103, true; m.SetBody(body) }, zmsg.ErrNoRoute},
		"no kind":         {func(m *zmsg.Message) { m.ID = 9999 }, zmsg.ErrNoRoute},
		"no key":          {func(m *zmsg.Message) { m.ID, m.Client = 4101, true }, zmsg.ErrBadRequest},
		"garbage":         {func(m *zmsg.Message) { m.ID = 4101; m.SetBody([]byte{0xff, 0xff}) }, zmsg.ErrBadRequest},
		"a long key": {func(m *zmsg.Message) {
			m.ID = 4101
			b, _ := proto.Marshal(&testpb.Append{Log: strings.Repeat("x", 600)})
			m.SetBody(b)
		}, zmsg.ErrBadRequest},
	} {
		if r, err := gate.outcome(t, c.fill); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, r, err, c.want)
		}
	}
	if _, err := zrouter.Call[testpb.Lines](t.Context(), gate.set, zmsg.Key{Type: 99, ID: "x"}, &testpb.Get{}); !errors.Is(err, zrouter.ErrNoNode) {
		t.Errorf("a type that nobody hosts: %v", err)
	}
}

// Where the last node that hosts a kind goes, who asks is told to try again, and not that there is no such thing, as long as that may be
// for a moment.
func TestKindGoneForAMoment(t *testing.T) {
	t.Parallel()
	kind := func(k ...zdiscovery.Kind) *zdiscovery.Snapshot {
		return &zdiscovery.Snapshot{Nodes: []zdiscovery.Node{{Ref: zmsg.NodeRef{ID: "n", Epoch: 1}, Kinds: k}}}
	}
	a := zdiscovery.Kind{Type: 1, Adverts: []zmsg.Advert{{ID: 11}, {ID: 12}}}
	b := zdiscovery.Kind{Type: 2, Adverts: []zmsg.Advert{{ID: 21}, {ID: 12}}} // 12 has changed hands
	now := time.Unix(1000, 0)
	var o *zrouter.Owners
	for _, step := range []struct {
		after time.Duration
		list  *zdiscovery.Snapshot
		want  string
	}{
		{0, kind(a), "11:1 12:1"},
		{0, kind(), "11:1? 12:1?"},
		{zrouter.GoneFor / 2, kind(b), "11:1? 12:2 21:2"},
		{zrouter.GoneFor/2 - 1, kind(b), "11:1? 12:2 21:2"},
		{1, kind(b), "12:2 21:2"},
		{0, kind(), "12:2? 21:2?"},
		{zrouter.GoneFor - 1, kind(a), "11:1 12:1 21:2?"},
		{zrouter.GoneFor, kind(), "11:1? 12:1?"},
	} {
		now = now.Add(step.after)
		o = zrouter.NextOwners(step.list, o, now)
		if got := zrouter.OwnersText(o, now); got != step.want {
			t.Fatalf("%q, want %q", got, step.want)
		}
	}
	if got := zrouter.OwnersText(o, now.Add(zrouter.GoneFor)); got != "" {
		t.Errorf("for ever: %q", got)
	}
}

// A kind that no message creates is made by who logs in; its hook may know where it is.
func TestNotOnDemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var online atomic.Pointer[zrouter.Route]
	var asked atomic.Int64
	user := logs()
	user.Create = nil
	user.PullOnlineServer = func(context.Context, zmsg.Key) (zrouter.Route, error) {
		if asked.Add(1)%2 == 1 {
			return zrouter.Route{}, fmt.Errorf("not now: %w", zrouter.ErrAgain)
		}
		if r := online.Load(); r != nil {
			return *r, nil
		}
		return zrouter.Route{}, nil
	}
	a, b := w.start("a", zrouter.Settings{}, user), w.start("b", zrouter.Settings{}, user)
	if _, err := a.append("x", "1"); !errors.Is(err, zrouter.ErrNotFound) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		t.Errorf("not made: %v", err)
	}
	if _, err := w.record("x"); err == nil {
		t.Error("asking has made a record")
	}
	m, err := zrouter.ManagerOf[*testpb.Log](b.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.MutableObject(t.Context(), key("x")); !errors.Is(err, zrouter.ErrNotFound) {
		t.Errorf("owning what is not there: %v", err)
	}
	if r, err := m.MutableObject(t.Context(), key("x"), &testpb.Log{Lines: []string{"first"}}); err != nil || r.Owner != b.ref {
		t.Fatalf("%+v, %v", r, err)
	}
	if n, err := a.append("x", "second"); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if err := m.Remove(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	a.set.Lookup(t.Context(), key("x")) //nolint:errcheck // the route of before may be known still
	eventually(t, "nobody owns it", func() bool {
		_, err := a.append("x", "3")
		return errors.Is(err, zrouter.ErrNotInServer)
	})
	if asked.Load() == 0 {
		t.Error("the hook was not asked")
	}
}

// A message for objects that are in memory brings none there, from whatever node it comes, but one whose owner has died.
func TestInServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := logs()
	kind.Handlers[1] = zrouter.Handle(getLines, zrouter.InServer())
	a, b := w.start("a", zrouter.Settings{}, kind), w.start("b", zrouter.Settings{}, kind)
	gate := w.start("gate", zrouter.Settings{})
	get := func(n *testNode, id string) error {
		_, err := n.lines(id)
		if err != nil && zmsg.OutcomeOf(err) != zmsg.NotExecuted {
			t.Errorf("%s of %s: %v", id, n.ref, err)
		}
		return err
	}
	all := func(id string, want error) {
		t.Helper()
		for _, n := range []*testNode{a, b, gate} {
			if err := get(n, id); !errors.Is(err, want) {
				t.Errorf("%s of %s: %v, expected %v", id, n.ref, err, want)
			}
		}
	}
	all("x", zrouter.ErrNotFound)
	if _, err := w.record("x"); err == nil {
		t.Error("asking has made a record")
	}
	for _, id := range []string{"x", "y"} {
		if _, err := gate.append(id, "1"); err != nil {
			t.Fatal(err)
		}
		all(id, nil)
	}
	owner := func(id string) (at, other *testNode) {
		rec, err := w.record(id)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Own.Node == b.ref {
			return b, a
		}
		return a, b
	}
	at, _ := owner("x")
	m, err := zrouter.ManagerOf[*testpb.Log](at.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	all("x", zrouter.ErrNotInServer)
	dead, rest := owner("y")
	w.die(dead)
	if err := get(gate, "y"); err != nil {
		t.Errorf("of an owner that has died: %v", err)
	}
	if now, _ := owner("y"); now != rest {
		t.Errorf("it is at %s", now.ref)
	}
	if err := get(gate, "x"); !errors.Is(err, zrouter.ErrNotInServer) {
		t.Errorf("what was given up: %v", err)
	}
}

// A one-way message that found no object is in the log, but not where it is for objects in memory alone, as a push to a user who is away.
func TestLostOneWayLog(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	w := newWorld(t)
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	kind := logs()
	kind.Create = nil
	kind.Handlers[1] = zrouter.Handle(getLines, zrouter.InServer())
	a := w.start("a", zrouter.Settings{}, kind)
	if err := a.set.Ref(key("x")).Tell(&testpb.Get{Log: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.lines("x"); !errors.Is(err, zrouter.ErrNotFound) { // behind the other one in the object's queue
		t.Fatal(err)
	}
	if err := a.set.Ref(key("y")).Tell(&testpb.Note{Log: "y"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log has a line", func() bool { return log.String() != "" })
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "key=7/0/y") {
		t.Error(got)
	}
}

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A state above the store's limit is told to who waits for its save, and is not lost from memory.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db = memstore.NewWith(memstore.Config{MaxState: 1000})
	a := w.start("a", zrouter.Settings{}, logs())
	if _, err := a.keep("x", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.keep("x", strings.Repeat("y", 2000)); !errors.Is(err, zrouter.ErrTooLarge) || zmsg.OutcomeOf(err) != zmsg.Executed {
		t.Errorf("%v", err)
	}
	if got, err := a.lines("x"); err != nil || len(got) != 2 {
		t.Errorf("%d lines, %v", len(got), err)
	}
	if rec, _ := w.record("x"); len(decode(t, rec.State).Lines) != 1 {
		t.Errorf("%+v", rec)
	}
	m, _ := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err := m.Do(t.Context(), key("x"), func(c *logContext) error { c.State().Lines = c.State().Lines[:1]; c.Save(); return nil }); err != nil {
		t.Errorf("made smaller: %v", err)
	}
}
