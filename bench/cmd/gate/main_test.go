//go:build linux

package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"zgame/bench/gate"
	"zgame/bench/internal/commandtest"
)

func TestMain(m *testing.M) { commandtest.Main(m, gate.Child) }

// brief measures next to nothing, of each row.
var brief = []string{"-rounds", "2", "-time", "10ms", "-scale", "200", "-idle", "100ms", "-stream", "5"}

// Every row, briefly: each workload fails by itself when an answer is missing or wrong, or a push is.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(append([]string{"-json"}, brief...), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []jsonRow `json:"rows"`
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	all := gate.Rows()
	if len(got.Rows) != len(all) {
		t.Fatalf("%d rows, want %d", len(got.Rows), len(all))
	}
	for i, r := range got.Rows {
		rounds := 2
		if all[i].Once {
			rounds = 1
		}
		if len(r.Gate) != rounds || all[i].TCP && len(r.TCP) != rounds || r.Figure < 0 {
			t.Errorf("got %+v", r)
		}
	}
}

// One side alone has values and no ratio.
func TestOneSide(t *testing.T) {
	var out strings.Builder
	if err := run(append([]string{"-only", "^echo-100$", "-measure", "gate", "-profiles", t.TempDir()}, brief...), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "100 connections |  |") || strings.Contains(s, "missed") {
		t.Errorf("got\n%s", s)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-rounds", "0"}, "at least 1"},
		{[]string{"-only", "nothing"}, "there are echo-100,"},
		{[]string{"-only", "("}, "-only"},
		{[]string{"-measure", "all"}, "want both"},
	} {
		if err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.args, err, c.want)
		}
	}
}
