//go:build linux

package gate

import (
	"fmt"
	"net/netip"
	"time"

	"zgame/bench/internal/child"
)

// back is how clients whose gate was drained have come back.
type back struct {
	most, all time.Duration // until 99 %, and all, were logged in at the other gate
}

// storm drains the gate of all clients. Each comes back to the new one, no sooner than it was asked to.
func (l *load) storm(w how) (r back, err error) {
	to, err := netip.ParseAddrPort(l.host.addr)
	if err != nil {
		return r, err
	}
	began := time.Now()
	port, err := l.host.number("drain")
	if err != nil {
		return r, err
	}
	to = netip.AddrPortFrom(to.Addr(), uint16(port))
	l.host.addr = to.String()
	away := make(map[*sock]time.Time, len(l.all)) // when it may come back
	ready := 0
	err = l.run(began.Add(2*child.Patience), func() bool {
		if len(away) > 0 && err == nil {
			now := time.Now()
			for s, at := range away {
				if now.Before(at) {
					continue
				}
				delete(away, s)
				if err = l.reconnect(s, to, w); err != nil {
					break
				}
			}
		}
		return ready == len(l.all) || err != nil
	}, func(s *sock, b []byte) (used int, err error) {
		for used < len(b) {
			if s.step != stepReady {
				size, err := l.proceed(s, b[used:], w)
				if err != nil || size == 0 {
					return used, err
				}
				if used += size; s.step == stepReady {
					if ready++; ready == (len(l.all)*99+99)/100 {
						r.most = time.Since(began)
					}
				}
				continue
			}
			m, size, err := s.wire.next(b[used:])
			if err != nil || size == 0 {
				return used, err
			}
			used += size
			if m.kind != closed {
				return used, fmt.Errorf("bench: a message of kind %d from a gate that drains", m.kind)
			}
			away[s] = time.Now().Add(m.delay)
			l.leave(s)
			return used, nil
		}
		return used, nil
	})
	r.all = time.Since(began)
	if err != nil {
		err = fmt.Errorf("%w: %d of %d are back", err, ready, len(l.all))
	}
	return r, err
}
