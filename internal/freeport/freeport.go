// Package freeport finds ports for servers that go away and come back: of tests, above all.
package freeport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// The ports are below those that systems give to outgoing connections, and to who asks for any port.
const (
	first = 20_000
	count = 12_000
	tries = 100 // ports in use that are passed over
)

// walk is where the process stands among the ports. It goes through all of them from a beginning of its own, so that it meets neither a port
// that it has had, whose server may be away for a moment, nor those of another process.
var walk = sync.OnceValue(func() *atomic.Uint32 {
	at := &atomic.Uint32{}
	at.Store(rand.Uint32N(count))
	return at
})

// Listen listens on a port of loopback that, while nobody listens on it later, nobody else is given: a client that connects meanwhile is
// refused, and does not meet another test's server.
func Listen(ctx context.Context) (net.Listener, error) {
	var errs []error
	for range tries {
		port := first + int(walk().Add(1)%count)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
