//go:build !linux

// Command gate measures a gate next to a bare TCP echo. It needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "gate: needs Linux, for epoll")
	os.Exit(1)
}
