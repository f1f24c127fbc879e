package zcli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"zgame/zactor"
	"zgame/znode"
)

// replayCommand is `replay`: it runs the record of an actor that failed again, or prints a test that does.
func replayCommand(app znode.App) Command {
	return Command{
		Name: "replay",
		Help: "run the record of an actor that failed again, or print a Go test that does (--test)",
		Run: func(_ context.Context, env Env, args []string) error {
			flags := flag.NewFlagSet(env.Name+" replay", flag.ContinueOnError)
			flags.Usage = func() {
				fmt.Fprintf(flags.Output(), "Usage: %s replay FILE [flags]\n\n", env.Name)
				flags.PrintDefaults()
			}
			typ := flags.String("type", "", "the actor's type, where it has another name than in the record; one of App.Actors")
			test := flags.Bool("test", false, "print a Go test that reproduces the failure, and do not run")
			var o testOptions
			flags.StringVar(&o.pkg, "package", "", "package of the test; default: that of the actor's factory, with _test")
			flags.StringVar(&o.imports, "import", "", "import path of the package that --factory speaks of; default: where the App is made")
			flags.StringVar(&o.factory, "factory", "", "Go expression of a func() zactor.Actor; default: the one of App.Actors")
			flags.BoolVar(&o.testdata, "testdata", false, "the test reads testdata/FILE and does not hold the record itself: copy it there")
			file := ""
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				file, args = args[0], args[1:]
			}
			if err := parseFlags(flags, env, args); err != nil {
				return err
			}
			if file == "" && flags.NArg() > 0 {
				file = flags.Arg(0)
			}
			if file == "" || flags.NArg() > 1 || flags.NArg() == 1 && flags.Arg(0) != file {
				fmt.Fprintf(env.Stderr, "%s: expected one FILE, a record that an actor has left in actors.record_dir\n", flags.Name())
				flags.Usage()
				return errUsage
			}
			rec, err := zactor.OpenRecord(file)
			if err != nil {
				return err
			}
			if *typ == "" {
				*typ = rec.Header.Type
			}
			if *test {
				text, err := replayTest(app, rec, *typ, filepath.Base(file), o)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(env.Stdout, text)
				return err
			}
			factory := app.Actors[*typ]
			if factory == nil {
				return fmt.Errorf("the program does not know how to make a %q: App.Actors has [%s] (see --type)", *typ, strings.Join(slices.Sorted(maps.Keys(app.Actors)), " "))
			}
			layers, err := middlewareOf(app)
			if err != nil {
				return err
			}
			report, err := zactor.Replay(rec, factory, zactor.ReplayOptions{Middleware: layers})
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, report)
			return err
		},
	}
}

// middlewareOf asks the App for its middleware, on behalf of a node that does not start.
func middlewareOf(app znode.App) ([]zactor.Middleware, error) {
	if app.Middleware == nil {
		return nil, nil
	}
	s := znode.DefaultSettings()
	s.Gate.Enabled = false
	n, err := znode.New(znode.Config{Settings: s, App: app})
	if err != nil {
		return nil, err
	}
	return app.Middleware(n), nil
}

// testOptions says where a printed test stands.
type testOptions struct {
	pkg, imports, factory string
	testdata              bool
}

// replayTest prints a test file that runs the record.
func replayTest(app znode.App, rec *zactor.Record, typ, file string, o testOptions) (string, error) {
	if o.factory == "" {
		var path string
		if path, o.factory = factoryOf(app, typ); o.factory == "" {
			return "", fmt.Errorf("where the factory of %q is in Go cannot be told, as it is neither an exported function nor made in one: "+
				"say --factory, a Go expression of a func() zactor.Actor, and --import, what it needs", typ)
		}
		if o.imports == "" {
			o.imports = path
		}
	}
	if o.pkg == "" {
		o.pkg = "replay_test"
		if o.imports != "" {
			o.pkg = packageName(o.imports) + "_test"
		}
	}
	var record bytes.Buffer
	if _, err := rec.WriteTo(&record); err != nil {
		return "", err
	}
	h := &rec.Header
	var b bytes.Buffer
	fmt.Fprintf(&b, "package %s\n\nimport (\n\t\"testing\"\n\n\t\"zgame/zactor/zactortest\"\n", o.pkg)
	if o.imports != "" {
		fmt.Fprintf(&b, "\n\t%s\n", strconv.Quote(o.imports))
	}
	b.WriteString(")\n\n")
	fmt.Fprintf(&b, "// The actor %q, a %s, panicked on %s in %s: %s\n", h.Name, h.Type, h.At.UTC().Format("2006-01-02 15:04:05 UTC"), h.Frame, firstLine(h.Panic))
	fmt.Fprintf(&b, "// The test fails as long as it does. Printed by the command replay from %s.\n", firstLine(file))
	if app.Middleware != nil {
		b.WriteString("// The App's middleware is not around it here: where it matters, it follows the factory in the call.\n")
	}
	fmt.Fprintf(&b, "func TestReplay%s(t *testing.T) {\n\tt.Parallel()\n", goName(h.Type+" "+h.Name))
	if o.testdata {
		fmt.Fprintf(&b, "\tzactortest.ReplayFile(t, %s, %s)\n}\n", strconv.Quote("testdata/"+file), o.factory)
	} else {
		fmt.Fprintf(&b, "\tzactortest.Replay(t, recordOf%s, %s)\n}\n\n", goName(h.Type+" "+h.Name), o.factory)
		fmt.Fprintf(&b, "const recordOf%s = \"\"", goName(h.Type+" "+h.Name))
		for line := range strings.Lines(record.String()) {
			b.WriteString(" +\n\t" + strconv.Quote(line))
		}
		b.WriteString("\n")
	}
	text, err := format.Source(b.Bytes())
	if err != nil {
		return "", fmt.Errorf("the test would not be Go (is --factory an expression, --package a name?): %w", err)
	}
	return string(text), nil
}

// factoryOf finds a Go expression for the factory of the type, and the import path of the package that it needs: the factory itself
// where it is an exported function, else App.Actors of the exported function that made the App, by the name that Go gives to
// functions made within it. "" where it is not to be told.
func factoryOf(app znode.App, typ string) (path, expr string) {
	factory := app.Actors[typ]
	if factory == nil {
		return "", ""
	}
	name := runtime.FuncForPC(reflect.ValueOf(factory).Pointer()).Name()
	if m := exportedFunc.FindStringSubmatch(name); m != nil && m[1] != "main" {
		return m[1], packageName(m[1]) + "." + m[2]
	}
	t := reflect.TypeOf(factory())
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	m := madeIn.FindStringSubmatch(name)
	if m == nil || t == nil || t.PkgPath() == "" || t.PkgPath() == "main" {
		return "", ""
	}
	return t.PkgPath(), fmt.Sprintf("%s.%s().Actors[%s]", packageName(t.PkgPath()), m[1], strconv.Quote(typ))
}

// exportedFunc matches the name of an exported function that is no method: zgame/examples/chat.NewRoom.
var exportedFunc = regexp.MustCompile(`^((?:.*/)?[^./]+)\.([A-Z]\w*)$`)

// madeIn matches the name of a function within an exported one: zgame/examples/chat.App.func2, and where App has been inlined
// main.main.App.func2 or main.main.func1.App.2.
var madeIn = regexp.MustCompile(`\.([A-Z]\w*)\.(?:func)?\d+$`)

func packageName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimSpace(s)
}

// goName makes a name of words: chat.rooms "lobby 2" is ChatRoomsLobby2.
func goName(s string) string {
	var b strings.Builder
	up := true
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
		}
		up = false
		b.WriteRune(r)
	}
	return b.String()
}
