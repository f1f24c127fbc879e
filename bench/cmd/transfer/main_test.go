package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"zgame/bench/internal/commandtest"
	"zgame/bench/transfer"
)

func TestMain(m *testing.M) { commandtest.Main(m, transfer.Child) }

// Everything, briefly: what must hold on any machine is looked at, what is fast is not.
func TestRun(t *testing.T) {
	var out strings.Builder
	args := []string{"-moves", "300", "-pauses", "30", "-objects", "200", "-crash", "10", "-lease", "3s", "-steady", "200ms", "-json"}
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct{ Rows []transfer.Row }
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 12 {
		t.Errorf("%d rows", len(got.Rows))
	}
	for _, r := range got.Rows {
		if r.Figure == "" || strings.Contains(r.Figure, "failed") {
			t.Errorf("%s: %s", r.Work, r.Figure)
		}
		switch {
		case strings.HasPrefix(r.Work, "requests lost"), strings.HasPrefix(r.Work, "hops"):
			if r.Verdict != "aim" {
				t.Errorf("%s: %s (%s)", r.Work, r.Figure, r.Verdict)
			}
		case strings.HasPrefix(r.Work, "moves per second"):
			if !strings.Contains(r.Figure, " moved, 0 released, 0 left") {
				t.Errorf("%s: %s", r.Work, r.Figure)
			}
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-moves", "0"}, "at least 1"},
		{[]string{"-lease", "1s"}, "a -lease of 2s"},
		{[]string{"-only", "("}, "-only"},
	} {
		if err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.args, err, c.want)
		}
	}
}
