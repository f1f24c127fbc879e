package zactor_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// count reads a counter or gauge; label is the value of its one label, "" if it has none.
func count(tb testing.TB, reg *prometheus.Registry, name, label string) float64 {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" && len(m.GetLabel()) == 0 || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
