//go:build linux

package chaos

import (
	"syscall"
	"testing"
	"time"
)

// Three nodes are restarted one after the other, as a deploy does, while 200 clients use them through a gate that stays: nobody is
// disconnected, no request fails, no push is lost, doubled or swapped.
func TestRollingRestart(t *testing.T) { inWorlds(t, options{calm: true}, deploy) }

// Nor is anything lost that was acknowledged from memory.
func TestRollingRestartFromMemory(t *testing.T) {
	inWorlds(t, options{calm: true, memory: true}, deploy)
}

func deploy(w *world) {
	l := w.begin(40, 4, 200, time.Second)
	l.served()
	for _, n := range w.nodes {
		n.restart(w.rng.IntN(2) == 0)
		l.served()
	}
	l.check(w.t)
	l.noFailures(w.t)
	l.connected(w.t)
}

// restart is what a deploy does to a node: it is told to drain, by a signal or at its admin port.
func (n *node) restart(bySignal bool) {
	n.w.t.Helper()
	if bySignal {
		n.send(syscall.SIGTERM)
	} else if err := post("http://" + n.host.address + ":9090/drain"); err != nil {
		n.w.t.Error(err)
	}
	if code := n.exit(); code != 0 {
		n.w.t.Errorf("%s ended with code %d; it printed:\n%s", n.id, code, n.printed())
	}
	n.start()
}
