//go:build linux

package chaos

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zgame/ztest"
)

// patience bounds what has to happen some time.
const patience = time.Minute

// process is a running process of the program.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd

	mu    sync.Mutex
	lines []string // the last that it printed; guarded by mu
	wrong []string // lines that no process may print; guarded by mu

	done chan struct{} // closed when it has ended
	code int           // its exit code, after done; -1: a signal
}

const keptLines = 400

// noProcessPrints is what no process may print, whatever is done to it.
var noProcessPrints = regexp.MustCompile(`^(panic:|fatal error:|WARNING: DATA RACE)`)

// start runs the program on h with args. It is killed with the world.
func (w *world) start(h *host, name string, env []string, args ...string) *process {
	t := w.t
	t.Helper()
	p := &process{t: t, name: name, done: make(chan struct{}), cmd: h.command(binary, args...)}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	r, printed := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = printed, printed
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { // ends when the process has and printed is closed
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			if noProcessPrints.MatchString(lines.Text()) {
				p.wrong = append(p.wrong, lines.Text())
			}
			if p.lines = append(p.lines, lines.Text()); len(p.lines) > 2*keptLines {
				p.lines = append([]string(nil), p.lines[keptLines:]...)
			}
			p.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, r)
	})
	go func() { // ends with the process, which the world kills
		err := p.cmd.Wait()
		_ = printed.Close()
		reading.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			p.code = exit.ExitCode()
		}
		close(p.done)
	}()
	w.started = append(w.started, p)
	return p
}

// killAll ends all processes that the world has started.
func (w *world) killAll() {
	for _, p := range w.started {
		p.kill()
		if len(p.wrong) > 0 {
			w.t.Errorf("%s printed %q", p.name, p.wrong)
		}
		if w.t.Failed() {
			w.t.Logf("%s printed last:\n%s", p.name, p.printed())
		}
	}
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// prints waits until the process prints text.
func (p *process) prints(text string) {
	p.t.Helper()
	ztest.Eventually(p.t, p.name+" prints "+text, func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("%s has ended with code %d; it printed:\n%s", p.name, p.code, p.printed())
		default:
		}
		return strings.Contains(p.printed(), text)
	})
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is kill -9; it returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) send(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%v to %s: %v", s, p.name, err)
	}
}

// exit waits for the end and returns the code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(patience):
		p.t.Fatalf("%s did not end", p.name)
		return 0
	}
}
