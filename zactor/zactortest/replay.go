package zactortest

import (
	"os"
	"strings"
	"testing"

	"zgame/zactor"
)

// Replay runs the record of an actor that failed (see zactor.Replay) and fails the test when the actor panics now, with the run in
// the test's log. record is the text of the file, middleware what is around every handler of the group (Config.Middleware): one that
// turns messages down belongs to what happened. `gameserver replay --test` prints tests that call it.
func Replay(tb testing.TB, record string, factory func() zactor.Actor, middleware ...zactor.Middleware) *zactor.Report {
	tb.Helper()
	rec, err := zactor.ReadRecord(strings.NewReader(record))
	if err != nil {
		tb.Fatal(err)
	}
	report, err := zactor.Replay(rec, factory, zactor.ReplayOptions{Middleware: middleware})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Log(report)
	switch {
	case report.Panic != nil:
		tb.Errorf("%s\n%s", report.Verdict(), report.Panic.Stack)
	case report.Stopped != "":
		tb.Errorf("the replay did not come to the end: %s", report.Stopped)
	}
	return report
}

// ReplayFile is Replay of the record in a file.
func ReplayFile(tb testing.TB, path string, factory func() zactor.Actor, middleware ...zactor.Middleware) *zactor.Report {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return Replay(tb, string(b), factory, middleware...)
}
