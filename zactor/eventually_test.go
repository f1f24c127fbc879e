package zactor_test

import (
	"runtime"
	"testing"
	"time"
)

// eventually waits until a condition holds that no signal tells of.
func eventually(tb testing.TB, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(bound); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			tb.Fatal("it did not come about")
		}
	}
}
