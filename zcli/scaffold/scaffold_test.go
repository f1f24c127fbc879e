package scaffold_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zgame/examples"
	"zgame/zcli"
	"zgame/zcli/scaffold"
	"zgame/znode"
)

// try calls the command in the working directory.
func try(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	env := zcli.Env{Name: "gameserver", Stdout: &out, Stderr: &out}
	code = zcli.Run(t.Context(), env, znode.App{Name: "test"}, append([]string{"new"}, args...), scaffold.Command(examples.Samples()...))
	return code, out.String()
}

// What cannot be made is refused with what was wrong and what would be right, and nothing of it stays.
func TestRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("full/of/things", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("other", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("other/go.mod", []byte("module other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "expected one NAME"},
		{[]string{"a", "b"}, 2, "expected one NAME"},
		{[]string{"a", "--smple", "chat"}, 2, "did you mean --sample?"},
		{[]string{"a", "--sample", "chess"}, 1, `there is no sample "chess": expected empty, chat, friend`},
		{[]string{""}, 1, "empty part"},
		{[]string{"example.com//x"}, 1, "empty part"},
		{[]string{"../x"}, 1, `".." is not made of letters`},
		{[]string{"/abs"}, 1, "empty part"},
		{[]string{"my game"}, 1, "expected the path of a Go module"},
		{[]string{"x."}, 1, "expected the path of a Go module"},
		{[]string{"fmt"}, 1, `Go has "fmt" for itself`},
		{[]string{"zgame"}, 1, "the framework's own path"},
		{[]string{"v2"}, 1, "is a version"},
		{[]string{"a/v1"}, 1, "from /v2 on"},
		{[]string{strings.Repeat("x", 201)}, 1, "201 bytes"},
		{[]string{"full"}, 1, "the directory full is not empty (of, ...)"},
		{[]string{"file"}, 1, "no directory that can be read"},
		{[]string{"a", "--framework", "nowhere"}, 1, "say --framework DIR"},
		{[]string{"a", "--framework", "other"}, 1, `is of the module "other", expected "zgame"`},
	} {
		code, said := try(t, c.args...)
		if code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("new %q: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, said)
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) != 3 {
		t.Errorf("there are %v, %v, want what was there before", entries, err)
	}
}

// A framework that lacks what is needed behind the first look leaves nothing half made, and an empty directory stays.
func TestHalfMade(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"broken", "mine"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("broken/go.mod", []byte("module zgame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "yours"} {
		if code, said := try(t, name, "--framework", "broken"); code != 1 || !strings.Contains(said, "go.sum") {
			t.Errorf("exit code %d: %s", code, said)
		}
	}
	if entries, err := os.ReadDir("mine"); err != nil || len(entries) > 0 {
		t.Errorf("in mine there are %v, %v", entries, err)
	}
	if _, err := os.Stat("yours"); err == nil {
		t.Error("yours was left")
	}
}

// Every first element of a package of Go's library is refused, as go build would.
func TestReserved(t *testing.T) {
	t.Chdir(t.TempDir())
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(strings.TrimSpace(string(root)), "src")) // go list std does not know those of experiments
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "testdata" {
			continue
		}
		seen++
		if code, said := try(t, e.Name()); code != 1 || !strings.Contains(said, fmt.Sprintf("Go has %q for itself", e.Name())) {
			t.Errorf("a module may be called %s: %s", e.Name(), said)
		}
	}
	if seen < 40 {
		t.Errorf("only %d names found", seen)
	}
}

// Nothing in a project points to where its sample stands, but what a bundle has in its descriptors.
func TestImports(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, s := range examples.Samples() {
		module := "example.com/me/My." + s.Name + "/v2"
		if code, said := try(t, "--sample", s.Name, module); code != 0 {
			t.Fatal(said)
		}
		dir := "My." + s.Name
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), s.Import+"/") && !strings.Contains(path, "dist") {
				t.Errorf("%s names %s", path, s.Import)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || !strings.Contains(string(text), `"`+module+"/"+s.Package+`"`) {
			t.Errorf("main.go, %v:\n%s", err, text)
		}
	}
}
