package bench_test

import (
	"math"
	"testing"

	"zgame/bench"
)

// Every workload of every system, briefly: each fails by itself when a message was not handled, was handled twice, or met
// an instance with old state. Times are not looked at. The rows run one after the other: some look at the whole process.
func TestWorkloads(t *testing.T) {
	m := bench.Shortest()
	for _, row := range bench.Rows() {
		t.Run(row.Key, func(t *testing.T) {
			const rounds = 2
			results, err := bench.Run(m, []bench.Row{row}, bench.Systems(), rounds, nil)
			if err != nil {
				t.Fatal(err)
			}
			measured := len(results[0].Values)
			if want := len(bench.Systems()) - 1; row.Others && measured != want {
				t.Errorf("%d systems were measured, want %d", measured, want)
			}
			if !row.Others && measured != 2 {
				t.Errorf("%d systems were measured, want the base and the subject", measured)
			}
			for name, values := range results[0].Values {
				want := rounds
				if row.Once {
					want = 1
				}
				if len(values) != want {
					t.Errorf("%s: %d values, want %d", name, len(values), want)
				}
				for _, v := range values {
					if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
						t.Errorf("%s: %v", name, v)
					}
				}
			}
			if _, ok := results[0].Figure(row.Subject); !ok {
				t.Error("the row has no figure for its subject")
			}
		})
	}
}
