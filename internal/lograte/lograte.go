// Package lograte keeps log lines that others can cause again and again from filling a disk: one in a while is written, and says
// how many were not.
package lograte

import (
	"sync/atomic"
	"time"
)

// Limiter lets one line through in each Every. The zero Limiter is ready; its methods may be called from any goroutine.
type Limiter struct {
	// Every is set before the first call. Defaults to 1 s.
	Every time.Duration

	last       atomic.Int64 // Unix nanoseconds of the last line, 0 before the first
	suppressed atomic.Uint64
}

// Allow reports whether a line may be written now, and how many were not since the last one.
func (l *Limiter) Allow(now time.Time) (suppressed uint64, ok bool) {
	every := int64(l.Every)
	if every == 0 {
		every = int64(time.Second)
	}
	last := l.last.Load()
	since := now.UnixNano() - last // far below 0 when a wall clock was set back: that must not silence the log
	if last != 0 && since >= -every && since < every || !l.last.CompareAndSwap(last, max(now.UnixNano(), 1)) {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}
