// Package deploy holds the dashboard and the alert rules against the catalogue of metrics, and against the parsers of those who read them.
package deploy

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"zgame/zmetrics"
)

var promql = parser.NewParser(parser.Options{})

// metric returns what the catalogue says of a series' name.
func metric(name string) (m zmetrics.Metric, ok bool) {
	for _, m := range zmetrics.Catalogue() {
		if m.Name == name || m.Type == "histogram" && (name == m.Name+"_bucket" || name == m.Name+"_sum" || name == m.Name+"_count") {
			return m, true
		}
	}
	return m, false
}

// outside are series that others make.
var outside = []string{"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines", "go_gc_duration_seconds"}

// check parses an expression, and holds its series against the catalogue.
func check(t *testing.T, where, expr string) {
	t.Helper()
	e, err := promql.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	found := 0
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		found++
		m, known := metric(v.Name)
		if !known && !slices.Contains(outside, v.Name) {
			t.Errorf("%s: there is no metric %q", where, v.Name)
		}
		for _, l := range v.LabelMatchers {
			if l.Name == model.MetricNameLabel || l.Name == "instance" || l.Name == "job" || !known {
				continue
			}
			if !slices.Contains(m.Labels, l.Name) {
				t.Errorf("%s: %s has no label %q, it has %q", where, m.Name, l.Name, m.Labels)
			}
		}
		return nil
	})
	if found == 0 {
		t.Errorf("%s: %q asks for no series", where, expr)
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, promql, nil)
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	rules := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules++
			check(t, r.Alert, r.Expr)
			if r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning" {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("%s does not say what it is, and what to do", r.Alert)
			}
		}
	}
	if rules < 10 {
		t.Errorf("only %d rules", rules)
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("grafana/zgame.json")
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID          int
		Title, Type string
		Description string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, LegendFormat, RefID string }
	}
	var board struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion == 0 || len(board.Templating.List) == 0 {
		t.Error("the dashboard has no title, id, version or variables")
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, o := range board.Panels {
			a, b := p.GridPos, o.GridPos
			if p.ID < o.ID && a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s and %s lie on one another", p.Title, o.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%s shows or explains nothing", p.Title)
		}
		for _, q := range p.Targets {
			check(t, p.Title, strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(q.Expr))
		}
	}
	if len(ids) < 15 {
		t.Errorf("only %d panels", len(ids))
	}
}

// A check that cannot fail is none.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"zgame_gate_nothing", "zgame_gate_sessions{color=\"red\"}", "sum(", "1 + 1"} {
		probe := &testing.T{}
		done := make(chan struct{})
		go func() { defer close(done); check(probe, "probe", expr) }()
		<-done
		if !probe.Failed() {
			t.Errorf("%q passes", expr)
		}
	}
}
