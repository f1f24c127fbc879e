package freeport

import (
	"net"
	"testing"
)

// No port comes again, though nobody listens on it any more, and none is one that systems give.
func TestListen(t *testing.T) {
	seen := map[int]bool{}
	for range 2000 {
		l, err := Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if port < 20_000 || port >= 32_000 || seen[port] {
			t.Errorf("port %d: it is outside, or was given already", port)
		}
		seen[port] = true
	}
}
