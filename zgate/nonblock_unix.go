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

// readNonblocking reads what the socket fd has; again says that it has nothing now.
func readNonblocking(fd uintptr, b []byte) (n int, again bool, err error) {
	for {
		n, err = syscall.Read(int(fd), b)
		switch err {
		case nil:
			return n, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, err
		}
	}
}

const canTry = true
