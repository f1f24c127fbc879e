//go:build unix && !linux

package zgate

import "syscall"

func readNow(fd uintptr, b []byte) (int, syscall.Errno) { return plain(syscall.Read(int(fd), b)) }

func writeNow(fd uintptr, b []byte) (int, syscall.Errno) { return plain(syscall.Write(int(fd), b)) }

func plain(n int, err error) (int, syscall.Errno) {
	if err == nil {
		return n, 0
	}
	if errno, ok := err.(syscall.Errno); ok { //nolint:errorlint // system calls do not wrap it
		return 0, errno
	}
	return 0, syscall.EIO
}
