package embedded

import (
	"context"
	"fmt"
	"net"

	"zgame/internal/freeport"
)

// FreePort returns a port of loopback that nobody listens on, for tests that start a server on it later, as freeport.Listen does.
func FreePort() (int, error) {
	l, err := freeport.Listen(context.Background())
	if err != nil {
		return 0, fmt.Errorf("embedded: a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// onPort starts a server on a port; 0 is a free one. A server that is started again on its port later finds it free, also where others
// asked the system for any port meanwhile. Two that look for a free one at once may meet: then another is tried.
func onPort[S any](port int, start func(port int) (S, error)) (s S, err error) {
	if port != 0 {
		return start(port)
	}
	for range 3 {
		if port, err = FreePort(); err != nil {
			return s, err
		}
		if s, err = start(port); err == nil {
			return s, nil
		}
	}
	return s, err
}
