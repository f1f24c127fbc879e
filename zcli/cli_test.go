package zcli

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/znode"
)

// try runs the command line and returns its exit code and what it printed.
func try(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), Env{Name: "game", Stdout: &out, Stderr: &errs, Environ: env}, znode.App{Name: "test"}, args, Services())
	return code, out.String(), errs.String()
}

func TestUse(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("gate:\n  addrss: ':1'\nnod: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		code int
		out  []string // parts of what is printed, on either
	}{
		{"help", nil, []string{"help"}, 0, []string{"dev ", "run ", "services "}},
		{"dash h", nil, []string{"-h"}, 0, []string{"dev "}},
		{"help of a command", nil, []string{"run", "-h"}, 0, []string{"-config", "-check"}},
		{"version", nil, []string{"version"}, 0, []string{"game "}},
		{"unknown command", nil, []string{"serv"}, 2, []string{`unknown command "serv"`}},
		{"near command", nil, []string{"service"}, 2, []string{`did you mean "services"?`}},
		{"unknown flag", nil, []string{"dev", "--node", "3"}, 2, []string{"game dev: there is no flag --node, did you mean --nodes?"}},
		{"argument that is no flag", nil, []string{"run", "config.yaml"}, 2, []string{`unexpected argument "config.yaml"`}},
		{"too many nodes", nil, []string{"dev", "--nodes", "99"}, 2, []string{"--nodes 99: expected 1 to 16"}},
		{"no nodes", nil, []string{"dev", "--nodes", "0"}, 2, []string{"expected 1 to 16"}},
		{"bad level", nil, []string{"dev", "--log", "loud"}, 1, []string{"debug, info, warn or error"}},
		{"check prints every key", nil, []string{"run", "--check"}, 1, []string{"address: \"127.0.0.1:7000\"", "collection:", "lease: 10s", "gate.auth.kind is empty"}},
		{"check reads the environment", []string{"ZGAME_GATE_ADDRESS=:7777", "ZGAME_GATE_INSECURE_PLAINTEXT=true", "ZGAME_GATE_AUTH_KIND=dev"}, []string{"run", "--check"}, 0, []string{"address: \":7777\""}},
		{"check looks at files", []string{"ZGAME_GATE_AUTH_KIND=dev", "ZGAME_GATE_TLS_CERT=/no/cert", "ZGAME_GATE_TLS_KEY=" + broken}, []string{"run", "--check"}, 1, []string{
			"files that the settings name have faults", "gate.tls.cert: open /no/cert", "gate.tls.key: " + broken + " is not PEM",
		}},
		{"all faults at once", []string{"ZGAME_ETCD_LEASE=1ms"}, []string{"run", "--check", "--config", broken}, 1, []string{
			"did you mean gate.address?", "did you mean node?", "etcd.lease 1ms",
		}},
		{"dev reads the environment", []string{"ZGAME_GATE_ADDR=:1"}, []string{"dev"}, 1, []string{"unknown variable ZGAME_GATE_ADDR, did you mean ZGAME_GATE_ADDRESS?"}},
		{"no such port", nil, []string{"services", "--nats-port", "99999"}, 2, []string{"--nats-port 99999: expected a port from 0 (any free one) to 65535"}},
		{"no such file", nil, []string{"run", "--config", "/no/such.yaml"}, 1, []string{"/no/such.yaml"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := try(t, c.env, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			for _, want := range c.out {
				if !strings.Contains(out+errs, want) {
					t.Errorf("lacks %q:\n%s%s", want, out, errs)
				}
			}
		})
	}
}

func TestAddPort(t *testing.T) {
	for _, c := range []struct {
		address string
		k       int
		want    string // "": an error
	}{
		{"127.0.0.1:7000", 0, "127.0.0.1:7000"},
		{"127.0.0.1:7000", 2, "127.0.0.1:7002"},
		{":0", 2, ":0"},
		{"[::1]:7000", 1, "[::1]:7001"},
		{"127.0.0.1:65535", 1, ""},
		{"127.0.0.1", 0, ""},
		{"127.0.0.1:x", 0, ""},
		{"127.0.0.1:-1", 0, ""},
	} {
		got, err := addPort(c.address, c.k)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("addPort(%q, %d) = %q, %v; want %q", c.address, c.k, got, err, c.want)
		}
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	first, err := lockData(dir, "127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockData(dir, "x"); err == nil || !strings.Contains(err.Error(), "pid ") || !strings.Contains(err.Error(), "127.0.0.1:7000") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("the second lock: %v, want the holder's pid and address", err)
	}
	first.release()
	again, err := lockData(dir, "x")
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.release()
}

// dev runs, keeps what it stored, can be started again in its directory, and refuses a port in use by its flag.
func TestDev(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		started := newWatch("stop with Ctrl-C")
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int, 1)
		go func() { // ends with ctx
			code <- Run(ctx, Env{Name: "game", Stdout: started, Stderr: io.Discard}, znode.App{Name: "test"},
				[]string{"dev", "--nodes", "2", "--data", dir, "--gate", "127.0.0.1:0", "--admin", "127.0.0.1:0"})
		}()
		select {
		case <-started.seen:
		case c := <-code:
			t.Fatalf("dev ended with %d:\n%s", c, started.text())
		case <-time.After(time.Minute):
			t.Fatalf("dev printed no banner:\n%s", started.text())
		}
		if text := started.text(); strings.Count(text, "gate   ws://localhost:") != 2 || !strings.Contains(text, "settings") {
			t.Errorf("the banner:\n%s", text)
		}
		_, address, _ := strings.Cut(started.text(), "gate   ws://")
		address, _, _ = strings.Cut(address, "/ws")
		// Everything of ours that is open belongs to dev, so the port is in use.
		busy, _, errs := try(t, nil, "dev", "--data", t.TempDir(), "--admin", "127.0.0.1:0", "--gate", strings.Replace(address, "localhost", "127.0.0.1", 1))
		if busy != 1 || !strings.Contains(errs, "gate cannot listen on") || !strings.Contains(errs, "--gate") {
			t.Errorf("a port in use: code %d\n%s", busy, errs)
		}
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("dev ended with %d", c)
		}
	}
}

// watch is a writer that tells when a text has been written.
type watch struct {
	want string
	seen chan struct{}

	mu  sync.Mutex
	all strings.Builder
}

func newWatch(want string) *watch { return &watch{want: want, seen: make(chan struct{})} }

func (w *watch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.all.String(), w.want)
	w.all.Write(b)
	if !before && strings.Contains(w.all.String(), w.want) {
		close(w.seen)
	}
	return len(b), nil
}

func (w *watch) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// A port in use says which flag to set, and does not advise to throw the data away.
func TestServersOnAPortInUse(t *testing.T) {
	t.Parallel()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	port := held.Addr().(*net.TCPAddr).Port
	for flag, ports := range map[string][2]int{"--nats-port": {port, 0}, "--etcd-port": {0, port}} {
		s, err := StartServers(t.TempDir(), false, ports[0], ports[1])
		if err == nil {
			s.Stop()
			t.Fatalf("%s: started", flag)
		}
		if text := err.Error(); !strings.Contains(text, "set "+flag) || strings.Contains(text, "--fresh") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
