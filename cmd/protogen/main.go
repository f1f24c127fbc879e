// Command protogen compiles the project's .proto files to Go with nothing but Go: protocompile parses them and the
// library form of protoc-gen-go writes the code.
//
// Usage: protogen [-check] [-descriptors FILE] -I DIR[,DIR...] FILE...
//
// With -check it writes nothing and exits with 1 when a generated file differs from what is committed.
// With -descriptors it also writes the CodeGeneratorRequest, from which protoc plugins of other languages work.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"

	zgameproto "zgame/proto"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail when a generated file is out of date")
	include := flag.String("I", "proto", "import directories, separated by commas")
	descriptors := flag.String("descriptors", "", "file to write the CodeGeneratorRequest to")
	module := flag.String("module", "zgame", "module path that go_package options start with")
	out := flag.String("out", ".", "root of the module, where generated files go")
	flag.Parse()
	if err := run(flag.Args(), strings.Split(*include, ","), *module, *out, *descriptors, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(files, include []string, module, out, descriptors string, check bool) error {
	if len(files) == 0 {
		return errors.New("no .proto file named; usage: protogen -I DIR FILE.proto")
	}
	req, err := compile(files, include, module)
	if err != nil {
		return err
	}
	if descriptors != "" {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
		if err != nil {
			return err
		}
		if err := os.WriteFile(descriptors, b, 0o644); err != nil {
			return err
		}
	}
	plugin, err := protogen.Options{}.New(req)
	if err != nil {
		return err
	}
	for _, f := range plugin.Files {
		if f.Generate {
			internal_gengo.GenerateFile(plugin, f)
		}
	}
	resp := plugin.Response()
	if resp.Error != nil {
		return fmt.Errorf("%s", resp.GetError())
	}
	for _, f := range resp.File {
		path := filepath.Join(out, f.GetName())
		if check {
			have, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(have, []byte(f.GetContent())) {
				return fmt.Errorf("%s is out of date with its .proto file: run `make proto` and commit the result", path)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile parses files and what they import into the request that protoc would send to a plugin.
func compile(files, include []string, module string) (*pluginpb.CodeGeneratorRequest, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: include},
			// zgame/options.proto is in the binary: a protocol outside of this module imports it without a copy.
			&protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) { return zgameproto.Files.Open(path) }},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := c.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      new("paths=import,module=" + module),
	}
	seen := map[string]bool{}
	var add func(fd protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		req.ProtoFile = append(req.ProtoFile, protoutil.ProtoFromFileDescriptor(fd))
	}
	for _, fd := range compiled {
		add(fd)
	}
	// Round trip through bytes: options such as (zgame.id) become unknown fields of this program, as they are for protoc-gen-go.
	b, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	fresh := &pluginpb.CodeGeneratorRequest{}
	return fresh, proto.Unmarshal(b, fresh)
}
