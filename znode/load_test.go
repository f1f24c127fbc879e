package znode

import (
	"testing"
	"time"
)

func TestLoadOfTheProcess(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := cpu{used: time.Second, at: start}
	for i, tt := range []struct {
		used time.Duration
		want uint32
	}{
		{2 * time.Second, 500}, // 1 s of the 2 s that two processors had
		{2 * time.Second, 0},
		{9 * time.Second, 1000}, // clocks that do not fit together do not make more than all
		{8 * time.Second, 0},
	} {
		if got := c.load(tt.used, start.Add(time.Duration(i+1)*time.Second), 2); got != tt.want {
			t.Errorf("step %d: %d, want %d", i, got, tt.want)
		}
	}
	for _, tt := range []struct {
		told, now uint32
		want      bool
	}{{0, 0, false}, {0, 49, false}, {0, 50, true}, {100, 51, false}, {100, 50, true}, {100, 149, false}, {20, 0, true}} {
		if got := worthTelling(tt.told, tt.now); got != tt.want {
			t.Errorf("%d told, %d now: %v", tt.told, tt.now, got)
		}
	}
}
