package zcli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"zgame/internal/settings"
	"zgame/znode"
)

// Command is one command of the program.
type Command struct {
	Name string
	Help string // one line
	// Run does the command. args are those after the name; ctx ends at the first signal.
	Run func(ctx context.Context, env Env, args []string) error
}

// Env is what a command sees of the world, so that tests can run it.
type Env struct {
	Name    string // of the program, for messages
	Stdout  io.Writer
	Stderr  io.Writer
	Environ []string
}

// errUsage ends a command whose use was wrong and has been explained.
var errUsage = errors.New("wrong use")

// Main runs the command that the program's arguments name (dev where there is none) and exits. more are commands of
// the program's own.
func Main(app znode.App, more ...Command) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Owned by Main; ends with the process.
	go func() {
		<-signals
		cancel()
		// One Ctrl-C may come as two: a wrapper passes it on, and the terminal tells the whole group.
		for first := time.Now(); ; {
			<-signals
			if time.Since(first) > oneSignal {
				os.Exit(130)
			}
		}
	}()
	env := Env{Name: programName(), Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}
	os.Exit(Run(ctx, env, app, os.Args[1:], more...))
}

// oneSignal is how long after the first signal another one is still taken for the same.
const oneSignal = 200 * time.Millisecond

func programName() string {
	name := os.Args[0]
	return name[strings.LastIndexAny(name, `/\`)+1:]
}

// Run does what Main does, without the process: it returns the exit code.
func Run(ctx context.Context, env Env, app znode.App, args []string, more ...Command) int {
	commands := append([]Command{devCommand(app), runCommand(app), inspectCommand(), doctorCommand(), drainCommand(), moveCommand(), kickCommand(), callCommand(), replayCommand(app)}, more...)
	commands = append(commands, Command{Name: "version", Help: "print the program's version", Run: func(_ context.Context, env Env, _ []string) error {
		_, err := fmt.Fprintln(env.Stdout, env.Name, znode.Version())
		return err
	}})
	name := "dev"
	switch {
	case len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help" || args[0] == "-help"):
		usage(env.Stdout, env, commands)
		return 0
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		name, args = args[0], args[1:]
	}
	for _, c := range commands {
		if c.Name != name {
			continue
		}
		err := c.Run(ctx, env, args)
		code := 1
		if special, ok := errors.AsType[*exitError](err); ok {
			code = special.code
		}
		switch {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		default:
			fmt.Fprintf(env.Stderr, "%s %s: %v\n", env.Name, name, err)
			return code
		}
	}
	hint := ""
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name
	}
	if near, ok := settings.Nearest(name, names); ok {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	fmt.Fprintf(env.Stderr, "%s: unknown command %q%s\n\n", env.Name, name, hint)
	usage(env.Stderr, env, commands)
	return 2
}

func usage(w io.Writer, env Env, commands []Command) {
	fmt.Fprintf(w, "Usage: %s [command] [flags]    (%s COMMAND -h lists a command's flags)\n\n", env.Name, env.Name)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Help)
	}
}

// Misuse says what is wrong with how a command was used. The error that it returns ends the program with exit code 2. The flags have been parsed.
func Misuse(flags *flag.FlagSet, format string, args ...any) error {
	fmt.Fprintf(flags.Output(), "%s: %s\n", flags.Name(), fmt.Sprintf(format, args...))
	return errUsage
}

// Parse parses a command's flags and refuses arguments that are none.
func Parse(flags *flag.FlagSet, env Env, args []string) error {
	if err := parseFlags(flags, env, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(env.Stderr, "%s: unexpected argument %q; flags come as --name value\n", flags.Name(), flags.Arg(0))
		flags.Usage()
		return errUsage
	}
	return nil
}

// parseFlags parses a command's flags; what else there is stays in flags.Args.
func parseFlags(flags *flag.FlagSet, env Env, args []string) error {
	flags.SetOutput(env.Stderr)
	err := flags.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	// The flag package has said what and how, but not which flag was meant.
	if _, name, unknown := strings.Cut(err.Error(), "not defined: -"); unknown {
		var names []string
		flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if near, ok := settings.Nearest(name, names); ok {
			fmt.Fprintf(env.Stderr, "\n%s: there is no flag --%s, did you mean --%s?\n", flags.Name(), name, near)
		}
	}
	return errUsage
}
