//go:build unix

package zgate

import "syscall"

// writeNonblocking writes b to the socket fd, which Go keeps in non-blocking mode, and returns at once. n may be less
// than len(b) with a nil error: the socket refused the rest.
func writeNonblocking(fd uintptr, b []byte) (n int, err error) {
	for n < len(b) {
		m, errno := writeNow(fd, b[n:])
		switch {
		case m > 0:
			n += m
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN, errno == 0:
			return n, nil
		default:
			return n, errno
		}
	}
	return n, nil
}

// readNonblocking reads what the socket fd has; again says that it has nothing now.
func readNonblocking(fd uintptr, b []byte) (n int, again bool, err error) {
	for {
		n, errno := readNow(fd, b)
		switch errno {
		case 0:
			return n, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, errno
		}
	}
}

const canTry = true
