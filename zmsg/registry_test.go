package zmsg

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"

	"zgame/zmsg/wirepb"
)

// compileProto compiles files (name -> body behind the syntax line) beside the project's own.
func compileProto(t *testing.T, files map[string]string) []protoreflect.FileDescriptor {
	t.Helper()
	sources := map[string]string{}
	var names []string
	for name, body := range files {
		sources[name] = "syntax = \"proto3\";\nimport \"zgame/options.proto\";\n" + body
		names = append(names, name)
	}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(maps.Clone(sources))},
		&protocompile.SourceResolver{ImportPaths: []string{"../proto"}},
	})}
	compiled, err := c.Compile(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]protoreflect.FileDescriptor, len(compiled))
	for i := range compiled {
		out[i] = compiled[i]
	}
	return out
}

func TestRegistry(t *testing.T) {
	r, err := NewRegistry(compileProto(t, map[string]string{"a.proto": `
		package game;
		message Join { option (zgame.id) = 1001; int32 x = 1; string room = 2 [(zgame.key) = true];
			message Inner { option (zgame.id) = 1002; sint64 n = 7 [(zgame.key) = true]; } }
		message NoID { string s = 1; }`})...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name(1001) != "game.Join" || r.Name(1002) != "game.Join.Inner" || r.Name(9) != "" {
		t.Errorf("names %q %q %q", r.Name(1001), r.Name(1002), r.Name(9))
	}
	if id, ok := r.ByName("game.Join"); !ok || id != 1001 {
		t.Errorf("game.Join is %d %v", id, ok)
	}
	if _, ok := r.ByName("game.NoID"); ok {
		t.Error("a type without an id is known")
	}
	if n, ok := r.KeyField(1001); !ok || n != 2 {
		t.Errorf("key field %d %v", n, ok)
	}
	if n, ok := r.KeyField(1002); !ok || n != 7 {
		t.Errorf("key field %d %v", n, ok)
	}
	m, ok := r.New(1001)
	if !ok || m.ProtoReflect().Descriptor().FullName() != "game.Join" {
		t.Errorf("%v %v", m, ok)
	}
	if id, ok := IDOf(m); !ok || id != 1001 {
		t.Errorf("IDOf a dynamic message: %d %v", id, ok)
	}
	if _, ok := r.New(5); ok {
		t.Error("New makes what it does not know")
	}
	n := 0
	r.IDs(func(id uint32, name string) {
		n++
		if r.Name(id) != name {
			t.Errorf("%d is %s", id, name)
		}
	})
	if n != 2 {
		t.Errorf("%d ids", n)
	}
}

func TestRegistryFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"one id for two types", map[string]string{
			"a.proto": `package a; message A { option (zgame.id) = 1001; }`,
			"b.proto": `package b; message B { option (zgame.id) = 1001; }`,
		}, []string{"1001", "a.A", "b.B"}},
		{"names equal but for case", map[string]string{"a.proto": `package a; message JoinRoom { option (zgame.id) = 1001; }
			message Joinroom { option (zgame.id) = 1002; }`}, []string{"a.JoinRoom", "a.Joinroom", "but for case"}},
		{
			"reserved id",
			map[string]string{"a.proto": `package zgamex; message A { option (zgame.id) = 999; }`},
			[]string{"999", "zgamex.A", "reserved"},
		},
		{"two key fields", map[string]string{"a.proto": `package a; message A { option (zgame.id) = 1001;
			string x = 1 [(zgame.key) = true]; string y = 2 [(zgame.key) = true]; }`}, []string{"a.A", "two key fields", "y"}},
		{"key of a wrong kind", map[string]string{"a.proto": `package a; message A { option (zgame.id) = 1001;
			double x = 1 [(zgame.key) = true]; }`}, []string{"a.A.x", "double"}},
		{"key that is a list", map[string]string{"a.proto": `package a; message A { option (zgame.id) = 1001;
			repeated string x = 1 [(zgame.key) = true]; }`}, []string{"a.A.x", "repeated"}},
		{"all at once", map[string]string{"a.proto": `package a; message A { option (zgame.id) = 1; }
			message B { option (zgame.id) = 2; }`}, []string{"a.A", "a.B"}},
	} {
		r, err := NewRegistry(compileProto(t, tt.files)...)
		if err == nil {
			t.Errorf("%s: accepted: %v", tt.name, r)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", tt.name, w, err)
			}
		}
	}
	if _, err := NewRegistry(compileProto(t, map[string]string{"a.proto": `package zgame.x; message A { option (zgame.id) = 999; }`})...); err != nil {
		t.Errorf("the framework's own id: %v", err)
	}
}

func TestRegistryOfProgram(t *testing.T) {
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := r.New(10)
	if _, is := m.(*wirepb.SessionClosed); !ok || !is {
		t.Errorf("id 10 is a %T", m)
	}
}

func TestIDOf(t *testing.T) {
	for range 2 { // the second time from the cache
		if id, ok := IDOf(&wirepb.SessionClosed{}); !ok || id != 10 {
			t.Errorf("%d %v", id, ok)
		}
		if id, ok := IDOf(&wirepb.Ping{}); ok || id != 0 {
			t.Errorf("%d %v", id, ok)
		}
	}
	if _, ok := IDOf(nil); ok {
		t.Error("nil has an id")
	}
}

func TestSessionClosedID(t *testing.T) {
	t.Parallel()
	if id, ok := IDOf(&wirepb.SessionClosed{}); !ok || id != SessionClosedID {
		t.Errorf("the id of SessionClosed is %d", id)
	}
}
