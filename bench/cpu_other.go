//go:build !unix

package bench

import "time"

// cpuTime is not known here: idle actors seem to use none.
func cpuTime() time.Duration { return 0 }
