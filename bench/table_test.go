package bench_test

import (
	"math"
	"strings"
	"testing"

	"zgame/bench"
)

// row is a row of the table with values of its systems.
func row(t *testing.T, key string, values map[string][]float64) bench.Result {
	t.Helper()
	for _, r := range bench.Rows() {
		if r.Key == key {
			return bench.Result{Row: r, Values: values}
		}
	}
	t.Fatalf("there is no row %q", key)
	panic("unreachable")
}

// A ratio is taken within its round: noise that hits both systems of a round leaves it alone.
func TestFigure(t *testing.T) {
	t.Parallel()
	r := row(t, "tell", map[string][]float64{"raw-swap": {40, 400, 60}, "zactor": {60, 600, 60}})
	if v, ok := r.Figure("zactor"); !ok || v != 1.5 {
		t.Errorf("ratio %v, %v; want 1.5", v, ok)
	}
	if v, ok := r.Absolute("raw-swap"); !ok || v != 60 {
		t.Errorf("absolute %v, %v; want the median 60", v, ok)
	}
	if _, ok := r.Figure("channel"); ok {
		t.Error("a system that was not measured has a figure")
	}
	r = row(t, "spawn", map[string][]float64{"zactor": {1, 3}})
	if v, ok := r.Figure("zactor"); !ok || v != 2 {
		t.Errorf("value %v, %v; want 2, between the two in the middle", v, ok)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row       string
		base, own float64
		want      string
	}{
		{"tell", 100, 120, "ok, aim"},
		{"tell", 100, 150, "ok"},
		{"tell", 100, 165, "must missed by 10 %"},
		{"fairness", math.NaN(), 3, "ok"},
		{"tell-allocs", math.NaN(), 0.01, "ok, aim"},
		{"tell-allocs", math.NaN(), 1, "must missed by 1.00"},
		{"ask-allocs", math.NaN(), 1, "ok"},
		{"flood-busy", 100, 1000, ""},
	} {
		r := row(t, c.row, map[string][]float64{})
		if r.Row.Base != "" {
			r.Values[r.Row.Base] = []float64{c.base}
		}
		r.Values[r.Row.Subject] = []float64{c.own}
		if got := r.Verdict(); got != c.want {
			t.Errorf("%s at %v: %q, want %q", c.row, c.own, got, c.want)
		}
	}
}

func TestWriteTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := bench.WriteTable(&b, []bench.Result{
		row(t, "tell", map[string][]float64{"raw-swap": {40}, "channel": {60}, "zactor": {66}}),
		row(t, "bytes", map[string][]float64{"raw-swap": {112}, "channel": {2800}, "zactor": {340}}),
		row(t, "tell-observed", map[string][]float64{"zactor": {50}, "zactor-observed": {60}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
| work                                    | 1.0 is           | raw-swap | channel | zactor | must | aim |                     |
|-----------------------------------------|------------------|----------|---------|--------|------|-----|---------------------|
| tell 1->1, <= 1,024 unhandled           | raw-swap 40.0 ns | 1.00     | 1.50    | 1.65   | 1.5  | 1.2 | must missed by 10 % |
| bytes, idle actor, told once            |                  | 112 B    | 2800 B  | 340 B  | 500  | 350 | ok, aim             |
| tell 1->1, metrics and tracing on / off | zactor 50.0 ns   |          |         | 1.20   | 1.5  |     | ok                  |
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
	// Without the base of a row there are no ratios: the values stand there.
	b.Reset()
	if err := bench.WriteTable(&b, []bench.Result{row(t, "tell", map[string][]float64{"zactor": {66}})}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "66.0 ns") || strings.Contains(b.String(), "missed") {
		t.Errorf("got\n%s", b.String())
	}
}
