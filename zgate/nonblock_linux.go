package zgate

import (
	"syscall"
	"unsafe"
)

// Reads and writes of a socket in non-blocking mode end within microseconds: the runtime is not told of them, which is a part of each that
// shows where there are three for a message.

func readNow(fd uintptr, b []byte) (int, syscall.Errno) { return now(syscall.SYS_READ, fd, b) }

func writeNow(fd uintptr, b []byte) (int, syscall.Errno) { return now(syscall.SYS_WRITE, fd, b) }

func now(call, fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
