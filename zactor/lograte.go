package zactor

import (
	"sync/atomic"
	"time"
)

// logRate lets one log line a second through, and counts the others: what clients can cause again and again must not
// fill a disk. The zero logRate is ready; its methods may be called from any goroutine.
type logRate struct {
	last       atomic.Int64 // Unix nanoseconds of the last line
	suppressed atomic.Uint64
}

// allow reports whether a line may be written now, and how many were not since the last one.
func (r *logRate) allow(now time.Time) (suppressed uint64, ok bool) {
	last := r.last.Load()
	since := now.UnixNano() - last // far below 0 when the wall clock was set back: that must not silence the log
	if since >= -int64(time.Second) && since < int64(time.Second) || !r.last.CompareAndSwap(last, now.UnixNano()) {
		r.suppressed.Add(1)
		return 0, false
	}
	return r.suppressed.Swap(0), true
}
