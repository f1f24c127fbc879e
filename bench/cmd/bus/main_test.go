package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"zgame/bench/bus"
	"zgame/bench/internal/commandtest"
)

func TestMain(m *testing.M) { commandtest.Main(m, bus.Child) }

// Every row, briefly, in three processes: each job fails by itself when an answer is wrong or a message was not handled.
func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run([]string{"-rounds", "2", "-time", "1ms", "-json"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []jsonRow `json:"rows"`
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != len(bus.Rows()) {
		t.Errorf("%d rows, want %d", len(got.Rows), len(bus.Rows()))
	}
	for _, r := range got.Rows {
		if len(r.Bare) != 2 || len(r.Link) != 2 || r.Ratio <= 0 || r.Verdict == "" {
			t.Errorf("got %+v", r)
		}
	}
}

// A profile of each process, of the link alone: no ratio.
func TestProfiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out strings.Builder
	if err := run([]string{"-rounds", "1", "-time", "1ms", "-only", "^request-1$", "-measure", "link", "-profiles", dir}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "requests, 1 caller") || strings.Contains(s, "one-way") || strings.Contains(s, "missed") {
		t.Errorf("got\n%s", s)
	}
	for _, name := range []string{"nats", "node", "measuring"} {
		if f, err := os.Stat(dir + "/" + name + ".prof"); err != nil || f.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-rounds", "0"}, "at least 1"},
		{[]string{"-only", "nothing"}, "there are request-1,"},
		{[]string{"-only", "("}, "-only"},
		{[]string{"-measure", "all"}, "want both"},
	} {
		if err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.args, err, c.want)
		}
	}
}
