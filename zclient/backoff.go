package zclient

import "time"

// backoff returns how long to wait before the try that follows n tries in a row that failed: full jitter, a random
// part r (0 to 1) of an exponentially growing bound, so that clients that lost their gate together do not come back
// together. hint is what the server asked for; it has spread its clients already.
func backoff(minimum, maximum time.Duration, n int, r float64, hint time.Duration) time.Duration {
	bound := maximum
	if n < 32 && minimum<<n < maximum && minimum<<n > 0 {
		bound = minimum << n
	}
	if hint > 0 && n == 0 {
		return hint
	}
	return hint + time.Duration(r*float64(bound))
}
