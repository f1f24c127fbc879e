//go:build !unix

// Package cputime tells what the process has used of the processors.
package cputime

import "time"

// Used is not known here: 0.
func Used() time.Duration { return 0 }
