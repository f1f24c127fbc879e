//go:build unix

// Package cputime tells what the process has used of the processors.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the time on processors that the process has used, 0 where the system does not tell.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
