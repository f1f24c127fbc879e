//go:build linux

package gate

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"zgame/bench/internal/child"
)

// host is a server's process, as the one that measures has it.
type host struct {
	role string
	addr string
	proc *child.Process
}

// start starts a server on the core cpu, -1 for any.
func start(role, arg, profiles string, cpu int) (h *host, err error) {
	// A child has the cores of the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if cpu >= 0 {
		one.Set(cpu)
		if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
			return nil, fmt.Errorf("bench: choosing a core: %w", err)
		}
		defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	}
	h = &host{role: role}
	h.proc, h.addr, err = child.Start(role, arg, profiles)
	return h, err
}

// ask says something to the server and returns the numbers that it answers.
func (h *host) ask(format string, args ...any) ([]int64, error) {
	if err := h.proc.Say(fmt.Sprintf(format, args...)); err != nil {
		return nil, err
	}
	return h.hear()
}

// hear waits for the server's answer.
func (h *host) hear() (ns []int64, err error) {
	line, err := h.proc.Hear(2 * child.Patience)
	for word := range strings.FieldsSeq(line) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("bench: the server answered %q", line)
		}
		ns = append(ns, n)
	}
	if err == nil && len(ns) == 0 {
		err = errors.New("bench: the server answered nothing")
	}
	return ns, err
}

// number asks for one number.
func (h *host) number(what string) (int64, error) {
	ns, err := h.ask("%s", what)
	if err != nil {
		return 0, err
	}
	return ns[0], nil
}

// with connects clients, lets use work with them, and ends them.
func (h *host) with(n int, w how, use func(l *load) error) (err error) {
	l := &load{host: h, in: make([]byte, 256<<10)}
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.dial(n, w); err != nil {
		return err
	}
	return use(l)
}

// wire returns what makes the wire of each client: of such requests, or, with pushed, to read what is published in messages of so many
// bytes.
func (h *host) wire(id uint32, body []byte, pushed int) func() wire {
	if h.role == "tcp" {
		w := &tcpWire{pushed: pushed} // it has no state
		return func() wire { return w }
	}
	w := newGateWire(id, body)
	return func() wire { return w }
}

// plain is wire for requests of bytes.
func (h *host) plain() func() wire { return h.wire(echoID, rawBody(), 0) }

// staying is wire with sessions that outlive their connections, as those of zclient do.
func (h *host) staying() func() wire {
	if h.role == "tcp" {
		return h.wire(0, nil, 0)
	}
	w := newGateWire(echoID, rawBody())
	w.stays = true
	return func() wire { return w }
}
