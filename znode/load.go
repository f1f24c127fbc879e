package znode

import (
	"context"
	"runtime"
	"time"

	"zgame/internal/cputime"
)

// loadStep is how far the load must move until the others are told: each report is a write that every node reads.
const loadStep = 50

// loadLoop looks how busy the node is, and has its record announced anew when that changed by much. It ends with ctx.
func (n *Node) loadLoop(ctx context.Context, every time.Duration) {
	measure := n.cfg.App.Load
	if measure == nil {
		c := cpu{used: cputime.Used(), at: time.Now()}
		measure = func(*Node) uint32 { return c.load(cputime.Used(), time.Now(), runtime.GOMAXPROCS(0)) }
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := measure(n); worthTelling(n.load.Load(), now) {
			n.load.Store(now)
			n.touch()
		}
	}
}

// worthTelling reports whether a load is far enough from the one that was told last. The way back to 0 always is, else
// an idle node would look a little busy for ever.
func worthTelling(told, now uint32) bool {
	return now >= told+loadStep || now+loadStep <= told || now == 0 && told != 0
}

// cpu is what the process had used of the processors at a moment.
type cpu struct {
	used time.Duration
	at   time.Time
}

// load returns the share of processors that was used since the last call, 0 to 1000, and notes used.
func (c *cpu) load(used time.Duration, at time.Time, processors int) uint32 {
	spent, passed := used-c.used, at.Sub(c.at)
	c.used, c.at = used, at
	if spent <= 0 || passed <= 0 {
		return 0
	}
	return uint32(min(1000, 1000*spent/(passed*time.Duration(processors))))
}
