//go:build linux

package notes

import (
	"testing"

	"zgame/test/chaos/oracle"
)

func TestNotes(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(dir, "a-1")
	if err != nil {
		t.Fatal(err)
	}
	n.Begin("x", 7, 1, false)
	n.Begin("y", 8, 3, true)
	n.End("x", 7, 1)
	n.Fault("%s is wrong", "all")
	runs, faults, err := Read(dir)
	if err != nil || len(runs) != 2 || len(faults) != 1 || faults[0] != "a-1: all is wrong" {
		t.Fatalf("%v, %v, %v", runs, faults, err)
	}
	x, y := runs[0], runs[1]
	if x.Begin == 0 || x.End <= x.Begin || y.End != 0 {
		t.Errorf("times: %+v, %+v", x, y)
	}
	x.Begin, x.End, y.Begin = 0, 0, 0
	if want := (oracle.Run{Proc: "a-1", Key: "x", Op: 7, Version: 1}); x != want {
		t.Errorf("%+v, want %+v", x, want)
	}
	if want := (oracle.Run{Proc: "a-1", Key: "y", Op: 8, Version: 3, Had: true}); y != want {
		t.Errorf("%+v, want %+v", y, want)
	}
	if _, _, err := parse("a", []byte("e 1 2 3 x\n")); err == nil {
		t.Error("an end without a beginning is taken")
	}
}
