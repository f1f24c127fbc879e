package zmetrics

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Registerer is where a set registers its metrics; nil registers nowhere.
type Registerer = prometheus.Registerer

const namespace = "zgame"

// Counter only goes up. The methods never panic: a negative or NaN step is ignored.
type Counter struct{ c prometheus.Counter }

// Inc adds one.
func (c Counter) Inc() { c.c.Inc() }

// Add adds v; v below zero or NaN is ignored.
func (c Counter) Add(v float64) {
	if v > 0 && !math.IsInf(v, 1) {
		c.c.Add(v)
	}
}

// Gauge goes up and down.
type Gauge struct{ g prometheus.Gauge }

// Set makes v the value.
func (g Gauge) Set(v float64) { g.g.Set(v) }

// Add adds v, which may be negative.
func (g Gauge) Add(v float64) { g.g.Add(v) }

// Inc adds one.
func (g Gauge) Inc() { g.g.Inc() }

// Dec takes one away.
func (g Gauge) Dec() { g.g.Dec() }

// Histogram counts values in buckets.
type Histogram struct{ h prometheus.Observer }

// Observe counts v; NaN is ignored.
func (h Histogram) Observe(v float64) {
	if !math.IsNaN(v) {
		h.h.Observe(v)
	}
}

// valid makes the values of labels UTF-8, which they must be: a text that came from outside does not take the process.
func valid(values []string) []string {
	for i, s := range values {
		if !utf8.ValidString(s) {
			values = slices.Clone(values)
			for j := range values[i:] {
				values[i+j] = strings.ToValidUTF8(values[i+j], "\uFFFD")
			}
			break
		}
	}
	return values
}

// CounterVec is a family of counters by label values. Resolve once with With, outside of hot paths.
type CounterVec struct{ v *prometheus.CounterVec }

// With returns the counter for the label values, in the order of the labels.
func (v CounterVec) With(values ...string) Counter {
	return Counter{v.v.WithLabelValues(valid(values)...)}
}

// GaugeVec is a family of gauges by label values. Resolve once with With, outside of hot paths.
type GaugeVec struct{ v *prometheus.GaugeVec }

// With returns the gauge for the label values, in the order of the labels.
func (v GaugeVec) With(values ...string) Gauge { return Gauge{v.v.WithLabelValues(valid(values)...)} }

// HistogramVec is a family of histograms by label values.
type HistogramVec struct{ v *prometheus.HistogramVec }

// With returns the histogram for the label values, in the order of the labels.
func (v HistogramVec) With(values ...string) Histogram {
	return Histogram{v.v.WithLabelValues(valid(values)...)}
}

// maker makes the metrics of one subsystem and registers them.
type maker struct {
	reg       Registerer
	subsystem string
}

func (m maker) register(c prometheus.Collector) {
	if m.reg != nil {
		m.reg.MustRegister(c)
	}
}

func (m maker) counter(name, help string) Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: m.subsystem, Name: name, Help: help})
	m.register(c)
	return Counter{c}
}

func (m maker) counterVec(name, help string, labels ...string) CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: m.subsystem, Name: name, Help: help}, labels)
	m.register(c)
	return CounterVec{c}
}

func (m maker) gauge(name, help string) Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: m.subsystem, Name: name, Help: help})
	m.register(g)
	return Gauge{g}
}

func (m maker) gaugeVec(name, help string, labels ...string) GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: m.subsystem, Name: name, Help: help}, labels)
	m.register(g)
	return GaugeVec{g}
}

// Buckets for durations in seconds: 50 us to 10 s.
var durations = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func (m maker) durationVec(name, help string, labels ...string) HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Subsystem: m.subsystem, Name: name, Help: help, Buckets: durations}, labels)
	m.register(h)
	return HistogramVec{h}
}
