// Package scaffold is the command `new`: it makes a new back end of a sample. Samples are programs that are built and tested where they
// stand: their sources are copied, with their imports rewritten, and what is around a program comes from templates.
package scaffold

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"zgame/zcli"
	"zgame/zcli/gen"
)

// Sample is what a back end begins with.
type Sample struct {
	Name, Help string
	// Files are sources, with the Go import path Import at their root.
	Files  fs.FS
	Import string
	// Package is the sample's directory in Files. What is in its proto becomes the project's proto, its cmd/<Package>/main.go the project's
	// main.go; the rest keeps its place. Generated code is generated anew.
	Package string
	// Page is the directory in Files that becomes the project's web.
	Page string
}

// project is what is to be made.
type project struct {
	Module    string // "example.com/me/mygame"
	Name      string // "mygame": directory and program
	Label     string // Name as a DNS label, for containers and the like
	Package   string // of the sample
	Sample    string
	Framework string // directory of the checkout, absolute, with slashes
	Bots      bool   // the sample has scripts for the command bots
	dir       string
	sample    Sample
}

// Command is `new`, for zcli.Main. The first sample is the default.
func Command(samples ...Sample) zcli.Command {
	return zcli.Command{
		Name: "new",
		Help: "make a new back end: code, protocol, tests, page, deployment; it builds and runs at once",
		Run: func(ctx context.Context, env zcli.Env, args []string) error {
			p, err := parse(env, args, samples)
			if err != nil {
				return err
			}
			if err := p.write(ctx, env); err != nil {
				return err
			}
			_, err = fmt.Fprintf(env.Stdout, "%s is made, of the sample %s. Next:\n\n  cd %s\n  go test ./...    # the first build takes minutes: it compiles NATS and etcd\n  go run .         # then open http://localhost:8080\n\nREADME.md says what is where.\n",
				p.Module, p.Sample, p.Name)
			return err
		},
	}
}

func parse(env zcli.Env, args []string, samples []Sample) (*project, error) {
	flags := flag.NewFlagSet(env.Name+" new", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: %s new NAME [flags]\n\nNAME is the path of the Go module, such as mygame or example.com/me/mygame; the directory is its last part.\nSamples:\n", env.Name)
		for _, s := range samples {
			fmt.Fprintf(flags.Output(), "  %-8s %s\n", s.Name, s.Help)
		}
		fmt.Fprintln(flags.Output())
		flags.PrintDefaults()
	}
	sample := flags.String("sample", samples[0].Name, "what it begins with")
	framework := flags.String("framework", "", "the checkout of zgame that it builds against; default: the one that this program was built from")
	words, err := zcli.ParseWords(flags, env, args, "one NAME, and flags", 1, 1)
	if err != nil {
		return nil, err
	}
	name := words[0]
	if err := checkModule(name); err != nil {
		return nil, err
	}
	p := &project{Module: name, Name: dirName(name), Sample: *sample}
	p.Label, p.dir = label(p.Name), p.Name
	var names []string
	for _, s := range samples {
		if s.Name == *sample {
			p.sample, p.Package = s, s.Package
		}
		names = append(names, s.Name)
	}
	if p.Package == "" {
		return nil, fmt.Errorf("there is no sample %q: expected %s", *sample, strings.Join(names, ", "))
	}
	dir, err := findFramework(*framework)
	p.Framework = filepath.ToSlash(dir)
	return p, err
}

// write makes the project's directory. What it has made is taken away where something fails, so that the same command can be tried again.
func (p *project) write(ctx context.Context, env zcli.Env) (err error) {
	made, err := p.makeDir()
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		entries, _ := os.ReadDir(p.dir) // it was empty
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(p.dir, e.Name())))
		}
		if made {
			err = errors.Join(err, os.Remove(p.dir))
		}
	}()
	files, err := p.sources()
	if err != nil {
		return err
	}
	p.Bots = bytes.Contains(files["main.go"], []byte("/zbots\""))
	around, err := p.around()
	if err != nil {
		return err
	}
	sums, err := p.goMod(files)
	if err != nil {
		return err
	}
	for _, some := range []map[string][]byte{files, around, sums} {
		for name, text := range some {
			path := filepath.Join(p.dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for everybody
				return err
			}
			if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // likewise
				return err
			}
		}
	}
	quiet := env
	quiet.Stdout = new(strings.Builder) // the names of what it writes
	return gen.Command().Run(ctx, quiet, []string{
		"--proto", filepath.Join(p.dir, "proto"), "--out", p.dir, "--ts", filepath.Join(p.dir, "web", "gen"), "--against", "",
	})
}

// makeDir makes the directory, and says whether it was not there.
func (p *project) makeDir() (made bool, err error) {
	entries, err := os.ReadDir(p.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, os.Mkdir(p.dir, 0o755) //nolint:gosec // sources are for everybody
	case err != nil:
		return false, fmt.Errorf("%s is there, and is no directory that can be read: %w\n  take another NAME, or another directory to call this from", p.dir, err)
	case len(entries) > 0:
		return false, fmt.Errorf("the directory %s is not empty (%s, ...): take another NAME, or empty it", p.dir, entries[0].Name())
	}
	return false, nil
}
