//go:build linux

package gate

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"zgame/bench/internal/child"
)

// load is any number of clients of one server, on one thread.
type load struct {
	host *host
	ep   int
	all  []*sock
	byFD []*sock
	in   []byte
	out  []byte
	spin bool // see spinning

	events [512]unix.EpollEvent
}

// sock is one client.
type sock struct {
	fd   int
	wire wire
	rest []byte // the beginning of a message that has not come yet
	sent uint64 // requests
	got  uint64 // answers, or what was pushed

	step int   // of connecting
	at   int64 // free for workloads
	mute bool  // it does not read
}

// The steps of connecting.
const (
	stepUpgrade = iota // waits for the HTTP answer
	stepHello          // waits for Welcome
	stepJoin           // waits for the answer to its join
	stepReady
)

// spinning is how long clients look for more before they sleep, where it is the server's CPU time that counts: with the clients asleep the
// server pays for waking their core in each write, which is much in a virtual machine, and more for the server that is slower.
const spinning = time.Millisecond

// connecting is how many clients connect at once.
const connecting = 64

// how is what clients are to be.
type how struct {
	wire   func() wire // of each
	joins  []byte      // the request to be sent once logged in, nil for none
	buffer int         // what the client's socket takes, 0: as the system likes
}

// dial connects n clients more and waits until all are ready.
func (l *load) dial(n int, w how) error {
	to, err := netip.ParseAddrPort(l.host.addr)
	if err != nil {
		return err
	}
	want, started, ready := len(l.all)+n, 0, 0
	start := func() error {
		started++
		s, err := l.connect(to, w)
		if err != nil {
			return err
		}
		if s.step == stepReady {
			ready++
		}
		return nil
	}
	for range min(n, connecting) {
		if err := start(); err != nil {
			return err
		}
	}
	begin := func(s *sock, b []byte) (used int, err error) {
		for used < len(b) && s.step != stepReady {
			size, err := l.proceed(s, b[used:], w)
			if err != nil || size == 0 {
				return used, err
			}
			used += size
		}
		if s.step != stepReady {
			return used, nil
		}
		ready++
		if started < n {
			return used, start()
		}
		return used, nil
	}
	for started < n && ready == started { // bare sockets are ready at once
		if err := start(); err != nil {
			return err
		}
	}
	err = l.run(time.Now().Add(child.Patience), func() bool { return ready == n }, begin)
	if err != nil {
		return err
	}
	return l.counted(want) // a bare server may not have seen the last ones yet
}

// counted waits until the server has n clients.
func (l *load) counted(n int) error {
	for until := time.Now().Add(child.Patience); ; rest(time.Millisecond) {
		got, err := l.host.number("clients")
		if int(got) == n || err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("bench: the server has %d clients, want %d", got, n)
		}
	}
}

// connect makes a client.
func (l *load) connect(to netip.AddrPort, w how) (*sock, error) {
	s := &sock{wire: w.wire()}
	l.all = append(l.all, s)
	return s, l.reconnect(s, to, w)
}

// reconnect gives a client a new connection.
func (l *load) reconnect(s *sock, to netip.AddrPort, w how) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.fd, s.rest, s.step = fd, s.rest[:0], stepUpgrade
	for len(l.byFD) <= fd {
		l.byFD = append(l.byFD, nil)
	}
	l.byFD[fd] = s
	if w.buffer > 0 {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, w.buffer)
	}
	// It ends without a word, and leaves no address behind that is taken for a while.
	err = errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}),
		unix.SetNonblock(fd, true),
		unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
	if err != nil {
		return fmt.Errorf("bench: connecting: %w", err)
	}
	if _, bare := s.wire.(*tcpWire); bare {
		s.step = stepReady
		return nil
	}
	return s.write(upgrade)
}

// proceed takes a client that connects a step further.
func (l *load) proceed(s *sock, b []byte, w how) (used int, err error) {
	if s.step == stepUpgrade {
		end := bytes.Index(b, []byte("\r\n\r\n"))
		if end < 0 {
			return 0, nil
		}
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 101 ")) {
			return 0, fmt.Errorf("bench: the gate answered %q", b[:end])
		}
		s.step = stepHello
		if g, ok := s.wire.(*gateWire); ok && g.stays {
			return end + 4, s.write(stays)
		}
		return end + 4, s.write(hello)
	}
	m, size, err := s.wire.next(b)
	if err != nil || size == 0 {
		return 0, err
	}
	switch {
	case m.kind == closed:
		return 0, fmt.Errorf("bench: the gate closed a connection: %q", m.body)
	case s.step == stepHello && m.kind == welcome && w.joins != nil:
		s.step = stepJoin
		return size, s.write(w.joins)
	case s.step == stepHello && m.kind == welcome, s.step == stepJoin && m.kind == answer:
		s.step = stepReady
	}
	return size, nil
}

// write sends b, which the socket must take as a whole.
func (s *sock) write(b []byte) error {
	n, err := unix.Write(s.fd, b)
	if err == nil && n < len(b) {
		err = errors.New("bench: the server does not read what it is sent")
	}
	return err
}

// deafen makes a client not read any more.
func (l *load) deafen(s *sock) error {
	s.mute = true
	return unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, s.fd, nil)
}

// run takes what the servers send to handle, which says how much of it it has used up, until done.
func (l *load) run(until time.Time, done func() bool, handle func(s *sock, b []byte) (used int, err error)) error {
	last := time.Now()
	for !done() {
		wait := 10
		if l.spin && time.Since(last) < spinning {
			wait = 0
		}
		n, err := unix.EpollWait(l.ep, l.events[:], wait)
		if n > 0 && l.spin {
			last = time.Now()
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for i := range max(n, 0) {
			if err := l.receive(l.byFD[l.events[i].Fd], handle); err != nil {
				return err
			}
		}
		if n <= 0 && wait > 0 && time.Now().After(until) {
			return fmt.Errorf("bench: a server stands still: not done by %s", until.Format(time.TimeOnly))
		}
	}
	return nil
}

func (l *load) receive(s *sock, handle func(s *sock, b []byte) (int, error)) error {
	if s == nil {
		return nil // its connection was closed in this turn
	}
	kept := copy(l.in, s.rest)
	n, err := unix.Read(s.fd, l.in[kept:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("bench: a client's connection failed: %w", err)
	case n == 0:
		return errors.New("bench: a server closed a client's connection")
	}
	b, fd := l.in[:kept+n], s.fd
	used, err := handle(s, b)
	if s.fd == fd {
		s.rest = append(s.rest[:0], b[used:]...)
	}
	return err
}

// leave closes a client's connection.
func (l *load) leave(s *sock) {
	l.byFD[s.fd] = nil
	_ = unix.Close(s.fd)
	s.fd = -1
}

// close ends all clients and waits until the server has seen it.
func (l *load) close() error {
	defer func() {
		for _, s := range l.all {
			_ = unix.Close(s.fd)
		}
		_ = unix.Close(l.ep)
	}()
	for _, s := range l.all {
		if g, ok := s.wire.(*gateWire); ok && g.stays {
			_ = s.write(bye) // without it the session would stay
			continue
		}
		_ = unix.Close(s.fd)
		s.fd = -1
	}
	return l.counted(0)
}
