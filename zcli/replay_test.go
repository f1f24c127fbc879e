package zcli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zactor/zactortest"
	"zgame/zcli/testdata/replay"
	"zgame/znode"
)

// recordOf lets the actor fail and returns its record.
func recordOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}})
	ref, err := g.Spawn("lobby 2", replay.App().Actors["replay.Counter"])
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "`b`", "c\n"} {
		s.Send(ref, &chatpb.Say{Room: "x", Text: text})
	}
	s.Run()
	files, err := filepath.Glob(filepath.Join(dir, "*.record.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	return files[0]
}

// deaf gives the App middleware that lets no message through.
func deaf(app znode.App) znode.App {
	app.Middleware = func(*znode.Node) []zactor.Middleware {
		return []zactor.Middleware{func(zactor.HandlerInfo, zactor.Func) zactor.Func { return func(*zactor.Context) error { return nil } }}
	}
	return app
}

func tryReplay(t *testing.T, app znode.App, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), Env{Name: "game", Stdout: &out, Stderr: &errs}, app, append([]string{"replay"}, args...))
	return code, out.String(), errs.String()
}

func TestReplay(t *testing.T) {
	t.Parallel()
	file := recordOf(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		app  znode.App
		args []string
		code int
		out  []string
	}{
		{"run", replay.App(), []string{file}, 0, []string{`replay.Counter "lobby 2"`, `#2 `, `{"room":"x","text":"a"}`, "the same panic: too many lines"}},
		{"no file", replay.App(), nil, 2, []string{"expected one FILE", "-testdata"}},
		{"two files", replay.App(), []string{file, file + "x"}, 2, []string{"expected one FILE"}},
		{"no such file", replay.App(), []string{"/no/such"}, 1, []string{"/no/such"}},
		{"no record", replay.App(), []string{text}, 1, []string{"no record: line 1", text}},
		{"unknown type", znode.App{}, []string{file}, 1, []string{`does not know how to make a "replay.Counter": App.Actors has []`}},
		{"other type", replay.App(), []string{file, "--type", "x"}, 1, []string{`make a "x"`, "[replay.Counter]"}},
		{"bad flag", replay.App(), []string{file, "--tst"}, 2, []string{"-test"}},
		{"help", replay.App(), []string{"-h"}, 0, []string{"replay FILE"}},
		{"no factory", znode.App{}, []string{file, "--test"}, 1, []string{"say --factory"}},
		{"test with a plain factory", znode.App{Actors: map[string]func() zactor.Actor{"replay.Counter": replay.Mended}}, []string{file, "--test"}, 0, []string{
			"package replay_test\n", `"zgame/zcli/testdata/replay"`, `, replay.Mended)`,
		}},
		{"with middleware", deaf(replay.App()), []string{file}, 0, []string{"no panic"}},
		{"test with middleware", deaf(replay.App()), []string{file, "--test"}, 0, []string{"// The App's middleware is not around it here"}},
		{"bad factory", replay.App(), []string{"--test", "--factory", "(", file}, 1, []string{"the test would not be Go"}},
		{"test of a file", replay.App(), []string{"--test", "--testdata", "--package", "x", file}, 0, []string{
			"package x\n", `zactortest.ReplayFile(t, "testdata/` + filepath.Base(file), `replay.App().Actors["replay.Counter"])`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := tryReplay(t, c.app, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			for _, want := range c.out {
				if !strings.Contains(out+errs, want) {
					t.Errorf("%q is missing in\n%s%s", want, out, errs)
				}
			}
		})
	}
}

// The printed test is Go as it stands, fails as the actor did, and passes when the actor is mended.
func TestPrintedTest(t *testing.T) {
	t.Parallel()
	file := recordOf(t)
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"broken", nil, []string{"--- FAIL: TestReplayReplayCounterLobby2", "the same panic: too many lines", "#3 "}},
		{"mended", []string{"--factory", "replay.Mended", "--import", "zgame/zcli/testdata/replay"}, []string{"--- PASS: TestReplayReplayCounterLobby2", "no panic"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := tryReplay(t, replay.App(), append([]string{file, "--test"}, c.args...)...)
			if code != 0 {
				t.Fatal(errs)
			}
			// A directory of this module, so that the test finds its imports.
			dir := filepath.Join("testdata", fmt.Sprintf("printed%d%s", os.Getpid(), c.name))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			path := filepath.Join(dir, "replay_test.go")
			if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff, err := exec.CommandContext(t.Context(), "gofmt", "-l", path).CombinedOutput(); err != nil || len(diff) > 0 {
				t.Errorf("gofmt says %s (%v)", diff, err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "./"+filepath.ToSlash(dir))
			got, err := cmd.CombinedOutput()
			if (err == nil) != (c.name == "mended") {
				t.Errorf("go test: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(got), want) {
					t.Errorf("%q is missing in\n%s", want, got)
				}
			}
		})
	}
}
