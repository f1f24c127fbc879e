package zmetrics

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is one of the catalogue.
type Metric struct {
	Name   string
	Type   string // counter, gauge, histogram
	Labels []string
	Help   string
}

// Catalogue returns every metric that zgame has, those of one set together.
func Catalogue() []Metric {
	var c collector
	NewNode(&c)
	NewActor(&c)
	NewHandlers(&c)
	NewGate(&c)
	NewAuth(&c)
	NewRoute(&c)
	NewRouter(&c)
	NewStore(&c)
	NewBus(&c)
	NewDiscovery(&c)
	NewSingletons(&c)
	NewTrace(&c)
	return c.all
}

// collector is a Registerer that notes what is registered.
type collector struct{ all []Metric }

// Register implements prometheus.Registerer.
func (c *collector) Register(x prometheus.Collector) error {
	kind := "gauge"
	switch x.(type) {
	case *prometheus.CounterVec:
		kind = "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		kind = "histogram"
	default:
		if strings.Contains(fmt.Sprintf("%T", x), "counter") {
			kind = "counter"
		}
	}
	descs := make(chan *prometheus.Desc, 16)
	x.Describe(descs)
	close(descs)
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			return fmt.Errorf("zmetrics: %s is not as expected", d)
		}
		metric := Metric{Name: m[1], Type: kind, Help: strings.ReplaceAll(m[2], `\"`, `"`)}
		if m[3] != "" {
			metric.Labels = strings.Split(m[3], ",")
		}
		c.all = append(c.all, metric)
	}
	return nil
}

// described is how the library writes a description.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{.*\}, variableLabels: \{([^}]*)\}\}$`)

// MustRegister implements prometheus.Registerer.
func (c *collector) MustRegister(all ...prometheus.Collector) {
	for _, x := range all {
		if err := c.Register(x); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (c *collector) Unregister(prometheus.Collector) bool { return false }
