package zgate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// slowGroups is a bus that subscribes when the test says so.
type slowGroups struct {
	mu   sync.Mutex
	gate chan struct{}
}

func (s *slowGroups) JoinGroup(ctx context.Context, _ string) error {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	select {
	case <-g:
	case <-ctx.Done():
	}
	return nil
}
func (s *slowGroups) LeaveGroup(string) error { return nil }

// An actor has the session leave a group while its state is on its way: it is no member where it comes to.
func TestLeaveWhileItGoes(t *testing.T) {
	t.Parallel()
	w, g := newTown(t, 2)
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	if err := g[0].Join(ref, "go"); err != nil {
		t.Fatal(err)
	}
	now := zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}
	w.fence = func() { // of a node that knows already
		if err := g[1].Leave(now, "go"); err != nil {
			t.Error(err)
		}
	}
	_ = g[1].again("ann", c.welcome.GetResume(), 0)
	if d, _ := g[1].PublishLocal("go", &zmsg.Push{ID: 1, Body: []byte("all")}); d != 0 {
		t.Error("it is a member of the group that it has left")
	}
}

// A join that is in force gets what is published behind it.
func TestJoinWhileItGoes(t *testing.T) {
	t.Parallel()
	w, g := newTown(t, 2)
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	now := zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}
	done := make(chan struct{})
	w.fence = func() {
		go func() {
			defer close(done)
			if err := g[1].Join(now, "go"); err != nil {
				t.Error(err)
				return
			}
			if d, _ := g[1].PublishLocal("go", &zmsg.Push{ID: 1, Body: []byte("all")}); d != 1 {
				t.Error("the join is in force, and what is published does not come")
			}
		}()
		select {
		case <-done:
		case <-time.After(100 * time.Millisecond):
		}
	}
	_ = g[1].again("ann", c.welcome.GetResume(), 0)
	<-done
}

// A late answer of a gate that was asked, and not waited for, when the session has gone on to yet another gate.
func TestLateAnswerAfterItWentOn(t *testing.T) {
	t.Parallel()
	w, g := newTown(t, 3)
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	var kept []byte
	w.mu.Lock()
	w.answer = func(b []byte) error {
		if kept == nil {
			kept = b
		}
		return nil
	}
	w.mu.Unlock()
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	w.mu.Lock()
	answer := kept
	w.answer = nil
	w.mu.Unlock()
	b.ws.end()
	d := g[2].again("ann", b.welcome.GetResume(), 0)
	if !d.welcome.GetResumed() || d.welcome.GetGeneration() != 3 {
		t.Fatal(d.welcome)
	}
	g[1].HandedLate(ref, answer) // the bus was slow
	if s := g[1].sessions.get(ref.ID); s != nil {
		if _, gone := s.goneTo(); !gone {
			t.Errorf("the session is at n3, and n2 has it as well: state %d, %v", s.stateNow(), s.ref)
		}
	}
	if g[1].Sessions() != 0 {
		t.Errorf("%d sessions at n2", g[1].Sessions())
	}
	g[1].pushTo(zmsg.SessionRef{Gate: g[1].self.Ref(), ID: ref.ID, Gen: 2}, zmsg.Reliable, 1, "one")
	d.pushes("1 one")
}

// The same answer twice: who asked says Taken when its subscriptions are there, not before.
func TestDoubleAnswer(t *testing.T) {
	t.Parallel()
	sg := &slowGroups{}
	w, g := newTown(t, 2, func(c *Config) { c.Groups = sg })
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	if err := g[0].Join(ref, "go"); err != nil {
		t.Fatal(err)
	}
	sg.mu.Lock()
	sg.gate = make(chan struct{})
	sg.mu.Unlock()
	var kept []byte
	w.mu.Lock()
	w.answer = func(b []byte) error { kept = b; return nil }
	w.mu.Unlock()
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	w.mu.Lock()
	answer := kept
	w.mu.Unlock()
	g[1].HandedLate(ref, answer) // the second one, of a question that was repeated
	// n2 has no subscription yet: what comes to n1 is to be sent on.
	if d, _ := g[0].PublishLocal("go", &zmsg.Push{ID: 1, Body: []byte("all"), No: 5}); d != 1 {
		t.Error("n1 has left the group before n2 is in it: what is published is lost")
	}
	close(sg.gate)
	b.pushes("1 all")
}

// Asked again by a second try while the first answer is late: the session is not lost.
func TestSecondTry(t *testing.T) {
	t.Parallel()
	w, g := newTown(t, 2, func(c *Config) { c.HandoverTime = 300 * time.Millisecond })
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	g[0].pushTo(ref, zmsg.Reliable, 1, "one")
	w.lose = 1 << 30
	_ = g[1].again("ann", c.welcome.GetResume(), 0) // gives up
	eventually(t, "the answer is late", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.late) > 0 })
	w.mu.Lock()
	late := w.late[0]
	w.mu.Unlock()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the second try
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if s := g[1].sessions.get(ref.ID); s != nil && s.stateNow() == stateComing {
				g[1].HandedLate(ref, late)
				w.mu.Lock()
				w.lose = 0
				w.mu.Unlock()
				return
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	close(stop)
	wg.Wait()
	if !b.welcome.GetResumed() {
		t.Fatalf("the session is lost: %v", b.welcome)
	}
	b.pushes("1 one")
	if gap := b.nextControl().GetGap(); gap.GetFirst() != 2 || gap.GetLast() != 0 { // what has come between the two tries was dropped
		t.Errorf("told of %v", gap)
	}
}

// A question that comes twice has the answer that it had, though there would be another one by now: who has that answer waits for nothing any more.
func TestQuestionComesTwice(t *testing.T) {
	t.Parallel()
	_, g := newTown(t, 2)
	c := g[0].kept("ann")
	g[0].cut(c)
	tok, err := parseToken(c.welcome.GetResume())
	if err != nil {
		t.Fatal(err)
	}
	answer := func(number uint64, user string) *wirepb.HandoverAnswer {
		ask, err := proto.Marshal(&wirepb.HandoverAsk{User: user, Secret: tok.secret[:], Key: tok.key[:]})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, 1)
		g[0].HandOver(g[1].self.Ref(), number, tok.ref, ask, func(b []byte) error { got <- b; return nil })
		var a wirepb.HandoverAnswer
		if err := proto.Unmarshal(<-got, &a); err != nil {
			t.Fatal(err)
		}
		return &a
	}
	if a := answer(1, "bob"); a.GetResult() != wirepb.HandoverResult_HANDOVER_RESULT_USER {
		t.Errorf("%v", a)
	}
	if a := answer(1, "ann"); a.GetResult() != wirepb.HandoverResult_HANDOVER_RESULT_USER {
		t.Errorf("asked twice: %v", a)
	}
	first := answer(2, "ann")
	if first.GetResult() != wirepb.HandoverResult_HANDOVER_RESULT_STATE {
		t.Fatalf("%v", first)
	}
	if a := answer(2, "ann"); !proto.Equal(a, first) {
		t.Errorf("asked twice: %v", a)
	}
	for n := range uint64(2 * maxAsks) {
		answer(3+n, "bob")
	}
	g[0].mu.Lock()
	defer g[0].mu.Unlock()
	if n := len(g[0].asked.answers); n > maxAsks {
		t.Errorf("%d answers are remembered", n)
	}
}

// There and back, before the word that the answer has come: nothing is kept for ever.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	sg := &slowGroups{}
	_, g := newTown(t, 2, func(c *Config) { c.Groups = sg })
	c := g[0].kept("ann")
	g[0].cut(c)
	ref := c.refAt()
	if err := g[0].Join(ref, "go"); err != nil {
		t.Fatal(err)
	}
	g[0].pushTo(ref, zmsg.Reliable, 1, fmt.Sprintf("%10000d", 1))
	ch := make(chan struct{})
	sg.mu.Lock()
	sg.gate = ch
	sg.mu.Unlock()
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	_ = b.next()
	b.ack(1, 0)
	b.echo("x")
	b.ws.end()
	a := g[0].again("ann", b.welcome.GetResume(), 1)
	if !a.welcome.GetResumed() || a.welcome.GetGeneration() != 3 {
		t.Fatal(a.welcome)
	}
	a.ping()
	close(ch)
	eventually(t, "n2 has let go", func() bool { return g[1].Gate.kept.Load() == 0 && g[1].owed.Load() == 0 })
	eventually(t, "n1 has let go of what it had given", func() bool { return g[0].Gate.kept.Load() < 1000 && g[0].owed.Load() == 0 })
}

// The directory knows a session by its new name while it goes, and says of the old one that it is none: that is not the end of it.
func TestDirectoryKnowsFirst(t *testing.T) {
	t.Parallel()
	var stale atomic.Bool
	d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		if stale.Load() && l.Session.Gen == 1 {
			return 1, zmsg.Replaced, nil
		}
		return 1, zmsg.Admitted, nil
	}}
	w, g := newTown(t, 2, func(c *Config) { c.Directory = d })
	c := g[0].kept("ann")
	g[0].cut(c)
	s, err := g[0].Session(c.refAt())
	if err != nil {
		t.Fatal(err)
	}
	w.fence = func() {
		stale.Store(true)
		if !g[0].Gate.again(s) {
			t.Error("it is tried once more")
		}
	}
	b := g[1].again("ann", c.welcome.GetResume(), 0)
	if !b.welcome.GetResumed() {
		t.Fatalf("%v", b.welcome)
	}
	b.ping()
}
