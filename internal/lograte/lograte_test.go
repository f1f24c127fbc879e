package lograte

import (
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	var r Limiter
	now := time.Unix(1000, 0)
	if n, ok := r.Allow(now); !ok || n != 0 {
		t.Errorf("the first line: %d, %v", n, ok)
	}
	for range 5 {
		if _, ok := r.Allow(now.Add(999 * time.Millisecond)); ok {
			t.Error("a second line within the second")
		}
	}
	if n, ok := r.Allow(now.Add(time.Second)); !ok || n != 5 {
		t.Errorf("a second later: %d suppressed, %v; want 5, true", n, ok)
	}
	if _, ok := r.Allow(now); ok {
		t.Error("a clock that went back lets lines through")
	}
	if _, ok := r.Allow(now.Add(-time.Hour)); !ok {
		t.Error("a wall clock that was set back by an hour keeps the log silent for an hour")
	}
}
