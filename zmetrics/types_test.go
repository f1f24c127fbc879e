package zmetrics

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// F11 of known-faults.md: no value and no text makes a metric panic.
func TestMetricsTakeAnything(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := maker{reg, "test"}
	c, v, g := m.counter("c_total", "c"), m.counterVec("v_total", "v", "label"), m.gauge("g", "g")
	gv, h := m.gaugeVec("gv", "gv", "label"), m.durationVec("h", "h", "label")
	values := []float64{1, -1, 0, math.NaN(), math.Inf(1), math.Inf(-1), -math.MaxFloat64}
	for _, x := range values {
		c.Add(x)
		v.With("a").Add(x)
		g.Add(x)
		g.Set(x)
		gv.With("a").Set(x)
		h.With("a").Observe(x)
	}
	for _, text := range []string{"", "\xff", "a\x00b", "\xed\xa0\x80", "日本"} {
		v.With(text).Inc()
		gv.With(text).Set(1)
		h.With(text).Observe(1)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := f.GetName(); n == "zgame_test_c_total" && m.GetCounter().GetValue() != 1 {
				t.Errorf("%s is %v: what makes no sense counts", n, m.GetCounter().GetValue())
			}
		}
	}
}
