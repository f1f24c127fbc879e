package zrouter_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// player is a client's session, as a gate has it; its seqs rise.
type player struct {
	session uint64
	gen     uint32
}

// ask sends what a client asks for, for the first time or not, and waits for its outcome.
func (p player) ask(t *testing.T, n *testNode, seq uint64, resent bool, req proto.Message) zmsg.Reply {
	t.Helper()
	outcome := make(answers, 1)
	p.send(t, n, seq, resent, req, outcome)
	return outcome.next(t)
}

func (p player) send(t *testing.T, n *testNode, seq uint64, resent bool, req proto.Message, outcome answers) {
	t.Helper()
	id, _ := zmsg.IDOf(req)
	m := zmsg.NewMessage(id)
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	m.SetBody(body)
	m.Client, m.Session, m.Seq, m.User = true, zmsg.SessionRef{Gate: n.ref, ID: p.session, Gen: p.gen}, seq, "ann"
	m.SetReplier(outcome, seq)
	deliver := n.set.Deliver
	if resent {
		deliver = n.set.DeliverResent
	}
	if err := deliver(m); err != nil {
		m.ReplyError(err)
		m.Release()
	}
}

// answers takes outcomes, with their bodies.
type answers chan zmsg.Reply

func (o answers) Reply(_ uint64, r *zmsg.Reply) {
	c := *r
	if c.Value != nil {
		c.Body, _ = proto.Marshal(c.Value)
	}
	c.Body, c.Value = slices.Clone(c.Body), nil
	o <- c
}

func (o answers) next(t *testing.T) zmsg.Reply {
	t.Helper()
	select {
	case r := <-o:
		return r
	case <-time.After(patience):
		t.Fatal("no outcome")
		return zmsg.Reply{}
	}
}

// appended is the number of lines that an answer tells.
func appended(t *testing.T, r zmsg.Reply) int64 {
	t.Helper()
	var a testpb.Appended
	if err := proto.Unmarshal(r.Body, &a); err != nil || r.Code != zmsg.CodeOK {
		t.Fatalf("%+v %v", r, err)
	}
	return a.N
}

func isUnknown(r zmsg.Reply) bool {
	return r.Code == zmsg.CodeUnknownOutcome && r.Outcome == zmsg.Unknown
}

// remembering is the kind of the tests, which remembers its clients' requests.
func remembering(limit int) zrouter.Kind[*testpb.Log] {
	k := logs()
	k.Settings.ClientDedup = limit
	k.Settings.SaveDelay = time.Hour
	k.Settings.MaxUnsavedAge = 4 * time.Hour
	k.Handlers[4] = zrouter.Handle(keepLine, zrouter.Durable(), zrouter.FromClients())
	return k
}

// A client's request that is sent again by another gate runs once, and is answered as it was: where it ran, behind a move, behind the crash of who ran it. One that has not run runs.
func TestResentRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, zrouter.Settings{}, remembering(8))
	}
	before, after := player{9, 1}, player{9, 2}
	line := func(i int) proto.Message { return &testpb.Keep{Log: "x", Line: fmt.Sprint(i)} }
	for i := 1; i <= 4; i++ {
		if n := appended(t, before.ask(t, w.all()[0], uint64(i), false, line(i))); n != int64(i) {
			t.Fatalf("the %dth is line %d", i, n)
		}
	}
	again := func(what string) {
		t.Helper()
		for _, n := range w.all() {
			for i := 1; i <= 5; i++ { // the 5th has not run: it does the first time
				if got := appended(t, after.ask(t, n, uint64(i), true, line(i))); got != int64(i) {
					t.Errorf("%s, at %s: the %dth is line %d", what, n.ref, i, got)
				}
			}
		}
		if got, err := w.all()[0].lines("x"); err != nil || !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
	}
	again("at its owner")
	rec, err := w.record("x")
	if err != nil {
		t.Fatal(err)
	}
	owner := w.nodes[rec.Own.Node]
	to := w.all()[slices.IndexFunc(w.all(), func(n *testNode) bool { return n != owner })]
	if _, err := owner.set.Transfer(t.Context(), key("x"), to.ref); err != nil {
		t.Fatal(err)
	}
	again("moved")
	w.remove(to)
	again("after a crash")
}

// What its owner has lost in a crash, with its effect, runs again: its effect is there once. What has changed nothing is not saved for that it ran.
func TestResentAfterALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b"} {
		w.start(id, zrouter.Settings{}, remembering(8))
	}
	p := player{9, 1}
	p.ask(t, w.all()[0], 1, false, &testpb.Keep{Log: "x", Line: "1"})
	p.ask(t, w.all()[0], 2, false, &testpb.Append{Log: "x", Line: "2"})
	rec, err := w.record("x")
	if err != nil {
		t.Fatal(err)
	}
	w.remove(w.nodes[rec.Own.Node])
	other := w.all()[0]
	for seq, line := range map[uint64]string{1: "1", 2: "2"} {
		if got := appended(t, p.ask(t, other, seq, true, &testpb.Append{Log: "x", Line: line})); got != int64(seq) {
			t.Errorf("%d is line %d", seq, got)
		}
	}
	if got, err := other.lines("x"); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// What nobody can tell is not run, and ends as unknown: it is older than what is remembered, the object has been with an owner that does not remember, or is; the request does not say for which object it is.
func TestResentIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forgets := remembering(8)
	forgets.Settings.ClientDedup = 0
	a, b := w.start("a", zrouter.Settings{}, remembering(2)), w.start("b", zrouter.Settings{}, forgets)
	own := func(n *testNode, k string) {
		t.Helper()
		m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
		if err == nil {
			_, err = m.MutableObject(t.Context(), key(k))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	own(a, "x")
	p := player{9, 1}
	for i := range uint64(4) {
		appended(t, p.ask(t, b, i+1, false, &testpb.Keep{Log: "x", Line: "x"}))
	}
	for seq, unknown := range map[uint64]bool{1: true, 2: true, 3: false, 4: false} {
		if r := p.ask(t, a, seq, true, &testpb.Keep{Log: "x", Line: "never"}); isUnknown(r) != unknown {
			t.Errorf("%d: %+v", seq, r)
		}
	}
	if r := p.ask(t, a, 1, false, &testpb.Keep{Log: "x", Line: "never"}); !isUnknown(r) { // the first one, which comes late
		t.Errorf("%+v", r)
	}
	for _, req := range []proto.Message{&testpb.Keep{Line: "never"}, &testpb.Get{Log: "x"}, &testpb.Lines{}} {
		if r := p.ask(t, a, 5, true, req); !isUnknown(r) {
			t.Errorf("%T: %+v", req, r)
		}
	}
	// Its next owner does not remember, then one does again.
	if _, err := a.set.Transfer(t.Context(), key("x"), b.ref); err != nil {
		t.Fatal(err)
	}
	if r := p.ask(t, a, 4, true, &testpb.Keep{Log: "x", Line: "never"}); !isUnknown(r) {
		t.Errorf("%+v", r)
	}
	appended(t, p.ask(t, a, 6, false, &testpb.Keep{Log: "x", Line: "x"}))
	if _, err := b.set.Transfer(t.Context(), key("x"), a.ref); err != nil {
		t.Fatal(err)
	}
	for _, p := range []player{p, {10, 1}} {
		if r := p.ask(t, a, 6, true, &testpb.Keep{Log: "x", Line: "never"}); !isUnknown(r) {
			t.Errorf("%+v: %+v", p, r)
		}
	}
	appended(t, p.ask(t, a, 8, false, &testpb.Keep{Log: "x", Line: "x"}))
	if r := p.ask(t, a, 6, true, &testpb.Keep{Log: "x", Line: "never"}); !isUnknown(r) {
		t.Errorf("%+v", r)
	}
	if got, err := a.lines("x"); err != nil || slices.Contains(got, "never") || len(got) != 6 {
		t.Errorf("%v, %v", got, err)
	}
	// An object that was deleted, and is there anew: what the one before has run nobody knows.
	m, err := zrouter.ManagerOf[*testpb.Log](a.set, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Do(t.Context(), key("x"), func(c *logContext) error { c.Delete(); return nil }); err != nil {
		t.Fatal(err)
	}
	own(a, "x")
	if r := p.ask(t, a, 8, true, &testpb.Keep{Log: "x", Line: "never"}); !isUnknown(r) {
		t.Errorf("%+v", r)
	}
	// One that is there for the first time has run nothing.
	if got := appended(t, p.ask(t, a, 3, true, &testpb.Keep{Log: "new", Line: "x"})); got != 1 {
		t.Error(got)
	}
}

// A request that comes again while it runs shares the outcome of the one that runs, also one with a key; too many are refused.
func TestRunningIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int64
	held := make(chan zactor.Deferred, 10)
	k := remembering(8)
	k.Settings.Dedup = 8
	k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
		runs.Add(1)
		add(c, req.Line)
		held <- c.Defer()
		return nil, nil
	}, zrouter.FromClients())
	n := w.start("a", zrouter.Settings{}, k)
	const times = 5
	// Of a client.
	outcome := make(answers, 100)
	p := player{9, 1}
	p.send(t, n, 1, false, &testpb.Append{Log: "x", Line: "client"}, outcome)
	for range times {
		p.send(t, n, 1, true, &testpb.Append{Log: "x", Line: "client"}, outcome)
	}
	if _, err := n.lines("x"); err != nil || len(outcome) != 0 { // it waits behind them
		t.Errorf("%v; %d are answered", err, len(outcome))
	}
	(<-held).Reply(&testpb.Appended{N: 77})
	for range times + 1 {
		if got := appended(t, outcome.next(t)); got != 77 {
			t.Error(got)
		}
	}
	// With a key.
	for range 65 {
		m := zmsg.NewMessage(4101)
		m.Value, m.Once = &testpb.Append{Log: "x", Line: "key"}, "key"
		m.SetReplier(outcome, 1)
		if err := n.set.DeliverObject(key("x"), m); err != nil {
			t.Fatal(err)
		}
	}
	m := zmsg.NewMessage(4101)
	m.Value, m.Once = &testpb.Append{Log: "x", Line: "key"}, "key"
	m.SetReplier(outcome, 1)
	if err := n.set.DeliverObject(key("x"), m); err != nil {
		t.Fatal(err)
	}
	if r := outcome.next(t); r.Code != zmsg.CodeBusy || r.Outcome != zmsg.NotExecuted {
		t.Errorf("one too many: %+v", r)
	}
	(<-held).Fail(zmsg.Errorf(1234, "no"))
	for range 65 {
		if r := outcome.next(t); r.Code != 1234 || r.Outcome != zmsg.Executed {
			t.Errorf("%+v", r)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d have run", runs.Load())
	}
}

// An answer that waits for a save is not told before it to who asks again, also where the handler alone has said so.
func TestRememberedAnswerWaitsForTheSave(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprint("with a key ", once), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			k := remembering(8)
			k.Settings.Dedup = 8
			k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
				c.Save()
				return add(c, req.Line), nil
			}, zrouter.FromClients())
			n := w.start("a", zrouter.Settings{}, k)
			if _, err := n.lines("x"); err != nil {
				t.Fatal(err)
			}
			var saves atomic.Int64
			var away atomic.Bool
			away.Store(true)
			n.store.SetFaults(func(op zstore.Op, _ zmsg.Key) memstore.Fault {
				if op != zstore.OpSave || !away.Load() {
					return memstore.Fault{}
				}
				saves.Add(1)
				return memstore.Fault{Kind: memstore.Unavailable}
			})
			outcome := make(answers, 2)
			ask := func(resent bool) {
				if !once {
					player{9, 1}.send(t, n, 1, resent, &testpb.Append{Log: "x", Line: "1"}, outcome)
					return
				}
				m := zmsg.NewMessage(4101)
				m.Value, m.Once = &testpb.Append{Log: "x", Line: "1"}, "key"
				m.SetReplier(outcome, 1)
				if err := n.set.DeliverObject(key("x"), m); err != nil {
					t.Error(err)
				}
			}
			ask(false)
			eventually(t, "it is to be saved", func() bool { return saves.Load() > 0 })
			ask(true)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m, err := zrouter.ManagerOf[*testpb.Log](n.set, 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Do(ctx, key("x"), func(*logContext) error { return nil }); err != nil { // behind it
				t.Fatal(err)
			}
			if len(outcome) != 0 {
				t.Errorf("told before it was saved: %+v", <-outcome)
			}
			away.Store(false)
			for range 2 {
				if got := appended(t, outcome.next(t)); got != 1 {
					t.Error(got)
				}
			}
		})
	}
}

// What ran when its node died, behind a save that has what it had changed by then, is not run a second time: nobody knows how it ended.
func TestResentThatRanWhenItsNodeDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := make(chan zactor.Deferred, 10)
	for _, id := range []string{"a", "b"} {
		k := remembering(8)
		k.Settings.Dedup = 8
		k.Handlers[0] = zrouter.Handle(func(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
			add(c, req.Line)
			began <- c.Defer()
			return nil, nil
		}, zrouter.FromClients())
		w.start(id, zrouter.Settings{}, k)
	}
	n := w.all()[0]
	p, outcome := player{9, 1}, make(answers, 10)
	p.send(t, n, 1, false, &testpb.Append{Log: "x", Line: "1"}, outcome)
	withKey := func(n *testNode) {
		m := message(&testpb.Append{Log: "x", Line: "2"})
		m.Once = "key"
		m.SetReplier(outcome, 2)
		if err := n.set.DeliverObject(key("x"), m); err != nil {
			t.Fatal(err)
		}
	}
	withKey(n)
	for range 2 {
		d := <-began
		defer d.Fail(zmsg.ErrStopped) // it does not end before the test
	}
	if got := appended(t, p.ask(t, n, 2, false, &testpb.Keep{Log: "x", Line: "3"})); got != 3 { // with it the others are saved
		t.Fatal(got)
	}
	rec, err := w.record("x")
	if err != nil {
		t.Fatal(err)
	}
	w.remove(w.nodes[rec.Own.Node])
	other := w.all()[0]
	if r := p.ask(t, other, 1, true, &testpb.Append{Log: "x", Line: "1"}); !isUnknown(r) {
		t.Errorf("%+v", r)
	}
	withKey(other)
	if r := outcome.next(t); !isUnknown(r) {
		t.Errorf("%+v", r)
	}
	if got := appended(t, p.ask(t, other, 2, true, &testpb.Keep{Log: "x", Line: "3"})); got != 3 {
		t.Error(got)
	}
	if got, err := other.lines("x"); err != nil || !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("%v, %v", got, err)
	}
}
