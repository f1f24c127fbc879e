package zgate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// teller stands for the objects that can tell whether a request has run.
type teller struct {
	mu  sync.Mutex
	got []uint64                           // seqs, as they came
	do  func(m *zmsg.Message, n int) error // n: how often this one has come before
}

func (o *teller) take(m *zmsg.Message) error {
	o.mu.Lock()
	n := 0
	for _, seq := range o.got {
		if seq == m.Seq {
			n++
		}
	}
	o.got = append(o.got, m.Seq)
	do := o.do
	o.mu.Unlock()
	return do(m, n)
}

func (o *teller) seqs() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

func (o *teller) rig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	d := &directory{bind: func(context.Context, zmsg.Login) (uint64, zmsg.Admission, error) { return 1, zmsg.Admitted, nil }}
	return directoryRig(t, d, append(change, func(c *Config) { c.Resent = o.take })...)
}

// adopted is a client whose gate is gone, which has sent requests up to seq last there.
func (r *rig) adopted(last uint64) *client {
	c := r.dial(dialing{})
	if w := c.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: last}); !w.GetResumed() {
		r.t.Fatalf("welcome is %v", w)
	}
	c.next() // the gap
	return c
}

const idObject = 500

// What a client sends again goes to who can tell, once at a time, as it came and in its order; his word counts. That something has not come about this time is tried again, and never
// told: it may have before.
func TestSentAgainIsAskedFor(t *testing.T) {
	t.Parallel()
	o := &teller{}
	o.do = func(m *zmsg.Message, n int) error {
		switch {
		case m.ID != idObject || m.User != "ann" || m.Session.ID != 77 || m.Session.Gen != 5 || !m.Client || m.Deadline.IsZero() || string(m.Body()) != fmt.Sprint("x", m.Seq):
			t.Errorf("%+v", m)
		case m.Seq == 2 && n < 2:
			return zmsg.ErrUnavailable // the node is dead, and its lease is not over
		case m.Seq == 3 && n == 0:
			m.ReplyError(zmsg.ErrDraining)
			m.Release()
			return nil
		case m.Seq == 4:
			return &zmsg.Error{Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown}
		case m.Seq == 5: // it does not do to try again, and what was so before nobody says
			return &zmsg.Error{Code: zmsg.CodeNotFound, Outcome: zmsg.NotExecuted}
		case m.Seq == 6:
			m.ReplyError(zmsg.Errorf(1234, "refused"))
			m.Release()
			return nil
		}
		m.Reply(&zmsg.Reply{ID: idObject + 1, Body: m.Body()})
		m.Release()
		return nil
	}
	r := o.rig(t)
	c := r.adopted(6)
	for seq := uint64(1); seq <= 6; seq++ {
		c.send(request(idObject, seq, fmt.Sprint("x", seq)))
	}
	type end struct {
		code    zmsg.Code
		outcome zmsg.Outcome
	}
	got := make(map[uint64]end)
	for range 6 {
		f := c.next()
		got[f.Seq] = end{f.Code, f.Outcome}
		if f.Code == zmsg.CodeOK && (f.ID != idObject+1 || string(f.Body) != fmt.Sprint("x", f.Seq)) {
			t.Errorf("%+v", f)
		}
	}
	for seq, want := range map[uint64]end{
		1: {zmsg.CodeOK, zmsg.Executed}, 2: {zmsg.CodeOK, zmsg.Executed}, 3: {zmsg.CodeOK, zmsg.Executed},
		4: {zmsg.CodeUnknownOutcome, zmsg.Unknown}, 5: {zmsg.CodeNotFound, zmsg.Unknown}, 6: {1234, zmsg.Executed},
	} {
		if got[seq] != want {
			t.Errorf("%d ended with %v, want %v", seq, got[seq], want)
		}
	}
	if all := o.seqs(); !slices.Equal(all[:6], []uint64{1, 2, 3, 4, 5, 6}) || len(all) != 9 {
		t.Errorf("asked for %v", all)
	}
	if asked, forgotten := r.counter("repeats_total", "asked"), r.counter("repeats_total", "forgotten"); asked != 4 || forgotten != 2 {
		t.Errorf("%v asked for, %v forgotten", asked, forgotten)
	}
}

// Who is not answered in time is told that nobody knows; what waits to be tried again ends with its session.
func TestSentAgainIsNeverAnswered(t *testing.T) {
	t.Parallel()
	o := &teller{do: func(*zmsg.Message, int) error { return zmsg.ErrUnavailable }}
	r := o.rig(t)
	c := r.adopted(3)
	f := request(idObject, 1, "x")
	f.TimeoutMs = 300
	c.send(f)
	if f := c.next(); f.Seq != 1 || f.Outcome != zmsg.Unknown {
		t.Errorf("%+v", f)
	}
	if n := len(o.seqs()); n < 2 {
		t.Errorf("asked %d times", n)
	}
	f = request(idObject, 2, "x")
	f.TimeoutMs = 60_000
	c.send(f)
	eventually(t, "it is tried", func() bool { return slices.Contains(o.seqs(), 2) })
	c.send(f) // once more, while it is on its way
	c.send(request(idEcho, 4, "x"))
	if f := c.next(); f.Seq != 4 {
		t.Errorf("%+v", f)
	}
	if r.counter("repeats_total", "in_flight") != 1 {
		t.Error("it was asked for twice at a time")
	}
	s, err := r.session(c.ref())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Kick(c.ref(), 4001, "enough"); err != nil {
		t.Fatal(err)
	}
	c.ws.end()
	eventually(t, "the session has ended", func() bool { return r.Sessions() == 0 })
	eventually(t, "nothing is tried again", func() bool {
		w := s.askings.Load()
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.timer == nil && len(w.waiting) == 0
	})
}

// What has a handler at the gate, or a route of the session's own, or comes when too many are in flight, is for nobody to tell.
func TestSentAgainIsNotAskedFor(t *testing.T) {
	t.Parallel()
	o := &teller{do: func(*zmsg.Message, int) error { return nil }} // it never answers
	r := o.rig(t, func(c *Config) {
		c.MaxInFlight = 2
		c.Deliver = func(*zmsg.SessionRoute, *zmsg.Message) error { return zmsg.ErrUnavailable }
	})
	c := r.adopted(9)
	if err := r.SetRoute(c.ref(), &zmsg.SessionRoute{IDs: []uint32{idObject + 7}, Object: zmsg.Key{Type: 1, ID: "x"}}); err != nil {
		t.Fatal(err)
	}
	for seq, id := range map[uint64]uint32{1: idEcho, 2: idObject + 7} {
		c.send(request(id, seq, "x"))
		if f := c.next(); f.Seq != seq || f.Code != zmsg.CodeUnknownOutcome || f.Outcome != zmsg.Unknown {
			t.Errorf("%+v", f)
		}
	}
	for seq := uint64(3); seq <= 5; seq++ {
		c.send(request(idObject, seq, "x"))
	}
	if f := c.next(); f.Seq != 5 || f.Outcome != zmsg.Unknown {
		t.Errorf("%+v", f)
	}
	if got := o.seqs(); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("asked for %v", got)
	}
}
