package zgate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// directory is one that does what the test says.
type directory struct {
	bind func(ctx context.Context, l zmsg.Login) (uint64, zmsg.Admission, error)

	mu    sync.Mutex
	asked []zmsg.Login
}

func (d *directory) KeyOf(user string) zmsg.Key { return zmsg.Key{Type: 99, ID: user} }

func (d *directory) Bind(ctx context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
	d.mu.Lock()
	d.asked = append(d.asked, l)
	d.mu.Unlock()
	return d.bind(ctx, l)
}

func (d *directory) logins() []zmsg.Login {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

func directoryRig(tb testing.TB, d *directory, change ...func(*Config)) *rig {
	tb.Helper()
	r, _ := bindRig(tb, append(change, func(c *Config) { c.Directory = d })...)
	return r
}

func (c *client) startHello(user string) {
	c.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: user}}})
}

// What is pushed to a session before the directory has answered comes behind the Welcome, whatever its size.
func TestPushesWaitForTheWelcome(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 100_000} {
		asked, answer := make(chan zmsg.Login, 1), make(chan struct{})
		d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
			asked <- l
			<-answer
			return 7, zmsg.Admitted, nil
		}}
		r := directoryRig(t, d, func(c *Config) { c.UserSessions, c.SecondLogin = 3, RefuseNewest })
		c := r.dial(dialing{})
		c.startHello("ann")
		l := <-asked
		if l.User != "ann" || l.Session.Gate != testNode || l.Number != 0 || l.Most != 3 || !l.Refuse {
			t.Errorf("asked about %+v", l)
		}
		for i := range 3 {
			if err := r.Push(l.Session, &zmsg.Push{ID: uint32(50 + i), Body: []byte(strings.Repeat("x", size))}); err != nil {
				t.Fatal(err)
			}
		}
		close(answer)
		f := c.next()
		var m wirepb.Control
		if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetWelcome().GetSession() != l.Session.ID {
			t.Fatalf("the first frame is %+v", f)
		}
		for i := range uint64(3) {
			if f := c.next(); f.Kind != wirepb.FrameKind_FRAME_KIND_PUSH || f.ID != uint32(50+i) || f.Seq != i+1 || len(f.Body) != size {
				t.Errorf("push %d is %v %d, number %d", i, f.Kind, f.ID, f.Seq)
			}
		}
		c.echo("hi")
	}
}

// A client that the directory turns away reads why, and neither a Welcome nor what was pushed meanwhile; its session is gone.
func TestLoginTurnedAway(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		a    zmsg.Admission
		err  error
		want CloseCode
	}{
		"replaced":    {zmsg.Replaced, nil, CloseReplaced},
		"refused":     {zmsg.Refused, nil, CloseRefused},
		"unavailable": {zmsg.Admitted, zmsg.ErrUnavailable, CloseUnavailable},
		"no user":     {zmsg.Admitted, zmsg.Errorf(zmsg.CodeBadRequest, "too long"), CloseUnauthorized},
	} {
		asked, answer := make(chan zmsg.Login, 1), make(chan struct{})
		d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
			asked <- l
			<-answer
			return 0, x.a, x.err
		}}
		r := directoryRig(t, d)
		c := r.dial(dialing{})
		c.startHello("ann")
		l := <-asked
		if err := r.Push(l.Session, &zmsg.Push{ID: 50, Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		close(answer)
		text, before := c.closedWith(x.want)
		if len(before) != 0 || text == "" {
			t.Errorf("%s: %q, behind %d frames", name, text, len(before))
		}
		c.ws.end()
		eventually(t, "the session is gone", func() bool { return r.Sessions() == 0 })
		if _, err := r.Session(l.Session); !errors.Is(err, ErrNoSession) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A kick while the directory is asked, as a newer login's, is told in place of the Welcome.
func TestKickWhileTheDirectoryIsAsked(t *testing.T) {
	t.Parallel()
	var r *rig
	d := &directory{bind: func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		return 1, zmsg.Admitted, r.Kick(l.Session, uint32(CloseReplaced), "logged in elsewhere")
	}}
	r = directoryRig(t, d)
	c := r.dial(dialing{})
	c.startHello("ann")
	if _, before := c.closedWith(CloseReplaced); len(before) != 0 {
		t.Errorf("behind %d frames", len(before))
	}
}

// A directory that does not answer has AuthTimeout.
func TestDirectoryTimesOut(t *testing.T) {
	t.Parallel()
	d := &directory{bind: func(ctx context.Context, _ zmsg.Login) (uint64, zmsg.Admission, error) {
		<-ctx.Done()
		return 0, 0, ctx.Err()
	}}
	r := directoryRig(t, d, func(c *Config) { c.AuthTimeout = 20 * time.Millisecond })
	c := r.dial(dialing{})
	c.startHello("ann")
	c.closedWith(CloseUnavailable)
}

// When the user's object is lost the gate makes its sessions known again, until the directory answers, under the numbers that they were given; those
// that are none any more are closed. Other objects that are lost are no business of the directory.
func TestSessionsAreMadeKnownAgain(t *testing.T) {
	t.Parallel()
	var r *rig
	var mu sync.Mutex
	tries := map[string]int{}
	d := &directory{}
	d.bind = func(_ context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		mu.Lock()
		tries[l.User]++
		n := tries[l.User]
		mu.Unlock()
		switch {
		case n == 1:
			return 40 + uint64(len(l.User)), zmsg.Admitted, nil
		case n == 2:
			return 0, 0, zmsg.ErrUnavailable
		case l.User == "bob":
			return 0, zmsg.Replaced, nil
		}
		return l.Number, zmsg.Admitted, nil
	}
	r = directoryRig(t, d, func(c *Config) { c.PushWait = time.Hour })
	ann, bob, eve := r.login("ann"), r.login("bob"), r.login("eve")
	for _, c := range []*client{ann, bob, eve} {
		b := binding(owner1, 0, c.ref())
		if err := r.Bind(b); err != nil { // a room
			t.Fatal(err)
		}
		if b.Key = d.KeyOf(c.welcome.GetUser()); c == eve {
			b.Owner = owner2
		}
		if err := r.Bind(b); err != nil {
			t.Fatal(err)
		}
	}
	r.OwnerLost(owner1.Node)
	bob.closedWith(CloseReplaced)
	eventually(t, "ann is known again", func() bool { return r.counter("logins_total", "again") == 1 })
	for _, l := range d.logins()[3:] {
		if l.Number != 43 || l.User == "eve" {
			t.Errorf("asked about %+v", l)
		}
	}
	ann.echo("hi")
	eve.echo("hi")
}

// A directory that cannot be asked, as when the last node stops and users' objects are given up, does not hold up a gate that shuts down.
func TestShutdownAsksNoMore(t *testing.T) {
	t.Parallel()
	d := &directory{}
	d.bind = func(ctx context.Context, l zmsg.Login) (uint64, zmsg.Admission, error) {
		if l.Number == 0 {
			return 7, zmsg.Admitted, nil
		}
		<-ctx.Done()
		return 0, 0, ctx.Err()
	}
	r := directoryRig(t, d, func(c *Config) { c.AuthTimeout, c.PushWait = time.Hour, time.Hour })
	ann := r.login("ann")
	b := binding(owner1, 0, ann.ref())
	b.Key = d.KeyOf("ann")
	if err := r.Bind(b); err != nil {
		t.Fatal(err)
	}
	r.OwnerLost(owner1.Node)
	eventually(t, "the directory is asked again", func() bool { return len(d.logins()) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := make(chan error, 1)
	go func() { end <- r.Shutdown(ctx) }() // ends with the shutdown
	ann.closedWith(CloseShutdown)
	if err := <-end; err != nil {
		t.Errorf("the gate waits: %v", err)
	}
	if n := r.counter("logins_total", "failed"); n != 0 {
		t.Errorf("%v logins are said to have failed", n)
	}
}
