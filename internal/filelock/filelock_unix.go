//go:build unix

// Package filelock locks files for one process: the system frees the lock when the process ends, however it ends.
package filelock

import (
	"os"
	"syscall"
)

// Lock locks f for this process and handle, or returns an error at once.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
