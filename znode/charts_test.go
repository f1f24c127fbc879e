package znode

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
)

// An hour of points: what rises by how much in a second, what there is as it is, means of what came meanwhile; what is not known is null, the oldest go.
func TestCharts(t *testing.T) {
	t.Parallel()
	values, fault := map[string]float64{}, error(nil)
	c := newCharts(func() (map[string]float64, error) { return values, fault })
	now := time.Unix(1000, 0)
	line := func(name string) []chartable {
		for _, l := range c.get().Charts {
			if l.Name == name {
				return l.Values
			}
		}
		t.Fatalf("there is no chart %q", name)
		return nil
	}
	last := func(name string) float64 { l := line(name); return float64(l[len(l)-1]) }
	c.add(now)
	if !math.IsNaN(last("Sessions")) || !math.IsNaN(last("Messages handled")) {
		t.Errorf("of what was not told: %v, %v", last("Sessions"), last("Messages handled"))
	}
	values = map[string]float64{
		"zgame_gate_sessions": 7, "zgame_actor_handled_total": 50, "zgame_store_op_seconds_sum": 1, "zgame_store_op_seconds_count": 10, "zgame_bus_bytes_total": 99999,
		"zgame_bus_bytes_total|sent": 10240, "process_resident_memory_bytes": 3 << 20,
	}
	c.add(now.Add(5 * time.Second))
	for name, want := range map[string]float64{"Sessions": 7, "Messages handled": 10, "Time of a call of the store": 100, "Between nodes, sent": 2, "Memory": 3, "Pushes to clients": 0} {
		if got := last(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	fault = errors.New("away")
	c.add(now.Add(10 * time.Second))
	fault = nil
	if !math.IsNaN(last("Sessions")) || !math.IsNaN(last("Messages handled")) {
		t.Error("what could not be gathered is a number")
	}
	b, err := json.Marshal(c.get())
	var back struct {
		Charts []struct{ Values []*float64 }
	}
	if err != nil || json.Unmarshal(b, &back) != nil || len(back.Charts) != len(chartSources) || back.Charts[2].Values[0] != nil || *back.Charts[2].Values[1] != 7 {
		t.Errorf("%s, %v", b, err)
	}
	for i := range 2 * chartPoints {
		values = map[string]float64{"zgame_gate_sessions": float64(i)}
		c.add(now.Add(time.Duration(i+3) * 5 * time.Second))
	}
	l := line("Sessions")
	if len(l) != chartPoints || l[0] != chartPoints || l[chartPoints-1] != 2*chartPoints-1 {
		t.Errorf("%d points, %v to %v", len(l), l[0], l[len(l)-1])
	}
}
