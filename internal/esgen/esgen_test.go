package esgen

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// header is what protoc-gen-es says of itself in the files of testdata/want, which it has written (clients/ts/scripts/gen.mjs).
const header = `protoc-gen-es v2.17.0 with parameter "target=ts,import_extension=js"`

func compile(t *testing.T, dirs []string, files ...string) []protoreflect.FileDescriptor {
	t.Helper()
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: dirs}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	got, err := c.Compile(context.Background(), files...)
	if err != nil {
		t.Fatal(err)
	}
	var all []protoreflect.FileDescriptor
	for _, f := range got {
		all = append(all, f)
	}
	return all
}

func ours(proto string) string {
	if strings.HasPrefix(proto, "zgame/") {
		return "@zgame/client/gen"
	}
	return ""
}

// It writes what protoc-gen-es writes, byte for byte: of files with everything that proto3 has, and of the project's own.
func TestAsProtocGenES(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for _, c := range []struct {
		dirs    []string
		want    string
		rewrite func(string) string
		files   []string
	}{
		{[]string{"testdata", root + "/proto"}, "testdata/want", ours, []string{"demo/all.proto", "demo/other.proto", "demo/more.proto", "demo/names.proto", "demo/opts.proto"}},
		{[]string{root + "/proto"}, root + "/clients/ts/gen", nil, []string{"zgame/options.proto", "zgame/v1/wire.proto"}},
		{[]string{root + "/proto", root + "/examples/chat/proto"}, root + "/examples/web/gen", ours, []string{"chat/chat.proto"}},
	} {
		for _, fd := range compile(t, c.dirs, c.files...) {
			got, err := Generate(fd, Options{Header: header, Rewrite: c.rewrite})
			if err != nil {
				t.Error(err)
			}
			want, err := os.ReadFile(filepath.Join(c.want, Name(fd.Path())))
			if err != nil {
				t.Fatal(err)
			}
			a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
			for i := range max(len(a), len(b)) {
				if i >= len(a) || i >= len(b) || a[i] != b[i] {
					t.Errorf("%s:%d: %d lines, want %d\n got %.300q\nwant %.300q", fd.Path(), i+1, len(a), len(b), at(a, i), at(b, i))
					break
				}
			}
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the end)"
}

func TestWhatIsNotWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`syntax = "proto2"; message M { optional int32 x = 1; }`: `expected syntax = "proto3"`,
		`edition = "2023"; message M { int32 x = 1; }`:           `expected syntax = "proto3"`,
		`syntax = "proto3"; message M { int32 _ = 1; }`:          "M._: expected a name with a letter",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.proto"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Generate(compile(t, []string{dir}, "a.proto")[0], Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
