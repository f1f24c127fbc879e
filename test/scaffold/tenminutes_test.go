package scaffold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The first ten minutes, literally, in a fresh directory. Each step is timed, and the times are printed: what it asserts is that the steps come out well,
// since a busy machine is slow. `make ten-minutes` shows the table.
func TestTenMinutes(t *testing.T) {
	var table strings.Builder
	step := func(what string, do func()) {
		t.Helper()
		began := time.Now()
		do()
		fmt.Fprintf(&table, "%8.1f s  %s\n", time.Since(began).Seconds(), what)
	}
	defer func() { t.Logf("the first ten minutes:\n%s", table.String()) }()

	parent := t.TempDir()
	dir := filepath.Join(parent, "mygame")
	program := filepath.Join(dir, "bin", "mygame")
	step("gameserver new mygame", func() { run(t, parent, gameserver, "new", "mygame") })
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "commit", "-q", "-m", "new")
	step("go build", func() { run(t, dir, "go", "build", "-o", program, ".") })
	var s *server
	step("dev, until it is ready", func() { s = dev(t, dir, program, 1) })
	step("the page, and its first answer", func() {
		if got := ask(t, s.pages[0], "game.Hello", `{}`); !strings.Contains(got, `"type":"game.Welcome"`) || !strings.Contains(got, `"node":"n1"`) {
			t.Errorf("the answer is %s", got)
		}
	})
	step("stop", s.stop)
	step("go vet, go test", func() {
		run(t, dir, "go", "vet", "./...")
		run(t, dir, "go", "test", "./...")
	})
	step("gen, as nothing has changed", func() {
		run(t, dir, "go", "tool", "gameserver", "gen", "--ts", "web/gen")
		if diff := run(t, dir, "git", "status", "--porcelain"); diff != "" {
			t.Errorf("gen has changed:\n%s", diff)
		}
	})
	step("a field more in proto, gen", func() {
		replace(t, filepath.Join(dir, "proto/game/game.proto"), "  uint64 visits = 2;", "  string motto = 3;\n  uint64 visits = 2;")
		run(t, dir, "go", "tool", "gameserver", "gen", "--ts", "web/gen")
		replace(t, filepath.Join(dir, "game/lobby.go"), "Visits: l.visits", `Visits: l.visits, Motto: "good luck"`)
	})
	step("a change that clients would not understand is refused", func() {
		path := filepath.Join(dir, "proto/game/game.proto")
		replace(t, path, "uint32 value = 4;", "string value = 4;")
		cmd := run(t, dir, "sh", "-c", "! go tool gameserver gen --ts web/gen 2>&1")
		if !strings.Contains(cmd, "field 4 of game.Rolled (value) was uint32, and is string") {
			t.Errorf("gen says: %s", cmd)
		}
		replace(t, path, "string value = 4;", "uint32 value = 4;")
	})
	step("go test", func() { run(t, dir, "go", "test", "./...") })
	step("go build", func() { run(t, dir, "go", "build", "-o", program, ".") })
	step("dev with three nodes", func() { s = dev(t, dir, program, 3) })
	step("the new field is in the answer", func() {
		if got := ask(t, s.pages[2], "game.Hello", `{}`); !strings.Contains(got, `"motto":"goodluck"`) {
			t.Errorf("the answer is %s", got)
		}
	})
	step("bots play; their table is moved, and its node drained by the hook of deploy/k8s.yaml", func() {
		bots := exec.Command(program, "bots", "--url", s.gates[0], "--n", "4", "--ramp", "1s", "--time", "6s", "--quiet", "--json")
		var said bytes.Buffer
		bots.Dir, bots.Stdout, bots.Stderr = dir, &said, os.Stderr
		if err := bots.Start(); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "sh", "-c", "until "+program+" inspect object tables/bots-0 --config .zgame/settings.yaml; do sleep 0.1; done")
		run(t, dir, program, "move", "tables/bots-0", "n2", "--config", ".zgame/settings.yaml")
		hook := strings.ReplaceAll(preStop(t, dir), "127.0.0.1:9090", s.admins[1])
		out := run(t, dir, "env", "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "ZGAME_NODE_ID=n2", "sh", "-c", hook)
		if !strings.Contains(out, " 0 left; took") || !strings.Contains(out, "has stopped") {
			t.Errorf("the hook says: %s", out)
		}
		err := bots.Wait()
		var report struct {
			Online int
			Came   uint64
		}
		if err == nil {
			err = json.Unmarshal(said.Bytes(), &report)
		}
		if err != nil || report.Online != 4 || report.Came == 0 { // the command fails where something was lost, doubled or swapped
			t.Errorf("%v, the bots say:\n%s", err, said.String())
		}
	})
	step("stop", s.stop)
}

func replace(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), from) != 1 {
		t.Fatalf("%s has %q %d times, want once", path, from, strings.Count(string(text), from))
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// preStop is what Kubernetes runs before it stops a node.
func preStop(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "deploy", "k8s.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Lifecycle struct {
							PreStop struct {
								Exec struct{ Command []string }
							} `yaml:"preStop"`
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &set); err != nil { // the first of the objects
		t.Fatal(err)
	}
	command := set.Spec.Template.Spec.Containers[0].Lifecycle.PreStop.Exec.Command
	if len(command) != 3 || command[0] != "sh" {
		t.Fatalf("the hook is %q", command)
	}
	return command[2]
}
