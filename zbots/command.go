package zbots

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"zgame/zcli"
)

// Command is `bots`, for zcli.Main, with the scripts that a program has.
func Command(scripts ...Script) zcli.Command {
	return zcli.Command{
		Name: "bots",
		Help: "play many clients by a script, and say how long requests took, and what was lost, doubled or swapped",
		Run:  func(ctx context.Context, env zcli.Env, args []string) error { return command(ctx, env, scripts, args) },
	}
}

func command(ctx context.Context, env zcli.Env, scripts []Script, args []string) error {
	flags := flag.NewFlagSet(env.Name+" bots", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: %s bots [SCRIPT] [flags]\n\n", env.Name)
		for _, s := range scripts {
			fmt.Fprintf(flags.Output(), "  %-10s %s\n", s.Name, s.Help)
		}
		fmt.Fprintf(flags.Output(), "\nLatencies count from when a request was to be made. Exit code 1 where a numbered message was lost, doubled or swapped, or a bot ended by an error.\n\n")
		flags.PrintDefaults()
	}
	urls := flags.String("url", "ws://localhost:7000/ws", "gates, with commas between")
	n := flags.Int("n", 100, "how many bots")
	ramp := flags.Duration("ramp", -1, "how long until all have begun (default 5s, or a quarter of --time where that is less)")
	span := flags.Duration("time", 30*time.Second, "how long they play, the ramp included")
	seed := flags.Uint64("seed", 1, "for what bots do by chance")
	html := flags.String("html", "", "file for the report as a page with charts")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	quiet := flags.Bool("quiet", false, "say nothing while it goes on")
	var names []string
	for _, s := range scripts {
		names = append(names, s.Name)
	}
	script := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		script, args = args[0], args[1:]
	}
	if err := zcli.Parse(flags, env, args); err != nil {
		return err
	}
	if script == "" && len(scripts) > 0 {
		script = scripts[0].Name
	}
	at := slices.Index(names, script)
	if at < 0 {
		return zcli.Misuse(flags, "there is no script %q; there are [%s]", script, strings.Join(names, " "))
	}
	if *ramp < 0 {
		*ramp = min(5*time.Second, *span/4)
	}
	if *n < 1 || *ramp >= *span {
		return zcli.Misuse(flags, "--n %d --ramp %s --time %s: expected at least one bot, and --ramp below --time", *n, *ramp, *span)
	}
	cfg := Config{URLs: strings.Split(*urls, ","), Script: scripts[at], Bots: *n, Ramp: *ramp, Time: *span, Seed: *seed}
	if !*quiet {
		cfg.Progress = func(r *Report) { fmt.Fprintln(env.Stderr, progress(r)) }
	}
	rep, err := Run(ctx, cfg)
	if err != nil {
		return err
	}
	if *html != "" {
		if err := writeFile(*html, rep); err != nil {
			return err
		}
	}
	if *asJSON {
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(rep)
	} else {
		_, err = fmt.Fprint(env.Stdout, rep)
	}
	switch {
	case err != nil:
		return err
	case rep.Faulty():
		return errors.New("numbered messages were lost, doubled or swapped")
	case rep.Failed() > 0:
		return fmt.Errorf("%d of %d bots ended by an error", rep.Failed(), rep.Bots)
	}
	return nil
}

// progress is a line about the last second.
func progress(r *Report) string {
	if len(r.Seconds) == 0 {
		return "nobody is online"
	}
	s := r.Seconds[max(0, len(r.Seconds)-2)] // the last one that is over
	return fmt.Sprintf("%4.0fs  %d online, %d requests a second, %d failed, p50 %s, p99 %s", r.Took.Seconds(), s.Online, s.Count, s.Failed, short(s.Times.P50), short(s.Times.P99))
}

func writeFile(path string, rep *Report) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return rep.WriteHTML(f)
}
