package bus

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

	"zgame/internal/embedded"
)

// How a process learns what it is.
const (
	roleEnv    = "ZGAME_BENCH_BUS_ROLE"
	serverEnv  = "ZGAME_BENCH_BUS_SERVER"
	profileEnv = "ZGAME_BENCH_BUS_PROFILES"
)

// patience bounds everything that takes no time when all is well.
const patience = 30 * time.Second

// Child runs what this process is to be, if another process of this program started it for that, and reports that it did: then
// the program ends with the error. main and TestMain call it first.
func Child() (was bool, err error) {
	role := os.Getenv(roleEnv)
	var run func(ready func(line string)) error
	switch role {
	case "":
		return false, nil
	case "nats":
		run = runServer
	case "node":
		run = runNode
	default:
		return true, fmt.Errorf("bench: %s is %q: expected nats or node", roleEnv, role)
	}
	stop, err := Profile(os.Getenv(profileEnv), role)
	if err != nil {
		return true, err
	}
	err = run(func(line string) {
		_, _ = fmt.Fprintln(os.Stdout, line)
		_, _ = io.Copy(io.Discard, os.Stdin) // until the one that started it lets go, or is gone
	})
	return true, errors.Join(err, stop())
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

// runServer is the process of the NATS server.
func runServer(ready func(string)) error {
	dir, err := os.MkdirTemp("", "zgame-bench-nats-")
	if err != nil {
		return err
	}
	srv, err := embedded.StartNATS(dir, 0)
	if err == nil {
		ready(srv.URL())
		srv.Stop()
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// process is a child of this one.
type process struct {
	role  string
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan error
}

// start starts this program again in a role and waits until it says that it is ready. It returns what it said.
func start(role, server, profiles string) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(context.Background(), self) // stop ends it
	cmd.Env = append(os.Environ(), roleEnv+"="+role, serverEnv+"="+server, profileEnv+"="+profiles)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	p := &process{role: role, cmd: cmd, stdin: in, done: make(chan error, 1)}
	line := make(chan string, 1)
	go func() { // owned by p; ends with the child, which stop ends
		said := bufio.NewReader(out)
		first, _ := said.ReadString('\n')
		line <- strings.TrimSpace(first)
		_, _ = io.Copy(io.Discard, said)
		p.done <- cmd.Wait()
	}()
	select {
	case s := <-line:
		if s != "" {
			return p, s, nil
		}
		err = fmt.Errorf("bench: the process %s ended at once", role)
	case <-time.After(patience):
		err = fmt.Errorf("bench: the process %s is not ready within %v", role, patience)
	}
	return nil, "", errors.Join(err, p.stop())
}

// stop lets the child end, and kills it if it does not.
func (p *process) stop() error {
	_ = p.stdin.Close()
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("bench: the process %s: %w", p.role, err)
		}
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		return errors.Join(<-p.done, fmt.Errorf("bench: the process %s did not end within %v", p.role, patience))
	}
}

// bounded is a context for what takes no time when all is well.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
