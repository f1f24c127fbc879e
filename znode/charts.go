package znode

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The last hour of what matters most, for who has no collector of metrics at hand.

const (
	chartStep   = 5 * time.Second
	chartPoints = 720 // an hour
)

// Chart is one line of the last hour.
type Chart struct {
	Name   string      `json:"name"`
	Unit   string      `json:"unit"`
	Values []chartable `json:"values"` // one for each step, the newest last; null: not known
}

// chartable is a number of a chart. NaN is null in JSON.
type chartable float32

// MarshalJSON implements json.Marshaler.
func (v chartable) MarshalJSON() ([]byte, error) {
	if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return strconv.AppendFloat(nil, f, 'g', 6, 32), nil
	}
	return []byte("null"), nil
}

// Charts are the lines of a node.
type Charts struct {
	Step   time.Duration `json:"step"`
	End    time.Time     `json:"end"` // of the newest point
	Charts []Chart       `json:"charts"`
}

// chartSource says of which metric a line is.
type chartSource struct {
	name, unit string
	metric     string  // all its series together
	per        string  // a ratio: the metric that it is divided by
	rate       bool    // how much it rises in a second
	scale      float64 // 0: 1
	result     string  // only series with a label of this value; "": all
}

var chartSources = []chartSource{
	{name: "Processors in use", unit: "%", metric: "process_cpu_seconds_total", rate: true, scale: 100},
	{name: "Memory", unit: "MiB", metric: "process_resident_memory_bytes", scale: 1. / (1 << 20)},
	{name: "Sessions", metric: "zgame_gate_sessions"},
	{name: "Objects in memory", metric: "zgame_router_residents"},
	{name: "Messages of clients", unit: "/s", metric: "zgame_gate_messages_total", rate: true},
	{name: "Pushes to clients", unit: "/s", metric: "zgame_gate_pushes_total", rate: true},
	{name: "Messages handled", unit: "/s", metric: "zgame_actor_handled_total", rate: true},
	{name: "Errors of handlers", unit: "/s", metric: "zgame_actor_errors_total", rate: true},
	{name: "Calls of the store", unit: "/s", metric: "zgame_store_ops_total", rate: true},
	{name: "Time of a call of the store", unit: "ms", metric: "zgame_store_op_seconds_sum", per: "zgame_store_op_seconds_count", scale: 1000},
	{name: "Objects moved away", unit: "/s", metric: "zgame_router_handoffs_total", rate: true, result: "ok"},
	{name: "Between nodes, sent", unit: "KiB/s", metric: "zgame_bus_bytes_total", rate: true, scale: 1. / 1024, result: "sent"},
}

// charts are rings of the newest values, in memory that does not grow. About 35 KB.
type charts struct {
	gather func() (map[string]float64, error) // by metric, and by metric and value of a label: "metric|value"

	mu     sync.Mutex
	rings  [][chartPoints]chartable // of chartSources; guarded by mu
	count  int                      // of points so far; guarded by mu
	last   map[string]float64       // what gather said last; guarded by mu
	lastAt time.Time                // guarded by mu
}

func newCharts(gather func() (map[string]float64, error)) *charts {
	return &charts{gather: gather, rings: make([][chartPoints]chartable, len(chartSources))}
}

// loop adds a point each step until ctx ends.
func (c *charts) loop(ctx context.Context) {
	tick := time.NewTicker(chartStep)
	defer tick.Stop()
	c.add(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.add(time.Now())
		}
	}
}

// add adds a point. What cannot be gathered is not known.
func (c *charts) add(now time.Time) {
	values, err := c.gather()
	if err != nil {
		values = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.count % chartPoints
	for i := range chartSources {
		c.rings[i][at] = chartable(chartSources[i].value(values, c.last, now.Sub(c.lastAt).Seconds()))
	}
	c.count++
	c.last, c.lastAt = values, now
}

// value is a point, of what the metrics say now and what they said so many seconds before; NaN: not known.
func (s *chartSource) value(now, before map[string]float64, seconds float64) float64 {
	key := func(metric string) string {
		if s.result != "" {
			return metric + "|" + s.result
		}
		return metric
	}
	v, ok := now[key(s.metric)]
	if !ok && (now == nil || !s.rate) {
		return math.NaN()
	}
	switch {
	case s.per != "":
		calls := now[key(s.per)] - before[key(s.per)]
		if before == nil || calls <= 0 {
			return math.NaN()
		}
		v = (v - before[key(s.metric)]) / calls
	case s.rate:
		if before == nil || seconds <= 0 {
			return math.NaN()
		}
		v = max(0, v-before[key(s.metric)]) / seconds // a counter whose first value was seen counts from 0
	}
	if s.scale != 0 {
		v *= s.scale
	}
	return v
}

// get returns the lines as they are.
func (c *charts) get() Charts {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := Charts{Step: chartStep, End: c.lastAt, Charts: make([]Chart, len(chartSources))}
	n := min(c.count, chartPoints)
	for i := range chartSources {
		line := &all.Charts[i]
		line.Name, line.Unit, line.Values = chartSources[i].name, chartSources[i].unit, make([]chartable, n)
		for k := range n {
			line.Values[k] = c.rings[i][(c.count-n+k)%chartPoints]
		}
	}
	return all
}

// gatherSums returns the sums of the metrics that the charts are made of.
func (n *Node) gatherSums() (map[string]float64, error) {
	families, err := n.registry.Gather()
	if err != nil {
		return nil, err
	}
	sums := make(map[string]float64, 64)
	for _, f := range families {
		name := f.GetName()
		if !charted[name] {
			continue
		}
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				sums[name+"_sum"] += h.GetSampleSum()
				sums[name+"_count"] += float64(h.GetSampleCount())
				continue
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() // it is one of them
			sums[name] += v
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" || l.GetName() == "direction" {
					sums[name+"|"+l.GetValue()] += v
				}
			}
		}
	}
	return sums, nil
}

// charted are the names of the metrics that chartSources uses, histograms without their endings.
var charted = func() map[string]bool {
	names := map[string]bool{"zgame_store_op_seconds": true}
	for _, s := range chartSources {
		names[s.metric] = true
	}
	return names
}()

func (n *Node) serveCharts(w http.ResponseWriter, _ *http.Request) {
	if n.charts == nil {
		writeText(w, http.StatusNotFound, "this node keeps no charts: set console.address\n")
		return
	}
	writeJSON(w, http.StatusOK, n.charts.get())
}
