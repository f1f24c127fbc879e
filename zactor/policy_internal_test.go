package zactor

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Against a model that keeps all failures for ever.
func TestPolicyDecide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			MaxRestarts: rapid.IntRange(-1, 5).Draw(t, "max"),
			Window:      time.Duration(rapid.IntRange(1, 50).Draw(t, "window")) * time.Second,
			MinBackoff:  time.Duration(rapid.IntRange(-1, 3).Draw(t, "min")) * time.Second,
			MaxBackoff:  5 * time.Second,
		}.withDefaults()
		now := time.Unix(1000, 0)
		var all, history []time.Time
		for range rapid.IntRange(1, 30).Draw(t, "failures") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "gap")) * time.Second)
			all = append(all, now)
			n := 0
			for _, f := range all {
				if now.Sub(f) <= p.Window {
					n++
				}
			}
			var v verdict
			v, history = p.decide(history, now, errGoexit)
			if want := p.MaxRestarts >= 0 && n <= p.MaxRestarts; (v.do == Restart) != want {
				t.Fatalf("%d failures in the window: restart %v, want %v", n, v.do, want)
			}
			want := time.Duration(0)
			if v.do == Restart && n > 1 && p.MinBackoff > 0 {
				want = p.MinBackoff
				for range n - 2 {
					want = min(2*want, p.MaxBackoff)
				}
			}
			if v.delay != want {
				t.Fatalf("failure %d: delay %v, want %v", n, v.delay, want)
			}
			if len(history) != n {
				t.Fatalf("%d remembered, want %d", len(history), n)
			}
		}
	})
}

func TestPolicyHistoryIsBounded(t *testing.T) {
	t.Parallel()
	p := Policy{MaxRestarts: Unlimited}.withDefaults()
	var history []time.Time
	now := time.Unix(1000, 0)
	for range 3 * maxHistory {
		var v verdict
		if v, history = p.decide(history, now, errGoexit); v.do != Restart {
			t.Fatal("an unlimited policy gave up")
		}
	}
	if len(history) > maxHistory || cap(history) > 2*maxHistory {
		t.Errorf("history of %d, capacity %d", len(history), cap(history))
	}
}
