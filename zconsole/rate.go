package zconsole

import (
	"sync"
	"time"
)

// rate is a bucket of tokens. The zero rate is full.
type rate struct {
	mu    sync.Mutex
	spent float64   // of burst; guarded by mu
	last  time.Time // guarded by mu
}

// take takes one of requestBurst tokens, of which requestRate come back in a second; false: there is none.
func (r *rate) take(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent = max(0, r.spent-max(0, now.Sub(r.last).Seconds())*requestRate)
	r.last = now
	if r.spent+1 > requestBurst {
		return false
	}
	r.spent++
	return true
}
