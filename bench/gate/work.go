//go:build linux

package gate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"zgame/bench/internal/child"
)

// echoed is what a while of echo came to.
type echoed struct {
	messages int
	took     time.Duration
	cpu      time.Duration // the server's
	mallocs  int64
	rtt      []time.Duration // of each message, where there is one at a time
}

// echo lets n clients have flight requests unanswered each, for about d.
func (h *host) echo(n, flight int, d time.Duration, wire func() wire) (r echoed, err error) {
	err = h.with(n, how{wire: wire}, func(l *load) error {
		if _, err := l.echo(flight, d/10); err != nil { // warm
			return err
		}
		mallocs, err := h.number("mallocs")
		if err != nil {
			return err
		}
		cpu, err := h.number("cpu")
		if err != nil {
			return err
		}
		if r, err = l.echo(flight, d); err != nil {
			return err
		}
		after, err := h.number("cpu")
		if err != nil {
			return err
		}
		r.cpu = time.Duration(after - cpu)
		if r.mallocs, err = h.number("mallocs"); err != nil {
			return err
		}
		r.mallocs -= mallocs
		return nil
	})
	return r, err
}

func (l *load) echo(flight int, d time.Duration) (r echoed, err error) {
	began := time.Now()
	over, waiting := false, 0
	send := func(s *sock, k int) error {
		l.out = l.out[:0]
		if g, ok := s.wire.(*gateWire); ok {
			l.out = g.ack(l.out, s.got, uint64(k))
		}
		for range k {
			l.out = s.wire.request(l.out, s.sent)
			s.sent++
		}
		waiting += k
		return s.write(l.out)
	}
	timed := len(l.all) == 1 && flight == 1
	l.spin = !timed
	for _, s := range l.all {
		s.at = monotonic()
		if err := send(s, flight); err != nil {
			return r, err
		}
	}
	turns := 0
	err = l.run(began.Add(d+child.Patience), func() bool {
		if turns++; turns%16 == 0 || waiting == 0 || timed {
			over = time.Since(began) >= d
		}
		return over && waiting == 0
	}, func(s *sock, b []byte) (used int, err error) {
		k := 0
		for used < len(b) {
			m, size, err := s.wire.next(b[used:])
			if err != nil {
				return used, err
			}
			if size == 0 {
				break
			}
			used += size
			switch {
			case m.kind == other:
				continue
			case m.kind != answer || m.number != s.got:
				return used, fmt.Errorf("bench: a message of kind %d, number %d, where the answer to %d was to come", m.kind, m.number, s.got)
			}
			s.got++
			k++
		}
		waiting -= k
		r.messages += k
		if timed && k > 0 {
			now := monotonic()
			r.rtt = append(r.rtt, time.Duration(now-s.at))
			s.at = now
		}
		if over || k == 0 {
			return used, nil
		}
		return used, send(s, k)
	})
	r.took = time.Since(began)
	return r, err
}

// published is what a burst came to.
type published struct {
	took time.Duration // from the first message's publishing to the last client's last message
	cpu  time.Duration // the server's
}

// burst publishes k messages of size bytes to all clients, times times; it returns the medians.
func (l *load) burst(k, size, times int) (r published, err error) {
	var took, used []time.Duration
	for range times {
		cpu, err := l.host.number("cpu")
		if err != nil {
			return r, err
		}
		if err := l.host.proc.Say(fmt.Sprintf("publish %d %d", k, size)); err != nil {
			return r, err
		}
		missing := k * len(l.all)
		err = l.run(time.Now().Add(child.Patience), func() bool { return missing == 0 }, func(s *sock, b []byte) (int, error) {
			return pushes(s, b, func(message) { missing-- })
		})
		if err != nil {
			return r, fmt.Errorf("%w: %d deliveries are missing", err, missing)
		}
		end := monotonic()
		began, err := l.host.hear()
		if err != nil {
			return r, err
		}
		after, err := l.host.number("cpu")
		if err != nil {
			return r, err
		}
		took = append(took, time.Duration(end-began[0]))
		used = append(used, time.Duration(after-cpu))
	}
	slices.Sort(took)
	slices.Sort(used)
	return published{took[len(took)/2], used[len(used)/2]}, nil
}

// pushes tells each of what was pushed, which is to have the next number where pushes have one.
func pushes(s *sock, b []byte, each func(m message)) (used int, err error) {
	for used < len(b) {
		m, size, err := s.wire.next(b[used:])
		if err != nil {
			return used, err
		}
		if size == 0 {
			break
		}
		used += size
		switch {
		case m.kind == other:
			continue
		case m.kind != push:
			return used, fmt.Errorf("bench: a message of kind %d, where pushes were to come: %q", m.kind, m.body)
		}
		if s.got++; m.number != 0 && m.number != s.got {
			return used, fmt.Errorf("bench: push %d came where %d was to come", m.number, s.got)
		}
		each(m)
	}
	return used, nil
}

// streamed is what a stream came to.
type streamed struct {
	late    []time.Duration // from publishing to each delivery to a client that reads; sorted
	missing int             // deliveries that did not come
	memory  int64           // most bytes that the server had resident
}

// stream publishes times messages of size bytes, so many a second, to clients of which some do not read.
func (l *load) stream(times, size, perSecond int) (r streamed, err error) {
	reading := 0
	for _, s := range l.all {
		if !s.mute {
			reading++
		}
	}
	if err := l.host.proc.Say(fmt.Sprintf("stream %d %d %d", times, size, perSecond)); err != nil {
		return r, err
	}
	r.missing = times * reading
	var peek time.Time
	until := time.Now().Add(time.Duration(times)*time.Second/time.Duration(perSecond) + 10*time.Second)
	err = l.run(until.Add(child.Patience), func() bool {
		if now := time.Now(); now.After(peek) {
			r.memory = max(r.memory, residentOf(l.host.proc.PID()))
			peek = now.Add(50 * time.Millisecond)
		}
		return r.missing == 0 || time.Now().After(until)
	}, func(s *sock, b []byte) (int, error) {
		now := monotonic()
		return pushes(s, b, func(m message) {
			at, _ := stampOf(m.body)
			r.late = append(r.late, time.Duration(now-at))
			r.missing--
		})
	})
	if err != nil {
		return r, err
	}
	slices.Sort(r.late)
	_, err = l.host.hear()
	return r, err
}

// quantile of what is sorted; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// beat lets clients send a heartbeat each every interval, evenly, for d; it returns the server's CPU time meanwhile.
func (l *load) beat(interval, d time.Duration) (time.Duration, error) {
	began := time.Now()
	cpu, err := l.host.number("cpu")
	if err != nil {
		return 0, err
	}
	beat, come := l.all[0].wire.heartbeat(), 0
	gap := interval / time.Duration(len(l.all))
	for sent := 0; ; {
		now := time.Since(began)
		if now >= d {
			break
		}
		for ; time.Duration(sent)*gap <= now; sent++ {
			if err := l.all[sent%len(l.all)].write(beat); err != nil {
				return 0, err
			}
		}
		n, err := unix.EpollWait(l.ep, l.events[:], max(1, int((time.Duration(sent)*gap-now).Milliseconds())))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		for i := range max(n, 0) {
			err = l.receive(l.byFD[l.events[i].Fd], func(s *sock, b []byte) (int, error) {
				m, size, err := s.wire.next(b)
				come++
				if err == nil && m.kind != other && l.host.role != "tcp" {
					err = fmt.Errorf("bench: a message of kind %d from an idle gate: %q", m.kind, m.body)
				}
				return size, err
			})
			if err != nil {
				return 0, err
			}
		}
	}
	if come == 0 && d > interval {
		return 0, errors.New("bench: no heartbeat was answered")
	}
	after, err := l.host.number("cpu")
	return time.Duration(after - cpu), err
}
