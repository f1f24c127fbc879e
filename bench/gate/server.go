//go:build linux

package gate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zgame/bench/internal/child"
	"zgame/internal/cputime"
)

// server is what a server's process runs.
type server interface {
	addr() string
	clients() int        // how many are connected, or logged in
	publish(body []byte) // to all that have joined
	// fill sends body to the ones that joined as slow until one is given up; it returns how long it took from then until that
	// connection was gone.
	fill(body []byte) (time.Duration, error)
	// drain shuts down what clients are connected to, in the background, and opens the same anew; it returns the new port.
	drain() (port int, err error)
	close() error
}

// Child runs a server, if another process of this program started this one for that, and reports that it did: then the program ends
// with the error. main and TestMain call it first.
func Child() (was bool, err error) {
	return child.Run(map[string]child.Role{"tcp": role(openTCP), "gate": role(openGate)})
}

func role(open func(arg string) (server, error)) child.Role {
	return func(p *child.Parent) error {
		s, err := open(p.Arg)
		if err != nil {
			return err
		}
		p.Say(s.addr())
		for {
			line, ok := p.Hear()
			if !ok {
				return s.close()
			}
			answer, err := obey(s, strings.Fields(line))
			if err != nil {
				return errors.Join(fmt.Errorf("%q: %w", line, err), s.close())
			}
			p.Say(answer)
		}
	}
}

// obey does what the process that measures says.
func obey(s server, words []string) (string, error) {
	n := make([]int64, len(words))
	for i := range words[1:] {
		v, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return "", err
		}
		n[i] = v
	}
	switch words[0] {
	case "cpu":
		return say(int64(cputime.Used())), nil
	case "mallocs":
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return say(int64(m.Mallocs)), nil
	case "memory": // heap and stacks, and what the system counts
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return say(int64(m.HeapInuse+m.StackInuse), resident()), nil
	case "clients":
		return say(int64(s.clients())), nil
	case "publish": // so many messages of such a size, at once: when that began
		body := make([]byte, n[1])
		began := monotonic()
		for range n[0] {
			s.publish(body)
		}
		return say(began), nil
	case "stream": // so many messages of such a size, so many a second, each with its time and number
		body := make([]byte, n[1])
		t := time.NewTicker(time.Second / time.Duration(n[2]))
		defer t.Stop()
		for i := range n[0] {
			<-t.C
			stamp(body, monotonic(), i)
			s.publish(body)
		}
		return say(n[0]), nil
	case "fill":
		took, err := s.fill(make([]byte, n[0]))
		return say(int64(took)), err
	case "drain":
		port, err := s.drain()
		return say(int64(port)), err
	default:
		return "", errors.New("nobody knows what that is")
	}
}

func say(ns ...int64) string {
	var words []string
	for _, n := range ns {
		words = append(words, strconv.FormatInt(n, 10))
	}
	return strings.Join(words, " ")
}

// monotonic is a time that both processes agree on.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

func resident() int64 { return residentOf(os.Getpid()) }

// residentOf is what the system counts as the memory of a process.
func residentOf(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if f := bytes.Fields(b); err == nil && len(f) > 1 {
		n, _ := strconv.ParseInt(string(f[1]), 10, 64)
		return n * int64(os.Getpagesize())
	}
	return 0
}
