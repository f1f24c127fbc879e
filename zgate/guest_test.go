package zgate

import (
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestBeforeLogin(t *testing.T) {
	guest := make(chan *Session, 100)
	r := newRig(t, func(c *Config) {
		c.BeforeLogin = []uint32{idEcho, idHeld, idUnknown}
		c.RequestTimeout = time.Minute
		c.Handlers[idEcho] = func(s *Session, m *zmsg.Message) {
			if m.User != s.User() || m.Session != s.Ref() {
				t.Errorf("message of %q %v in a session of %q %v", m.User, m.Session, s.User(), s.Ref())
			}
			if m.User == "" {
				guest <- s
			}
			m.Reply(&zmsg.Reply{ID: idEcho + 1, Body: m.Body()})
			m.Release()
		}
	})
	c := r.dial(dialing{})
	c.echo("who is there")
	s := <-guest
	if r.Sessions() != 0 || !s.Ref().IsZero() {
		t.Errorf("%d sessions, guest %v", r.Sessions(), s.Ref())
	}
	if err := r.Push(s.Ref(), &zmsg.Push{ID: 1}); err == nil {
		t.Error("a guest can be pushed to")
	}
	if f := c.call(idUnknown, ""); f.Code != zmsg.CodeNoRoute {
		t.Errorf("unknown: %+v", f)
	}
	// What is in flight at the login is answered after it.
	c.seq++
	early := c.seq
	c.send(request(idHeld, early, "early"))
	c.hello("ann")
	m := <-r.held
	m.Reply(&zmsg.Reply{ID: idHeld, Body: []byte("late")})
	if f := c.next(); f.Seq != early || string(f.Body) != "late" {
		t.Errorf("answer: %+v", f)
	}
	c.echo("as a user")
	if len(guest) > 0 {
		t.Error("a request without a user after the login")
	}
	// Any other id is the end, as before.
	d := r.dial(dialing{})
	d.send(request(idPanic, 1, ""))
	d.closedWith(CloseBadHandshake)
}

func TestBeforeLoginLimits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BeforeLogin = []uint32{idHeld}; c.LoginTimeout = patience })
	c := r.dial(dialing{})
	for seq := range uint64(guestInFlight + 1) {
		c.send(request(idHeld, seq+1, ""))
	}
	if f := c.next(); f.Seq != guestInFlight+1 || f.Code != zmsg.CodeBusy {
		t.Errorf("one more than is allowed: %+v", f)
	}
	c.ws.end()
	eventually(t, "forgotten", func() bool { return r.requests.Load() == 0 })

	d := r.dialRaw(true)
	flood := maskedFrame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idHeld}))
	go func() {
		for range 1000 {
			if _, err := d.Write(flood); err != nil {
				return
			}
		}
	}()
	if code, _ := d.closeCode(); code != CloseRate {
		t.Errorf("closed with %d", code)
	}
}

// A request from before the login has its deadline, whether the client logs in or not.
func TestBeforeLoginDeadline(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BeforeLogin = []uint32{idHeld}; c.LoginTimeout = patience })
	for _, logIn := range []bool{false, true} {
		c := r.dial(dialing{})
		c.send(zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: idHeld, Seq: 5, TimeoutMs: 50})
		f := zmsg.Frame{}
		if logIn {
			c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann"}}})
		}
		for f = c.next(); f.Control != nil; f = c.next() {
		}
		if f.Seq != 5 || f.Code != zmsg.CodeTimeout {
			t.Errorf("login %v: %+v", logIn, f)
		}
	}
}
