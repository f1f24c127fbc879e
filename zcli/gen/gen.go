// Package gen is the command `gen`: it compiles a project's .proto files to Go and TypeScript with nothing else installed, and says what a
// change of them breaks. It is a package of its own, since programs that do not have the command need none of what it is made of.
package gen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"

	"zgame/internal/esgen"
	"zgame/internal/protobuild"
	"zgame/zcli"
	"zgame/zmsg"
)

// Command is `gen`, for zcli.Main.
func Command() zcli.Command {
	return zcli.Command{
		Name: "gen",
		Help: "compile .proto files to Go and TypeScript, and check what a change of them breaks",
		Run:  run,
	}
}

// options are what the flags say.
type options struct {
	protos, out, module, ts, client, against string
	check, allow                             bool
}

func run(ctx context.Context, env zcli.Env, args []string) error {
	var o options
	flags := flag.NewFlagSet(env.Name+" gen", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), `Usage: %s gen [flags]

It compiles all .proto files below --proto. Go goes where their go_package says, below --out; TypeScript (for @bufbuild/protobuf 2) to --ts.
Before that it compares them with those of the last commit: what running clients and nodes would not understand any more is an error.

`, env.Name)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.protos, "proto", "proto", "directory of the .proto files; imports are relative to it")
	flags.StringVar(&o.out, "out", ".", "root of the Go module")
	flags.StringVar(&o.module, "module", "", "path of the Go module, which go_package options start with; default: what go.mod in --out says")
	flags.StringVar(&o.ts, "ts", "", "directory for TypeScript; empty: none is written")
	flags.StringVar(&o.client, "client", "@zgame/client/gen", "where TypeScript imports zgame/... from")
	flags.StringVar(&o.against, "against", "HEAD", "git revision to compare with; empty: do not compare")
	flags.BoolVar(&o.check, "check", false, "write nothing, and fail where something written is out of date")
	flags.BoolVar(&o.allow, "allow-breaks", false, "say what breaks, and go on: nobody runs the old protocol")
	if err := zcli.Parse(flags, env, args); err != nil {
		return err
	}
	return o.generate(ctx, env)
}

func (o *options) generate(ctx context.Context, env zcli.Env) error {
	names, err := protobuild.Find(o.protos)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: expected one with .proto files (--proto names another)", o.protos)
	case err != nil:
		return err
	case len(names) == 0:
		return fmt.Errorf("there is no .proto file below %s (--proto names another directory)", o.protos)
	}
	files, err := protobuild.Compile(ctx, protobuild.Dirs([]string{o.protos}), names...)
	if err != nil {
		return fmt.Errorf("%s: %w", o.protos, err)
	}
	now, err := numbered(files)
	if err != nil {
		return fmt.Errorf("message ids: %w", err)
	}
	if err := o.compare(ctx, env, now); err != nil {
		return err
	}
	if o.module == "" {
		if o.module, err = modulePath(o.out); err != nil {
			return err
		}
	}
	req, err := protobuild.Request(files, o.module)
	if err != nil {
		return err
	}
	goFiles, err := protobuild.Go(req)
	if err != nil {
		return fmt.Errorf("%w\n  expected go_package = %q, or below it", err, o.module+"/...")
	}
	tsFiles := map[string][]byte{}
	for _, fd := range files {
		if o.ts == "" {
			break
		}
		text, err := esgen.Generate(fd, esgen.Options{Header: "gameserver gen", Rewrite: o.rewrite})
		if err != nil {
			return err
		}
		tsFiles[esgen.Name(fd.Path())] = []byte(text)
	}
	return errors.Join(o.put(env, o.out, goFiles), o.put(env, o.ts, tsFiles))
}

func (o *options) rewrite(proto string) string {
	if strings.HasPrefix(proto, "zgame/") {
		return o.client
	}
	return ""
}

// put writes files, or fails where they are not as they should be.
func (o *options) put(env zcli.Env, root string, files map[string][]byte) error {
	stale := protobuild.Stale(root, files)
	if o.check && len(stale) > 0 {
		return fmt.Errorf("out of date with the .proto files: %s: run `%s gen` and commit", strings.Join(stale, ", "), env.Name)
	}
	for _, name := range stale {
		fmt.Fprintln(env.Stdout, filepath.ToSlash(filepath.Join(root, name)))
	}
	return protobuild.Write(root, files)
}

// modulePath returns what go.mod in dir says that the module is called.
func modulePath(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("the module's path is not known: %w\n  expected --out to be the root of a Go module, or --module", err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "module" {
			return strings.Trim(words[1], `"`), nil
		}
	}
	return "", fmt.Errorf("%s names no module", filepath.Join(dir, "go.mod"))
}

// numbered returns the messages with ids. Errors: what is wrong with the ids.
func numbered(files linker.Files) (map[uint32]protoreflect.MessageDescriptor, error) {
	all := make([]protoreflect.FileDescriptor, len(files))
	for i, f := range files {
		all[i] = f
	}
	ids, err := zmsg.NewRegistry(all...)
	if err != nil {
		return nil, err
	}
	return protobuild.Numbered(files, ids.ByName), nil
}

// compare says what the files break that those of a revision promised.
func (o *options) compare(ctx context.Context, env zcli.Env, now map[uint32]protoreflect.MessageDescriptor) error {
	if o.against == "" {
		return nil
	}
	was, err := o.before(ctx)
	if err != nil { // no git, or no commit yet
		fmt.Fprintf(env.Stderr, "%s gen: not compared with %s: %v\n", env.Name, o.against, err)
		return nil
	}
	breaks := protobuild.Breaks(was, now)
	if len(breaks) == 0 {
		return nil
	}
	text := fmt.Sprintf("since %s, these changes are not understood by clients and nodes that run:\n  %s", o.against, strings.Join(breaks, "\n  "))
	if o.allow {
		fmt.Fprintf(env.Stderr, "%s gen: %s\n", env.Name, text)
		return nil
	}
	return fmt.Errorf("%s\n  take new numbers, names and ids for what is new; --allow-breaks where nobody runs the old protocol", text)
}

// before returns the messages with ids of the revision to compare with.
func (o *options) before(ctx context.Context) (map[uint32]protoreflect.MessageDescriptor, error) {
	names, err := filesOf(ctx, o.protos, o.against)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	files, err := protobuild.Compile(ctx, func(path string) (io.ReadCloser, error) { return fileOf(ctx, o.protos, o.against, path) }, names...)
	if err != nil {
		return nil, err
	}
	return numbered(files)
}
