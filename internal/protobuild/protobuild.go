// Package protobuild compiles .proto files with nothing but Go: protocompile parses them, the library form of protoc-gen-go writes Go.
package protobuild

import (
	"context"
	"errors"
	"io"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"

	zgameproto "zgame/proto"
)

// Source opens a .proto file by its import path. What it has not got is an error that is fs.ErrNotExist.
type Source func(path string) (io.ReadCloser, error)

// Compile parses files and what they import, which source has; the framework's own .proto files (zgame/options.proto) and protobuf's are there
// without it. Errors name file, line and what is wrong.
func Compile(ctx context.Context, source Source, files ...string) (linker.Files, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: source},
			// In the binary: a protocol outside of this module imports it without a copy.
			&protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) { return zgameproto.Files.Open(path) }},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	return c.Compile(ctx, files...)
}

// Request is what protoc would send to a plugin for files, which Compile has returned. module is the path that go_package options start with.
func Request(files linker.Files, module string) (*pluginpb.CodeGeneratorRequest, error) {
	req := &pluginpb.CodeGeneratorRequest{Parameter: new("paths=import,module=" + module)}
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
	for _, fd := range files {
		req.FileToGenerate = append(req.FileToGenerate, fd.Path())
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

// Go writes the Go of a request: file names below the root of the module, and what is in them.
func Go(req *pluginpb.CodeGeneratorRequest) (map[string][]byte, error) {
	plugin, err := protogen.Options{}.New(req)
	if err != nil {
		return nil, err
	}
	for _, f := range plugin.Files {
		if f.Generate {
			internal_gengo.GenerateFile(plugin, f)
		}
	}
	resp := plugin.Response()
	if resp.Error != nil {
		return nil, errors.New(resp.GetError())
	}
	out := make(map[string][]byte, len(resp.File))
	for _, f := range resp.File {
		out[f.GetName()] = []byte(f.GetContent())
	}
	return out, nil
}
