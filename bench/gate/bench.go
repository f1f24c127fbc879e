//go:build linux

package gate

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Config says how much is measured.
type Config struct {
	Time     time.Duration // of one timed measurement
	Scale    int           // numbers of clients are divided by it
	Idle     time.Duration // how long idle clients are watched
	Stream   int           // messages that are published in a stream, 50 a second
	Profiles string        // directory for a CPU profile of each server, "" for none
}

// Full is the measure of the table.
func Full() Config {
	return Config{Time: time.Second, Scale: 1, Idle: 20 * time.Second, Stream: 500}
}

// Bench is two servers, and the clients' side.
type Bench struct {
	cfg       Config
	tcp, gate *host
	server    int // core of the servers
	restore   unix.CPUSet
	delivered float64 // of the last run with slow clients, per cent
	deaf      float64 // of the last run with clients that never read: p99 of the others, with by without
}

// Open starts the servers on one core, where there are two, and moves this process to the other.
func Open(cfg Config) (b *Bench, err error) {
	b = &Bench{cfg: cfg, server: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := unix.SchedGetaffinity(0, &b.restore); err != nil {
		return b, err
	}
	if first, last := cores(&b.restore); first != last {
		b.server = first
		var own unix.CPUSet
		own.Set(last)
		if err := pin(&own); err != nil {
			return b, err
		}
	}
	if b.tcp, err = start("tcp", "", cfg.Profiles, b.server); err != nil {
		return b, err
	}
	b.gate, err = start("gate", "", cfg.Profiles, b.server)
	return b, err
}

// Close ends the servers and gives this process its cores back.
func (b *Bench) Close() error {
	var errs []error
	for _, h := range []*host{b.tcp, b.gate} {
		if h != nil {
			errs = append(errs, h.proc.Stop())
		}
	}
	if b.server >= 0 {
		errs = append(errs, pin(&b.restore))
	}
	return errors.Join(errs...)
}

// n is a number of clients.
func (b *Bench) n(full int) int { return max(2, full/b.cfg.Scale) }

func cores(set *unix.CPUSet) (first, last int) {
	first = -1
	for i := range 1024 {
		if set.IsSet(i) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return first, last
}

// pin moves all threads of this process, and those that they will start, to cores.
func pin(to *unix.CPUSet) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, to); err != nil && !errors.Is(err, unix.ESRCH) { // or it has ended
			return fmt.Errorf("bench: choosing a core: %w", err)
		}
	}
	return nil
}
