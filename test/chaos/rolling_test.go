//go:build linux

package chaos

import (
	"syscall"
	"testing"
	"time"
)

// Three nodes are restarted one after the other, as a deploy does, while 200 clients use them through a gate that stays: nobody is
// disconnected, no request fails, no push is lost, doubled or swapped.
func TestRollingRestart(t *testing.T) {
	eachRound(t, func(t *testing.T) {
		w := newWorld(t, options{calm: true})
		l := w.begin(40, 4, 200, time.Second)
		l.served()
		for _, n := range w.nodes {
			n.restart()
			l.served()
		}
		l.check(t)
		l.noFailures(t)
		l.connected(t)
	})
}

// restart is what a deploy does to a node.
func (n *node) restart() {
	n.w.t.Helper()
	n.send(syscall.SIGTERM)
	if code := n.exit(); code != 0 {
		n.w.t.Errorf("%s ended with code %d; it printed:\n%s", n.id, code, n.printed())
	}
	n.start()
}
