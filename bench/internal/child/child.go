// Package child starts the running program again as another process, which plays a role: a server, a node that is killed. Each side
// says lines to the other.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// How a process learns what it is.
const (
	roleEnv    = "ZGAME_BENCH_ROLE"
	argEnv     = "ZGAME_BENCH_ARG"
	profileEnv = "ZGAME_BENCH_PROFILES"
)

// Patience bounds everything that takes no time when all is well.
const Patience = 30 * time.Second

// Role is what a child does. It ends when its parent lets go, which Hear says.
type Role func(p *Parent) error

// Run plays the role for which this process was started, if it was, and reports that it did: then the program ends with the error.
// main and TestMain call it first.
func Run(roles map[string]Role) (was bool, err error) {
	name := os.Getenv(roleEnv)
	if name == "" {
		return false, nil
	}
	role := roles[name]
	if role == nil {
		return true, fmt.Errorf("bench: %s is %q, which this program does not play", roleEnv, name)
	}
	stop, err := Profile(os.Getenv(profileEnv), name)
	if err != nil {
		return true, err
	}
	err = role(&Parent{Arg: os.Getenv(argEnv), in: bufio.NewReader(os.Stdin)})
	return true, errors.Join(err, stop())
}

// Parent is the process that started this one.
type Parent struct {
	Arg string // what Start was given

	in *bufio.Reader
}

// Say says a line to the parent; the first one says that the child is ready.
func (p *Parent) Say(line string) { _, _ = fmt.Fprintln(os.Stdout, line) }

// Hear waits for the parent's next line; ok is false when the parent has let go, or is gone.
func (p *Parent) Hear() (line string, ok bool) {
	line, err := p.in.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// Profile writes a CPU profile of this process to dir, until stop is called; with dir "" it does nothing.
func Profile(dir, name string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(dir, name+".prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// Process is a child of this one. One goroutine at a time uses it.
type Process struct {
	role  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // closed when the child says nothing more
	done  chan error
}

// Start starts this program again in a role and waits until it says that it is ready. It returns what it said. profiles is the
// directory for its CPU profile, "" for none.
func Start(role, arg, profiles string) (*Process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(context.Background(), self) // Stop ends it
	cmd.Env = append(os.Environ(), roleEnv+"="+role, argEnv+"="+arg, profileEnv+"="+profiles)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	p := &Process{role: role, cmd: cmd, stdin: in, lines: make(chan string, 16), done: make(chan error, 1)}
	go func() { // owned by p; ends with the child, which Stop ends
		said := bufio.NewScanner(out)
		for said.Scan() {
			p.lines <- said.Text()
		}
		close(p.lines)
		p.done <- cmd.Wait()
	}()
	line, err := p.Hear(Patience)
	if err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	return p, line, nil
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Say says a line to the child.
func (p *Process) Say(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return err
}

// Hear waits for the child's next line.
func (p *Process) Hear(within time.Duration) (string, error) {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", fmt.Errorf("bench: the process %s has ended", p.role)
		}
		return line, nil
	case <-time.After(within):
		return "", fmt.Errorf("bench: the process %s said nothing within %v", p.role, within)
	}
}

// Ask says a line and returns the answer.
func (p *Process) Ask(line string) (string, error) {
	if err := p.Say(line); err != nil {
		return "", err
	}
	return p.Hear(Patience)
}

// Stop lets the child end, and kills it if it does not.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	late := time.After(Patience)
	for lines := p.lines; ; {
		select {
		case _, ok := <-lines: // nobody wants to hear it
			if !ok {
				lines = nil
			}
		case err := <-p.done:
			if err != nil {
				return fmt.Errorf("bench: the process %s: %w", p.role, err)
			}
			return nil
		case <-late:
			return errors.Join(p.Kill(), fmt.Errorf("bench: the process %s did not end within %v", p.role, Patience))
		}
	}
}

// Kill ends the child at once.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	for range p.lines { // until the pipe is closed
	}
	if err := <-p.done; err == nil {
		return fmt.Errorf("bench: the process %s had ended before it was killed", p.role)
	}
	return nil
}
