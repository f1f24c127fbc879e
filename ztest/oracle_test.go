package ztest

import (
	"strings"
	"testing"
)

func TestOracle(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []uint64
		want []string // parts of the error; none: no error
	}{
		{"all", []uint64{1, 2, 3}, nil},
		{"lost", []uint64{1, 3}, []string{"1 lost: [2]"}},
		{"nothing", nil, []string{"3 lost: [1 2 3]"}},
		{"doubled", []uint64{1, 2, 2, 3}, []string{"1 doubled: [2]"}},
		{"swapped", []uint64{1, 3, 2}, []string{"1 swapped: [2]"}},
		{"doubled late is not swapped", []uint64{1, 2, 3, 1}, []string{"1 doubled: [1]"}},
		{"never sent", []uint64{1, 2, 3, 4, 0}, []string{"never sent: [0 4]"}},
		{"all kinds", []uint64{3, 1, 1}, []string{"lost: [2]", "doubled: [1]", "swapped: [1]"}},
	} {
		var o Oracle
		for _, n := range c.got {
			o.Got("ann", n)
		}
		err := o.Check(3, "ann")
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", c.name, err, w)
			}
		}
		if c.name == "doubled late is not swapped" && strings.Contains(err.Error(), "swapped") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	var o Oracle
	o.Got("eve", 1)
	if err := o.Check(0); err == nil || !strings.Contains(err.Error(), "eve") {
		t.Errorf("a sender nobody expected: %v", err)
	}
}
