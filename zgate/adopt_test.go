package zgate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// elsewhere is a session of a gate that is gone.
var elsewhere = token{ref: zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n9", Epoch: 3}, ID: 77, Gen: 4}, secret: secret{1, 2, 3}}

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
	claim := sha256.Sum256(elsewhere.secret[:])
	if l := d.logins()[0]; l.Resumes != elsewhere.ref || !bytes.Equal(l.Claim, claim[:]) || l.Session != c.ref() || l.Window == 0 || len(l.Proof) == 0 ||
		bytes.Equal(l.Proof, l.Claim) || l.Number != 0 {
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
	// It resumes here as any other, and the directory hears of its new proof.
	before := d.logins()[0].Proof
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
	eventually(t, "the directory hears of the new proof", func() bool {
		all := d.logins()
		l := all[len(all)-1]
		return l.Number == 9 && l.Session == c.ref() && !bytes.Equal(l.Proof, before)
	})
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
