// Command protogen compiles the project's .proto files to Go with nothing but Go: protocompile parses them and the
// library form of protoc-gen-go writes the code.
//
// Usage: protogen [-check] [-descriptors FILE] -I DIR[,DIR...] FILE...
//
// With -check it writes nothing and exits with 1 when a generated file differs from what is committed.
// With -descriptors it also writes the CodeGeneratorRequest, from which protoc plugins of other languages work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"

	"zgame/internal/protobuild"
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
	compiled, err := protobuild.Compile(context.Background(), protobuild.Dirs(include), files...)
	if err != nil {
		return err
	}
	req, err := protobuild.Request(compiled, module)
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
	written, err := protobuild.Go(req)
	if err != nil {
		return err
	}
	if !check {
		return protobuild.Write(out, written)
	}
	if stale := protobuild.Stale(out, written); len(stale) > 0 {
		return fmt.Errorf("%s: out of date with the .proto files: run `make proto` and commit the result", strings.Join(stale, ", "))
	}
	return nil
}
