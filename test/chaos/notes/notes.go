//go:build linux

// Package notes is what the processes of a chaos test write down of the executions of their handlers, each in a file of its own: a
// line when one begins and one when it ends, each written at once, so that what a killed process has written is there.
package notes

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"zgame/test/chaos/oracle"
)

// Now is the host's monotonic clock in nanoseconds: all processes have the same.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// Proc is the name of the process pid of a node: unique within a test.
func Proc(node string, pid int) string { return fmt.Sprint(node, "-", pid) }

// Notes are those of one process. Methods may be called from any goroutine.
type Notes struct{ file *os.File }

// Open begins the notes of the process with the name, in dir.
func Open(dir, proc string) (*Notes, error) {
	f, err := os.OpenFile(filepath.Join(dir, proc+".runs"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("notes: %w", err)
	}
	return &Notes{f}, nil
}

const (
	beginLine = "b %d %x %d %s %t\n" // time, entry, version, key, whether it was there
	endLine   = "e %d %x %d %s\n"
)

// Begin notes that the append of op to the list begins; the time is taken here. had says that op is in the list already.
func (n *Notes) Begin(key string, op, version uint64, had bool) {
	n.write(beginLine, Now(), op, version, key, had)
}

// End notes that it ends.
func (n *Notes) End(key string, op, version uint64) { n.write(endLine, Now(), op, version, key) }

func (n *Notes) write(format string, a ...any) {
	if _, err := fmt.Fprintf(n.file, format, a...); err != nil {
		panic(err) // a test without its notes is none
	}
}

// Fault notes that something is not as it should be, as the process itself sees it.
func (n *Notes) Fault(format string, a ...any) { n.write("f %s\n", fmt.Sprintf(format, a...)) }

// Read returns all executions that were noted in dir, and all faults.
func Read(dir string) (runs []oracle.Run, faults []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.runs"))
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		proc := strings.TrimSuffix(filepath.Base(f), ".runs")
		r, wrong, err := parse(proc, text)
		if err != nil {
			return nil, nil, fmt.Errorf("notes: %s: %w", f, err)
		}
		runs = append(runs, r...)
		for _, w := range wrong {
			faults = append(faults, proc+": "+w)
		}
	}
	return runs, faults, nil
}

func parse(proc string, text []byte) (runs []oracle.Run, faults []string, err error) {
	open := map[string]int{} // of runs, by key: one at a time, by what it is about
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		r := oracle.Run{Proc: proc}
		switch {
		case strings.HasPrefix(line, "b "):
			if _, err := fmt.Sscanf(line+"\n", beginLine, &r.Begin, &r.Op, &r.Version, &r.Key, &r.Had); err != nil {
				return nil, nil, fmt.Errorf("%q: %w", line, err)
			}
			open[fmt.Sprint(r.Key, r.Version, r.Op)] = len(runs)
			runs = append(runs, r)
		case strings.HasPrefix(line, "e "):
			if _, err := fmt.Sscanf(line+"\n", endLine, &r.End, &r.Op, &r.Version, &r.Key); err != nil {
				return nil, nil, fmt.Errorf("%q: %w", line, err)
			}
			i, ok := open[fmt.Sprint(r.Key, r.Version, r.Op)]
			if !ok {
				return nil, nil, fmt.Errorf("%q: it did not begin", line)
			}
			runs[i].End = r.End
		case strings.HasPrefix(line, "f "):
			faults = append(faults, line[2:])
		default:
			return nil, nil, fmt.Errorf("%q is no note", line)
		}
	}
	return runs, faults, lines.Err()
}
