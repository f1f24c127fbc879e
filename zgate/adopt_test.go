package zgate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// elsewhere is a session of a gate that is gone.
var elsewhere = token{ref: zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n9", Epoch: 3}, ID: 77, Gen: 4}, secret: secret{1, 2, 3}, key: secret{4, 5}}

func (c *client) comeBack(user string, h *wirepb.Hello) *wirepb.Welcome {
	c.t.Helper()
	h.Token, h.ResumeWindowMs = user, 60_000
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: h}})
	f := c.next()
	var m wirepb.Control
	if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetWelcome() == nil {
		c.t.Fatalf("not a Welcome: %+v %v", f, err)
	}
	c.welcome = m.GetWelcome()
	return c.welcome
}

// A session whose gate is gone goes on at another one, by the directory's word: the same id, the next generation, a gap with an open end, numbers that go
// on; what is sent again may have run, and is not run.
func TestSessionOfAnotherGateGoesOn(t *testing.T) {
	t.Parallel()
	var r *rig
	d := &directory{}
	d.bind = func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		return 9, zmsg.Admitted, r.Push(l.Session, &zmsg.Push{ID: 50, Body: []byte("early")})
	}
	r = directoryRig(t, d)
	c := r.dial(dialing{})
	w := c.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: 5})
	if !w.GetResumed() || w.GetSession() != 77 || w.GetGeneration() != 5 || w.GetNode() != testNode.ID || w.GetResume() == "" {
		t.Errorf("welcome is %v", w)
	}
	claim := sha256.Sum256(elsewhere.key[:])
	if l := d.logins()[0]; l.Resumes != elsewhere.ref || !bytes.Equal(l.Claim, claim[:]) || l.Session != c.ref() || l.Window == 0 ||
		!bytes.Equal(l.Proof, l.Claim) || l.Number != 0 {
		t.Errorf("asked about %+v", l)
	}
	var m wirepb.Control
	if err := proto.Unmarshal(c.next().Control, &m); err != nil || m.GetGap().GetFirst() != 13 || m.GetGap().GetLast() != 0 {
		t.Errorf("no gap: %v", &m)
	}
	if f := c.next(); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || f.Seq != 13 || string(f.Body) != "early" {
		t.Errorf("push: %+v", f)
	}
	for _, x := range []struct {
		seq  uint64
		want zmsg.Code
	}{{4, zmsg.CodeUnknownOutcome}, {5, zmsg.CodeUnknownOutcome}, {6, zmsg.CodeOK}, {7, zmsg.CodeOK}} {
		c.send(request(idEcho, x.seq, "x"))
		if f := c.next(); f.Seq != x.seq || f.Code != x.want || x.want != zmsg.CodeOK && f.Outcome != zmsg.Unknown {
			t.Errorf("request %d: %+v", x.seq, f)
		}
	}
	// It resumes here as any other, and the directory need not hear of it.
	c.control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Push: 13}}})
	c.send(request(idEcho, 8, "x")) // its answer says that the Ack has come
	c.next()
	// The token of the gate before once more: the client has shown that it has a newer one.
	other := r.dial(dialing{})
	if w := other.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String()}); w.GetResumed() || w.GetSession() == 77 {
		t.Errorf("a token that was used: %v", w)
	}
	c.ws.end()
	again := r.dial(dialing{})
	if w := again.comeBack("ann", &wirepb.Hello{Resume: w.GetResume(), LastPush: 13, LastSeq: 8}); !w.GetResumed() || w.GetGeneration() != 5 {
		t.Errorf("it does not resume here: %v", w)
	}
	for _, l := range d.logins()[1:] {
		if l.Session == c.ref() {
			t.Errorf("the directory was asked once more: %+v", l)
		}
	}
}

// The Welcome of a session that goes on is lost with its connection: the client comes with the token that it has, and goes on.
func TestWelcomeOfAnotherGateIsLost(t *testing.T) {
	t.Parallel()
	r := directoryRig(t, &directory{bind: func(context.Context, zmsg.Login) (uint64, zmsg.Admission, error) { return 1, zmsg.Admitted, nil }})
	c := r.dial(dialing{})
	hello := &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: 5}
	if w := c.comeBack("ann", hello); !w.GetResumed() {
		t.Fatalf("welcome is %v", w)
	}
	c.ws.end()
	c = r.dial(dialing{})
	if w := c.comeBack("ann", hello); !w.GetResumed() || w.GetSession() != 77 || w.GetGeneration() != 5 {
		t.Errorf("welcome is %v", w)
	}
}

// A session that the directory does not know is a new one, and the client is told so; it leaves nothing behind.
func TestSessionOfAnotherGateIsNotKnown(t *testing.T) {
	t.Parallel()
	d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		if l.Resumes.IsZero() {
			return 1, zmsg.Admitted, nil
		}
		return 0, zmsg.Lapsed, nil
	}}
	r := directoryRig(t, d)
	c := r.dial(dialing{})
	w := c.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: 5})
	if w.GetResumed() || w.GetSession() == 77 || w.GetGeneration() != 1 || w.GetRefused() != wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED {
		t.Errorf("welcome is %v", w)
	}
	c.send(request(idEcho, 1, "x"))
	if f := c.next(); f.Code != zmsg.CodeOK {
		t.Errorf("%+v", f)
	}
	if n := r.Sessions(); n != 1 || r.counter("sessions") != 1 {
		t.Errorf("%d sessions, %v counted", n, r.counter("sessions"))
	}
	if len(d.logins()) != 2 {
		t.Errorf("asked %d times", len(d.logins()))
	}
}

// another is a token of the same session that its gate sent later.
func another(gen uint32) string {
	t := elsewhere
	t.secret, t.ref.Gen = secret{9, byte(gen)}, gen
	return t.String()
}

// A session was gone on with by a late word of its client, who has had a newer token of the gate that died: that is good as well, at this gate or at yet another one,
// until the client shows one of this gate. Its numbers are those of the gate that died, so what was kept here is told as a gap; no request runs twice.
func TestNewerTokenOfAGateThatDied(t *testing.T) {
	for _, at := range []int{0, 1} {
		t.Run(fmt.Sprint("n", at+1), func(t *testing.T) {
			t.Parallel()
			d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
				if l.Session.Gate.ID != "n1" && !l.Handed && !l.Resumes.IsZero() {
					return 0, zmsg.Lapsed, nil
				}
				return 1, zmsg.Admitted, nil
			}}
			_, g := newTown(t, 2, func(c *Config) { c.Directory = d })
			c := g[0].dial(dialing{})
			if w := c.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: 5}); !w.GetResumed() {
				t.Fatalf("welcome is %v", w)
			}
			ref, late := c.ref(), c.welcome.GetResume()
			c.ws.end()
			g[0].pushTo(ref, zmsg.Reliable, 1, "kept")
			if at != 0 { // where it was gone on with, it is asked for
				tok, _ := parseToken(another(4))
				tok.ref = ref
				c = g[at].dial(dialing{})
				c.comeBack("ann", &wirepb.Hello{Resume: tok.String(), LastPush: 20, LastSeq: 8})
			} else {
				c = g[at].dial(dialing{})
				c.comeBack("ann", &wirepb.Hello{Resume: another(4), LastPush: 20, LastSeq: 8})
			}
			if w := c.welcome; !w.GetResumed() || w.GetSession() != 77 {
				t.Fatalf("welcome is %v", w)
			}
			if gap := c.nextControl().GetGap(); gap.GetFirst() == 0 || gap.GetLast() != 0 {
				t.Errorf("told of %v", gap)
			}
			c.send(request(idEcho, 8, "x"), request(idEcho, 9, "x"))
			if f := c.next(); f.Seq != 8 || f.Code != zmsg.CodeUnknownOutcome {
				t.Errorf("%+v", f)
			}
			if f := c.next(); f.Seq != 9 || f.Code != zmsg.CodeOK {
				t.Errorf("%+v", f)
			}
			g[at].pushTo(c.refAt(), zmsg.Reliable, 1, "new")
			if f := c.next(); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || f.Seq <= 20 || string(f.Body) != "new" {
				t.Errorf("%+v", f)
			}
			c.ack(21, 0)
			c.ping()
			c.ws.end()
			for _, old := range []string{another(5), elsewhere.String(), late} {
				x := g[at].dial(dialing{})
				if w := x.comeBack("ann", &wirepb.Hello{Resume: old}); w.GetSession() == 77 {
					t.Errorf("it has shown a token of this gate: %v", w)
				}
			}
		})
	}
}

// The directory knows of another gate that has gone on with the session: that one is asked for it, and the client is told of no gap.
func TestDirectoryKnowsWhereItGoesOn(t *testing.T) {
	t.Parallel()
	var at atomic.Pointer[zmsg.SessionRef]
	d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		if now := at.Load(); now != nil && l.Resumes == elsewhere.ref {
			return 0, zmsg.Lapsed, &zmsg.ElsewhereError{Session: *now}
		}
		return 1, zmsg.Admitted, nil
	}}
	_, g := newTown(t, 2, func(c *Config) { c.Directory = d })
	c := g[0].dial(dialing{})
	if w := c.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12}); !w.GetResumed() {
		t.Fatalf("welcome is %v", w)
	}
	ref := c.ref()
	at.Store(&ref)
	c.ws.end() // its Welcome was lost
	g[0].pushTo(ref, zmsg.Reliable, 1, "kept")
	b := g[1].dial(dialing{})
	if w := b.comeBack("ann", &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12}); !w.GetResumed() || w.GetSession() != 77 || w.GetGeneration() != ref.Gen+1 {
		t.Fatalf("welcome is %v", w)
	}
	if n := g[0].counter("handovers_total", "given"); n != 1 {
		t.Errorf("given %v times", n)
	}
}

// The client is back once more while the Directory is still asked about it: it waits for the word, and has the session.
func TestBackWhileTheDirectoryIsAsked(t *testing.T) {
	t.Parallel()
	for _, a := range []zmsg.Admission{zmsg.Admitted, zmsg.Lapsed} {
		asked, answer := make(chan struct{}, 10), make(chan struct{})
		r := directoryRig(t, &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
			if l.Resumes.IsZero() {
				return 1, zmsg.Admitted, nil
			}
			asked <- struct{}{}
			<-answer
			return 1, a, nil
		}})
		hello := &wirepb.Hello{Resume: elsewhere.String(), LastPush: 12, LastSeq: 5}
		first, second := r.dial(dialing{}), r.dial(dialing{})
		done := make(chan struct{})
		go func() { // ends with the answer
			defer close(done)
			hello := proto.Clone(hello).(*wirepb.Hello)
			hello.Token, hello.ResumeWindowMs = "ann", 60_000
			first.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: hello}})
			for {
				if _, err := first.tryNext(); err != nil {
					return
				}
			}
		}()
		<-asked
		go func() { // ends with the look
			for range 1000 {
				if s := r.sessions.get(elsewhere.ref.ID); s != nil {
					c := s.lock()
					n := len(s.resume.wait)
					c.q.mu.Unlock()
					if n > 0 {
						break
					}
				}
				time.Sleep(time.Millisecond)
			}
			close(answer)
		}()
		w := second.comeBack("ann", hello)
		if back := a == zmsg.Admitted; w.GetResumed() != back || (w.GetSession() == 77) != back || !back && w.GetRefused() != wirepb.ResumeRefusal_RESUME_REFUSAL_EXPIRED {
			t.Errorf("%v: welcome is %v", a, w)
		}
		first.ws.end()
		<-done
	}
}
