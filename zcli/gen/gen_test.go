package gen

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zgame/zcli"
	"zgame/znode"
)

const protocol = `syntax = "proto3";
package game;
import "zgame/options.proto";
option go_package = "example.com/game/gamepb";
enum Colour { COLOUR_RED = 0; COLOUR_BLUE = 1; }
message Point { int32 x = 1; int32 y = 2; }
message Move { option (zgame.id) = 1001; string who = 1 [(zgame.key) = true]; Point to = 2; repeated Colour colours = 3; map<string, Point> marks = 4; }
message Moved { option (zgame.id) = 1002; uint64 n = 1; }
`

// project is a directory with a module and a protocol.
type project struct {
	*testing.T
	dir string
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{t, t.TempDir()}
	p.write("go.mod", "module example.com/game\n\ngo 1.26\n")
	p.write("proto/game/game.proto", protocol)
	return p
}

func (p *project) write(name, text string) {
	p.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

func (p *project) has(name string) string {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.Error(err)
	}
	return string(text)
}

// gen runs the command, and fails the test where the exit code is another, or what it says lacks a part.
func (p *project) gen(code int, args []string, want ...string) {
	p.Helper()
	var out bytes.Buffer
	args = append([]string{"gen", "--proto", filepath.Join(p.dir, "proto"), "--out", p.dir}, args...)
	got := zcli.Run(p.Context(), zcli.Env{Name: "game", Stdout: &out, Stderr: &out}, znode.App{}, args, Command())
	if got != code {
		p.Errorf("%v: exit code %d, want %d\n%s", args, got, code, out.String())
	}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			p.Errorf("%v lacks %q:\n%s", args, w, out.String())
		}
	}
}

func (p *project) git(args ...string) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	ts := filepath.Join(p.dir, "web", "gen")
	p.gen(0, []string{"--ts", ts}, "gamepb/game.pb.go", "web/gen/game/game_pb.ts", "not compared with HEAD")
	if text := p.has("gamepb/game.pb.go"); !strings.Contains(text, "package gamepb") || !strings.Contains(text, "type Move struct") {
		t.Errorf("%.500s", text)
	}
	if text := p.has("web/gen/game/game_pb.ts"); !strings.Contains(text, "export type Move = Message") || !strings.Contains(text, `from "@zgame/client/gen/zgame/options_pb.js"`) {
		t.Errorf("%.500s", text)
	}
	p.gen(0, []string{"--check", "--ts", ts})
	p.write("gamepb/game.pb.go", "package gamepb")
	p.gen(1, []string{"--check"}, "out of date with the .proto files: gamepb/game.pb.go")
	if p.has("gamepb/game.pb.go") != "package gamepb" {
		t.Error("--check has written")
	}

	for name, c := range map[string]struct{ file, text, want string }{
		"syntax":     {"proto/game/b.proto", "syntax = \"proto3\";\nmessage {", "game/b.proto:2:9: syntax error"},
		"import":     {"proto/game/b.proto", "syntax = \"proto3\";\nimport \"no/such.proto\";", "no/such.proto"},
		"go_package": {"proto/game/b.proto", "syntax = \"proto3\";\noption go_package = \"other.com/x\";\nmessage X {}", `expected go_package = "example.com/game/..."`},
		"ids": {
			"proto/game/b.proto", "syntax = \"proto3\";\npackage game;\nimport \"zgame/options.proto\";\noption go_package = \"example.com/game/bpb\";\nmessage X { option (zgame.id) = 1001; }",
			"message ids: ",
		},
		"low id": {
			"proto/game/b.proto", "syntax = \"proto3\";\npackage game;\nimport \"zgame/options.proto\";\noption go_package = \"example.com/game/bpb\";\nmessage X { option (zgame.id) = 7; }",
			"message ids: ",
		},
		"module": {"go.mod", "go 1.26\n", "names no module"},
	} {
		p := newProject(t)
		p.write(c.file, c.text)
		p.gen(1, nil, c.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	p = newProject(t)
	p.gen(1, []string{"--proto", filepath.Join(p.dir, "nowhere")}, "there is no directory", "--proto names another")
	p.gen(1, []string{"--proto", t.TempDir()}, "there is no .proto file below")
	p.gen(2, []string{"game.proto"}, "unexpected argument")
}

// What a change breaks is said, and not what it does not break.
func TestBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, now string // what of the protocol is another
		want     string // "": it breaks nothing
	}{
		"nothing":           {"", "", ""},
		"a comment":         {"message Point", "// a place\nmessage Point", ""},
		"a new field":       {"int32 y = 2;", "int32 y = 2; int32 z = 3;", ""},
		"a new message":     {"message Point", "message More { option (zgame.id) = 1003; }\nmessage Point", ""},
		"a wider integer":   {"int32 x = 1;", "int64 x = 1;", ""},
		"a reserved field":  {"int32 y = 2;", "reserved 2;", ""},
		"a reserved value":  {"COLOUR_BLUE = 1;", "reserved 1;", ""},
		"an id gone":        {"option (zgame.id) = 1002;", "", "message id 1002 was game.Moved, and is nobody's"},
		"an id moved":       {"option (zgame.id) = 1002;", "option (zgame.id) = 1003;", "message id 1002 was game.Moved, and is nobody's"},
		"ids swapped":       {"message Moved ", "message Gone ", "message id 1002 was game.Moved, and is game.Gone"},
		"a field gone":      {"int32 y = 2;", "", "field 2 of game.Point (y) is gone: say `reserved 2;`"},
		"another type":      {"int32 y = 2;", "string y = 2;", "field 2 of game.Point (y) was int32, and is string"},
		"zigzag":            {"int32 y = 2;", "sint32 y = 2;", "field 2 of game.Point (y) was int32, and is sint32"},
		"another name":      {"int32 y = 2;", "int32 why = 2;", "field 2 of game.Point was called y, and is called why"},
		"many":              {"uint64 n = 1;", "repeated uint64 n = 1;", "field 1 of game.Moved (n) was uint64, and is repeated uint64"},
		"a map's value":     {"map<string, Point> marks", "map<string, string> marks", "field 4 of game.Move (marks) was map<string, game.Point>, and is map<string, string>"},
		"a value gone":      {" COLOUR_BLUE = 1;", "", "value 1 of game.Colour (COLOUR_BLUE) is gone"},
		"a value's name":    {"COLOUR_BLUE = 1;", "COLOUR_GREEN = 1;", "value 1 of game.Colour was called COLOUR_BLUE, and is called COLOUR_GREEN"},
		"of what is unused": {"message Point", "message Lonely { int32 a = 1; }\nmessage Point", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.git("init", "-q")
			p.git("add", ".")
			p.git("commit", "-q", "-m", "the protocol")
			p.write("proto/game/game.proto", strings.Replace(protocol, c.old, c.now, 1))
			if c.want == "" {
				p.gen(0, nil)
				return
			}
			p.gen(1, nil, c.want, "since HEAD", "--allow-breaks")
			if _, err := os.Stat(filepath.Join(p.dir, "gamepb")); !os.IsNotExist(err) {
				t.Error("something was written")
			}
			p.gen(0, []string{"--allow-breaks"}, c.want)
			p.gen(0, []string{"--against", ""})
		})
	}
	p := newProject(t)
	p.git("init", "-q")
	p.gen(0, []string{"--against", "--output=x"}, "not compared with --output=x")
	p.gen(0, nil, "not compared with HEAD")
}
