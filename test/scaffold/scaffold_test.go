// Package scaffold makes a project of each sample of `gameserver new`, outside of this module and without the network, and does with it what a
// newcomer does.
package scaffold

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

var gameserver string // built once, from the checkout beside

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "zgame-scaffold")
	if err != nil {
		panic(err)
	}
	gameserver = filepath.Join(dir, "gameserver")
	build := exec.Command("go", "build", "-o", gameserver, "./cmd/gameserver")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Println(string(out))
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const patience = 5 * time.Minute

// run runs a program in dir, offline, and returns what it printed. It must end well.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, offline()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// offline has Go ask nobody for a module; go.mod and go.sum must be complete as they are.
func offline() []string {
	return append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.com", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com")
}

// server is a project's dev.
type server struct {
	t            *testing.T
	cmd          *exec.Cmd
	rest         chan struct{}
	gates, pages []string
	admins       []string
}

// dev runs the program's dev with so many nodes, on free ports.
func dev(t *testing.T, dir, program string, nodes int) *server {
	t.Helper()
	s := &server{t: t, rest: make(chan struct{})}
	s.cmd = exec.Command(program, "dev", "--nodes", fmt.Sprint(nodes), "--gate", "127.0.0.1:0", "--page", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	s.cmd.Dir, s.cmd.Stderr = dir, os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "stop with") {
		what, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		value = strings.TrimSpace(value)
		switch what {
		case "gate":
			s.gates = append(s.gates, value)
		case "page":
			s.pages = append(s.pages, value)
		case "admin":
			s.admins = append(s.admins, strings.TrimPrefix(strings.TrimSuffix(value, "/metrics /livez /readyz"), "http://"))
		}
	}
	go func() { // ends with the process
		defer close(s.rest)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(s.stop)
	if len(s.gates) != nodes || len(s.pages) != nodes || len(s.admins) != nodes {
		t.Fatalf("the banner shows gates %q, pages %q, admin ports %q", s.gates, s.pages, s.admins)
	}
	return s
}

func (s *server) stop() {
	if s.cmd.ProcessState != nil {
		return
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Error(err)
	}
	<-s.rest
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended with %v, want exit code 0", err)
	}
}

// page gets a file of the page.
func page(t *testing.T, base, path string) string {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(base + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
	return string(b)
}

// ask does what the page does, by JSON: finds its gate, logs in from the page's origin, sends a request, and returns its response.
func ask(t *testing.T, base, typ, body string) string {
	t.Helper()
	for _, path := range []string{"/", "/app.js", "/style.css"} {
		if text := page(t, base, path); len(text) < 100 {
			t.Errorf("%s is %q", path, text)
		}
	}
	gate := regexp.MustCompile(`ws://[^"]+`).FindString(page(t, base, "/config.json"))
	origin := strings.Replace(base, "127.0.0.1", "localhost", 1)
	if _, err := url.Parse(gate); err != nil || gate == "" {
		t.Fatalf("the page does not say where its gate is: %q", gate)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, gate, &websocket.DialOptions{Subprotocols: []string{"zgame.v1.json"}, HTTPHeader: http.Header{"Origin": {origin}}})
	if err != nil {
		t.Fatal(err, res)
	}
	defer ws.CloseNow()
	for _, frame := range []string{
		`{"kind":"FRAME_KIND_CONTROL","control":{"hello":{"token":"ann"}}}`,
		fmt.Sprintf(`{"kind":"FRAME_KIND_REQUEST","seq":1,"type":%q,"json":%s}`, typ, body),
	} {
		if err := ws.Write(ctx, websocket.MessageText, []byte(`{"frames":[`+frame+`]}`)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.ReplaceAll(string(b), " ", ""); strings.Contains(s, "RESPONSE") {
			if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
				t.Error(err)
			}
			return s
		}
	}
}

// Every sample builds, passes its tests, runs, and answers.
func TestSamples(t *testing.T) {
	for _, c := range []struct{ sample, typ, body, want string }{
		{"chat", "chat.Join", `{"room":"go"}`, `"type":"chat.Joined"`},
		{"friend", "friend.List", `{}`, `"type":"friend.Entries"`},
	} {
		t.Run(c.sample, func(t *testing.T) {
			parent := t.TempDir()
			run(t, parent, gameserver, "new", "example.com/me/mygame", "--sample", c.sample)
			dir := filepath.Join(parent, "mygame")
			run(t, dir, gameserver, "gen", "--ts", "web/gen", "--check")
			run(t, dir, "go", "build", "-o", "bin/mygame", ".")
			run(t, dir, "go", "vet", "./...")
			run(t, dir, "go", "test", "./...")
			s := dev(t, dir, filepath.Join(dir, "bin", "mygame"), 1)
			if got := ask(t, s.pages[0], c.typ, c.body); !strings.Contains(got, c.want) {
				t.Errorf("the answer is %s, want %s", got, c.want)
			}
		})
	}
}
