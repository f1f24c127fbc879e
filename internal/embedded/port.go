package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of loopback that nobody listens on, for tests that start a server on it later. It is below the ports that
// systems give to outgoing connections, one of which might take it meanwhile.
func FreePort() (int, error) {
	var errs []error
	for range 20 {
		port := 20_000 + rand.IntN(12_000)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return port, l.Close()
	}
	return 0, errors.Join(errs...)
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
