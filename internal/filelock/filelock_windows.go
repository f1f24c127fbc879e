// Package filelock locks files for one process: the system frees the lock when the process ends, however it ends.
package filelock

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock locks f for this process and handle, or returns an error at once.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
}
