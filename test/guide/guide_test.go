// Package guide does what docs/guide/first-ten-minutes.md says, in a module outside of this one: what a newcomer copies is built,
// and run.
package guide

import (
	"bufio"
	"context"
	"fmt"
	"io"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func TestFirstTenMinutes(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "guide", "first-ten-minutes.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "counter")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile("(?s)```\\w+ (\\S+)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(files) != 2 {
		t.Fatalf("the guide shows %d files, want counter.proto and main.go", len(files))
	}
	write := func(file []string) {
		if err := os.WriteFile(filepath.Join(dir, file[1]), []byte(file[2]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(files[0]) // and main.go when the reader comes to it: the steps before must not need it
	// What tidy would find is what zgame itself was built with: its sums are copied, so that the test does not ask the network.
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "mod", "init", "counter")
	run(t, dir, "go", "mod", "edit", "-require", "zgame@v0.0.0", "-replace", "zgame="+root)
	for _, line := range regexp.MustCompile(`(?m)^go (?:get -tool|tool) .*$`).FindAllString(string(text), -1) {
		words := strings.Fields(line)
		run(t, dir, words[0], words[1:]...)
	}
	write(files[1])
	run(t, dir, "go", "build", "-mod=mod", "-o", "server", ".")

	if help := run(t, dir, "./server", "help"); !strings.Contains(help, "dev ") || !strings.Contains(help, "run ") {
		t.Errorf("help lacks dev or run:\n%s", help)
	}
	if settings := run(t, dir, "env", "ZGAME_GATE_AUTH_KIND=dev", "./server", "run", "--check"); !strings.Contains(settings, "gate:") {
		t.Errorf("run --check prints no settings:\n%s", settings)
	}
	gate, stop := serve(t, dir)
	defer stop()
	callFromGo(t, dir, string(text), gate)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, gate, &websocket.DialOptions{Subprotocols: []string{"zgame.v1.json"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	for _, line := range regexp.MustCompile(`s\.send\('(.*)'\)`).FindAllStringSubmatch(string(text), -1) {
		if err := ws.Write(ctx, websocket.MessageText, []byte(line[1])); err != nil {
			t.Fatal(err)
		}
	}
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.ReplaceAll(string(b), " ", ""); strings.Contains(s, "RESPONSE") {
			if !strings.Contains(s, `"total":"2"`) || !strings.Contains(s, `"type":"counter.Count"`) {
				t.Errorf("the answer is %s", b)
			}
			break
		}
	}
}

// callFromGo runs the guide's client in Go; it hits first.
func callFromGo(t *testing.T, dir, text, gate string) {
	t.Helper()
	snippet := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(text)
	if snippet == nil {
		t.Fatal("the guide shows no client in Go")
	}
	program := `package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"zgame/zclient"

	"counter/pb"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := hit(ctx); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func hit(ctx context.Context) error {
` + strings.ReplaceAll(snippet[1], "ws://localhost:7000/ws", gate) + `
	fmt.Println("total", count.GetTotal())
	return c.Close()
}
`
	if err := os.Mkdir(filepath.Join(dir, "client"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "client", "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(t, dir, "go", "run", "-mod=mod", "./client"); !strings.Contains(out, "total 1") {
		t.Errorf("the client in Go got %s", out)
	}
}

// serve runs the server until stop, and returns its gate.
func serve(t *testing.T, dir string) (gate string, stop func()) {
	t.Helper()
	cmd := exec.Command("./server", "dev", "--gate", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for gate == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "gate   "); ok {
			gate = strings.TrimSpace(url)
		}
	}
	if gate == "" {
		t.Fatal("the server printed no gate")
	}
	rest := make(chan struct{})
	go func() { // ends with the process
		defer close(rest)
		_, _ = io.Copy(io.Discard, out)
	}()
	return gate, func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		<-rest
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v, want exit code 0", err)
		}
	}
}

func run(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Sprint(name, " ", strings.Join(args, " ")), ": ", err, "\n", string(out))
	}
	return string(out)
}
