//go:build !unix

package znode

import "time"

// cpuTime is not known here: App.Load may say how busy the node is.
func cpuTime() time.Duration { return 0 }
