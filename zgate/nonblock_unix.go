//go:build unix

package zgate

import "syscall"

// writeNonblocking writes b to the socket fd, which Go keeps in non-blocking mode, and returns at once. n may be less
// than len(b) with a nil error: the socket refused the rest.
func writeNonblocking(fd uintptr, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := syscall.Write(int(fd), b[n:])
		switch {
		case m > 0:
			n += m
		case err == syscall.EINTR:
		case err == syscall.EAGAIN, err == nil:
			return n, nil
		default:
			return n, err
		}
	}
	return n, nil
}

const canTry = true
