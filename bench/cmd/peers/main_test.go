package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	args := []string{"-rounds", "1", "-time", "1ms", "-only", "^(tell|ask-allocs)$", "-systems", "raw-swap,zactor"}
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"tell 1->1, <= 1,024", "allocations, ask", "raw-swap", "zactor", "must"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("the table lacks %q:\n%s", s, out.String())
		}
	}
	if strings.Contains(out.String(), "protoactor") {
		t.Errorf("the table has a system that was not asked for:\n%s", out.String())
	}

	out.Reset()
	if err := run(append(args, "-json"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []jsonRow `json:"rows"`
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 2 || got.Rows[0].Key != "tell" || len(got.Rows[0].Values["zactor"]) != 1 || got.Rows[0].Figures["raw-swap"] != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-rounds", "0"}, "at least 1"},
		{[]string{"-only", "nothing"}, "there are tell,"},
		{[]string{"-only", "("}, "-only"},
		{[]string{"-systems", "akka"}, "there are raw-swap,"},
	} {
		if err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.args, err, c.want)
		}
	}
}
