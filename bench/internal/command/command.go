// Package command is what the commands of this module have in common: how they end, how their rows are chosen, and what stands above
// their tables.
package command

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Main runs a command and ends the process where it fails: with 2 where only help was wanted, else with 1 and a line that begins
// with name. child is asked first whether this process is another one's child, and has then been it; nil: there are none.
func Main(name string, child func() (was bool, err error), run func(args []string, out, progress io.Writer) error) {
	was, err := false, error(nil)
	if child != nil {
		was, err = child()
	}
	if !was {
		err = run(os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Flags returns the flags of a command that writes its usage to progress.
func Flags(name string, progress io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(progress)
	return flags
}

// Pick returns those of all whose key matches the regular expression only, "" for all; where that is none, the error names the keys.
func Pick[T any](only string, all []T, key func(T) string) ([]T, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var picked []T
	var keys []string
	for _, t := range all {
		keys = append(keys, key(t))
		if re.MatchString(key(t)) {
			picked = append(picked, t)
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("-only %q matches nothing; there are %s", only, strings.Join(keys, ", "))
	}
	return picked, nil
}

// Machine says on what is measured.
func Machine() string {
	return fmt.Sprintf("%s, %s/%s, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// WriteJSON writes rows for a program, with what Machine says.
func WriteJSON(w io.Writer, rows any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "gomaxprocs": runtime.GOMAXPROCS(0),
		"date": time.Now().UTC().Format(time.RFC3339), "rows": rows,
	})
}
