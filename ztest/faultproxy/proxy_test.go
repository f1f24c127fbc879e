package faultproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zgame/ztest/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	within = time.Minute            // for what must happen
	quiet  = 100 * time.Millisecond // for what must not
)

// rig is a target that the test speaks for, behind a proxy.
type rig struct {
	t *testing.T
	l net.Listener
	*faultproxy.Proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &rig{t, l, faultproxy.Start(t, l.Addr().String())}
}

// end is one end of a connection.
type end struct {
	t *testing.T
	net.Conn
}

func (e end) tcp() *net.TCPConn { return e.Conn.(*net.TCPConn) }

// connect makes a connection through the proxy and returns both ends.
func (r *rig) connect() (client, target end) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	wait(r.t, "the proxy has it", func() bool { return r.Accepted() > 0 && len(r.Conns()) > 0 })
	for _, c := range []net.Conn{c, s} {
		r.t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(within))
	}
	return end{r.t, c}, end{r.t, s}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func (e end) send(s string) {
	e.t.Helper()
	if _, err := e.Write([]byte(s)); err != nil {
		e.t.Fatal(err)
	}
}

func (e end) gets(s string) {
	e.t.Helper()
	got := make([]byte, len(s))
	if n, err := io.ReadFull(e, got); err != nil || string(got) != s {
		e.t.Fatalf("got %q, %v; want %q", got[:n], err, s)
	}
}

// isQuiet says that nothing comes, not even an end.
func (e end) isQuiet() {
	e.t.Helper()
	e.SetReadDeadline(time.Now().Add(quiet))
	if n, err := e.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		e.t.Fatalf("got %d bytes, %v; want nothing", n, err)
	}
	e.SetReadDeadline(time.Now().Add(within))
}

func (e end) isEnded() {
	e.t.Helper()
	if n, err := e.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		e.t.Fatalf("got %d bytes, %v; want the end", n, err)
	}
}

func (e end) isReset() {
	e.t.Helper()
	if n, err := e.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		e.t.Fatalf("got %d bytes, %v; want a reset", n, err)
	}
}

func TestPasses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	c.send("ping")
	s.gets("ping")
	s.send("pong!")
	c.gets("pong!")
	if up, down := r.Bytes(faultproxy.Up).Passed, r.Bytes(faultproxy.Down).Passed; up != 4 || down != 5 || r.Accepted() != 1 {
		t.Errorf("counted %d up, %d down, %d connections", up, down, r.Accepted())
	}
	if err := c.tcp().CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s.isEnded()
	s.send("late")
	c.gets("late")
	s.Close()
	c.isEnded()
	wait(t, "it is gone", func() bool { return len(r.Conns()) == 0 })
	if b := r.Bytes(faultproxy.Both); b != (faultproxy.Bytes{Passed: 13}) {
		t.Errorf("after the end: %+v", b)
	}
}

func TestResetPasses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	_ = c.tcp().SetLinger(0)
	c.Close()
	s.isReset()
	wait(t, "it is gone", func() bool { return len(r.Conns()) == 0 })
}

// A receiver that is gone is learned of by the sender, as without the proxy.
func TestBrokenPipePasses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	s.Close()
	c.isEnded()
	wait(t, "the sender learns of it", func() bool {
		_, err := c.Write([]byte("x"))
		return err != nil
	})
	wait(t, "it is gone", func() bool { return len(r.Conns()) == 0 })
}

// Each direction alone; the end of the stream waits too; nothing is lost, and the proxy keeps no more than it promises.
func TestStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	r.Set(faultproxy.Up, faultproxy.Fault{Stall: true})
	all := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB, more than sockets hold
	sent := make(chan error, 1)
	go func() { // ends when the stall does
		_, err := c.Write(all)
		sent <- errors.Join(err, c.tcp().CloseWrite())
	}()
	s.isQuiet()
	s.send("back")
	c.gets("back")
	wait(t, "the buffer is full", func() bool { return r.Bytes(faultproxy.Up).Waiting >= faultproxy.Buffer })
	select {
	case err := <-sent:
		t.Fatalf("16 MiB went into a stalled connection: %v", err)
	case <-time.After(quiet):
	}
	if w := r.Bytes(faultproxy.Up).Waiting; w > faultproxy.Buffer+32<<10 {
		t.Errorf("%d bytes wait", w)
	}
	r.Heal()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, all) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Bytes vanish, the connection stays; healed, it is reset: nobody gets a stream with a hole.
func TestSwallow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	quietC, _ := r.connect()
	r.Set(faultproxy.Up, faultproxy.Fault{Swallow: true})
	c.send("nobody")
	s.isQuiet()
	s.send("heard")
	c.gets("heard")
	wait(t, "it vanished", func() bool { return r.Bytes(faultproxy.Up).Vanished == 6 })
	r.Heal()
	c.isReset()
	s.isReset()
	quietC.isQuiet() // lost nothing: goes on
	c, s = r.connect()
	c.send("again")
	s.gets("again")
}

// Both ends give up in a black hole: nothing of them is kept.
func TestSwallowedEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	r.Set(faultproxy.Both, faultproxy.Fault{Swallow: true})
	c.Close()
	s.isQuiet()
	s.Close()
	wait(t, "it is gone", func() bool { return len(r.Conns()) == 0 })
}

func TestReset(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	r.Set(faultproxy.Both, faultproxy.Fault{Stall: true}) // is no hindrance
	c.send("lost")
	r.Reset()
	c.isReset()
	s.isReset()
}

func TestHalfClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	r.HalfClose(faultproxy.Down)
	c.isEnded()
	s.send("vanishes")
	c.send("passes")
	s.gets("passes")
	c.Close()
	s.isEnded()
	s.Close()
	wait(t, "it is gone", func() bool { return len(r.Conns()) == 0 })
	if b := r.Bytes(faultproxy.Down); b != (faultproxy.Bytes{Vanished: 8}) {
		t.Errorf("%+v", b)
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	r.Set(faultproxy.Down, faultproxy.Fault{Rate: 1000})
	begin := time.Now()
	s.send(string(make([]byte, 300)))
	c.send("fast")
	s.gets("fast")
	c.gets(string(make([]byte, 300)))
	if took := time.Since(begin); took < 280*time.Millisecond {
		t.Errorf("300 bytes took %v at 1000 a second", took)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	const late = 150 * time.Millisecond
	r.Set(faultproxy.Up, faultproxy.Fault{Delay: late})
	begin := time.Now()
	c.send("x")
	_ = c.tcp().CloseWrite()
	s.gets("x")
	s.isEnded()
	if took := time.Since(begin); took < late {
		t.Errorf("arrived after %v", took)
	}
}

// Exactly n bytes, whether the fault comes before the connection or into it, and whatever the pieces are.
func TestCutAfter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, oldTarget := r.connect()
	r.SetNew(faultproxy.Up, faultproxy.Fault{CutAfter: 7})
	for _, pieces := range [][]string{{"0123456", "78"}, {"0123", "45678"}, {"0123456789"}} {
		c, s := r.connect()
		var err error
		for _, p := range pieces {
			if _, e := c.Write([]byte(p)); e != nil { // the second may find it cut: a socket tells of its reset once
				err = e
			}
		}
		s.gets("0123456")
		s.isEnded()
		if _, e := io.ReadAll(c); e != nil {
			err = e
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the sender: %v, want a reset", err)
		}
		s.Close()
	}
	old.send("0123456789")
	oldTarget.gets("0123456789")
	r.Set(faultproxy.Up, faultproxy.Fault{CutAfter: 2})
	old.send("abc")
	oldTarget.gets("ab")
	oldTarget.isEnded()
	oldTarget.Close()
	wait(t, "they are gone", func() bool { return len(r.Conns()) == 0 })
}

// One connection alone.
func TestOneConn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c1, s1 := r.connect()
	conns := r.Conns()
	c2, s2 := r.connect()
	conns[0].Set(faultproxy.Up, faultproxy.Fault{Stall: true})
	c1.send("1")
	c2.send("2")
	s2.gets("2")
	s1.isQuiet()
	conns[0].Set(faultproxy.Up, faultproxy.Fault{})
	s1.gets("1")
	conns[0].Reset()
	c1.isReset()
	c2.send("2")
	s2.gets("2")
	if n := conns[0].Bytes(faultproxy.Both).Passed; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	for range 3 {
		r.Refuse()
		if x, err := net.Dial("tcp", r.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v, %v; want refused", x, err)
		}
		c.send("stays")
		s.gets("stays")
		r.Heal()
		x, y := r.connect()
		x.send("new")
		y.gets("new")
	}
	r.Cut()
	c.isReset()
	s.isReset()
}

func TestNoTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.l.Close()
	c, err := net.Dial("tcp", r.Addr())
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	if r.Failed() != 1 || r.Accepted() != 0 {
		t.Errorf("%d failed, %d accepted", r.Failed(), r.Accepted())
	}
}

// Close ends what every fault holds back.
func TestCloseUnderFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []faultproxy.Fault{{}, {Stall: true}, {Swallow: true}, {Rate: 1}, {Delay: time.Hour}, {CutAfter: 1 << 40}} {
		r := newRig(t)
		c, s := r.connect()
		r.Set(faultproxy.Both, f)
		c.send("up")
		s.send("down")
		r.Close()
		r.Close()
		if n := len(r.Conns()); n != 0 {
			t.Errorf("%+v: %d connections left", f, n)
		}
		if _, err := net.Dial("tcp", r.Addr()); err == nil {
			t.Errorf("%+v: accepts", f)
		}
	}
}
