//go:build linux

package gate

import (
	"errors"
	"net"
	"sync"
	"time"
)

// tcp is the unit: a bare TCP echo, a goroutine a connection, and a loop of writes for what is published.
type tcp struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	all   []net.Conn // conns, as publish wants them; nil: to be made anew
}

func openTCP(string) (server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	if err != nil {
		return nil, err
	}
	s := &tcp{l: l, conns: make(map[net.Conn]struct{})}
	s.wg.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.add(c)
			s.wg.Go(func() { s.echo(c) }) // ends when the connection is closed
		}
	})
	return s, nil
}

func (s *tcp) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	s.all = nil
}

func (s *tcp) echo(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.all = nil
		s.mu.Unlock()
	}()
	buf := make([]byte, 16*messageBytes)
	for {
		n, err := c.Read(buf)
		if err == nil {
			_, err = c.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (s *tcp) addr() string { return s.l.Addr().String() }

func (s *tcp) clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *tcp) publish(body []byte) {
	s.mu.Lock()
	if s.all == nil {
		for c := range s.conns {
			s.all = append(s.all, c)
		}
	}
	all := s.all
	s.mu.Unlock()
	for _, c := range all {
		_, _ = c.Write(body) // whoever has gone is not missed
	}
}

func (s *tcp) fill([]byte) (time.Duration, error) {
	return 0, errors.New("a bare socket gives nobody up")
}

func (s *tcp) drain() (int, error) { return 0, errors.New("a bare socket is not drained") }

func (s *tcp) close() error {
	err := s.l.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}
